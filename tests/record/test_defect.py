"""The word of a finding follows from the arms and from how its script ended."""

from __future__ import annotations

from typing import Any

import pytest

from harness.record.defect import FindingRecord, environments_with_script, finding_word
from harness.scenario.defect import StatedDefect
from tests.kit.records import cell, record


def finding(*doubts: str) -> FindingRecord:
    """Return a finding whose script ended with these doubts."""
    stated = StatedDefect(
        library="torch",
        harm="wrong-values",
        happens="It does.",
        should="It should.",
        at_fault=("1.0",),
        reports=("pytorch/pytorch#1",),
    )
    return FindingRecord(
        stated=stated, script="standalone.py", sha256="00" * 32, runs={}, doubts=list(doubts)
    )


@pytest.mark.parametrize(
    ("made", "found", "word"),
    [
        ({"verdict": "PASS"}, finding(), "SHOWN"),
        ({"verdict": "PASS"}, None, "SHOWN"),
        ({"verdict": "PASS"}, finding("it exited with 0"), "INCONCLUSIVE"),
        (
            {"verdict": "INCONCLUSIVE", "control": ["pass"] * 5, "candidate": ["pass"] * 5},
            finding(),
            "NOT SHOWN",
        ),
        (
            {"verdict": "INCONCLUSIVE", "control": ["pass", "fail"], "candidate": ["pass"] * 5},
            finding(),
            "INCONCLUSIVE",
        ),
        (
            {"verdict": "FAIL", "control": ["pass"] * 5, "candidate": ["fail"] * 5},
            finding(),
            "INCONCLUSIVE",
        ),
    ],
)
def test_the_word(made: dict[str, Any], found: FindingRecord | None, word: str) -> None:
    """SHOWN needs the script too; NOT SHOWN needs a clean candidate and a control that never
    failed.
    """
    assert finding_word(record(cell(**made)).judgement, found) == word


def test_one_cell_that_shows_it_is_not_not_shown() -> None:
    """A control that failed in one cell of two leaves the finding open."""
    clean = {"verdict": "INCONCLUSIVE", "control": ["pass"] * 5, "candidate": ["pass"] * 5}
    cells = [cell(**clean), cell("b=2", verdict="PASS")]
    judgement = record(*cells).judgement
    assert finding_word(judgement.model_copy(update={"verdict": "INCONCLUSIVE"}), None) == (
        "INCONCLUSIVE"
    )


def test_the_script_runs_once_in_an_environment_that_both_arms_have() -> None:
    """Twice where the candidate has another one."""
    assert environments_with_script({}) == ["control"]
    assert environments_with_script({"control": "a", "candidate": "a"}) == ["control"]
    assert environments_with_script({"control": "a"}) == ["control", "candidate"]
    assert environments_with_script({"control": "a", "candidate": "b"}) == ["control", "candidate"]
