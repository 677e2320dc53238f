"""Which trials of a control that must hang count: one of them was watched, and none is in doubt."""

from __future__ import annotations

from typing import Any

import pytest

from harness.events import Event
from harness.history import History
from harness.reason import DeviationCode
from harness.scenario import cells, parse_scenario
from harness.stats.outcome import Trial
from harness.stats.shown_trial import HungTrial
from harness.stats.stated import StatedEnd
from harness.stats.watches import Watches

SCENARIO = """
schema: 1
id: waits
title: t
question: q
subject:
  entry: subject:wait
  candidate: {with: {said: true}}
  control: {with: {said: false}, must_fail: {hang: {function: hear, SPINS}, ranks: every, within: 10s}}
matrix: {ranks: [2], backend: [none]}
checks:
  - {id: heard, kind: event, ranks: every, event: heard}
"""
END = StatedEnd("hang", "in", "hear", (0, 1))


def history(**values: Any) -> History:
    names = {"why": "world.unproved", "ranks": "world.deadline", "seconds": "world.still"}
    name = next(named for key, named in names.items() if key in values)
    return History([Event(ns=1, by="harness", name=name, values=values)], size=2)


def judged(
    *stood: float | str | None, spins: bool = False, is_asked: bool = True
) -> tuple[list[Trial], str, list[int]]:
    """Trials that stood still for so many seconds, were not proved for a reason, or (None) lasted too long.

    Returns them with what is said, and which count.
    """
    text = SCENARIO.replace("SPINS", f"spins: {str(spins).lower()}")
    scenario = parse_scenario(text.encode(), name="s.yaml")
    watches = Watches(scenario, cells(scenario)[0], is_asked=is_asked)
    trials = []
    for index, one in enumerate(stood):
        proved = isinstance(one, float)
        trial = Trial(index=index, seed="1", evidence="e", ms=1.0, outcome="fail", as_stated=proved)
        values = {"seconds": one} if proved else {"code": "doubtful", "why": one}
        watches.take("control", trial, history(**(values if one is not None else {"after": 60.0, "ranks": [0]})))
        trials.append(trial)
    ends = {END: [trial.index for trial in trials if trial.as_stated]}
    hung: dict[Any, HungTrial] = {
        "control": HungTrial(arm="control", index=0, evidence="e", proof="It hung.", line=1, ranks=[])
    }
    found = watches.judge(trials, ends, hung)
    return found, hung["control"].proof, ends.get(END, [])


@pytest.mark.parametrize(
    ("stood", "words"),
    [
        ((10.0, 2.41, 2.4, 2.45, 2.4), "one trial stood still for 10 s, four for 2.4 s each."),
        ((2.4, 10.03), "one trial stood still for 10 s, one for 2.4 s."),
        ((10.0, 10.0), "two trials stood still for 10 s each."),
        ((10.0, *[2.0] * 12), "one trial stood still for 10 s, 12 for 2 s each."),
    ],
)
def test_one_that_was_watched_lets_the_others_count(stood: tuple[float, ...], words: str) -> None:
    """All count once one of them stood still for all of within, and for how long each did is said."""
    found, said, ends = judged(*stood)
    assert all(trial.as_stated for trial in found)
    assert ends == list(range(len(stood)))
    assert said == f"It hung. In this cell {words}"


@pytest.mark.parametrize("stood", [(2.4, 2.4), (9.99,), (2.0,) * 5])
def test_without_one_that_was_watched_none_counts(stood: tuple[float, ...]) -> None:
    """A window of stillness is what a slow world shows too."""
    found, _, ends = judged(*stood)
    assert not any(trial.as_stated for trial in found)
    assert {trial.otherwise.code for trial in found if trial.otherwise} == {DeviationCode.HANG_NOT_WATCHED}
    assert ends == []


@pytest.mark.parametrize("doubt", [0, 1, 2])
def test_one_in_doubt_spoils_the_others(doubt: int) -> None:
    """Wherever it is among them, no trial counts beside one that neither ended nor was proved to hang."""
    stood: list[float | str] = [10.0, 10.0, 10.0]
    stood[doubt] = "rank 0 has set a timer"
    found, _, ends = judged(*stood)
    assert not any(trial.as_stated for trial in found)
    others = [trial for trial in found if trial.index != doubt]
    assert all("rank 0 has set a timer" in str(trial.otherwise) for trial in others)
    assert ends == []


@pytest.mark.parametrize("late", [0, 1])
def test_one_that_was_stopped_at_its_deadline_spoils_the_others(late: int) -> None:
    """It neither came to its end nor was proved to hang, though nothing was said against it."""
    stood: list[float | str | None] = [10.0, 10.0]
    stood[late] = None
    found, _, ends = judged(*stood)
    assert not any(trial.as_stated for trial in found)
    assert "stopped at its deadline, after 60.0 s" in str(found[1 - late].otherwise)
    assert ends == []


def test_of_a_loop_every_trial_is_watched() -> None:
    """A loop that ends later looks like one that does not, so each trial has to go on for all of within."""
    found, said, ends = judged(10.0, 2.0, 10.0, spins=True)
    assert [trial.as_stated for trial in found] == [True, False, True]
    assert ends == [0, 2]
    assert "two trials looped for 10 s each" in said


def test_an_earlier_edition_is_judged_as_it_was() -> None:
    """A report from before says nothing of watches, and its verdict stays."""
    found, said, ends = judged(2.4, "why", is_asked=False)
    assert [trial.as_stated for trial in found] == [True, False]
    assert said == "It hung."
    assert ends == [0]
