"""Text that is cut, counted and listed: what is left out is said, and only where that saves room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.forms.text import bounded, numbered


@given(text=st.text(max_size=400), limit=st.none() | st.integers(0, 300))
def test_an_ellipsis_never_hides_less_than_it_is_long(text: str, limit: int | None) -> None:
    """What is cut is shorter than it was, says how much is missing, and loses nothing else."""
    shown = bounded(text, limit)
    if shown == text:
        return
    assert limit is not None
    assert len(shown) < len(text)
    kept, hidden = shown[:limit], text[limit:]
    assert kept == text[:limit]
    assert shown[limit:] == f"... ({len(hidden)} more characters)"


@pytest.mark.parametrize(("length", "is_cut"), [(10, False), (33, False), (34, False), (35, True)])
def test_a_text_is_cut_where_that_saves_room(length: int, is_cut: bool) -> None:
    """A text of ten characters more than its limit would be longer with the words about it."""
    shown = bounded("x" * length, 10)
    assert (shown != "x" * length) is is_cut
    assert not is_cut or shown == "x" * 10 + f"... ({length - 10} more characters)"


@given(numbers=st.sets(st.integers(0, 99)).map(sorted))
def test_numbers_are_listed_by_runs(numbers: list[int]) -> None:
    """Three in a row or more are a range; read back, the words are the same numbers."""
    words = numbered("rank", numbers)
    if not numbers:
        assert words == "no rank"
        return
    noun, _, listed = words.partition(" ")
    assert noun == ("rank" if len(numbers) == 1 else "ranks")
    back: list[int] = []
    for span in listed.split(", "):
        first, dash, last = span.partition("-")
        found = range(int(first), int(last if dash else first) + 1)
        assert not dash or len(found) > 2
        back += found
    assert back == numbers
    alone = [int(span) for span in listed.split(", ") if "-" not in span]
    assert not any({number + 1, number + 2} <= set(alone) for number in alone)
