"""What changed between the arms: what the difference of two modules shows, and that code that ranks
loaded comes first.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from harness.events import Event
from harness.history import History
from harness.record.changed import (
    COMMENTS_ALONE,
    FILE_LINES,
    LINE_LIMIT,
    LINES,
    LINES_COMPARED,
    LOADED_LINES,
    ChangedCode,
    TextDifference,
    difference,
)
from harness.record.libraries import TEXT_LIMIT

# By arm and file: `engine.py` and the long `model.py` are loaded, the first file by its name is
# not.
FILES = {
    "a_download.py": ("old\n" * 300, "new\n" * 300),
    "engine.py": ("wrong\n", "right\n"),
    "model.py": ("before\n" * 300, "after\n" * 300),
    "same.py": ("same\n", "same\n"),
}


def read(path: str) -> bytes:
    arm, _, file = path.removeprefix("evidence/source/").partition("/")
    return FILES[file][arm == "candidate"].encode()


def changed(*loaded: str) -> ChangedCode:
    arms: Any = {
        arm: SimpleNamespace(
            files={file: texts[which] for file, texts in FILES.items()}, arguments="{}"
        )
        for which, arm in enumerate(("control", "candidate"))
    }
    found = ChangedCode(arms, read)
    modules: Any = [{"module": one, "file": one, "sha256": "0" * 64} for one in loaded]
    values = {"entry": "engine.py", "elsewhere": False, "modules": modules}
    event = Event(ns=1, by="rank", rank=0, pid=1, name="subject.loaded", values=values)
    found.hear("evidence/x/candidate-00000/events.jsonl", History([event], size=1))
    return found


def files(lines: list[str]) -> list[str]:
    return [line.removeprefix("+++ candidate/") for line in lines if line.startswith("+++ ")]


def test_what_ranks_loaded_comes_first() -> None:
    """The shortest first; no file takes the place of all others; what nobody loaded is counted."""
    lines = changed("model.py", "engine.py", "same.py").lines([])
    assert files(lines) == ["engine.py", "model.py"]
    assert "+right" in lines
    assert lines[-1].startswith("... (1 more file that no rank loaded differs")
    assert any("more lines" in line for line in lines)
    assert len(lines) <= LOADED_LINES
    assert sum(line in ("-before", "+after") for line in lines) < FILE_LINES


def test_where_nobody_tells_they_come_by_name() -> None:
    """So it is where no rank loaded a file that differs, as of programs."""
    lines = changed().lines([])
    assert files(lines) == ["a_download.py"]
    assert len(lines) == LINES + 1


SHOWN = {
    "a line": (b"a\nb\n", b"a\nc\n", ["@@ -1,2 +1,2 @@", " a", "-b", "+c"]),
    "a line end": (b"a\r\n", b"a\n", ["@@ -1 +1 @@", "-a\r", "+a"]),
    "the last line end": (b"a\n", b"a", ["@@ -1 +1,2 @@", " a", "+\\ No newline at end of file"]),
    "what Python takes for a line end": (
        b"a\x0cb\n",
        b"a\xe2\x80\xa8b\n",
        ["@@ -1 +1 @@", "-a\x0cb", "+a\u2028b"],
    ),
    "what is not UTF-8": (b"\xff\n", b"\xfe\n", ["@@ -1 +1 @@", "-\\xff", "+\\xfe"]),
    "a comment that is not at the head": (
        b"a\n# b\n",
        b"a\n# c\n",
        ["@@ -1,2 +1,2 @@", " a", "-# b", "+# c"],
    ),
    "a new text": (b"", b"a\n", ["@@ -0,0 +1 @@", "+a"]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_the_difference_of_two_texts_shows(name: str) -> None:
    """Every difference that can be read: other ends of lines too, and bytes that are not text."""
    before, after, lines = SHOWN[name]
    found = difference(before, after)
    assert (found.lines, found.why) == (lines, "")
    assert found.removed == sum(line[0] == "-" for line in lines)
    assert found.added == sum(line[0] == "+" for line in lines)


def test_texts_that_read_alike_have_no_diff() -> None:
    """The reader is told that bytes differ which no diff can show."""
    found = difference(b"a = 1\n\xff\n", b"a = 1\n\\xff\n")
    assert found == TextDifference(why="the texts look the same, but their bytes differ")


COPYRIGHT = b"# Copyright \xc2\xa9 2023 Apple Inc.\n\n"
LATER = b"# Copyright \xc2\xa9 2023-2024 Apple Inc.\n# All rights reserved.\n\n"
ALIKE = {
    "another copyright line": (COPYRIGHT + b"a = 1\n", LATER + b"a = 1\n"),
    "no copyright line": (b"a = 1\n", LATER + b"a = 1\n"),
    "comments alone": (COPYRIGHT, LATER),
    "no line end behind it": (b"# 2023", b"# 2024"),
    "nothing": (b"", COPYRIGHT),
    "other line ends": (b"# 2023\r\n\r\na = 1\n", b"\f\t# 2024\na = 1\n"),
}


@pytest.mark.parametrize("name", ALIKE)
def test_comments_before_the_first_statement_are_left_out(name: str) -> None:
    """Copyright and licence are no change of a module."""
    assert difference(*ALIKE[name]) == TextDifference(why=COMMENTS_ALONE)


def test_a_diff_has_the_line_numbers_of_the_files_and_no_copyright_line() -> None:
    """Also where the first statement changed, right below the copyright line."""
    found = difference(COPYRIGHT + b"a = 1\n", LATER + b"a = 2\n")
    assert found.lines == ["@@ -3 +4 @@", "-a = 1", "+a = 2"]


MEANT = {
    "the encoding": (b"# coding: latin-1\na = 1\n", b"# coding: cp1252\na = 1\n"),
    "the encoding in the second line": (
        b"# a +AAo-import os\n# coding=utf-7\n",
        b"# a\n# coding=utf-7\n",
    ),
    "code behind a carriage return": (b"# a\rimport os\n", b"# a\n"),
    "an encoding behind a comment": (
        b"# +AAo-import os\n# coding=utf-7\rb = 1\n",
        b"# b\n# coding=utf-7\rb = 1\n",
    ),
    "bytes that are not UTF-8": (b"# \xff\n", b"# a\n"),
    "a null byte": (b"# \0\n", b"# a\n"),
    "a docstring": (b'"""2023"""\n', b'"""2024"""\n'),
    "a string like a comment": (b'A = """\n# 2023\n"""\n', b'A = """\n# 2024\n"""\n'),
}


@pytest.mark.parametrize("name", MEANT)
def test_what_means_something_to_python_is_shown(name: str) -> None:
    """It may look like a comment, and change what is executed or whether anything is."""
    assert difference(*MEANT[name]).lines


def test_a_table_of_very_many_lines_is_not_compared() -> None:
    """Lines that stand there hundreds of times each are what a comparison takes longest for."""
    begin = time.monotonic()
    table = [
        b"".join(b"%03d\n" % (number * step % 105) for number in range(TEXT_LIMIT // 4))
        for step in (7, 11)
    ]
    assert difference(*table).why == f"more than {LINES_COMPARED} lines: not compared"
    assert time.monotonic() - begin < 5


def test_a_long_line_is_cut() -> None:
    """A module on one line fills no report."""
    _, line = difference(b"", b"x" * 10_000 + b"\n").lines
    assert len(line) < LINE_LIMIT + 50
    assert line.endswith("more characters)")
