"""A equals B, as a scenario states it: what it means to everybody else, and slips that no run could
show.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.scenario import Scenario, cells, parse_scenario, reference_of
from tests.kit.problems import Problems

GOOD = """
schema: 1
id: same
title: The fast way computes what the plain one computes
question: Do both give the same values?
subject:
  entry: subject:score
  compare:
    a: {with: {fast: false}}
    b: {with: {fast: true}}
    defect: {value: score.loss, ranks: nonzero, absolute: 0.25}
matrix: {ranks: [2, 3], backend: [none], width: [8]}
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: loss, kind: close, ranks: every, value: score.loss, against: a, atol: 0.125}
  - {id: ids, kind: equal, ranks: every, value: score.ids, against: a}
"""
IDS = "defect: {value: score.ids, one: token}"


def scenario(text: str = GOOD) -> Scenario:
    return parse_scenario(text.encode(), name="s.yaml")


def test_a_comparison_is_a_candidate_a_control_and_a_reference(problems: Problems) -> None:
    """B is the candidate, b with the defect the control, and a world like theirs the reference, of
    a's own code.
    """
    assert problems(GOOD) == ()
    found = scenario()
    assert found.subject.candidate.with_ == {"fast": True}
    assert list(found.subject.arms) == ["candidate", "control", "reference"]
    (fault,) = found.faults
    assert (fault.id, fault.kind, fault.arm, str(fault.ranks)) == (
        "defect",
        "perturb",
        "control",
        "nonzero",
    )
    assert found.subject.control is not None
    expected = found.subject.control.must_fail.expected(3)
    held = "it allows atol 0.125, but an element of score.loss was changed by 0.25 (absolute)"
    assert expected == (("loss", (1, 2), held),)
    plan = reference_of(found, cells(found)[1])
    assert plan is not None
    assert (plan.arm, plan.size, plan.arguments, plan.offered) == (
        "reference",
        3,
        {"fast": False, "width": 8},
        False,
    )


def test_each_defect_is_a_fault_of_its_own(problems: Problems) -> None:
    """Every check that compares what one of them changes must fail, on the ranks that it asks of
    those changed.
    """
    text = GOOD.replace("defect: {value", "defect:\n      - {value").replace(
        "absolute: 0.25}", f"absolute: 0.25}}\n      - {IDS.removeprefix('defect: ')}"
    )
    assert problems(text) == ()
    found = scenario(text)
    assert [fault.id for fault in found.faults] == ["defect-1", "defect-2"]
    assert found.subject.control is not None
    assert [one[:2] for one in found.subject.control.must_fail.expected(2)] == [
        ("loss", (1,)),
        ("ids", (0, 1)),
    ]


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        (
            "fast: true",
            "fast: false",
            "subject.compare",
            "has identical code, arguments and environments for a and b",
        ),
        (
            "  compare:",
            "  candidate: {}\n  compare:",
            "subject.candidate",
            "cannot be combined with compare",
        ),
        (
            "  compare:",
            "  reference: {}\n  compare:",
            "subject.reference",
            "cannot be combined with compare",
        ),
        (
            "  entry: subject:score",
            "  program: [sh, rank.sh]",
            "subject.compare",
            "but this subject is a program",
        ),
        (
            "value: score.loss, ranks",
            "value: score.los, ranks",
            "subject.compare.defect.value",
            "no check can detect",
        ),
        (
            "value: score.loss, ranks",
            "artefact: loss, ranks",
            "subject.compare.defect.artefact",
            "no check can detect",
        ),
        (
            "absolute: 0.25",
            "one: character",
            "subject.compare.defect.one",
            "changes a character of a string",
        ),
        ("absolute: 0.25", "absolute: 0", "subject.compare.defect.absolute", "is not allowed"),
        (", absolute: 0.25", "", "subject.compare.defect", "does not say the size"),
        (
            "absolute: 0.25",
            "absolute: 0.25, ulp: 1",
            "subject.compare.defect.ulp",
            "cannot be combined with absolute",
        ),
        ("absolute: 0.25", "absolut: 0.25", "subject.compare.defect.absolut", "not a known key"),
        (
            "value: score.loss, ranks: nonzero",
            "ranks: every",
            "subject.compare.defect",
            "does not say what",
        ),
        (
            "ranks: nonzero",
            "ranks: [2]",
            "subject.compare.defect.ranks[0]",
            "not a rank of the smallest world",
        ),
        (
            "close, ranks: every",
            "close, ranks: [0]",
            "subject.compare.defect.ranks",
            "are not covered by",
        ),
        (
            "value: score.loss, against: a",
            "value: score.loss, against: reference",
            "checks[0].against",
            "must be a",
        ),
        (
            "checks:",
            "faults: [{id: x, kind: kill, ranks: [1], at: score}]\nchecks:",
            "faults",
            "cannot be combined with",
        ),
        (
            "checks:",
            "measure: [{id: m, probe: rss, against: control}]\nchecks:",
            "measure[0].against",
            "is b with the defect",
        ),
        (
            "b: {with: {fast: true}}",
            "b: {with: {fast: true, width: 9}}",
            "subject.compare.b.with.width",
            "an axis",
        ),
        (
            "b: {with: {fast: true}}",
            "b: {file: ../other.py}",
            "subject.compare.b.file",
            "inside the scenario's",
        ),
    ],
)
def test_slips_are_named_at_their_key(
    old: str, new: str, key: str, words: str, problems: Problems
) -> None:
    """What could only end INCONCLUSIVE, or with a PASS that says nothing, is said before anything
    runs.
    """
    assert old in GOOD
    found = problems(GOOD.replace(old, new, 1))
    assert [str(one) for one in found if one.key == key and words in one.message], [
        str(one) for one in found
    ]


def test_a_comparison_of_nothing_is_refused(problems: Problems) -> None:
    """No check says against: a."""
    text = (
        GOOD[: GOOD.index("checks:")] + "checks: [{id: ended, kind: exit, ranks: every, code: 0}]\n"
    )
    assert [one.message for one in problems(text) if one.key == "subject.compare"] == [
        "compares nothing, because no check has against: a"
    ]


def test_a_check_says_whom_it_is_compared_with(problems: Problems) -> None:
    """`a` is for a comparison; what is compared by content has one thing to equal."""
    plain = GOOD.replace(
        "  compare:\n    a: {with: {fast: false}}\n    b: {with: {fast: true}}\n", ""
    )
    plain = plain.replace("    defect: {value: score.loss, ranks: nonzero, absolute: 0.25}\n", "")
    found = [one for one in problems(plain) if one.key == "checks[0].against"]
    assert [one.message for one in found] == ["needs a subject.compare section"]
    both = problems(GOOD.replace("score.ids, against: a", "score.ids, against: a, to: [1]"))
    assert [one.key for one in both] == ["checks[1].to"]
    neither = problems(GOOD.replace("score.ids, against: a", "score.ids"))
    assert [one.key for one in neither] == ["checks[1].to"]


def test_a_defect_within_the_tolerance_is_noted(tmp_path: Any) -> None:
    """Lint says both numbers; the run would be INCONCLUSIVE."""
    from harness.scenario import load_scenario

    (tmp_path / "scenario.yaml").write_text(GOOD.replace("absolute: 0.25", "absolute: 0.125"))
    notes = [str(one) for one in load_scenario(tmp_path).notes]
    assert any(
        "is within the tolerance of the check loss (atol 0.125), so it cannot be detected" in one
        for one in notes
    ), notes
