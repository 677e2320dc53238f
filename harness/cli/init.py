"""`rankproof init`."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from harness.cli import PASS, USAGE, give_up
from harness.cli.arguments import positive
from harness.cli.load import tell
from harness.forms.extras import missing
from harness.run.init import Answers, InitError, write
from harness.scenario import ScenarioError

DEFAULTS = {
    "title": "Every rank gets through",
    "question": "Does the code work on every rank after the fix?",
    "error": "AssertionError",
    "source": "assert tokenizer",
    "failing": "nonzero",
}
OF_AN_ERROR = ("error", "source", "failing")
QUESTIONS = {
    "title": "What does a PASS mean, in one line?",
    "question": "Which question does the verdict answer?",
    "error": "Which exception does the bug end with?",
    "source": "At which source line?",
    "failing": "On which ranks (every, nonzero, or a list such as [1])?",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("folder", type=Path, help="a new folder, such as scenarios/my-fix")
    parser.add_argument("--id", help="name of the scenario (default: the folder's)")
    parser.add_argument("--title", help="one line that says what a PASS means")
    parser.add_argument("--question", help="what the verdict answers")
    parser.add_argument("--ranks", type=positive, nargs="+", metavar="N", help="world sizes (default: 2 4)")
    parser.add_argument("--error", metavar="TYPE", help="exception the bug ends with (default: AssertionError)")
    parser.add_argument("--source", metavar="LINE", help="source line it ends at")
    parser.add_argument("--failing", metavar="RANKS", help="ranks it shows on: every, nonzero, or a list such as [1]")
    parser.add_argument(
        "--hang", action="store_true", help="the bug is a hang: write a control that has to stand still"
    )
    parser.add_argument("--yes", action="store_true", help="ask nothing: take defaults for what no flag says")


def main(options: argparse.Namespace) -> int:
    """Write a scenario folder; asks for what no flag says where there is somebody to ask."""
    given = {key: getattr(options, key) for key in DEFAULTS}
    if options.hang and (unfit := [f"--{key}" for key in OF_AN_ERROR if given[key]]):
        return give_up("init", f"{unfit[0]} is for a bug that raises; leave it out, or leave out --hang", USAGE)
    ask = sys.stdin.isatty() and not options.yes
    unanswered = [key for key in DEFAULTS if ask and not (options.hang and key in OF_AN_ERROR)]
    answers = {key: value or (_ask(key) if key in unanswered else DEFAULTS[key]) for key, value in given.items()}
    lacks = missing("torch")
    try:
        written = write(
            options.folder,
            Answers(
                id=options.id or options.folder.name,
                ranks=tuple(options.ranks or (2, 4)),
                hang=options.hang,
                backend="none" if lacks and not options.hang else "gloo",
                **answers,
            ),
        )
    except InitError as error:
        return give_up("init", error, USAGE)
    except ScenarioError as error:
        tell(error)
        return USAGE
    for path in written:
        print(f"wrote {path}")
    if lacks and options.hang:
        print(f"It plays a deadlock of torch, so here its cells are SKIPPED: {lacks}")
    elif lacks:
        print(f"Its ranks have no group (backend: [none]). For backend: [gloo], {lacks}")
    print("It runs as it is, on an invented bug. Put your code into subject.py, then:")
    print(f"  rankproof lint {shlex.quote(str(options.folder))}")
    print(f"  rankproof run {shlex.quote(str(options.folder))}")
    return PASS


def _ask(key: str) -> str:
    answer = input(f"{QUESTIONS[key]} [{DEFAULTS[key]}] ").strip()
    return answer or DEFAULTS[key]
