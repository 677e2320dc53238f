"""The answer in words, from what is kept."""

from __future__ import annotations

from harness.series.bisect.answer import answer
from harness.series.bisect.record import BisectRecord, KeptStep
from harness.series.bisect.walk import Word

VERSIONS = ["1.0", "1.1", "1.3", "1.4", "1.6"]


def record(words: dict[str, Word], moved: dict[str, str] | None = None) -> BisectRecord:
    steps = [
        KeptStep(
            version=version,
            word=word,
            why="why" if word == "CANNOT TELL" else "",
            moved={"steady": ("2.0", moved[version])} if version in (moved or {}) else {},
        )
        for version, word in words.items()
    ]
    return BisectRecord(
        format=1,
        id="wobbly",
        scenario="",
        identity="",
        overrides=[],
        package="wobbly",
        companions={},
        left_out={"1.2": "yanked", "1.5": "pre-release"},
        versions=VERSIONS,
        steps=steps,
    )


def test_neighbours_are_named_in_both_directions() -> None:
    """Two neighbouring versions are an exact answer; what is left out between them is named, and so
    is how many were not tried.
    """
    text, exact = answer(
        record({"1.0": "RIGHT", "1.1": "RIGHT", "1.3": "AT FAULT", "1.6": "AT FAULT"})
    )
    assert exact
    assert text.startswith(
        "first faulty version: 1.3; last good version: 1.1; left out between them: 1.2 (yanked)."
        " 1 of 5 versions were not tried"
    )
    text, exact = answer(record({"1.0": "AT FAULT", "1.1": "RIGHT"}))
    assert exact
    assert text.startswith("first good version: 1.1; last faulty version: 1.0. 3 of 5 versions")


def test_what_makes_an_answer_inexact_is_said() -> None:
    """A version between that cannot be told, a companion that moved at the border, and ends that
    are alike or cannot be told are no exact answer.
    """
    text, exact = answer(record({"1.0": "RIGHT", "1.1": "CANNOT TELL", "1.3": "AT FAULT"}))
    assert not exact
    assert text.startswith(
        "The answer changes between 1.0 (RIGHT) and 1.3 (AT FAULT); cannot tell for 1.1; left out"
        " between them: 1.2 (yanked)"
    )
    text, exact = answer(record({"1.0": "RIGHT", "1.1": "AT FAULT"}, moved={"1.0": "1.0"}))
    assert not exact
    assert "; steady also changed between them, and may be the cause" in text
    text, exact = answer(record({"1.0": "RIGHT", "1.6": "RIGHT"}))
    assert (exact, text.startswith("1.0 and 1.6 do not differ: both are RIGHT")) == (False, True)
    text, exact = answer(record({"1.6": "CANNOT TELL"}))
    assert (exact, text.startswith("Cannot tell for 1.6, an end of the range: why")) == (
        False,
        True,
    )


def test_an_answer_that_changes_twice_is_said() -> None:
    """A defect that came and went gives two borders, and no single version is blamed."""
    text, _ = answer(
        record({"1.0": "RIGHT", "1.1": "AT FAULT", "1.3": "RIGHT", "1.4": "RIGHT", "1.6": "RIGHT"})
    )
    assert "The answer changes more than once, so no single version explains it" in text
    assert "not tried" not in text
