"""What a scenario needs of a machine, and what is missing. Pure, so that a verifier can work a skip out again."""

from __future__ import annotations

from harness.reason import Skip, SkipCode
from harness.record.facts import Environment
from harness.scenario import Needs

GIB = 2**30


def unmet(needs: Needs, here: Environment) -> Skip | None:
    """Why a machine cannot run a scenario: a reason to skip, never to pass. None where it can."""
    system = here.system.lower()
    if needs.os is not None and system not in needs.os:
        return Skip(SkipCode.MACHINE_SYSTEM, f"needs {' or '.join(needs.os)}, this is {system}")
    if needs.cores is not None and here.cores < needs.cores:
        return Skip(SkipCode.MACHINE_CORES, f"needs {needs.cores} cores, this machine has {here.cores}")
    if needs.memory is not None and here.memory < needs.memory:
        lacking = f"needs {needs.memory / GIB:.1f} GiB of memory, this machine has {here.memory / GIB:.1f} GiB"
        return Skip(SkipCode.MACHINE_MEMORY, lacking)
    if needs.gpus and here.gpu is None:
        return Skip(SkipCode.MACHINE_GPUS, f"needs {needs.gpus} GPUs, and no NVIDIA driver answers")
    if needs.nix and here.nix is None:
        return Skip(SkipCode.MACHINE_NIX, "needs the Nix environment: run it inside `nix develop`")
    return None
