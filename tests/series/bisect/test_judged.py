"""The word that follows from what a run shows."""

from __future__ import annotations

from harness.series.bisect.judged import CellCount, StepFacts, word_of

WAY = "AssertionError in ask of subject.py"


def facts(
    failed: int, counted: int, *ways: str, tells: bool = True, cell: str = "ranks=2"
) -> StepFacts:
    cells = {cell: CellCount(counted=counted, failed=failed, ways=frozenset(ways))}
    return StepFacts(cells=cells, failed=bool(failed) if tells else None, why="" if tells else "no")


def test_the_usual_words() -> None:
    """A version is RIGHT, AT FAULT, or cannot be told where its run does not tell."""
    fault = facts(6, 6, WAY)
    assert word_of(facts(0, 6), fault, confidence=0.95) == ("RIGHT", "")
    assert word_of(facts(2, 6, WAY), fault, confidence=0.95) == ("AT FAULT", WAY)
    assert word_of(facts(6, 6, WAY, tells=False), fault, confidence=0.95) == ("CANNOT TELL", "no")


def test_a_version_that_fails_in_another_way_is_not_at_fault() -> None:
    """A failure that the faulty end does not show is named, and decides nothing."""
    word, why = word_of(facts(6, 6, WAY, "SIGSEGV"), facts(6, 6, WAY), confidence=0.95)
    assert word == "CANNOT TELL"
    assert why == "it fails differently from the faulty end: SIGSEGV"


def test_a_rare_defect_needs_more_trials() -> None:
    """Six clean trials do not show that a defect is gone that fails two of twelve; as many as are
    named do.
    """
    fault = facts(2, 12, WAY)
    word, why = word_of(facts(0, 6), fault, confidence=0.95)
    assert word == "CANNOT TELL"
    needed = int(why.rpartition("--trials ")[2])
    assert word_of(facts(0, needed - 1), fault, confidence=0.95)[0] == "CANNOT TELL"
    assert word_of(facts(0, needed), fault, confidence=0.95)[0] == "RIGHT"


def test_a_cell_that_did_not_run_shows_nothing() -> None:
    """A version is not RIGHT where the cell in which the defect shows was skipped."""
    word, why = word_of(facts(0, 9, cell="ranks=3"), facts(6, 6, WAY), confidence=0.95)
    assert (word, "ranks=2" in why) == ("CANNOT TELL", True)
