"""Report that a run reproduces, as `evidence/original.json` keeps it, how the two compare, and what
a pass changed.

Whoever made the reproduction worked it out from the other run's own evidence; whoever verifies the
reproduction has that file, and judges the comparison again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import Field

from harness import __version__
from harness.forms.model import Model
from harness.record.facts import (
    ArmEnvironmentFacts,
    ChangeFacts,
    EnvironmentFacts,
    Installed,
    PackageFacts,
    RunFacts,
)
from harness.scenario import Needs, Scenario
from harness.stats.profile import CellProfile
from harness.stats.reproduction import Reproduction, reproduction
from harness.stats.tally import Word

REPRODUCED_PATH = "evidence/original.json"
Group = Literal["decides", "known to matter", "rarely matters"]
GROUPS: tuple[Group, ...] = ("decides", "known to matter", "rarely matters")
# These do the computing: another version may give other numbers.
COMPUTING = ("torch", "transformers", "tokenizers", "mlx", "mlx-lm", "numpy", "safetensors")
MATTERS = {
    *("python", "implementation", "system", "machine", "cpu", "cores", "affinity", "gpu"),
    *("variant", "lock_sha256"),
}
# Compared apart, or the same fact under another name.
APART = {"variables", "packages", "lock", "nix"}
# What a pass may change on purpose.
SEEDS = "seeds"
AFFINITY = "affinity"
START = "ranks started"
JOBS = "worlds at a time"
VARIABLE = "variable "
SETTING = "world.env."


class ReproducedRun(Model):
    """Run that is reproduced.

    Attributes:
        report: sha256 of its report.
        signed: who signed it, or why it was trusted without that.
        scenario: sha256 of the scenario file.
        environments: of the arms that had their own.
        arms: per arm, the sha256 of each file of its code.
        inputs: per input, its digest.
        cells: every cell, trial by trial.
    """

    report: str
    signed: str
    id: str
    made: str
    rankproof: str
    scenario: str
    overrides: list[str]
    verdict: Word
    start: Literal["warm", "fresh"]
    jobs: int
    environment: EnvironmentFacts
    environments: dict[str, ArmEnvironmentFacts] = Field(default_factory=dict)
    arms: dict[str, dict[str, str]]
    inputs: dict[str, str]
    cells: list[CellProfile]

    def encode(self) -> bytes:
        """ASCII, as the record: a subject's text may hold half a character, which UTF-8 cannot
        hold.
        """
        return (
            json.dumps(
                self.model_dump(mode="json"), ensure_ascii=True, allow_nan=False, indent=1
            ).encode()
            + b"\n"
        )


@dataclass(frozen=True, kw_only=True)
class Here:
    """Setting of a run that is not made yet; None: the environments of its arms are not known."""

    environment: EnvironmentFacts
    start: str
    jobs: int
    rankproof: str = __version__
    environments: None = None


Setting: TypeAlias = ReproducedRun | RunFacts | Here
"""Where and how a run takes place: what another run keeps of it, its facts, or what is going to
be.
"""


class SettingDifference(Model):
    """Something in which the two machines or environments differ."""

    group: Group
    what: str
    then: str
    now: str


class RunComparison(Model):
    """Reproduction, and the run that it reproduces.

    Attributes:
        environment: what stands for the whole environment on both sides where it is the same: a Nix
            path or a lock; empty where nothing does.
        packages_same: packages that are the same file by file, of `packages_all`.
    """

    report: str
    signed: str
    id: str
    made: str
    rankproof: str
    verdict: Word
    overrides: list[str]
    result: Reproduction
    environment: str
    packages_same: int
    packages_all: int
    differences: list[SettingDifference]


def compare(
    scenario: Scenario, reproduced: ReproducedRun, run: RunFacts, now: Sequence[CellProfile]
) -> RunComparison:
    """Hold a run against the one that it reproduces."""
    then = reproduced.environment
    here = run.environment
    before, after = ({one.name: one.record for one in side.packages} for side in (then, here))
    same = sum(
        name in after and digest is not None and after[name] == digest
        for name, digest in before.items()
    )
    return RunComparison(
        report=reproduced.report,
        signed=reproduced.signed,
        id=reproduced.id,
        made=reproduced.made,
        rankproof=reproduced.rankproof,
        verdict=reproduced.verdict,
        overrides=reproduced.overrides,
        result=reproduction(scenario, reproduced.cells, now),
        environment=same_environment(then, here),
        packages_same=same,
        packages_all=len(before.keys() | after.keys()),
        differences=differences(scenario.needs, reproduced, run),
    )


def same_environment(then: EnvironmentFacts, here: EnvironmentFacts) -> str:
    """Return what makes two environments the same by construction, or empty."""
    if (
        then.nix is not None
        and here.nix is not None
        and then.nix.environment == here.nix.environment
    ):
        return f"the Nix environment {here.nix.environment}"
    if then.lock_sha256 is not None and then.lock_sha256 == here.lock_sha256:
        return f"the lock {here.lock}, sha256 {here.lock_sha256}"
    return ""


def differences(needs: Needs | None, first: Setting, second: Setting) -> list[SettingDifference]:
    """Return what differs between the settings of two runs, what decides first.

    Args:
        needs: what the scenario needs, which decides; None where that is not known.
        first: the setting of one run.
        second: that of the other.
    """
    then = first.environment
    here = second.environment
    deciding = _decides(needs) if needs is not None else set()
    rows: list[SettingDifference] = []

    def note(what: str, before: object, after: object, group: Group) -> None:
        if before != after:
            rows.append(
                SettingDifference(group=group, what=what, then=_shown(before), now=_shown(after))
            )

    note("ranks started", first.start, second.start, "decides")
    stores = [side.nix.environment if side.nix is not None else None for side in (then, here)]
    note("nix", stores[0], stores[1], "decides" if "nix" in deciding else "known to matter")
    for name in EnvironmentFacts.model_fields:
        if name not in APART:
            usual: Group = "known to matter" if name in MATTERS else "rarely matters"
            note(
                name,
                getattr(then, name),
                getattr(here, name),
                "decides" if name in deciding else usual,
            )
    for name in sorted(then.variables.keys() | here.variables.keys()):
        note(
            f"variable {name}",
            then.variables.get(name),
            here.variables.get(name),
            "known to matter",
        )
    packages = [
        {package.name.lower(): package for package in side.packages} for side in (then, here)
    ]
    for name, one_version, other_version in _versions(*packages):
        group: Group = "known to matter" if name in COMPUTING else "rarely matters"
        note(f"package {name}", one_version, other_version, group)
    for what, one_word, other_word in _of_arms(first, second):
        note(what, one_word, other_word, "known to matter")
    note("rankproof", first.rankproof, second.rankproof, "known to matter")
    note("worlds at a time", first.jobs, second.jobs, "known to matter")
    return sorted(rows, key=lambda row: GROUPS.index(row.group))


def _decides(needs: Needs) -> set[str]:
    """Return the fields that the scenario itself asks something of."""
    wanted = {
        "system": needs.os,
        "cores": needs.cores,
        "memory": needs.memory,
        "gpu": needs.gpus,
        "nix": needs.nix,
    }
    return {name for name, value in wanted.items() if value is not None}


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _of_arms(first: Setting, second: Setting) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield what the arms' own environments hold, in words, as far as they were made on both
    sides.
    """
    for arm in sorted((first.environments or {}).keys() & (second.environments or {}).keys()):
        then = (first.environments or {})[arm]
        here = (second.environments or {})[arm]
        yield f"python of the {arm}", then.python, here.python
        packages = [{package.name: package for package in side.packages} for side in (then, here)]
        for name, one_version, other_version in _versions(*packages):
            yield f"package {name} of the {arm}", one_version, other_version


def _versions(
    then: Mapping[str, PackageFacts | Installed], here: Mapping[str, PackageFacts | Installed]
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield name and both versions, in words, of every package that is on either side."""
    for name in sorted(then.keys() | here.keys()):
        before = then.get(name)
        after = here.get(name)
        # The same version with other files: only the digests tell, where both sides have one.
        is_twin = before is not None and after is not None and before.version == after.version
        files = is_twin and None not in (before and before.record, after and after.record)
        yield name, _version(before, files=files), _version(after, files=files)


def _version(package: PackageFacts | Installed | None, *, files: bool) -> str | None:
    if package is None:
        return None
    return f"{package.version} ({(package.record or '')[:12]})" if files else package.version


def is_shown(change: ChangeFacts, run: RunFacts) -> bool:
    """Return whether the run's own facts hold the changed value."""
    what = change.what
    after = change.after
    if what == SEEDS or what.startswith(SETTING):
        # The last one given is the one that holds.
        said = [given for given in run.overrides if given.startswith(f"{override_key(what)}=")]
        return bool(said) and after is not None and said[-1] == override(what, after)
    if what.startswith(VARIABLE):
        return run.environment.variables.get(what.removeprefix(VARIABLE)) == after
    facts = {AFFINITY: str(run.environment.affinity), START: run.start, JOBS: str(run.jobs)}
    return facts.get(what) == after and after is not None


def override(what: str, value: str) -> str:
    """Return the override of the scenario that makes the change."""
    return f'{override_key(what)}="{value}"'


def override_key(what: str) -> str:
    """Return the key of the scenario that a change sets."""
    return {SEEDS: "seed", START: "world.start"}.get(what, what)
