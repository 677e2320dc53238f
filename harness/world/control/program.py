"""Programs as ranks: command line, variables, and the proof of what was executed.

The program gets events on descriptor 3 and answers to gates on 4, in whatever language it is
written. Its start line is its first event, `ready`: it is answered when every rank is ready.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.forms.strict_json import JSON
from harness.rank.artefacts import FOLDER
from harness.rank.spec import RankSpec
from harness.world.control.rank_environment import server_environment

READY = "ready"
PREFIX = "RANKPROOF_"
# Programs whose first word behind them is a file to run, where it is not an option.
INTERPRETER = re.compile(
    r"(ba|da|z|k|a)?sh|python[0-9.]*|pypy[0-9.]*|perl[0-9.]*|ruby[0-9.]*|node|php[0-9.]*"
    r"|lua[0-9.]*|Rscript"
)


def command(
    words: Sequence[str], *, code: Path, arguments: Mapping[str, JSON], path: str
) -> list[str]:
    """Return the command line of every rank.

    A word that names a file of the code becomes its full path; `{name}` becomes the value of that
    argument, in words that hold nothing else too; other braces stay, because shells, awk and Perl
    have a use for them.

    Args:
        words: as the scenario gives them.
        code: the arm's staged folder, absolute.
        arguments: the arm's `with` and the cell's further axes.
        path: where to look for a program that is not a file of the code, as in PATH.

    Raises:
        FileNotFoundError: the program is neither in the code nor in PATH.
    """
    filled = [_fill(word, arguments) for word in words]
    argv = [str(code / word) if is_staged(word, code) else word for word in filled]
    program = argv[0] if is_staged(filled[0], code) else shutil.which(argv[0], path=path)
    if program is None:
        raise FileNotFoundError(
            f"{filled[0]} is neither a file of the subject's code nor a program in PATH"
        )
    return [program, *argv[1:]]


def is_staged(word: str, code: Path) -> bool:
    """Return whether a word of the command line names a file of the code, and not one beside it."""
    if not word or word.startswith("/") or ".." in word.split("/") or "\0" in word:
        return False
    try:
        return (code / word).is_file()
    except OSError:  # longer than a name can be
        return False


def refusal(word: str, *, staged: Iterable[Path]) -> str | None:
    """Why a program cannot be started here, or None. A refused cell is SKIPPED with this reason.

    Args:
        word: the first of its command line. Where an argument is filled in, only starting it tells.
        staged: the folder of each arm's code.
    """
    if "{" in word:
        return None
    if files := [code / word for code in staged if is_staged(word, code)]:
        return next(filter(None, map(_no_interpreter, files)), None)
    there = shutil.which(word, path=server_environment({}).get("PATH", os.defpath))
    return None if there else "it is not in PATH"


def slip(
    words: Sequence[str], *, code: Path, arguments: Mapping[str, JSON], path: str
) -> str | None:
    """Why this command line starts nothing, wherever it is tried; None where nothing is seen to be
    wrong.

    Args:
        words: as the scenario gives them.
        code: the arm's staged folder.
        arguments: the arm's `with` and the cell's further axes.
        path: as in PATH.
    """
    try:
        program, *rest = command(words, code=code, arguments=arguments, path=path)
    except FileNotFoundError as error:
        return str(error)
    named = _fill(words[0], arguments)
    if is_staged(named, code):
        if os.access(program, os.X_OK):
            return None
        remedy = (
            "start it with #! and its interpreter, or put the interpreter first, as in [sh,"
            f" {named}]"
        )
        return f"{named} is not an executable; {remedy}"
    script = rest[0] if rest and INTERPRETER.fullmatch(Path(program).name) else "-"
    # What it is given with an option need not be a file; it starts in an empty folder, so a file is
    # the code's or none.
    if (
        not script
        or script.startswith("-")
        or Path(script).is_absolute()
        or shutil.which(script, path=path)
    ):
        return None
    return f"{script} is not a file of the subject's folder, so {named} would not find it"


def _no_interpreter(file: Path) -> str | None:
    """Why a script that names its interpreter in its first line cannot be started here."""
    with file.open("rb") as opened:
        first = opened.readline(256)
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    return (
        f"its interpreter {words[0]} is not on this machine"
        if words and not Path(words[0]).exists()
        else None
    )


def variables(spec: RankSpec) -> dict[str, str]:
    """Return what a program is told: what a Python subject gets as its context and arguments."""
    values = {
        "EVENTS": "3",
        "GATES": "4",
        "RANK": str(spec.rank),
        "SIZE": str(spec.size),
        "SEED": str(spec.seed),
        "CODE": spec.folder,
        "SHARED": spec.shared,
        "KEEP": str(Path(spec.scratch, FOLDER)),
        "WITH": json.dumps(dict(spec.arguments), ensure_ascii=True, sort_keys=True),
    }
    values |= {f"INPUT_{_variable(name)}": path for name, path in spec.inputs.items()}
    values |= {f"WITH_{_variable(name)}": _text(value) for name, value in spec.arguments.items()}
    return {PREFIX + name: value for name, value in values.items()}


def _fill(word: str, arguments: Mapping[str, JSON]) -> str:
    for name, value in arguments.items():
        word = word.replace(f"{{{name}}}", _text(value))
    return word


def _text(value: JSON) -> str:
    """Return a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=True, sort_keys=True)


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")
