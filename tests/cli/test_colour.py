"""Verdicts have a colour where somebody watches, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from harness.report.terminal import STYLES

CODE = """
import sys
from harness.cli.streams import print_word, streams
with streams():
    print_word("  ranks=2\\x1b[2J: ", sys.argv[1], " in 1 s")
"""


def watched(word: str, **environ: str) -> bytes:
    """What a terminal gets."""
    control, terminal = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
    try:
        subprocess.run(
            [sys.executable, "-c", CODE, word],
            stdout=terminal,
            env={**known, "TERM": "xterm-256color", **environ},
            check=True,
        )
        return os.read(control, 4096)
    finally:
        os.close(control)
        os.close(terminal)


@pytest.mark.parametrize("word", ["PASS", "FAIL", "INCONCLUSIVE"])
def test_a_verdict_has_its_colour_on_a_terminal(word: str) -> None:
    """Green, red or yellow, in bold; no sequence of anybody else's gets through."""
    assert "bold" in STYLES[word]
    number = {"PASS": b"32", "FAIL": b"31", "INCONCLUSIVE": b"33"}[word]
    said = watched(word)
    assert b"\x1b[1;" + number + b"m" + word.encode() + b"\x1b[0m" in said
    assert b"\x1b[2J" not in said


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"CI": "true"}, {"TERM": "dumb"}])
def test_no_colour_where_nobody_wants_one(environ: dict[str, str]) -> None:
    """By the usual variables."""
    assert b"\x1b" not in watched("PASS", **environ)


def test_no_colour_in_a_pipe() -> None:
    """A program reads it."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, "FAIL"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "  ranks=2\\x1b[2J: FAIL in 1 s\n"
