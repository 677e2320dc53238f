"""What a check saw at worst over all trials of the candidate, in the record and on the first screen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest

from harness.events import Event
from harness.forms.strict_json import JSON
from harness.report.report import render
from harness.scenario import cells, parse_scenario
from harness.stats.outcome import EVENTS, CellFacts, trial_folder
from harness.stats.shown_trial import WorstFinding
from harness.stats.verdict import Judgement, judge
from tests.kit.histories import healthy
from tests.kit.records import record
from tests.stats.test_verdict import ARMS, broken, void

TEXT = """
schema: 1
id: it
title: It
question: Does it?
subject:
  entry: subject:run
  candidate: {with: {loader: every-rank}}
  control:
    with: {loader: rank-0-only}
    must_fail: {check: ready, ranks: nonzero, error: AssertionError, source: assert tokenizer}
matrix: {ranks: [2], backend: [gloo]}
trials: {candidate: 4, control: 4, accept: {failure_rate_below: 70%}}
checks:
  - {id: ready, kind: event, ranks: every, event: tokenizer.ready}
  - {id: loss, kind: at-most, ranks: every, value: score.loss, to: 2}
  - {id: text, kind: equal, ranks: every, value: decode.text, to: Hello world}
"""
Scores = Sequence[Mapping[str, JSON]]


def scoring(*scores: Mapping[str, JSON]) -> list[Event]:
    """A healthy trial in which each rank reports its score."""
    events = []
    for event in healthy():
        events.append(event)
        if event.name == "decode" and event.rank is not None:
            events.append(event._replace(name="score", values=dict(scores[event.rank])))
    return events


def judged(*candidate: list[Event], text: str = TEXT) -> Judgement:
    asked = parse_scenario(text.encode(), name="it")
    (cell,) = cells(asked)
    files = {}
    for arm, trials in (("candidate", candidate), ("control", [broken()] * 4)):
        for index, events in enumerate(trials):
            path = f"{trial_folder(cell.slug, arm, index)}/{EVENTS}"
            files[path] = "".join(event.line() + "\n" for event in events).encode()
    facts = CellFacts(id=cell.id, skipped=None, candidate=len(candidate), control=4)
    return judge(asked, [(cell, facts)], arms=ARMS, read=files.__getitem__, names=files)


def losses(*pairs: tuple[float, float]) -> list[list[Event]]:
    return [scoring(*({"loss": loss} for loss in pair)) for pair in pairs]


def worst(found: Judgement, check: str) -> WorstFinding:
    (one,) = [one for one in found.cells[0].worst if one.check == check]
    return one


def candidate_row(found: Judgement) -> str:
    """The row on the first screen, without its links."""
    made = record().model_copy(update={"judgement": found})
    text = render(made, manifest_digest="1" * 64).decode()
    (row,) = re.findall(r"^\*\*Candidate\.\*\* (.*)$", text, re.MULTILINE)
    return re.sub(r" ?\(?\[([^\]]*)\]\([^)]*\)\)?", r" \1", row)


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("rank", [0, 1])
def test_the_largest_share_is_shown_whichever_trial_it_is_in(index: int, rank: int) -> None:
    """Its trial, its rank, its value and how much of the limit it used."""
    values = [[0.5, 0.25], [0.25, 0.5], [0.5, 0.5], [0.25, 0.25]]
    values[index][rank] = 1.5
    found = judged(*losses(*((first, second) for first, second in values)))
    one = worst(found, "loss")
    assert (one.index, one.ranks, one.shown, one.share) == (index, [rank], "1.5", 0.75)
    assert one.evidence == f"evidence/ranks-2-backend-gloo/candidate-{index:05d}/events.jsonl"
    seen = f"Worst result of `loss`, on rank {rank}: 1.5 (75% of the limit, trial {index})"
    assert seen in candidate_row(found)
    assert "2 other checks also passed in every trial." in candidate_row(found)


def test_the_first_of_equals_is_shown() -> None:
    """Ranks that showed the same value are named together."""
    one = worst(judged(*losses((0.5, 0.5), (1.0, 1.0), (1.0, 1.0), (0.5, 0.5))), "loss")
    assert (one.index, one.ranks, one.share) == (1, [0, 1], 0.5)


def test_a_failed_finding_comes_before_all() -> None:
    """The first failure is the worst, however far a later one is beyond the limit, and however near
    to it an earlier trial came.
    """
    found = judged(*losses((1.99, 0.5), (0.5, 2.5), (9.0, 9.0), (0.5, 0.5)))
    one = worst(found, "loss")
    assert (one.passed, one.index, one.ranks) == (False, 1, [1])
    assert one.shown == "score.loss must be at most 2 (found 2.5)"
    assert "2 of 4 trials failed" in candidate_row(found)
    assert "Worst result" not in candidate_row(found)


def test_void_trials_and_the_control_are_left_out() -> None:
    """What does not count has no worst finding."""
    found = judged(*losses((0.5, 0.5), (0.5, 0.5)), void())
    assert worst(found, "loss").index == 0
    assert worst(found, "ready").passed
    assert judged(void()).cells[0].worst == []


def test_the_checks_nearest_to_their_limits_are_shown() -> None:
    """Of three checks with a scale the two that used most of it, the larger share first."""
    text = TEXT + (
        "  - {id: most, kind: at-most, ranks: every, value: score.loss, to: 0.6}\n"
        "  - {id: more, kind: at-most, ranks: every, value: score.loss, to: 1}\n"
    )
    row = candidate_row(judged(*losses((0.5, 0.25)), text=text))
    first, second = row.index("`most`, on rank 0: 0.5 (83.3%"), row.index("`more`, on rank")
    assert first < second
    assert "`loss`" not in row


@pytest.mark.parametrize("loss", [-7.5, 0, 10**400], ids=["below", "zero", "huge"])
def test_a_value_without_a_share_is_a_value(loss: float) -> None:
    """Below zero there is no share of a limit, and a number beyond any float has none."""
    found = judged(scoring({"loss": loss}, {"loss": loss}))
    assert worst(found, "loss").share in (None, 0.0)
    found.model_dump_json()
    row = candidate_row(found)
    assert "% of the limit" not in row or "0% of the limit" in row


def test_a_share_that_is_no_number_is_none() -> None:
    """A limit may be so small that a value is infinitely many times it."""
    text = TEXT.replace("to: 2}", "to: 1.0e-308}")
    found = judged(*losses((1e10, 1e10)), text=text)
    one = worst(found, "loss")
    assert (one.passed, one.share) == (False, None)
    assert Judgement.model_validate_json(found.model_dump_json()).cells[0].worst[1] == one


def test_without_a_scale_values_are_shown() -> None:
    """Of checks that have no limit what they saw, each with its ranks."""
    text = TEXT.replace(
        "  - {id: loss, kind: at-most, ranks: every, value: score.loss, to: 2}\n", ""
    )
    row = candidate_row(judged(*[healthy()] * 4, text=text))
    assert "`text` passed in every trial; in trial 0, every rank reported `Hello world`" in row
    assert "1 other check also passed in every trial." in row
