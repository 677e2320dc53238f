"""What a rank raised arrives as it was: its type, line, causes and kin, and who refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # each is short; together they take longer than the inner loop has

Live = Callable[..., Any]


@pytest.mark.parametrize(
    ("entry", "kind", "source"),
    [
        ("raising:bare", "AssertionError", "assert tokenizer"),
        ("raising:hostile", "ValueError", "raise ValueError(HOSTILE)"),
        ("raising:long", "ValueError", 'raise ValueError("x" * 1_000_000)'),
        ("raising:mute", "Mute", "raise Mute"),
        (
            "raising:group",
            "ExceptionGroup",
            'raise ExceptionGroup("both", [ValueError("one"), TypeError("two")])',
        ),
        ("raising:deep", "RecursionError", "return down(level + 1) + 1"),
        ("raising:very_deep", "ValueError", 'raise ValueError("bottom")'),
        ("raising:chain", "RuntimeError", 'raise RuntimeError("no weights") from error'),
    ],
)
def test_what_was_raised_is_told(live: Live, entry: str, kind: str, source: str) -> None:
    """Type and source line of an exception arrive whatever its text does, and the text is
    bounded.
    """
    lived = live(entry)
    for rank in (0, 1):
        error = lived.error(rank)
        assert (error["type"], error["source"], error["file"]) == (kind, source, "raising.py")
        assert len(error["message"]) < 5000
        assert len(error["frames"]) <= 60
        assert lived.ended(rank) == 1
    line = lived.history.error(0).event.line()
    assert line.isascii()
    assert not any(ord(letter) < 32 for letter in line)


def test_causes_and_members_of_a_group_are_told(live: Live) -> None:
    """What lies below an exception is in its description."""
    assert live("raising:chain").error(0)["causes"] == [
        {"type": "KeyError", "message": "'weights'"}
    ]
    members = [{"type": "ValueError", "message": "one"}, {"type": "TypeError", "message": "two"}]
    assert live("raising:group").error(0)["causes"] == members


def test_an_exception_that_breaks_whoever_looks_is_told_plainly(live: Live) -> None:
    """An exception whose attributes raise is described by its nearest built-in class."""
    error = live("raising:twisted").error(0)
    assert error["type"] == "Exception"
    assert error["message"] == "(it could not be described: RuntimeError)"


def test_an_error_names_the_classes_it_descends_from(live: Live) -> None:
    """Whoever judges an error can tell its kin: a library's own class of `ConnectionResetError` is
    one.
    """
    error = live("raising:lost").error(1)
    assert error["mro"] == [
        *(
            "Lost",
            "ConnectionResetError",
            "ConnectionError",
            "OSError",
            "Exception",
            "BaseException",
            "object",
        ),
    ]
    assert error["ours"] is False
    assert live("raising:twisted").error(0)["mro"] == ["Exception", "BaseException", "object"]


@pytest.mark.parametrize(
    ("entry", "arguments", "kind"),
    [
        ("raising:unfit", {}, "ValueError"),
        ("raising:unfit", {"name": "Not a name"}, "ValueError"),
        ("raising:unfit", {"name": "rank.exited"}, "ValueError"),
        ("raising:unfit", {"value": "x" * 300_000}, "ValueError"),
        ("raising:lost", {"lsot": 1}, "TypeError"),
        ("raising:lsot", {}, "SubjectNotFound"),
    ],
)
def test_what_the_runtime_itself_refused_is_told_from_what_the_subject_raised(
    live: Live, entry: str, arguments: dict[str, object], kind: str
) -> None:
    """An event that is none, an argument the entry does not take, a function that is not there: the
    runtime says no.
    """
    error = live(entry, arguments=arguments, backend="none").error(1)
    assert (error["type"], error["ours"]) == (kind, True)
