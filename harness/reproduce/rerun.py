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

from harness.record.facts import SCENARIO_PATH, ChangeFacts, Reproduces
from harness.record.reproduced import SEEDS, ReproducedRun, override
from harness.reproduce import inputs, source
from harness.reproduce.report_copy import ReportCopy
from harness.reproduce.source import Rebuilt, SourceError
from harness.run.preparation import Material
from harness.run.worlds import can_be_warm
from harness.scenario import LoadedScenario, Scenario, ScenarioError, parse_scenario


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
    """A reproduction that is ready to run."""

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
        inputs.InputMissing: an input is not here, or a package that the report's run never built.
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
    given = inputs.find(
        copy.record.run.inputs,
        given=wish.inputs,
        carried=copy.inputs,
        folder=rebuilt.folder or folder,
    )
    path = folder / Path(SCENARIO_PATH).name
    path.write_bytes(copy.text)
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
        supplies=inputs.find_supplies(copy),
    )
    return Prepared(loaded=loaded, material=material, rebuilt=rebuilt, reproduced=reproduced)


def new_root() -> str:
    """A root of seeds that nobody has used.

    It is named in the record, so that its seeds can be derived again.
    """
    return secrets.token_hex(8)


def another(prepared: Prepared, change: ChangeFacts, overrides: Sequence[str]) -> Prepared:
    """The same reproduction with one thing changed.

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
