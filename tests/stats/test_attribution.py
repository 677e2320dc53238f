"""What a wrong output comes from: each cause excluded, found or open by what was looked at, and
never more.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness.checks import Finding, RankFinding
from harness.checks.equivalent import GENERATED
from harness.events import Event
from harness.history import History
from harness.scenario import Cell, parse_scenario
from harness.stats.attribution import TOKENS, Attribution, attribute, climb, on_rungs
from harness.stats.cell_keepers import AttributionKeeper, JudgedTrial
from harness.stats.outcome import Failure, Trial
from harness.stats.tally import Tally

SCENARIO = parse_scenario(
    b"""
schema: 1
id: rungs
title: Rungs
question: Which is the first that is wrong?
subject:
  entry: subject:run
  candidate: {with: {defect: none}}
  control: {with: {defect: some}, must_fail: {check: same, ranks: every}}
  reference: {with: {defect: none}}
matrix: {ranks: [2, 3], backend: [gloo]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 5, control: 2, accept: {failure_rate_below: 50%}}
observe: [collectives]
checks:
  - {id: same,    kind: equivalent, ranks: every, against: reference}
  - {id: in-step, kind: ledger-agrees, ranks: every}
  - {id: alike,   kind: environment-agrees, ranks: every}
""",
    name="scenario.yaml",
    overrides=[],
)


def finding(check: str, kind: str, reason: str = "", *, uncompared: bool = False) -> Finding:
    """Of two ranks, the second of which fails by this reason."""
    parts = [RankFinding(rank=0, passed=True)]
    parts.append(RankFinding(rank=1, passed=not reason, reason=reason, uncompared=uncompared))
    return Finding(check=check, kind=kind, ranks=tuple(parts))


def attributed(
    same: Finding, *, step: str = "", alike: str = "", history: History | None = None
) -> Attribution | None:
    others = [
        finding("in-step", "ledger-agrees", step),
        finding("alike", "environment-agrees", alike),
    ]
    return attribute(SCENARIO, 0, "events.jsonl", [same, *others], history or History([], size=2))


def words(found: Attribution) -> dict[str, str]:
    return {cause.what: cause.word for cause in found.causes}


WRONG = finding("same", "equivalent", "DIVERGENT: off")


def test_each_cause_is_excluded_found_or_open() -> None:
    """By the check that looked: one that holds excludes, one that fails was found, one that nobody
    asked is open.
    """
    found = attributed(WRONG, alike="torch differs")
    assert found is not None
    assert words(found) == {
        "the ranks do not have the sharded checkpoint": "open",
        "a rank does not participate": "open",
        "the environments of the ranks differ": "found",
        "the ranks' collective calls differ": "excluded",
        "a collective returns wrong elements": "open",
        "received data differs from what was sent": "open",
        "ranks differ where they must agree": "open",
    }
    assert found.remains == "also wrong there: the environments of the ranks differ"


def test_nothing_found_is_unattributed_and_nothing_wrong_is_nothing() -> None:
    """A check that holds, or had nothing to compare, shows no wrong output."""
    found = attributed(WRONG)
    assert found is not None
    assert found.remains.startswith("the cause is unknown")
    assert attributed(finding("same", "equivalent")) is None
    assert attributed(finding("same", "equivalent", "was not kept", uncompared=True)) is None


def cell(ranks: int, backend: str = "gloo", **axes: str) -> Cell:
    return Cell(f"ranks={ranks},{backend}{axes or ''}", "", ranks, backend, axes)


def counts(*, wrong: str = "", trials: int = 2) -> Tally:
    """Of an arm whose trials failed the check `wrong`."""
    failures = [Failure(check=wrong, ranks=[0], reasons=["rank 0: off"])] if wrong else []
    made = [
        Trial(
            index=index,
            seed="1",
            evidence="",
            ms=1.0,
            outcome="fail" if wrong else "pass",
            failures=failures,
        )
        for index in range(trials)
    ]
    return Tally(
        trials=made,
        counted=trials,
        failed=trials if wrong else 0,
        voids=0,
        upper=1.0,
        upper_with_voids=1.0,
    )


def trial(index: int, outcome: str) -> JudgedTrial:
    """A trial of the candidate; one that is not "pass" had the wrong output too."""
    is_wrong = outcome != "pass"
    same = WRONG if is_wrong else finding("same", "equivalent")
    others = [finding("in-step", "ledger-agrees"), finding("alike", "environment-agrees")]
    found = counts(wrong="same" if is_wrong else "").trials[0]
    return JudgedTrial(
        cell=cell(2),
        arm="candidate",
        trial=found.model_copy(update={"index": index, "outcome": outcome}),
        findings=[same, *others],
        history=History([], size=2),
        line_of=lambda *_: "",
    )


@pytest.mark.parametrize(
    ("outcomes", "first"),
    [
        (["pass", "fail", "fail"], 1),
        (["fail", "pass", "fail"], 0),
        (["void", "fail"], 1),
        (["pass", "void"], None),
    ],
)
def test_the_first_trial_that_failed_is_attributed(outcomes: list[str], first: int | None) -> None:
    """One that counts and passed, or does not count, is not; nor is a later one."""
    keeper = AttributionKeeper(SCENARIO)
    for index, outcome in enumerate(outcomes):
        keeper.take(trial(index, outcome))
    attributions = keeper.fields()["attributions"]
    assert {arm: one.index for arm, one in attributions.items()} == (
        {} if first is None else {"candidate": first}
    )


@pytest.mark.parametrize(
    ("below", "word", "first"),
    [
        ({cell(1): counts()}, "excluded", 3),
        ({cell(1): counts(wrong="same")}, "found", 1),
        ({cell(1): counts(wrong="other")}, "excluded", 3),
        ({cell(1): counts(), cell(2): counts(wrong="same")}, "excluded", 2),
        ({cell(2): counts()}, "open", 3),
        ({cell(1): counts(wrong="same", trials=1)}, "open", None),
        ({cell(1): counts(wrong="same", trials=1), cell(2): counts()}, "open", 3),
        ({cell(1): counts(), cell(2): counts(wrong="same", trials=1)}, "excluded", 3),
        ({}, "open", None),
        ({cell(1): None}, "open", None),
        ({cell(1): counts(trials=0)}, "open", None),
        ({cell(1, model="other"): counts(wrong="same")}, "open", None),
        ({cell(2, "mlx-ring"): counts(wrong="same")}, "open", None),
    ],
)
def test_smaller_worlds_of_the_same_kind_say_where_it_begins(
    below: Mapping[Cell, Tally | None], word: str, first: int | None
) -> None:
    """A world of one of the same axes decides whether it is wrong without any rank beside it.

    Others decide nothing.

    Nor does one whose only trial crashed, which fails the check with nothing to compare.
    """
    found = attributed(WRONG)
    assert found is not None
    own = cell(3)
    compared = {
        other.id: found.model_copy(
            update={"checks": [failure.check for failure in tally.trials[0].failures]}
        )
        for other, tally in below.items()
        if tally is not None and tally.counted > 1 and tally.failed
    }
    found = on_rungs(found, own, [*below.items(), (own, counts(wrong="same"))], compared=compared)
    assert (words(found)["already wrong in a world with one rank"], found.first_rung) == (
        word,
        first,
    )


def test_a_world_of_one_that_crashed_is_not_wrong() -> None:
    """It kept nothing that could be compared."""
    found = attributed(WRONG)
    assert found is not None
    arms = [{"control": counts(wrong="same")}, {"control": counts(wrong="same")}]
    one, two = climb([cell(1), cell(2)], [{}, {"control": found}], arms)
    assert one == {}
    assert (
        words(two["control"])["already wrong in a world with one rank"],
        two["control"].first_rung,
    ) == ("open", None)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({0: [1, 2], 1: [1, 2]}, ("excluded", "every rank generated the same tokens")),
        ({0: [1, 2], 1: [1, 3]}, ("found", "rank 1 and rank 0 generated different tokens")),
        ({0: [1, 2]}, ("open", "rank 1 did not report any")),
        ({1: [1, 2]}, ("open", "rank 0 did not report any")),
    ],
)
def test_a_rank_that_told_no_tokens_generated_no_others(
    said: dict[int, list[int]], told: tuple[str, str]
) -> None:
    """It broke off before, or was not asked: that its tokens differ nobody knows."""
    told_of = [
        Event(1, "rank", GENERATED, rank=rank, values={"prompt": 0, "ids": ids})
        for rank, ids in said.items()
    ]
    found = attributed(WRONG, history=History(told_of, size=2))
    assert found is not None
    assert [(one.word, one.why) for one in found.causes if one.what == TOKENS] == [told]
