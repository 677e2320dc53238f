"""A run made again from its report, in the order of trust: verify, rebuild, compare, run, answer.

Nothing of the report runs before it was verified and its source was compared. The reproduction is a
run like any other, with a report of its own; what it says about the first run stands in its
evidence, and is judged again by whoever verifies it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from harness.forms.source import real_place
from harness.record.facts import (
    ENVIRONMENT_FOLDER,
    REQUIREMENTS,
    SCENARIO_PATH,
    ChangeFacts,
    InputFacts,
    Reproduces,
)
from harness.record.reproduced import SEEDS, ReproducedRun, override
from harness.reproduce import source
from harness.reproduce.report_copy import ReportCopy
from harness.reproduce.source import Rebuilt, SourceError
from harness.run.environments.supply import Found, KeptSupply, Supply, supplied
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
from harness.run.preparation import Material
from harness.run.worlds import can_be_warm
from harness.scenario import (
    Environment,
    Input,
    LoadedScenario,
    Scenario,
    ScenarioError,
    parse_scenario,
)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asks for beyond the report.

    Attributes:
        repo: take the report's own commit from this repository; or, with `candidate`, that
            revision.
        evidence: take the code that the report's evidence holds, whatever lies here.
        source: take the candidate from this folder as it stands.
        candidate: take the candidate from this revision.
        trials: candidate's trials per cell, instead of the report's.
        fresh_seeds: other seeds than the report's, and no pass with those.
        inputs: where inputs lie, by name.
        results: the folder of all results, which is not part of a source.
    """

    repo: Path | None = None
    evidence: bool = False
    source: Path | None = None
    candidate: str | None = None
    trials: int | None = None
    fresh_seeds: bool = False
    inputs: Mapping[str, Path]
    results: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Reproduction that is ready to run."""

    loaded: LoadedScenario
    material: Material
    rebuilt: Rebuilt
    reproduced: ReproducedRun

    @property
    def start(self) -> Literal["warm", "fresh"]:
        """How ranks will start here; it is known for certain when they have."""
        packages = [_top(code.files) for code in self.rebuilt.arms.values()]
        return "warm" if can_be_warm(self.loaded.scenario, packages=packages) else "fresh"


def _top(files: Iterable[str]) -> frozenset[str]:
    """Modules and packages at the top of an arm's code, by the paths of its files."""
    parts = [PurePosixPath(path).parts for path in files]
    modules = {
        part[0].removesuffix(".py") for part in parts if len(part) == 1 and part[0].endswith(".py")
    }
    return frozenset(modules | {part[0] for part in parts if part[1:] == ("__init__.py",)})


def prepare(copy: ReportCopy, wish: Wish, *, here: Path, scratch: Path) -> Prepared:
    """Rebuild the source and find the inputs, from `here`, where the user stands, into a scratch
    folder; nothing runs.

    Raises:
        SourceError: the source cannot be had, or differs.
        InputMissing: an input is not here, or a package that the report's run never built.
    """
    rebuilt = _rebuild(copy, wish, here=here, scratch=scratch)
    overrides = [*copy.record.run.overrides, *rebuilt.overrides]
    if wish.trials is not None:
        overrides.append(f"trials.candidate={wish.trials}")
    if wish.fresh_seeds:
        overrides.append(override(SEEDS, new_root()))
    scenario = _parsed(copy.text, overrides)
    folder = scratch / "scenario"
    folder.mkdir()
    given = find_inputs(
        copy.record.run.inputs,
        given=wish.inputs,
        carried=copy.inputs,
        folder=rebuilt.folder or folder,
    )
    path = folder / Path(SCENARIO_PATH).name
    path.write_bytes(copy.text)
    if copy.record.finding is not None:
        script = copy.record.finding.script
        (folder / Path(script).name).write_bytes(copy.read(script))
    loaded = LoadedScenario(
        scenario, path, folder, copy.text, copy.record.scenario.sha256, tuple(overrides)
    )
    reproduced = copy.reproduced()
    material = Material(
        lay_arms=lambda results: source.lay(copy, rebuilt, results),
        inputs=given,
        source=rebuilt.source,
        patch=rebuilt.patch,
        reproduces=Reproduces(
            report=f"sha256:{copy.digest}", source=rebuilt.where, candidate=rebuilt.candidate
        ),
        reproduced=reproduced.encode(),
        origins=rebuilt.origins,
        supplies=find_supplies(copy),
    )
    return Prepared(loaded=loaded, material=material, rebuilt=rebuilt, reproduced=reproduced)


def new_root() -> str:
    """Root of seeds that nobody has used.

    It is named in the record, so that its seeds can be derived again.
    """
    return secrets.token_hex(8)


def another(prepared: Prepared, change: ChangeFacts, overrides: Sequence[str]) -> Prepared:
    """Same reproduction with one thing changed.

    Args:
        prepared: the pass beside it.
        change: what is changed, as the record will name it.
        overrides: of the scenario, where the change needs them; they go after those of the pass
            beside it.

    Raises:
        SourceError: the scenario cannot be set so.
    """
    before = prepared.loaded
    given = (*before.overrides, *overrides)
    reproduces = prepared.material.reproduces.model_copy(update={"varied": change})
    return replace(
        prepared,
        loaded=replace(before, scenario=_parsed(before.text, given), overrides=given),
        material=replace(prepared.material, reproduces=reproduces),
    )


def _parsed(text: bytes, overrides: Sequence[str]) -> Scenario:
    try:
        return parse_scenario(text, name="the report's scenario", overrides=overrides)
    except ScenarioError as error:
        raise SourceError(str(error)) from None


def _rebuild(copy: ReportCopy, wish: Wish, *, here: Path, scratch: Path) -> Rebuilt:
    if wish.candidate is not None:
        return source.from_revision(copy, wish.candidate, wish.repo or here, results=wish.results)
    if wish.source is not None:
        return source.from_elsewhere(copy, wish.source, results=wish.results)
    if wish.repo is not None:
        return source.from_commit(copy, wish.repo, scratch)
    if wish.evidence:
        return source.from_evidence(copy)
    return source.from_checkout(copy, here, results=wish.results) or source.from_evidence(copy)


class InputMissing(Exception):
    """Input that is not here, or is another one: without it nobody can tell.

    The message says what to do.
    """


def find_inputs(
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
        raise InputMissing(f"--input {unknown[0]}: the run has no input with that name")
    return {
        facts.name: _find_input(facts, given.get(facts.name), carried, folder) for facts in wanted
    }


def _find_input(
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
        different = f"{wrong[0]} differs from the file that the run used"
    if given is None and facts.revision is not None:
        source = Input(hub=f"{facts.given.rpartition('@')[0]}@{facts.revision}")
        return _made_again(
            facts, source, other="the hub's files differ from the run's, at the same revision"
        )
    if given is None and facts.given.startswith(LAYOUTS):
        source = Input(layouts=tuple(facts.given.removeprefix(LAYOUTS).split(", ")))
        other = (
            "this version makes layouts that differ from the run's; pass the path of the run's"
            f" layouts with --input {facts.name}=PATH"
        )
        return _made_again(facts, source, other=other)
    if given is None and facts.given.startswith(MADE):
        other = (
            "this version makes a model that differs from the run's; pass the path of the run's"
            f" model with --input {facts.name}=PATH"
        )
        return _made_again(facts, Input(made=facts.given.removeprefix(MADE)), other=other)
    what = (
        different
        or f"it was not found on this machine (the run used {facts.given}, sha256"
        f" {facts.digest[:12]})"
    )
    raise InputMissing(f"input {facts.name}: {what}; pass its path with --input {facts.name}=PATH")


def _root(facts: InputFacts, folder: Path) -> Path:
    """Path of an input below a folder: of an input that is one file, that file."""
    if len(facts.files) == 1 and facts.digest == next(iter(facts.files.values())):
        return folder / next(iter(facts.files))
    return folder


def _made_again(facts: InputFacts, source: Input, *, other: str) -> ResolvedInput:
    """Input from the hub, or made by this version; `other` is what is said where its files are
    others.
    """
    try:
        resolved = resolve(facts.name, source, folder=Path())
    except InputError as error:
        raise InputMissing(f"{error}; pass its path with --input {facts.name}=PATH") from None
    if resolved.facts.files != facts.files:
        raise InputMissing(f"input {facts.name}: {other}")
    return ResolvedInput(path=resolved.path, facts=facts)


# -- what environments were made from, other than an index: it is in the evidence ------------------


def find_supplies(copy: ReportCopy) -> dict[str, Supply]:
    """File of requirements and the built wheels of each arm, as the evidence holds them.

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
    checkouts: dict[str, Found | KeptSupply] = {}
    for name, given in wanted.checkouts.items():
        if environment is None:
            raise InputMissing(
                f"package {name} of the {arm} comes from {given.rev or 'HEAD'} of a checkout, but"
                " the run never built it, because its cells were skipped; it cannot be built from"
                " the report, so run the scenario again next to that checkout"
            )
        facts = environment.checkouts[name]
        checkouts[name] = KeptSupply(
            name=name, facts=facts, data=copy.read(f"{folder}/{facts.wheel}")
        )
    if wanted.requirements is None:
        return Supply(checkouts=checkouts)
    text = supplied(copy.read(f"{folder}/{REQUIREMENTS}"), name=wanted.requirements)
    return replace(text, checkouts=checkouts)
