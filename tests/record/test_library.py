"""Modules of libraries compared, by lists made by hand: which texts are kept, and what the
difference of two shows.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from harness.record.changed import (
    BUDGET,
    LINE_LIMIT,
    LINES_COMPARED,
    TEXT_LIMIT,
    LoadedLibraries,
    chosen,
    difference,
)

OLD, NEW = "a" * 64, "b" * 64
ARMS = ("control", "candidate")


def listing(files: dict[str, str], *, name: str = "engine", **more: Any) -> bytes:
    """A list that tells files of a distribution."""
    one = {"package": name, "distribution": name, "version": "1", "record": "as", "files": files}
    return json.dumps({"installed": {}, "others": [], "in_full": [one], **more}).encode()


def loaded(
    control: dict[str, str], candidate: dict[str, str], *, name: str = "engine"
) -> LoadedLibraries:
    """What one rank of each arm told."""
    found = LoadedLibraries(ARMS)
    for arm, files in (("control", control), ("candidate", candidate)):
        found.add(arm, listing(files, name=name), of=["engine"], ranks=[0])
    return found


NO_PAIR: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "the same content": ({"engine/a.py": OLD}, {"engine/a.py": OLD}),
    "in one arm only": ({"engine/a.py": OLD}, {}),
    "compiled": ({"engine/a.so": OLD}, {"engine/a.so": NEW}),
    "unreadable": ({"engine/a.py": OLD}, {"engine/a.py": "unreadable: no file"}),
    "out of the folder": ({"../../.ssh/a.py": OLD}, {"../../.ssh/a.py": NEW}),
    "from the root": ({"/etc/a.py": OLD}, {"/etc/a.py": NEW}),
}


@pytest.mark.parametrize("name", NO_PAIR)
def test_what_has_no_two_texts_to_compare(name: str) -> None:
    """One content, one arm, no Python text, or a path that leads out of the package: nothing is
    read for it.
    """
    assert list(loaded(*NO_PAIR[name]).pairs()) == []


def test_only_the_packages_in_question_count() -> None:
    """A distribution that nobody named has no text in the evidence, and a list that cannot be read
    tells nothing.
    """
    assert list(loaded({"a.py": OLD}, {"a.py": NEW}).pairs()) == [("engine", "a.py", OLD, NEW)]
    assert list(loaded({"a.py": OLD}, {"a.py": NEW}, name="numpy").pairs()) == []
    found = LoadedLibraries(ARMS)
    for bad in (
        b"",
        b"[]",
        b'{"others": [{"distribution": "engine", "files": 7}]}',
        b'{"others": 3, "left_out": -1}',
    ):
        found.add("control", bad, of=["engine"])
    assert (found.digests, found.untold) == ({}, 0)


def test_a_module_that_some_ranks_loaded_or_that_is_not_one() -> None:
    """Ranks that loaded a file where others did not are named, and two contents in one arm are no
    text to compare.
    """
    found = LoadedLibraries(ARMS)
    found.add("control", listing({"a.py": OLD}), of=["engine"], ranks=[0, 1])
    found.add("candidate", listing({"a.py": NEW, "b.py": NEW}), of=["engine"], ranks=[1])
    found.add("candidate", listing({"a.py": NEW}, left_out=3), of=["engine"], ranks=[0])
    assert found.only("engine", "a.py") == {}
    assert found.only("engine", "b.py") == {"candidate": [1]}
    assert len(list(found.pairs())) == 1
    assert found.untold == 3
    found.add("candidate", listing({"a.py": OLD}), of=["engine"], ranks=[0])
    assert list(found.pairs()) == []


def test_small_pairs_are_kept_before_large_ones() -> None:
    """Both texts of a pair or none, within the limit of a file and of a run.

    A text in two pairs counts once.
    """
    half = BUDGET // 2
    assert chosen([], {}) == set()
    assert chosen([("a", "b")], {"a": TEXT_LIMIT, "b": TEXT_LIMIT}) == {"a", "b"}
    assert chosen([("a", "b")], {"a": TEXT_LIMIT + 1, "b": 1}) == set()
    assert chosen([("a", "b")], {"a": 1, "b": None}) == set()
    many = [(f"{index}a", f"{index}b") for index in range(half // TEXT_LIMIT + 1)]
    sizes: dict[str, int | None] = dict.fromkeys(
        (text for pair in many for text in pair), TEXT_LIMIT
    )
    kept = chosen([("s", "t"), *many], {**sizes, "s": 1, "t": 2})
    assert {"s", "t"} <= kept
    assert sum(sizes.get(text, 0) or 0 for text in kept) == BUDGET - 2 * TEXT_LIMIT
    assert chosen([("a", "b"), ("a", "c")], {"a": 1, "b": 1, "c": 1}) == {"a", "b", "c"}


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
    "a text that reads alike": (b"\xff\n", b"\\xff\n", []),
    "a new text": (b"", b"a\n", ["@@ -0,0 +1 @@", "+a"]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_the_difference_of_two_texts_shows(name: str) -> None:
    """Every difference that can be read: other ends of lines too, and bytes that are not text."""
    before, after, lines = SHOWN[name]
    assert difference(before, after) == lines


def test_a_table_of_very_many_lines_is_not_compared() -> None:
    """Lines that stand there hundreds of times each are what a comparison takes longest for."""
    begin = time.monotonic()
    table = [
        b"".join(b"%03d\n" % (number * step % 105) for number in range(TEXT_LIMIT // 4))
        for step in (7, 11)
    ]
    assert difference(*table) == [f"more than {LINES_COMPARED} lines: not compared"]
    assert time.monotonic() - begin < 5


def test_a_long_line_is_cut() -> None:
    """A module on one line fills no report."""
    _, line = difference(b"", b"x" * 10_000 + b"\n")
    assert len(line) < LINE_LIMIT + 50
    assert line.endswith("more characters)")
