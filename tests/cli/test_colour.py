"""Verdicts have a colour where somebody watches, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from harness.report.terminal import STYLES

# Each argument is a word, or variables for the words behind it.
CODE = """
import os, sys
from harness.cli.streams import print_word, streams
for given in sys.argv[1:]:
    if "=" in given:
        os.environ.update([given.split("=")])
        continue
    with streams():
        print_word("  ranks=2\\x1b[2J: ", given, " in 1 s")
"""


def watched(*given: str) -> list[bytes]:
    """The lines that a terminal gets, in an environment that says nothing of colour."""
    control, terminal = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
    try:
        subprocess.run(
            [sys.executable, "-c", CODE, *given],
            stdout=terminal,
            env={**known, "TERM": "xterm-256color"},
            check=True,
        )
        return os.read(control, 4096).splitlines()
    finally:
        os.close(control)
        os.close(terminal)


def test_a_verdict_has_its_colour_on_a_terminal() -> None:
    """Green, red or yellow, in bold; no sequence of anybody else's gets through."""
    numbers = {"PASS": b"32", "FAIL": b"31", "INCONCLUSIVE": b"33"}
    for (word, number), said in zip(numbers.items(), watched(*numbers), strict=True):
        assert "bold" in STYLES[word]
        assert b"\x1b[1;" + number + b"m" + word.encode() + b"\x1b[0m" in said
        assert b"\x1b[2J" not in said


def test_no_colour_where_nobody_wants_one() -> None:
    """By the usual variables."""
    off = ("NO_COLOR=1", "PASS", "NO_COLOR=", "CI=true", "PASS", "CI=", "TERM=dumb", "PASS")
    coloured, *plain = watched("PASS", *off)
    assert b"\x1b" in coloured
    assert len(plain) == 3
    assert b"\x1b" not in b"".join(plain)


def test_no_colour_in_a_pipe() -> None:
    """A program reads it."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, "FAIL"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "  ranks=2\\x1b[2J: FAIL in 1 s\n"
