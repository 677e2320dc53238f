"""`rankproof init`."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shlex
import sys
from pathlib import Path

from harness.cli import PASS, USAGE, give_up
from harness.cli.arguments import positive
from harness.cli.load import tell
from harness.forms.distribution import missing
from harness.run.init import Answers, InitError, Kind, ignore_results, write
from harness.scenario import ScenarioError

DEFAULTS = {
    "title": "Every rank gets through",
    "question": "Does the code work on every rank after the fix?",
    "error": "AssertionError",
    "source": "assert tokenizer",
    "failing": "nonzero",
}
QUESTIONS = {
    "title": "What does a PASS mean, in one line?",
    "question": "Which question does the verdict answer?",
    "error": "Which exception does the bug end with?",
    "source": "At which source line?",
    "failing": "On which ranks (every, nonzero, or a list such as [1])?",
}
# Answers that only some kinds of bugs have, and what they are for.
ONLY: dict[str, tuple[str, tuple[Kind, ...]]] = {
    "error": ("a bug that raises", ("error",)),
    "source": ("a bug that raises", ("error",)),
    "failing": ("a bug that ends the ranks it shows on", ("error", "program")),
    "candidate": ("--package", ("package",)),
    "control": ("--package", ("package",)),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("folder", type=Path, help="a new folder, such as scenarios/my-fix")
    parser.add_argument("--id", help="name of the scenario (default: the folder's)")
    parser.add_argument("--title", help="one line that says what a PASS means")
    parser.add_argument("--question", help="what the verdict answers")
    parser.add_argument(
        "--ranks", type=positive, nargs="+", metavar="N", help="world sizes (default: 2 4)"
    )
    parser.add_argument(
        "--error", metavar="TYPE", help="exception the bug ends with (default: AssertionError)"
    )
    parser.add_argument("--source", metavar="LINE", help="source line it ends at")
    parser.add_argument(
        "--failing",
        metavar="RANKS",
        help="ranks it shows on: every, nonzero, or a list such as [1]",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--hang",
        action="store_true",
        help="the bug is a hang: write a control that has to stand still",
    )
    kind.add_argument(
        "--program", action="store_true", help="ranks are programs: write one in POSIX shell"
    )
    kind.add_argument(
        "--package",
        metavar="NAME",
        help="the bug is in a release of this package: compare two releases",
    )
    parser.add_argument(
        "--candidate",
        metavar="VERSION",
        help="with --package: the fixed release (default: the one here)",
    )
    parser.add_argument("--control", metavar="VERSION", help="with --package: the broken release")
    parser.add_argument(
        "--yes", action="store_true", help="ask nothing: take defaults for what no flag says"
    )


def main(options: argparse.Namespace) -> int:
    """Write a scenario folder; asks for what no flag says where there is somebody to ask."""
    kinds: tuple[Kind, ...] = ("hang", "program", "package")
    kind: Kind = next((kind for kind in kinds if getattr(options, kind)), "error")
    unfit = [key for key, (_, kinds) in ONLY.items() if kind not in kinds]
    if beside := next((key for key in unfit if getattr(options, key)), None):
        instead = f", or leave out --{kind}" if kind != "error" else ""
        return give_up("init", f"--{beside} is for {ONLY[beside][0]}; leave it out{instead}", USAGE)
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
        print(f"It plays a deadlock of torch, so here its cells are SKIPPED: {lacks_torch}")
    elif lacks_torch:
        print(f"Its ranks have no group (backend: [none]). For backend: [gloo], {lacks_torch}")
    if kind == "package":
        print(
            "It runs as it is, and only tells the two releases apart: put your question into"
            " subject.py, then:"
        )
    else:
        print(f"It runs as it is, on an invented bug. Put your code into {written[1].name}, then:")
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
