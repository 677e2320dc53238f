"""The order in which versions are tried, without a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.series.bisect.walk import Border, Word, borders, walk


def walked(
    truth: list[Word], *, known: dict[str, Word] | None = None, every: bool = False
) -> tuple[dict[str, Word], list[str]]:
    """The words that a walk over versions finds, and the versions in the order it asked for."""
    versions = [str(index) for index in range(len(truth))]
    words = dict(known or {})
    asked: list[str] = []

    def ask(version: str) -> None:
        asked.append(version)
        words[version] = truth[int(version)]

    walk(versions, lambda: words, ask, every=every)
    return words, asked


@given(
    before=st.integers(1, 20),
    after=st.integers(1, 20),
    silent=st.sets(st.integers(1, 38)),
    mended=st.booleans(),
)
def test_one_border_is_found_whatever_cannot_be_told(
    before: int, after: int, silent: set[int], mended: bool
) -> None:
    """Where the answer changes once, the border that is found has only versions that cannot be told
    in it, in either direction.
    """
    old: Word = "AT FAULT" if mended else "RIGHT"
    new: Word = "RIGHT" if mended else "AT FAULT"
    truth: list[Word] = [old] * before + [new] * after
    told: list[Word] = [
        "CANNOT TELL" if index in silent and index < len(truth) - 1 else word
        for index, word in enumerate(truth)
    ]
    words, asked = walked(told)
    versions = [str(index) for index in range(len(told))]
    (border,) = borders(versions, words)
    low = max(index for index in range(before) if told[index] != "CANNOT TELL")
    high = next(index for index in range(before, len(told)) if told[index] != "CANNOT TELL")
    assert border == Border(str(low), str(high), tuple(versions[low + 1 : high]))
    assert len(asked) == len(set(asked))


def test_few_versions_are_tried() -> None:
    """Of 64 versions that can all be told, at most 8 are tried."""
    _, asked = walked(["RIGHT"] * 40 + ["AT FAULT"] * 24)
    assert len(asked) <= 8


@pytest.mark.parametrize("word", ["RIGHT", "AT FAULT"])
def test_ends_that_do_not_differ_end_it(word: Word) -> None:
    """Where both ends have one answer, nothing between them is tried unless every version is asked
    for: a defect that came and went is then seen, with two borders.
    """
    other: Word = "AT FAULT" if word == "RIGHT" else "RIGHT"
    truth: list[Word] = [word, word, other, other, word]
    assert walked(truth)[1] == ["4", "0"]
    words, _ = walked(truth, every=True)
    assert borders(list("01234"), words) == [Border("1", "2", ()), Border("3", "4", ())]


def test_an_end_that_cannot_be_told_ends_it() -> None:
    """Nothing else is tried after an end that cannot be told."""
    assert walked(["RIGHT", "RIGHT", "CANNOT TELL"])[1] == ["2"]


def test_versions_of_an_earlier_bisect_narrow_the_range() -> None:
    """What is known is not asked for again, and answers that go back and forth show as further
    borders.
    """
    truth: list[Word] = ["RIGHT"] * 8 + ["AT FAULT"] * 8
    assert "4" not in walked(truth, known={"4": "RIGHT", "12": "AT FAULT"})[1]
    words, _ = walked(truth, known={"4": "AT FAULT", "6": "RIGHT"})
    assert len(borders([str(index) for index in range(16)], words)) == 3
