"""The command line: the commands with their help.

The module of each has `arguments(parser)` and `main(options)`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from harness import __version__
from harness.cli import USAGE

EPILOG = (
    "exit codes: 0 PASS, 1 FAIL, 2 INCONCLUSIVE (also: could not run, no key could sign), 3"
    " verification refused, 64 usage or scenario error, 70 our own bug"
)
COMPARED = (
    "exit codes: 0 every result is the same, 1 a result changed, 2 cannot tell, 3 a run is not"
    " verified, 64 usage. Times, scenario and environment are printed and do not count."
)


GATE_CODES = (
    "exit codes: 0 OPEN, 1 CLOSED (a requirement refuses, or a report is missing), 2 CANNOT TELL"
    " (INCONCLUSIVE or SKIPPED), 3 NOT VERIFIED (a report was refused by verification, or a trusted"
    " policy is missing), 64 usage, or a mistake in the policy"
)
LOOKED_AT = (
    "exit codes: 0 nothing wrong was found, 1 findings, 3 a file is not there, 4 warnings under"
    " --strict, 5 not a GGUF file or damaged, 15 not allowed to read it, 64 usage; of several files"
    " the highest"
)
FETCHED = (
    "exit codes: 0 done, or the same; 1 different, or a finding; 2 not decided; 3 not there; 4 not"
    " proven (--strict); 5 a damaged file, 10 no space, 11 a login is needed, 12 rate limit, 13"
    " other bytes than promised, 14 network or deadline, 15 no permission, 17 another process holds"
    " the lock, 64 usage"
)
RAN = (
    "exit codes: 0 it ran, 1 the named tokenizer is not the model's, 3 no tokenizer, 4 none that is"
    " proven, 5 damaged files, 16 no engine or device can run it, 64 usage; 10 to 15 and 17 as"
    " `tokenizer fetch`"
)
REPRODUCED = (
    "exit codes: 0 REPRODUCED, 1 SAME VERDICT, DIFFERENT FAILURE or NOT REPRODUCED, 2 CANNOT TELL"
    " or SOURCE DIFFERS, 3 the report was refused and nothing was run, 64 usage; with --fresh-seeds"
    " that of both passes together: 1 before 2 before 0"
)

COMMANDS: dict[str, tuple[str, str | None]] = {
    "run": ("run scenarios on real ranks and write a signed report for each", EPILOG),
    "list": ("list scenarios with their cells and trials", None),
    "lint": ("check scenario files and name every mistake with file, line and column", None),
    "init": ("write a scenario folder for your own bug: it lints clean and runs", None),
    "doctor": ("say what this machine can run, and what to do about each no", None),
    "environments": ("list or remove the environments that were made for arms", None),
    "faults": ("list the kinds of faults, what each needs, and whether it can run here", None),
    "checks": ("list the kinds of checks, and how a scenario writes each", None),
    "backends": ("list the backends, and whether each can run here", None),
    "schema": ("print a JSON Schema, for editors and programs", None),
    "show": ("show a run's report in the terminal", None),
    "view": ("write one page over all runs of a folder", None),
    "verify": ("check a report: signature, evidence, verdict and text", EPILOG),
    "gate": ("apply a release policy to the signed reports of one commit", GATE_CODES),
    "compare": ("compare two runs of a scenario, cell by cell and check by check", COMPARED),
    "matrix": (
        "try every kind of fault against the checks that have to see it, and sign what came out",
        EPILOG,
    ),
    "search": (
        "walk engines over models, shardings and prompts, and sign what diverged and what did not",
        EPILOG,
    ),
    "bundle": ("pack a run into one file, to send it to somebody", None),
    "reproduce": ("run a report or a bundle again, and say whether it is reproduced", REPRODUCED),
    "tokenizer": ("say what a tokenizer is, and what differs; find, fetch and lock one", FETCHED),
    "gguf": (
        "look into model files in the GGUF format, and say what is wrong with them",
        LOOKED_AT,
    ),
    "infer": ("continue a prompt with a GGUF model, once its tokenizer is proven", RAN),
    "models": (
        "list, make and describe small models, and say which engine runs which over how many ranks",
        None,
    ),
    "hosts": ("say of the machines of a hostfile whether ranks could run there", None),
    "hub": ("serve tokenizer repositories in the hub's protocol, with faults on purpose", None),
    "compat-check": ("BitNet's name for `gguf check`", LOOKED_AT),
    "inspect-gguf": ("BitNet's name for `gguf inspect`", LOOKED_AT),
    "pre-download-tokenizers": ("BitNet's name for `tokenizer fetch --for-models`", None),
    "crossval": ("BitNet's name for `tokenizer parity`, with --tokenizer-only", None),
}


# Commands that share a module.
MODULES = {
    **dict.fromkeys(("list", "faults", "checks", "backends", "schema"), "lists"),
    **dict.fromkeys(("init", "lint"), "scenarios"),
    **dict.fromkeys(("doctor", "environments", "hosts"), "machines"),
    **dict.fromkeys(("matrix", "search"), "series"),
    **dict.fromkeys(("show", "verify", "compare", "bundle"), "reports"),
    **dict.fromkeys(
        ("compat-check", "inspect-gguf", "pre-download-tokenizers", "crossval"), "bitnet"
    ),
}


class Parser(argparse.ArgumentParser):
    """argparse with our exit code for bad usage."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(USAGE)


def parser(
    chosen: str | None = None, arguments: Callable[[argparse.ArgumentParser], None] | None = None
) -> Parser:
    """Command line in the order of its help.

    Args:
        chosen: the command whose arguments are wanted; the module of no other is imported.
        arguments: adds them.
    """
    top = Parser(
        prog="rankproof",
        description=(
            "A validation harness for distributed LLM inference. "
            "A validation that could not have failed proves nothing."
        ),
        epilog=EPILOG,
    )
    top.add_argument("--version", action="version", version=f"rankproof {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (help_, epilog) in COMMANDS.items():
        command = commands.add_parser(name, help=help_, epilog=epilog)
        if name == chosen and arguments is not None:
            arguments(command)
    return top
