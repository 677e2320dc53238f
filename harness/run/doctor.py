"""What this machine can run, what a rank costs here, and the remedy for each no.

Makes no key and no report.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.backends import KINDS as BACKENDS
from harness.backends import refusal
from harness.checks import KINDS as CHECKS
from harness.faults import KINDS as FAULTS
from harness.forms.distribution import missing
from harness.forms.model import MOST_RANKS
from harness.plugins import PluginFailed
from harness.record import environment
from harness.record.facts import EnvironmentFacts
from harness.registry import Registry
from harness.report.view import VIEWS
from harness.run.environments.cache import cached
from harness.subjects import READY
from harness.trust.key import KeyProblem, find_signer
from harness.trust.sshsig import INSTALL, SshsigError
from harness.world.below.isolation import has_clocks
from harness.world.control import capacity, rank_environment
from harness.world.control.pool import NoPort, PortLease, ServerPool, is_linux
from harness.world.control.server_handle import ServerFailed
from harness.world.hosts import host as hosts

# Fewer than most scenarios want.
FEW_RANKS = 8
SCRATCH_BYTES = 256 * 2**20


@dataclass(frozen=True)
class DoctorAnswer:
    """One thing that was looked at.

    Attributes:
        topic: the group it belongs to.
        what: what was looked at.
        word: `yes`, `no` (something cannot run), or `note` (it can, and something is worth
            knowing).
        detail: what was found.
        remedy: what to do about a no, or about a note where something can be done.
    """

    topic: str
    what: str
    word: Literal["yes", "no", "note"]
    detail: str
    remedy: str = ""


def examine(*, results: Path, measure: bool = True) -> list[DoctorAnswer]:
    """Look at everything a run needs that would write into the folder `results`.

    Args:
        results: the folder that runs would be written to.
        measure: whether small worlds are started, to tell what a rank costs.
    """
    machine = environment.capture()
    costs = _costs() if measure else {}
    sizes = [cost.private for cost in costs.values() if isinstance(cost, capacity.RankCost)]
    looks = (
        *(
            _starts(),
            _hosts(),
            _backends(),
            _faults(),
            _plugins(),
            _tools(machine),
            _signing(),
            _ranks(costs),
        ),
        *(_limits(sizes), _storage(results), _nix(machine), _environment(machine), _cached()),
    )
    return [answer for look in looks for answer in look]


def _whether(topic: str, what: str, holds: object, detail: str, remedy: str) -> DoctorAnswer:
    return DoctorAnswer(topic, what, "yes" if holds else "no", detail, "" if holds else remedy)


def _starts() -> Iterator[DoctorAnswer]:
    if is_linux():
        yield DoctorAnswer(
            "start",
            "warm",
            "yes",
            "ranks are forked from a server that has already imported their modules",
        )
    else:
        yield DoctorAnswer(
            "start",
            "warm",
            "note",
            f"not on {sys.platform}; every rank starts fresh, which takes a few seconds longer",
        )
    yield DoctorAnswer("start", "fresh", "yes", "a new interpreter per rank")


def _hosts() -> Iterator[DoctorAnswer]:
    why = hosts.refusal()
    if why is not None:
        what, _, remedy = why.text.rpartition(": ")
        yield DoctorAnswer(
            "start", "test hosts", "no", what, f"{remedy}; until then, cells with them are SKIPPED"
        )
    elif not has_clocks():
        yield DoctorAnswer(
            "start",
            "test hosts",
            "note",
            "work here, but this kernel does not support a separate clock for each",
        )
    else:
        yield DoctorAnswer(
            "start",
            "test hosts",
            "yes",
            "each with its own network, name, /tmp and clock",
        )


def _backends() -> Iterator[DoctorAnswer]:
    for name in BACKENDS:
        try:
            why = refusal(name, size=2)
        except PluginFailed as error:
            yield DoctorAnswer("backend", name, "no", str(error), "no cell with it can run")
            continue
        detail = "can join ranks here" if why is None else str(why)
        yield _whether(
            "backend",
            name,
            why is None,
            detail,
            "cells with it are SKIPPED; run them on a machine that has it",
        )


def _faults() -> Iterator[DoctorAnswer]:
    for name, kind in FAULTS.items():
        try:
            with FAULTS.guarded(name):
                why = kind.refusal()
        except PluginFailed as error:
            yield DoctorAnswer("fault", name, "no", str(error), "no scenario with it can run")
            continue
        yield _whether("fault", name, not why, why or kind.does, "scenarios with it are SKIPPED")


def _plugins() -> Iterator[DoctorAnswer]:
    registries: tuple[Registry[Any], ...] = (CHECKS, FAULTS, BACKENDS, READY, VIEWS)
    for registry in registries:
        for name, why in registry.broken.items():
            yield DoctorAnswer(
                "plug-in", name, "no", why, "report it to its authors, or uninstall it"
            )


def _tools(machine: EnvironmentFacts) -> Iterator[DoctorAnswer]:
    if machine.gpu:
        yield DoctorAnswer("machine", "GPU", "yes", machine.gpu)
    else:
        yield DoctorAnswer(
            "machine", "GPU", "note", "no NVIDIA driver found; everything runs on the CPU"
        )
    for program, what, remedy in (
        ("ssh-keygen", "signs and verifies reports", INSTALL),
        ("git", "records the commit in reports", "install git"),
        ("c++", "MLX needs it on Linux to compile kernels", "install a C++ compiler, such as g++"),
    ):
        yield _whether("machine", program, shutil.which(program), what, remedy)
    absent = missing("xxhash")
    yield _whether(
        "machine",
        "xxhash",
        absent is None,
        absent or "computes digests of what ranks send (observe: digests)",
        "",
    )


def _signing() -> Iterator[DoctorAnswer]:
    try:
        signer = find_signer(make=False)
    except KeyProblem as problem:
        yield DoctorAnswer("signing", "key", "no" if problem.named else "note", str(problem))
        return
    except SshsigError as problem:
        yield DoctorAnswer("signing", "key", "no", str(problem), INSTALL)
        return
    yield DoctorAnswer("signing", "key", "yes", f"{signer.origin}, {signer.fingerprint}")
    for reason in signer.passed_over:
        yield DoctorAnswer("signing", "ignored", "note", reason)


def _costs() -> dict[str, capacity.RankCost | str]:
    """Return what a rank costs, by how it is started; or why it could not be."""
    joined = [name for name in ("gloo", "mlx-ring") if refusal(name, size=2) is None]
    kinds: dict[str, dict[str, Any]] = {}
    if is_linux():
        kinds = {f"{name}, warm": {"backend": name} for name in joined or ["none"]}
    first = next(iter(joined), "none")
    kinds[f"{first}, fresh"] = {"backend": first, "warm": False, "size": 2}
    kinds["program (sh)"] = {"backend": "none", "warm": False, "program": True}
    costs: dict[str, capacity.RankCost | str] = {}
    with ServerPool() as pool:
        for name, how in kinds.items():
            try:
                costs[name] = capacity.measure_cost(pool, **how)
            except (ServerFailed, OSError) as error:
                costs[name] = str(error)
    return costs


def _ranks(costs: Mapping[str, capacity.RankCost | str]) -> Iterator[DoctorAnswer]:
    for name, cost in costs.items():
        if isinstance(cost, str):
            yield DoctorAnswer(
                "a rank costs", name, "no", cost, "see `rankproof run SCENARIO --try`"
            )
            continue
        private, share = (f"{size / 2**20:.1f} MiB" for size in (cost.private, cost.share))
        memory = (
            f"; {private} private, {share} with its share of shared memory" if cost.private else ""
        )
        yield DoctorAnswer(
            "a rank costs", name, "yes", f"{cost.seconds:.3f} s of start-up time{memory}"
        )


def _limits(sizes: Sequence[int]) -> Iterator[DoctorAnswer]:
    """How many ranks of one world each limit bears; memory for the dearest that was measured."""
    least: dict[str, capacity.Limit] = {}
    for limit in capacity.limits(memory=max(sizes, default=capacity.LEAST_MEMORY)):
        least[limit.what] = min(
            limit, least.get(limit.what, limit), key=lambda limit_there: limit_there.bears
        )
    for what, limit in least.items():
        word: Literal["yes", "no", "note"] = (
            "yes" if not (why := limit.shortage(MOST_RANKS)) else "note"
        )
        word = "no" if limit.shortage(FEW_RANKS) else word
        known = f" of {limit.per_rank} MiB" if sizes and what == "MiB of memory" else ""
        bears = (
            f"{limit.left:,} left, so a world can have {min(limit.bears, MOST_RANKS)} ranks{known}"
        )
        yield DoctorAnswer("limits", what, word, bears, why.rpartition(": ")[2])
    try:
        with PortLease() as ports:
            ports.take(MOST_RANKS)
        yield DoctorAnswer("limits", "ports", "yes", f"{MOST_RANKS} loopback ports can be leased")
    except (NoPort, OSError) as error:
        yield DoctorAnswer(
            "limits",
            "ports",
            "no",
            str(error),
            "stop the programs that listen on these ports, or other runs of Rankproof",
        )


def _storage(results: Path) -> Iterator[DoctorAnswer]:
    folders = (results.absolute(), *results.absolute().parents)
    # Path.exists raises where it may not look.
    place = next(folder for folder in folders if os.access(folder, os.F_OK))
    writable = os.access(place, os.W_OK)
    detail = f"{results} can {'' if writable else 'not '}be written"
    yield _whether(
        "storage", "results", writable, detail, "make it writable, or use --results FOLDER"
    )
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(tempfile.gettempdir()).free
        remedy = "free some space, or set TMPDIR"
        yield _whether(
            "storage",
            "temporary files",
            free >= SCRATCH_BYTES,
            f"{free / 2**30:.1f} GiB free",
            remedy,
        )


def _environment(machine: EnvironmentFacts) -> Iterator[DoctorAnswer]:
    if machine.lock:
        yield DoctorAnswer(
            "environment", "lock", "yes", f"{machine.lock}, variant {machine.variant}"
        )
    else:
        yield DoctorAnswer(
            "environment",
            "lock",
            "note",
            "not from a lock file; `nox -s validate` makes an environment from a lock file",
        )


def _cached() -> Iterator[DoctorAnswer]:
    kept_environments = cached()
    total = sum(kept.bytes for kept in kept_environments)
    detail = (
        f"{len(kept_environments)} in the cache, {total / 2**20:.1f} MiB"
        if kept_environments
        else "none in the cache"
    )
    yield DoctorAnswer("environment", "for arms", "note", detail)
    for kept in kept_environments:
        detail = f"{kept.description or 'never finished'}, {kept.bytes / 2**20:.1f} MiB"
        yield DoctorAnswer("environment", kept.key[:8], "note", detail)


def _nix(machine: EnvironmentFacts) -> Iterator[DoctorAnswer]:
    nix = machine.nix
    if nix is None:
        how = "run `nix develop`" if shutil.which("nix") else "Nix is not installed"
        yield DoctorAnswer(
            "environment",
            "Nix",
            "note",
            f"not running in its environment ({how}); scenarios that need it are SKIPPED",
        )
        if os.environ.get("RANKPROOF_ENV"):
            yield DoctorAnswer(
                "environment",
                "RANKPROOF_ENV",
                "note",
                "is set, but Nix did not build this Python",
            )
        return
    yield DoctorAnswer("environment", "Nix", "yes", nix.environment)
    if nix.stale:
        again = "leave the shell and run `nix develop` again"
        yield DoctorAnswer(
            "environment", "shell", "no", f"older than {', '.join(nix.stale)}", again
        )
    if nix.as_locked is not True:
        known = "differs" if nix.as_locked is False else "may differ"
        yield DoctorAnswer("environment", "nixpkgs", "note", f"{known} from flake.lock")
    for names, what in (
        (nix.changed, "changed since the commit"),
        (nix.untracked, "not tracked by git, so Nix ignores them"),
    ):
        if names:
            yield DoctorAnswer("environment", "flake", "note", f"{what}: {', '.join(names)}")
    if machine.variant == "cuda":
        library = rank_environment.DRIVER_LIBRARIES[0]
        remedy = f"set {rank_environment.DRIVER_VARIABLE} to the folder that contains {library}"
        listed = ", ".join(nix.driver) or "no NVIDIA driver found for the ranks"
        yield _whether("environment", "driver", nix.driver, listed, remedy)
