"""What stood around two runs: scenario, code, inputs, machine, packages. Only what differs is named."""

from __future__ import annotations

from collections.abc import Iterator

from harness.record.model import Record
from harness.record.reproduced import differences
from harness.reproduce.row import Row

ABSENT = "none"


def surroundings(first: Record, second: Record) -> Iterator[Row]:
    """A row for each difference, or one that says there is none."""
    one, other = _scenario(first), _scenario(second)
    names = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    for name in names:
        yield Row("scenario", "", name, (one.get(name, ABSENT), other.get(name, ABSENT)), "changed")
    if not names:
        yield Row("scenario", "", "scenario, code and inputs", ("", ""), "same")
    changes = differences(None, first.run, second.run)
    for change in changes:
        yield Row("environment", "", change.what, (change.then, change.now), "changed")
    if not changes:
        packages = len(first.run.environment.packages)
        yield Row("environment", "", f"machine, interpreter, variables and {packages} packages", ("", ""), "same")


def _scenario(record: Record) -> dict[str, str]:
    scenario, run = record.scenario, record.run
    found = {
        "scenario file": f"sha256 {scenario.sha256[:12]}",
        "set on the command line": "  ".join(run.overrides) or ABSENT,
        "root seed": scenario.seed,
        "trials asked": f"{scenario.candidate_trials} candidate, {scenario.control_trials} control",
        "accepted failure rate": f"{scenario.accept_rate:.3g} at {scenario.accept_confidence:.0%}",
        "control must fail": scenario.must_fail or ABSENT,
        "commit": _commit(record),
    }
    if run.room is not None:
        found["home folder of the ranks"] = run.room.home
    for name, arm in record.arms.items():
        found[f"arguments of the {name}"] = arm.arguments
        found |= {f"{name}: {file}": f"sha256 {digest[:12]}" for file, digest in arm.files.items()}
        if arm.revision is not None:
            found[f"revision of the {name}"] = arm.revision.commit[:12]
    return found | {f"input {given.name}": f"sha256 {given.digest[:12]}" for given in run.inputs}


def _commit(record: Record) -> str:
    source = record.run.source
    state = {True: "changed since", False: "clean", None: "unknown whether changed"}[source.dirty]
    return f"{source.commit[:12]}, {state}" if source.commit else "unknown"
