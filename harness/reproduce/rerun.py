"""A run made again from its report, in the order of trust: verify, rebuild, compare, run, answer.

Nothing of the report runs before it was verified and its source was compared. The reproduction is a run like any other,
with a report of its own; what it says about the first run stands in its evidence, and is judged again by whoever
verifies it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.record.facts import SCENARIO_PATH, Reproduces
from harness.record.original import Original
from harness.reproduce import inputs, source
from harness.reproduce.opened import Opened
from harness.reproduce.source import Rebuilt, SourceError
from harness.run.run import Material
from harness.scenario import LoadedScenario, ScenarioError, parse_scenario


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asks for beyond the report.

    Attributes:
        repo: take the report's own commit from this repository; or, with `candidate`, that revision.
        evidence: take the code that the report's evidence holds, whatever lies here.
        source: take the candidate from this folder as it stands.
        candidate: take the candidate from this revision.
        trials: candidate's trials per cell, instead of the report's.
        fresh_seeds: other seeds than the report's.
        inputs: where inputs lie, by name.
    """

    repo: Path | None = None
    evidence: bool = False
    source: Path | None = None
    candidate: str | None = None
    trials: int | None = None
    fresh_seeds: bool = False
    inputs: Mapping[str, Path]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A reproduction that is ready to run."""

    loaded: LoadedScenario
    material: Material
    rebuilt: Rebuilt
    original: Original


def prepare(opened: Opened, wish: Wish, *, here: Path, scratch: Path) -> Prepared:
    """Rebuild the source and find the inputs; nothing runs.

    Args:
        opened: the report, verified.
        wish: what is asked for.
        here: the folder that the user stands in.
        scratch: a folder of our own.

    Raises:
        SourceError: the source cannot be had, or differs.
        inputs.InputMissing: an input is not here.
    """
    rebuilt = _rebuild(opened, wish, here=here, scratch=scratch)
    overrides = [*opened.record.run.overrides, *rebuilt.overrides]
    if wish.trials is not None:
        overrides.append(f"trials.candidate={wish.trials}")
    if wish.fresh_seeds:
        overrides.append(f'seed="{secrets.token_hex(8)}"')
    try:
        scenario = parse_scenario(opened.text, name="the report's scenario", overrides=overrides)
    except ScenarioError as error:
        raise SourceError(str(error)) from None
    folder = scratch / "scenario"
    folder.mkdir()
    found = inputs.find(
        opened.record.run.inputs, given=wish.inputs, carried=opened.inputs, folder=rebuilt.folder or folder
    )
    path = folder / Path(SCENARIO_PATH).name
    path.write_bytes(opened.text)
    loaded = LoadedScenario(scenario, path, folder, opened.text, opened.record.scenario.sha256, tuple(overrides))
    original = opened.original()
    material = Material(
        stage=lambda results: source.lay(opened, rebuilt, results),
        inputs=found,
        source=rebuilt.source,
        patch=rebuilt.patch,
        reproduces=Reproduces(report=f"sha256:{opened.digest}", source=rebuilt.told, candidate=rebuilt.candidate),
        original=original.encode(),
    )
    return Prepared(loaded=loaded, material=material, rebuilt=rebuilt, original=original)


def _rebuild(opened: Opened, wish: Wish, *, here: Path, scratch: Path) -> Rebuilt:
    if wish.candidate is not None:
        return source.from_revision(opened, wish.candidate, wish.repo or here)
    if wish.source is not None:
        return source.from_elsewhere(opened, wish.source)
    if wish.repo is not None:
        return source.from_commit(opened, wish.repo, scratch)
    if wish.evidence:
        return source.from_evidence(opened)
    return source.from_checkout(opened, here) or source.from_evidence(opened)
