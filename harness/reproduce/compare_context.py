"""What stood around two runs: scenario, code, inputs, machine, packages. Only what differs is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.record.model import Record
from harness.reproduce.compare_row import Kind, Row

ABSENT = "none"


def context_rows(first: Record, second: Record) -> Iterator[Row]:
    """A row for each difference, or one that says there is none."""
    yield from _differing("scenario", _scenario(first), _scenario(second), whole="scenario, code and inputs")
    yield from _differing("environment", _machine(first), _machine(second), whole="machine and interpreter")
    packages = [
        {package.name.lower(): package.version for package in record.run.environment.packages}
        for record in (first, second)
    ]
    yield from _differing("environment", packages[0], packages[1], whole=f"{len(packages[0])} packages")
    variables = [record.run.environment.variables for record in (first, second)]
    yield from _differing("environment", variables[0], variables[1], whole="recorded variables")


def _differing(kind: Kind, one: Mapping[str, str], other: Mapping[str, str], *, whole: str) -> Iterator[Row]:
    names = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    for name in names:
        yield Row(kind, "", name, (one.get(name, ABSENT), other.get(name, ABSENT)), "changed")
    if not names:
        yield Row(kind, "", whole, ("", ""), "same")


def _scenario(record: Record) -> dict[str, str]:
    scenario, run = record.scenario, record.run
    found = {
        "scenario file": f"sha256 {scenario.sha256[:12]}",
        "set on the command line": "  ".join(run.overrides) or ABSENT,
        "root seed": scenario.seed,
        "trials asked": f"{scenario.candidate_trials} candidate, {scenario.control_trials} control",
        "accepted failure rate": f"{scenario.accept_rate:.3g} at {scenario.accept_confidence:.0%}",
        "control must fail": scenario.must_fail or ABSENT,
        "start": run.start,
        "rankproof": run.rankproof,
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


def _machine(record: Record) -> dict[str, str]:
    here = record.run.environment
    return {
        "interpreter": f"{here.implementation} {here.python}",
        "system": f"{here.system} {here.release} {here.machine}",
        "processor": here.cpu,
        "cores": f"{here.affinity} of {here.cores}",
        "memory": f"{here.memory / 2**30:.1f} GiB",
        "machine since its start": here.host,
        "variant": here.variant or ABSENT,
        "lock": f"{here.lock or ABSENT}, sha256 {(here.lock_sha256 or ABSENT)[:12]}",
        "Nix": here.nix.environment if here.nix else ABSENT,
        "GPU": here.gpu or ABSENT,
        "worlds at a time": str(record.run.jobs),
    }
