"""Which trials of a control that must hang count: one of them was watched, and none is in doubt."""

from __future__ import annotations

from typing import Any

import pytest

from harness.events import Event
from harness.history import History, window
from harness.reason import DeviationCode, Void, VoidCode
from harness.scenario import cells, parse_scenario
from harness.stats.outcome import JudgedTrial, Trial, no_lines
from harness.stats.stated import StatedEnd
from harness.stats.tally import Watches

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


def judged(*stood: float | str | None, spins: bool = False) -> tuple[list[Trial], str, list[int]]:
    """Trials that stood still for so many seconds, were not proved for a reason, or (None) lasted
    too long.

    Returns them with what is said, and which count.
    """
    text = SCENARIO.replace("SPINS", f"spins: {str(spins).lower()}")
    scenario = parse_scenario(text.encode(), name="s.yaml")
    watches = Watches(scenario, cells(scenario)[0])
    trials = []
    for index, one in enumerate(stood):
        proved = isinstance(one, float)
        trial = Trial(index=index, seed="1", evidence="e", ms=1.0, outcome="fail", as_stated=proved)
        values = {"seconds": one} if proved else {"code": "doubtful", "why": one}
        events = history(**(values if one is not None else {"after": 60.0, "ranks": [0]}))
        watches.take(taken("control", trial, events))
        trials.append(trial)
    found = watches.judge(trials)
    return found, proof_of(watches), watches.ends.get(END, [])


def taken(arm: Any, trial: Trial, events: History) -> JudgedTrial:
    """A trial as it is handed to what keeps something over all of them."""
    cell = cells(parse_scenario(SCENARIO.replace("SPINS", "spins: false").encode(), name="s"))[0]
    return JudgedTrial(
        cell=cell, arm=arm, trial=trial, findings=[], history=events, line_of=no_lines
    )


def proof_of(watches: Watches) -> str:
    """What is said of where the control stood."""
    hung: Any = watches.fields()["hung"]
    return str(hung["control"].proof)


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
    """All count once one of them stood still for all of within, and for how long each did is
    said.
    """
    found, said, ends = judged(*stood)
    assert all(trial.as_stated for trial in found)
    assert ends == list(range(len(stood)))
    assert said == f"The world stood still for {stood[0]} s. In this cell {words}"


@pytest.mark.parametrize("stood", [(2.4, 2.4), (9.99,), (2.0,) * 5])
def test_without_one_that_was_watched_none_counts(stood: tuple[float, ...]) -> None:
    """A window of stillness is what a slow world shows too."""
    found, _, ends = judged(*stood)
    assert not any(trial.as_stated for trial in found)
    assert {trial.otherwise.code for trial in found if trial.otherwise} == {
        DeviationCode.HANG_NOT_WATCHED
    }
    assert ends == []


@pytest.mark.parametrize("doubt", [0, 1, 2])
def test_one_in_doubt_spoils_the_others(doubt: int) -> None:
    """Wherever it is among them, no trial counts beside one that neither ended nor was proved to
    hang.
    """
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
    """A loop that ends later looks like one that does not, so each trial has to go on for all of
    within.
    """
    found, said, ends = judged(10.0, 2.0, 10.0, spins=True)
    assert [trial.as_stated for trial in found] == [True, False, True]
    assert ends == [0, 2]
    assert "two trials looped for 10 s each" in said


def begun(*, within: str = "10s", hang: bool = True) -> Watches:
    """What watches a cell, whose control must hang or just fail its check."""
    text = SCENARIO.replace("SPINS", "spins: false").replace("10s", within)
    if not hang:
        start = text.index("must_fail:")
        end = text.index("within: ") + len(f"within: {within}}}")
        text = text[:start] + "must_fail: {check: heard, ranks: every}" + text[end:]
    scenario = parse_scenario(text.encode(), name="s.yaml")
    return Watches(scenario, cells(scenario)[0])


def silent(seconds: float) -> History:
    """A trial in which nobody emitted anything for a time."""
    return History(
        [
            Event(ns=0, by="harness", name="world.start"),
            Event(ns=round(seconds * 1e9), by="rank", rank=0, pid=1, name="heard"),
        ],
        size=2,
    )


def a_trial(index: int, outcome: Any, *, as_stated: bool | None = None) -> Trial:
    void = Void(VoidCode.NO_END, "its event log has no end") if outcome == "void" else None
    return Trial(
        index=index,
        seed="1",
        evidence="e",
        ms=1.0,
        outcome=outcome,
        as_stated=as_stated,
        void=void,
    )


def test_the_candidates_longest_silence_counts_of_trials_that_passed() -> None:
    """A trial that failed or is void says nothing of how long a healthy candidate may be silent."""
    watches = begun()
    outcomes = [(0, "pass", 2.0), (1, "pass", 1.0), (2, "fail", 7.0), (3, "void", 9.0)]
    for index, outcome, seconds in outcomes:
        watches.take(taken("candidate", a_trial(index, outcome), silent(seconds)))
    assert watches.silence == 2.0


def test_without_a_stated_hang_nothing_is_watched() -> None:
    """Of a control that must fail a check, silences do not matter, and no trial is taken back."""
    watches = begun(hang=False)
    watches.take(taken("candidate", a_trial(0, "pass"), silent(2.0)))
    assert watches.silence == 0.0
    stated = [a_trial(0, "fail", as_stated=True)]
    watches.ends[END] = [0]
    assert watches.judge(stated) == stated
    assert watches.ends == {END: [0]}


def test_a_void_trial_is_no_proof_and_no_doubt() -> None:
    """A trial of the control that is void neither counts as watched nor spoils the others."""
    watches = begun()
    watches.take(
        taken("control", a_trial(0, "void"), history(why="rank 0 has set a timer", code="doubtful"))
    )
    watches.take(taken("control", a_trial(1, "void", as_stated=True), history(seconds=10.0)))
    watches.take(taken("control", a_trial(2, "fail", as_stated=True), history(seconds=2.4)))
    (found,) = watches.judge([a_trial(2, "fail", as_stated=True)])
    assert not found.as_stated
    assert "no trial of this cell was watched" in str(found.otherwise)


def test_the_trial_of_a_loop_that_was_not_watched_is_named_alone() -> None:
    """Of a loop each trial is judged by itself, and its reason speaks of that trial."""
    found, _, _ = judged(10.0, 2.0, spins=True)
    assert "this trial was not watched" in str(found[1].otherwise)
    found, _, _ = judged(2.0)
    assert "no trial of this cell was watched" in str(found[0].otherwise)


@pytest.mark.parametrize(("seconds", "is_short"), [(2.0, False), (2.001, True)])
def test_within_has_to_be_two_windows(seconds: float, is_short: bool) -> None:
    """At twice the window of the measured silence it is long enough, and just above it is not."""
    within = 2 * window(2.0)
    watches = begun(within=f"{within:g}s")
    watches.take(taken("candidate", a_trial(0, "pass"), silent(seconds)))
    watches.take(taken("control", a_trial(0, "fail", as_stated=True), history(seconds=within)))
    watches.judge([a_trial(0, "fail", as_stated=True)])
    assert ("set within to" in proof_of(watches)) is is_short


@pytest.mark.parametrize(
    ("many", "word"), [(9, "nine trials"), (10, "10 trials"), (11, "11 trials")]
)
def test_small_numbers_are_words(many: int, word: str) -> None:
    """Up to nine, and no number is left without one."""
    _, said, _ = judged(*[10.0] * many)
    assert word in said


def test_the_first_doubt_is_the_reason() -> None:
    """Several trials were not proved: the first of them is named."""
    found, _, _ = judged("rank 0 has set a timer", 10.0, "rank 1 has a connection")
    assert "trial 0" in str(found[1].otherwise)
    assert "rank 0 has set a timer" in str(found[1].otherwise)


def test_ends_that_no_trial_counts_for_are_taken_out() -> None:
    """A way to fail that is left without a trial is no row of the report."""
    watches = begun()
    watches.ends[END] = [7]
    watches.judge([a_trial(7, "fail", as_stated=True)])
    assert watches.ends == {END: [7]}
    watches.ends.clear()
    watches.take(taken("control", a_trial(0, "fail", as_stated=True), history(seconds=2.0)))
    assert watches.ends == {END: [0]}
    watches.judge([a_trial(0, "fail", as_stated=True)])
    assert watches.ends == {}


def test_of_several_trials_the_shortest_is_said() -> None:
    """Each of them stood still for at least the time that is printed."""
    _, said, _ = judged(12.0, 10.5, 3.0, 2.0)
    assert "two trials stood still for 10.5 s each, two for 2 s each" in said


def test_who_ended_or_was_proved_to_hang_spoils_nothing() -> None:
    """A trial that just failed, and one that reached its deadline after the proof: the watched one
    counts.
    """
    late = Event(ns=2, by="harness", name="world.deadline", values={"after": 60.0, "ranks": [0]})
    for other in (History([], size=2), History([history(seconds=2.0).seen[0].event, late], size=2)):
        watches = begun()
        watches.take(taken("control", a_trial(0, "fail", as_stated=True), history(seconds=10.0)))
        watches.take(taken("control", a_trial(1, "fail", as_stated=False), other))
        watches.judge([a_trial(0, "fail", as_stated=True), a_trial(1, "fail", as_stated=False)])
        assert watches.ends == {END: [0]}
