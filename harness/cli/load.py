"""Loading the scenarios a command line names, and telling every mistake in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.scenario import LoadedScenario, ScenarioError, load_scenario, scenario_files

DEFAULT = Path("scenarios")


def load_all(paths: Sequence[Path], overrides: Sequence[str]) -> tuple[list[LoadedScenario], int]:
    """Load every scenario file that the paths name.

    Returns:
        The scenarios that can be read, and how many problems the others have; those are printed to
        stderr.
    """
    loaded: list[LoadedScenario] = []
    problems = 0
    for path in paths or [DEFAULT]:
        try:
            files = scenario_files(path)
            if not files:
                print(f"{path}: no scenario file (*.yaml) there", file=sys.stderr)
                problems += 1
        except ScenarioError as error:
            problems += tell(error)
            continue
        for file in files:
            try:
                loaded.append(load_scenario(file, overrides=overrides))
            except ScenarioError as error:
                problems += tell(error)
    return loaded, problems


def wanted(loaded: Sequence[LoadedScenario], paths: Sequence[Path]) -> list[LoadedScenario]:
    """Leave out what runs on demand only: `on-demand` needs its file or folder named, `sweep` its
    file.

    A folder further up, or nothing named at all, asks for what a gate asks for.
    """
    named = {os.path.realpath(path) for path in paths}

    def is_wanted(one: LoadedScenario) -> bool:
        file = os.path.realpath(one.path)
        if file in named:
            return True
        tags = one.scenario.tags
        return "sweep" not in tags and ("on-demand" not in tags or str(Path(file).parent) in named)

    return [one for one in loaded if is_wanted(one)]


def tell(error: ScenarioError) -> int:
    """Print every problem of a file; returns how many."""
    for problem in error.problems:
        print(problem, file=sys.stderr)
    return len(error.problems)
