"""The inputs of a run, and what its environments were made from, found again.

In the bundle, beside the scenario, where a run of this user had them, in the hub's cache, or where
the user says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.forms.source import real_place
from harness.record.facts import ENVIRONMENT_FOLDER, REQUIREMENTS, InputFacts
from harness.reproduce.report_copy import ReportCopy
from harness.run.environments.supply import Found, Kept, Supply, supplied
from harness.run.inputs import (
    LAYOUTS,
    MADE,
    InputError,
    ResolvedInput,
    digests,
    leaves,
    remembered,
    resolve,
)
from harness.scenario import Environment, Input


class InputMissing(Exception):
    """An input that is not here, or is another one: without it nobody can tell.

    The message says what to do.
    """


def find(
    wanted: list[InputFacts],
    *,
    given: Mapping[str, Path],
    carried: Path | None,
    folder: Path | None,
) -> dict[str, ResolvedInput]:
    """Find every input of the run, file by file the same: where the user says, or else where it may
    lie.

    Raises:
        InputMissing: one is not here, or differs.
    """
    if unknown := sorted(given.keys() - {facts.name for facts in wanted}):
        raise InputMissing(f"--input {unknown[0]}: the run has no input of that name")
    return {facts.name: _find(facts, given.get(facts.name), carried, folder) for facts in wanted}


def _find(
    facts: InputFacts, given: Path | None, carried: Path | None, folder: Path | None
) -> ResolvedInput:
    places: list[Path] = []
    if given is not None:
        places = [given]
    else:
        if carried is not None:
            places.append(_root(facts, carried / facts.name))
        if folder is not None and facts.revision is None and not leaves(facts.given):
            places.append(folder / facts.given)
        if (place := remembered(facts)) is not None:
            places.append(place)
    different = ""
    for place in places:
        if not place.exists():
            continue
        try:
            actual = digests(real_place(place), name=facts.name)
        except InputError as error:
            different = str(error)
            continue
        if actual == facts.files:
            return ResolvedInput(path=real_place(place), facts=facts)
        wrong = sorted(
            name
            for name in actual.keys() | facts.files.keys()
            if actual.get(name) != facts.files.get(name)
        )
        different = f"{wrong[0]} is not the file that the run was given"
    if given is None and facts.revision is not None:
        source = Input(hub=f"{facts.given.rpartition('@')[0]}@{facts.revision}")
        return _again(
            facts, source, other="the hub gives other files than the run had, at the same revision"
        )
    if given is None and facts.given.startswith(LAYOUTS):
        source = Input(layouts=tuple(facts.given.removeprefix(LAYOUTS).split(", ")))
        other = (
            f"this version makes other layouts than the run had; --input {facts.name}=PATH says"
            " where those lie"
        )
        return _again(facts, source, other=other)
    if given is None and facts.given.startswith(MADE):
        other = (
            f"this version makes another model than the run had; --input {facts.name}=PATH says"
            " where that lies"
        )
        return _again(facts, Input(made=facts.given.removeprefix(MADE)), other=other)
    what = (
        different or f"it is not here (the run was given {facts.given}, sha256 {facts.digest[:12]})"
    )
    raise InputMissing(f"input {facts.name}: {what}; --input {facts.name}=PATH says where it lies")


def _root(facts: InputFacts, folder: Path) -> Path:
    """An input that is one file has that file's digest."""
    if len(facts.files) == 1 and facts.digest == next(iter(facts.files.values())):
        return folder / next(iter(facts.files))
    return folder


def _again(facts: InputFacts, source: Input, *, other: str) -> ResolvedInput:
    """An input from the hub, or made by this version; `other` is what is said where its files are
    others.
    """
    try:
        resolved = resolve(facts.name, source, folder=Path())
    except InputError as error:
        raise InputMissing(f"{error}; --input {facts.name}=PATH says where it lies") from None
    if resolved.facts.files != facts.files:
        raise InputMissing(f"input {facts.name}: {other}")
    return ResolvedInput(path=resolved.path, facts=facts)


# -- what environments were made from, other than an index: it is in the evidence ------------------


def find_supplies(copy: ReportCopy) -> dict[str, Supply]:
    """The file of requirements and the built wheels of each arm, as the evidence holds them.

    Raises:
        InputMissing: the run never came so far as to build a package; without it nobody can tell.
    """
    return {
        arm: _supply_of(copy, arm, wanted)
        for arm, wanted in copy.scenario.subject.environments.items()
    }


def _supply_of(copy: ReportCopy, arm: str, wanted: Environment) -> Supply:
    folder = f"{ENVIRONMENT_FOLDER}/{arm}"
    environment = copy.record.run.environments.get(arm)
    checkouts: dict[str, Found | Kept] = {}
    for name, given in wanted.checkouts.items():
        if environment is None:
            raise InputMissing(
                f"package {name} of the {arm} was to be built from {given.rev or 'HEAD'} of a"
                " checkout, and the run never built it (its cells were skipped): run the scenario"
                " itself, beside that checkout"
            )
        facts = environment.checkouts[name]
        checkouts[name] = Kept(name=name, facts=facts, data=copy.read(f"{folder}/{facts.wheel}"))
    if wanted.requirements is None:
        return Supply(checkouts=checkouts)
    text = supplied(copy.read(f"{folder}/{REQUIREMENTS}"), name=wanted.requirements)
    return replace(text, checkouts=checkouts)
