"""`rankproof init` and `rankproof lint`: scenarios written, and checked."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import PASS, USAGE, give_up
from harness.cli.arguments import load_all, overrides, positive, scenarios, tell
from harness.forms.distribution import missing
from harness.forms.problem import closest
from harness.forms.text import visible
from harness.run import inputs
from harness.run.arms.code import RevisionError
from harness.run.arms.entry import seen
from harness.run.arms.staging import ArmError, NotThere, previewed
from harness.scenario import LoadedScenario, Problem, Scenario, ScenarioError
from harness.world.control.rank_environment import is_import_time

if TYPE_CHECKING:
    from harness.run.init import Kind

DEFAULTS = {
    "title": "Every rank gets through",
    "question": "Does the code work on every rank after the fix?",
    "error": "AssertionError",
    "source": "assert tokenizer",
    "failing": "nonzero",
}
QUESTIONS = {
    "title": "What does a PASS mean, in one line?",
    "question": "What question does the verdict answer?",
    "error": "Which exception does the bug raise?",
    "source": "At which source line?",
    "failing": "On which ranks (every, nonzero, or a list such as [1])?",
}
# Answers that only some kinds of bugs have, and what they are for.
ONLY: dict[str, tuple[str, tuple[Kind, ...]]] = {
    "error": ("a bug that raises", ("error",)),
    "source": ("a bug that raises", ("error",)),
    "failing": ("a bug that ends the ranks where it shows", ("error", "program")),
    "candidate": ("--package", ("package",)),
    "control": ("--package", ("package",)),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command; its name is the last word of the parser's."""
    if parser.prog.endswith("init"):
        _init_arguments(parser)
    else:
        scenarios(parser)
        overrides(parser)


def main(options: argparse.Namespace) -> int:
    """Write a scenario folder, or check scenario files."""
    return _init(options) if options.command == "init" else _lint(options)


def _init_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", type=Path, help="folder to create, such as scenarios/my-fix")
    parser.add_argument("--id", help="id of the scenario (default: the folder's name)")
    parser.add_argument("--title", help="what a PASS means, in one line")
    parser.add_argument("--question", help="the question that the verdict answers")
    parser.add_argument(
        "--ranks", type=positive, nargs="+", metavar="N", help="world sizes (default: 2 4)"
    )
    parser.add_argument(
        "--error", metavar="TYPE", help="exception that the bug raises (default: AssertionError)"
    )
    parser.add_argument("--source", metavar="LINE", help="source line that raises the exception")
    parser.add_argument(
        "--failing",
        metavar="RANKS",
        help="ranks on which the bug occurs: every, nonzero, or a list such as [1]",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--hang",
        action="store_true",
        help="for a bug that hangs: write a control that must hang",
    )
    kind.add_argument(
        "--program",
        action="store_true",
        help="write a template whose ranks run a program (a POSIX shell script)",
    )
    kind.add_argument(
        "--package",
        metavar="NAME",
        help="for a bug in a release of this package: compare two releases",
    )
    parser.add_argument(
        "--candidate",
        metavar="VERSION",
        help="with --package: the fixed release (default: the installed one)",
    )
    parser.add_argument("--control", metavar="VERSION", help="with --package: the broken release")
    parser.add_argument(
        "--yes", action="store_true", help="ask no questions; use the defaults for missing options"
    )


def _init(options: argparse.Namespace) -> int:
    """Write a scenario folder; asks for what no flag says where there is somebody to ask."""
    from harness.run.init import Answers, InitError, ignore_results, write

    kinds: tuple[Kind, ...] = ("hang", "program", "package")
    kind: Kind = next((kind for kind in kinds if getattr(options, kind)), "error")
    unfit = [key for key, (_, kinds) in ONLY.items() if kind not in kinds]
    if unfitting := next((key for key in unfit if getattr(options, key)), None):
        instead = f", or remove --{kind}" if kind != "error" else ""
        return give_up(
            "init",
            f"--{unfitting} is for {ONLY[unfitting][0]}; remove this option{instead}",
            USAGE,
        )
    candidate = options.candidate or (_release_here(options.package) if options.package else "")
    if options.package and not (candidate and options.control):
        lacks = (
            "--control VERSION, the broken release"
            if candidate
            else "--candidate VERSION, the fixed release"
        )
        return give_up("init", f"--package {options.package} needs {lacks}", USAGE)
    ask = sys.stdin.isatty() and not options.yes
    given = {key: getattr(options, key) for key in DEFAULTS}
    unanswered = [key for key in DEFAULTS if ask and key not in unfit]
    answers = {
        key: value or (_ask(key) if key in unanswered else DEFAULTS[key])
        for key, value in given.items()
    }
    lacks_torch = missing("torch") if kind in ("error", "hang") else None
    try:
        written = write(
            options.folder,
            Answers(
                id=options.id or options.folder.name,
                kind=kind,
                ranks=tuple(options.ranks or (2, 4)),
                backend="none" if lacks_torch and kind == "error" else "gloo",
                package=options.package or "",
                candidate=candidate,
                control=options.control or "",
                **answers,
            ),
        )
        ignored = ignore_results(Path.cwd())
    except InitError as error:
        return give_up("init", error, USAGE)
    except ScenarioError as error:
        tell(error)
        return USAGE
    for path in written:
        print(f"wrote {path}")
    if ignored is not None:
        print(f"wrote {os.path.relpath(ignored)}: git ignores results/")
    if lacks_torch and kind == "hang":
        print(f"It reproduces a deadlock in torch, so its cells are SKIPPED here: {lacks_torch}")
    elif lacks_torch:
        print(
            f"Its ranks have no process group (backend: [none]). For backend: [gloo], {lacks_torch}"
        )
    if kind == "package":
        print(
            "It already runs, but only checks that the two releases differ. Put your own test"
            " into subject.py, then:"
        )
    else:
        print(f"It already runs, with a made-up bug. Put your code into {written[1].name}, then:")
    print(f"  rankproof lint {shlex.quote(str(options.folder))}")
    print(f"  rankproof run {shlex.quote(str(options.folder))}")
    return PASS


def _release_here(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""


def _ask(key: str) -> str:
    answer = input(f"{QUESTIONS[key]} [{DEFAULTS[key]}] ").strip()
    return answer or DEFAULTS[key]


def _lint(options: argparse.Namespace) -> int:
    """Check scenario files; exit 64 where one has a problem."""
    loaded, problems = load_all(options.scenarios, options.overrides)
    wrong = bool(problems)
    for scenario in loaded:
        for note in scenario.notes:
            print(note)
        for text in _start_notes(scenario.scenario):
            print(f"{scenario.path}: note: {text}")
        refused = [
            scenario.problem((key,), message) for key, message in scenario.scenario.overlong()
        ]
        refused += _refused_files(scenario)
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


def _refused_files(loaded: LoadedScenario) -> Iterator[Problem]:
    """Yield what is wrong in the files of requirements that lie here: they are part of the
    scenario.
    """
    for wanted in loaded.scenario.subject.environments.values():
        if wanted.requirements is not None and (loaded.folder / wanted.requirements).exists():
            # Few scenarios have an environment of their own, and this brings the record with it.
            from harness.run.environments import supply

            try:
                supply.requirements(wanted.requirements, folder=loaded.folder)
            except ScenarioError as error:
                yield from error.problems


def _meant(loaded: LoadedScenario, error: NotThere) -> str | None:
    """Return what is there under nearly the name that a scenario gives."""
    if error.place != ("subject", "entry"):
        return closest(error.message.partition(" ")[0], error.alternatives)
    module, _, function = loaded.scenario.subject.function.partition(":")
    meant = closest(f"{module.replace('.', '/')}.py", error.alternatives)
    return None if meant is None else f"{meant.removesuffix('.py').replace('/', '.')}:{function}"


class WouldStop(Exception):
    """Why a run would stop here; the code or the home folder may be written later, or be
    elsewhere.
    """


def _would_stop(loaded: LoadedScenario) -> list[Problem]:
    """Return what the code that is here tells of the scenario.

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
        if isinstance(error, NotThere) and error.alternatives:
            raise
        why = str(error)
    except OSError as error:
        why = f"the code cannot be copied for checking: {error.strerror}"
    raise WouldStop(visible(why, 500))


def _look_for_supplies(loaded: LoadedScenario) -> None:
    for wanted in loaded.scenario.subject.environments.values():
        for name, given in wanted.checkouts.items():
            from harness.run.environments import supply

            supply.find(name, given, folder=loaded.folder)
        if wanted.requirements is not None and not (loaded.folder / wanted.requirements).exists():
            raise inputs.InputError(
                f"environment.requirements: {wanted.requirements} does not exist"
            )


def _start_notes(scenario: Scenario) -> list[str]:
    """Return what a fault makes of the way ranks are started."""
    names = [name for fault in scenario.faults for name in fault.variables]
    early = [name for name in names if is_import_time(name)]
    if not early or scenario.world.start == "fresh":
        return []
    return [
        (
            f"{', '.join(early)}: libraries read this at import time, so every rank starts in a"
            " fresh interpreter"
        )
    ]
