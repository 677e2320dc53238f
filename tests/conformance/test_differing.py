from __future__ import annotations

import pytest

from harness.conformance.answer import Answer, Choice, TokenLogprob
from harness.conformance.rows.differing import TextComparison, far, judge
from harness.conformance.rows.row import Judged


def answer(text: str, *tokens: tuple[str, float, float]) -> Answer:
    """An answer with its tokens: each with its log probability and that of the runner-up."""
    logprobs = [TokenLogprob(token, value, (value, other)) for token, value, other in tokens]
    return Answer(200, choices={0: Choice(text, "length", logprobs or None)})


def judged(*comparisons: TextComparison) -> tuple[str, str]:
    try:
        found = judge(comparisons, "")
    except Judged as end:
        found = end.finding
    return found.word, found.about


SAME = TextComparison("same", answer("a"), answer("a"))
OTHER = TextComparison("other", answer("a"), answer("b"))


@pytest.mark.parametrize(
    ("differing", "equal", "word"),
    [
        (0, 6, "CONFORMS"),
        (1, 5, "CANNOT TELL"),
        (4, 2, "CANNOT TELL"),
        (5, 1, "VIOLATES"),
        (3, 0, "CANNOT TELL"),
        (4, 0, "VIOLATES"),
    ],
)
def test_without_log_probabilities_only_most_texts_accuse(
    differing: int, equal: int, word: str
) -> None:
    """Three quarters of at least four."""
    assert judged(*[OTHER] * differing, *[SAME] * equal)[0] == word


def test_one_text_accuses_where_its_token_was_not_close() -> None:
    """A token that was chosen far before all others is not chosen otherwise by rounding."""
    before = answer("ab", ("a", -0.1, -3.0), ("b", -0.1, -3.0))
    close = answer("ab", ("a", -0.7, -0.71), ("b", -0.1, -3.0))
    assert judged(
        SAME, TextComparison("far", before, answer("ac", ("a", -0.1, -3.0), ("c", -0.2, -2)))
    )[0] == ("VIOLATES")
    assert judged(SAME, TextComparison("close", close, answer("cb", ("c", -0.7, -0.71)))) == (
        "CANNOT TELL",
        "close",
    )


def test_what_follows_the_first_difference_is_not_compared() -> None:
    """Behind it the two continue different texts."""
    before = answer("ab", ("a", -0.7, -0.71), ("b", -0.1, -9.0))
    after = answer("cd", ("c", -0.7, -0.71), ("d", -0.1, -9.0))
    assert far(before, after) == ""


def test_a_probability_that_moved_far_accuses_though_the_text_is_the_same() -> None:
    """The cache of another request shows before it changes a token."""
    moved = TextComparison("moved", answer("a", ("a", -0.1, -3.0)), answer("a", ("a", -1.9, -2.0)))
    assert judged(moved) == ("VIOLATES", "differs")
