"""What the commands of every day cost: verify of 96 trials, lint of one scenario and list, beside
an import.

The peer imports the two libraries that each of these commands needs, in turn with them: a machine
that is slow is slow for both.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench import verifying

CANDIDATE, CONTROL = 91, 5
PEER = (sys.executable, "-c", "import pydantic, yaml")
ROOT = Path(__file__).parents[2]


def measure(
    folder: Path, *, rounds: int, candidate: int = CANDIDATE, control: int = CONTROL
) -> dict[str, Any]:
    """Processor seconds of each command and of the peer, children included, and how many times the
    peer's it takes.
    """
    repo, _ = verifying.make(folder, candidate=candidate, control=control)
    report = next((repo / "results/thousand").glob("*/report.md"))
    ours = (sys.executable, "-m", "harness.cli")
    commands = {
        "peer": PEER,
        "verify": (
            *ours,
            "verify",
            str(report),
            "--allowed-signers",
            str(repo / ".rankproof/allowed_signers"),
        ),
        "lint": (*ours, "lint", "scenarios/perl-program"),
        "list": (*ours, "list"),
    }
    env = verifying.environment(folder)
    for command in commands.values():
        verifying.spent(command, cwd=ROOT, env=env)
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(verifying.spent(command, cwd=ROOT, env=env)[0])
    found: dict[str, Any] = {"trials": candidate + control}
    for name, seconds in taken.items():
        found[f"{name}_processor_seconds"] = [
            min(seconds),
            statistics.median(seconds),
            max(seconds),
        ]
        found[f"{name}_ratio"] = statistics.median(seconds) / statistics.median(taken["peer"])
    return found


def show(found: Mapping[str, Any]) -> None:
    """Print the same for people."""
    print(
        f"commands beside `import pydantic, yaml`, processor time; verify of {found['trials']}"
        " trials"
    )
    for name in ("peer", "verify", "lint", "list"):
        low, middle, high = found[f"{name}_processor_seconds"]
        ratio = found[f"{name}_ratio"]
        print(
            f"  {name:<8} {middle:.3f} s (median; {low:.3f} to {high:.3f}), {ratio:.1f} times the"
            " import"
        )
