"""`rankproof lint`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from harness.cli import PASS, USAGE
from harness.cli.arguments import overrides, scenarios
from harness.cli.load import load_all
from harness.forms.problem import closest
from harness.forms.text import visible
from harness.run import inputs
from harness.run.arms.entry import seen
from harness.run.arms.revision import RevisionError
from harness.run.arms.staging import ArmError, NotThere, previewed
from harness.scenario import LoadedScenario, Problem, Scenario, ScenarioError
from harness.world.control.rank_environment import is_import_time


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    scenarios(parser)
    overrides(parser)


def main(options: argparse.Namespace) -> int:
    """Check scenario files; exit 64 where one has a problem."""
    loaded, problems = load_all(options.scenarios, options.overrides)
    wrong = bool(problems)
    for scenario in loaded:
        for note in scenario.notes:
            print(note)
        for text in _start(scenario.scenario):
            print(f"{scenario.path}: note: {text}")
        refused = list(_refused(scenario))
        try:
            for problem in _would_stop(scenario):
                if problem.kind == "note":
                    print(problem)
                else:
                    refused.append(problem)
        except NotThere as error:
            refused.append(
                scenario.problem(error.place, error.message, suggestion=_meant(scenario, error))
            )
        except WouldStop as error:
            print(f"{scenario.path}: note: a run would stop: {error}")
        for problem in refused:
            print(problem)
        wrong |= bool(refused)
        if not refused:
            print(f"{scenario.path}: ok")
    return USAGE if wrong else PASS


def _refused(loaded: LoadedScenario) -> Iterator[Problem]:
    """What is wrong in the files of requirements that lie here: they are part of the scenario."""
    for wanted in loaded.scenario.subject.environments.values():
        if wanted.requirements is not None and (loaded.folder / wanted.requirements).exists():
            # Few scenarios have an environment of their own, and this brings the record with it.
            from harness.run.environments import supply

            try:
                supply.requirements(wanted.requirements, folder=loaded.folder)
            except ScenarioError as error:
                yield from error.problems


def _meant(loaded: LoadedScenario, error: NotThere) -> str | None:
    """What is there under nearly the name that a scenario gives."""
    if error.place != ("subject", "entry"):
        return closest(error.message.partition(" ")[0], error.beside)
    module, _, function = loaded.scenario.subject.function.partition(":")
    meant = closest(f"{module.replace('.', '/')}.py", error.beside)
    return None if meant is None else f"{meant.removesuffix('.py').replace('/', '.')}:{function}"


class WouldStop(Exception):
    """Why a run would stop here; the code or the home folder may be written later, or be
    elsewhere.
    """


def _would_stop(loaded: LoadedScenario) -> list[Problem]:
    """What the code that is here tells of the scenario.

    Raises:
        NotThere: a file that the scenario names is not among the code, and other files are.
        WouldStop: the code cannot be laid out.
    """
    world = loaded.scenario.world
    try:
        if world.home is not None and world.home_is == "copy":
            inputs.home(world.home, folder=loaded.folder)
        _look_for_supplies(loaded)
        with previewed(loaded.scenario, folder=loaded.folder) as staged:
            return seen(loaded, staged)
    except (ArmError, RevisionError, inputs.InputError) as error:
        if isinstance(error, NotThere) and error.beside:
            raise
        why = str(error)
    except OSError as error:
        why = f"its code cannot be laid out to look at it: {error.strerror}"
    raise WouldStop(visible(why, 500))


def _look_for_supplies(loaded: LoadedScenario) -> None:
    for wanted in loaded.scenario.subject.environments.values():
        for name, given in wanted.checkouts.items():
            from harness.run.environments import supply

            supply.find(name, given, folder=loaded.folder)
        if wanted.requirements is not None and not (loaded.folder / wanted.requirements).exists():
            raise inputs.InputError(f"environment.requirements: {wanted.requirements} is not there")


def _start(scenario: Scenario) -> list[str]:
    """What a fault makes of the way ranks are started."""
    names = [name for fault in scenario.faults for name in fault.variables]
    early = [name for name in names if is_import_time(name)]
    if not early or scenario.world.start == "fresh":
        return []
    return [
        (
            f"{', '.join(early)}: libraries read this while they are imported, so every rank starts"
            " fresh"
        )
    ]
