"""Which environment of a scenario a bisect changes: the one that the candidate runs in.

Where the environment is the subject's, every arm without its own changes with it. An arm with an
environment of its own keeps that. The reference runs in the candidate's.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.forms.digest import fold, sha256, sha256_of
from harness.forms.problem import Path as Place
from harness.forms.problem import ScenarioError
from harness.run.arms.code import RevisionError
from harness.run.arms.staging import ArmError, stage_arms
from harness.run.environments import supply
from harness.run.environments.supply import Supply
from harness.scenario import Arm, Environment, LoadedScenario
from harness.scenario.environment import PinnedRequirement, bare, listing
from harness.series.series import code

HEAVY = "torch"


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What a bisect changes.

    Attributes:
        package: its normal name.
        written: the same with its extras, as pip is asked for it.
        key: of the environment, as `--set` names it.
        wanted: that environment as the scenario has it.
        supply: its file of requirements.
        control: the environment that the control keeps, and its supply; None where it changes with
            the candidate's, or is Rankproof's own.
        alike: whether the arms are alike but for their environments.
    """

    package: str
    written: str
    key: str
    wanted: Environment
    supply: Supply
    control: tuple[Environment, Supply] | None
    alike: bool


@dataclass
class _Scratch:
    """A folder that takes the code of arms, to be digested."""

    path: Path

    def write(self, name: str, data: bytes) -> None:
        """Write a file, by its path from there."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def aim(loaded: LoadedScenario, given: str) -> Aim:
    """Find the environment to change.

    Args:
        loaded: the scenario.
        given: name of what is bisected; extras behind it take the place of the scenario's.

    Raises:
        ScenarioError: there is none, or it cannot be bisected: where, why and what to do.
        RevisionError: a checkout of another arm cannot be had.
    """
    subject = loaded.scenario.subject
    package = bare(given)

    def refused(place: Place, why: str) -> ScenarioError:
        return ScenarioError([loaded.problem(place, why, at_key=True)])

    if subject.compare is not None:
        raise refused(
            ("subject", "compare"),
            "cannot be bisected, because a comparison has no candidate; write a scenario with"
            " candidate and control",
        )
    own = subject.candidate.environment
    place: Place = ("subject", "candidate", "environment") if own else ("subject", "environment")
    wanted = own or subject.environment
    supplies = supply.of_scenario(loaded.scenario, folder=loaded.folder)
    if wanted is None:
        named = [
            arm
            for arm, has in subject.environments.items()
            if package in _named(has, supplies[arm])
        ]
        also = f" ({package} is only in the environment of the {named[0]})" if named else ""
        raise refused(
            ("subject",),
            (
                f"has no environment for the candidate{also}; add subject.candidate.environment:"
                f" {{packages: {{{package}: VERSION}}}}"
            ),
        )
    supplied = supplies["candidate"]
    known = _named(wanted, supplied)
    if package not in known:
        raise refused(
            place,
            (
                f"does not list {package}, so no versions of it can be tried; add it"
                f" here, or choose a listed package: {listing(sorted(known), most=6) or 'none'}"
            ),
        )
    if wanted.checkouts:
        name = next(iter(wanted.checkouts))
        raise refused(
            place,
            f"builds {name} from a checkout, but a bisect tries released versions; name a release"
            f" of {name}",
        )
    theirs = None
    alike = False
    if subject.control is not None and (own or subject.control.environment):
        theirs = subject.environment_of(subject.control)
        same = _apart(subject.control) == _apart(subject.candidate)
        alike = (
            theirs is not None and same and not theirs.checkouts and theirs.python == wanted.python
        )
    asked = [given, *wanted.packages, *(_written(one) for one in supplied.requirements)]
    return Aim(
        package=package,
        written=next((name for name in asked if bare(name) == package and "[" in name), package),
        key=".".join(map(str, place)),
        wanted=wanted,
        supply=supplied,
        control=None if theirs is None else (theirs, supplies["control"]),
        alike=alike,
    )


def _written(requirement: PinnedRequirement) -> str:
    return f"{requirement.name}[{requirement.extras}]" if requirement.extras else requirement.name


def _named(wanted: Environment, given: Supply) -> set[str]:
    return {
        *wanted.versions,
        *wanted.checkouts,
        *(requirement.name for requirement in given.requirements),
    }


def _apart(arm: Arm) -> dict[str, object]:
    """Return what sets an arm apart from another, beside the environment."""
    return {name: getattr(arm, name) for name in Arm.model_fields if name != "environment"}


def identity(loaded: LoadedScenario, package: str) -> str:
    """Return one digest of what every step has in common, 64 hex digits: the scenario with its
    overrides, the code of its arms, the package, and Rankproof's own code.

    Raises:
        ArmError: the code of an arm cannot be had.
    """
    inputs = [
        loaded.folder / given.path
        for given in loaded.scenario.inputs.values()
        if given.path is not None
    ]
    with tempfile.TemporaryDirectory(prefix="rankproof-bisect-") as text:
        place = _Scratch(Path(text).resolve())
        try:
            stage_arms(loaded.scenario, folder=loaded.folder, inputs=inputs, results=place)
        except RevisionError as error:
            raise ArmError(str(error)) from None
        files = {
            str(file.relative_to(place.path)): sha256_of(file)
            for file in place.path.rglob("*")
            if file.is_file()
        }
    parts = [loaded.sha256, list(loaded.overrides), fold(files), package, code()]
    return sha256(json.dumps(parts).encode())
