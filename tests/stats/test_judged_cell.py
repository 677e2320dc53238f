"""What a judged cell holds beside its counts, and which of several facts decide its word."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from harness.events import Event
from harness.numeric.needles import LEAST
from harness.reason import DeviationCode, VerdictCode
from harness.scenario import Scenario, cells, parse_scenario
from harness.stats.outcome import EVENTS, CellFacts, reference_folders, states, trial_folder
from harness.stats.provenance import Source, path_of
from harness.stats.verdict import ArmCode, CellVerdict, Judgement, judge
from tests.kit.histories import healthy
from tests.stats.test_hang import SECOND, hung
from tests.stats.test_verdict import ARMS, CODE, FAULT, broken, struck, void

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
    must_fail: {check: ready, ranks: nonzero, error: AssertionError, source: assert tokenizer, share: ">=40%"}
matrix: {ranks: [2], backend: [gloo]}
trials: {candidate: 5, control: 8, accept: {failure_rate_below: 50%}}
checks:
  - {id: ready, kind: event, ranks: every, event: tokenizer.ready}
"""
CLOSE = "\n  - {id: same, kind: close, ranks: every, value: score.numbers, against: 0, atol: 100}"
Events = list[Event]


def asked(*more: str, expects: str | None = None, role: str | None = None) -> Scenario:
    """The scenario with these lines too."""
    keys = {"expects": expects, "role": role}
    lines = [*more, *(f"{key}: {value}" for key, value in keys.items() if value is not None)]
    return parse_scenario((TEXT + "\n".join(lines) + "\n").encode(), name="it")


def judged(
    scenario: Scenario,
    candidate: Sequence[Events] = (),
    control: Sequence[Events] = (),
    *,
    arms: Mapping[str, ArmCode] = ARMS,
    others: Mapping[str, bytes] | None = None,
    **given: Any,
) -> Judgement:
    """Judge one cell made of these trials, by default healthy ones and a control that fails as
    stated.
    """
    cell = cells(scenario)[0]
    files = {"/subject.py": b"pass\n" * 9, **(others or {})}
    trials = {"candidate": candidate or [healthy()] * 5, "control": control or [broken()] * 8}
    for arm, several in trials.items():
        for index, events in enumerate(several):
            # Both are arms.
            path = f"{trial_folder(cell.slug, arm, index)}/{EVENTS}"  # type: ignore[arg-type]
            files[path] = text(events)
    facts = CellFacts(
        id=cell.id, skipped=None, **{arm: len(several) for arm, several in trials.items()}
    )
    return judge(scenario, [(cell, facts)], arms=arms, read=files.__getitem__, names=files, **given)


def text(events: Events) -> bytes:
    return "".join(event.line() + "\n" for event in events).encode()


def the_cell(found: Judgement) -> CellVerdict:
    (cell,) = found.cells
    return cell


@pytest.mark.parametrize(
    ("expects", "role", "is_broken", "is_expected"),
    [
        (None, None, False, True),
        (None, None, True, False),
        ("FAIL", "self-test", True, True),
        ("FAIL", "self-test", False, False),
        ("PASS", "self-test", False, True),
        (None, "upstream", True, True),
        (None, "upstream", False, True),
        ("FAIL", "upstream", False, False),
        ("FAIL", "upstream", True, True),
    ],
)
def test_which_verdict_is_expected(
    expects: str | None, role: str | None, *, is_broken: bool, is_expected: bool
) -> None:
    """PASS where nothing else is stated; of an upstream project any, unless one is stated."""
    candidate = [broken() if is_broken else healthy()] * 5
    found = judged(asked(expects=expects, role=role), candidate)
    assert found.verdict == ("FAIL" if is_broken else "PASS")
    assert found.as_expected is is_expected


def test_only_trials_that_failed_as_stated_tell_how() -> None:
    """What the others raised is told apart from it."""
    found = the_cell(judged(asked(), control=[*[broken()] * 5, *[broken(error="OSError")] * 3]))
    assert found.control is not None
    assert [(way.count, way.first, way.place) for way in found.control.how] == [
        (5, 0, "assert tokenizer")
    ]
    assert [(instead.code, instead.count) for instead in found.control.otherwise] == [
        (DeviationCode.OTHER_ERROR, 3)
    ]
    assert found.candidate is not None
    assert found.candidate.how == []


def test_a_cell_shows_the_first_trial_that_failed() -> None:
    """Else the first that counts; a void one shows nothing."""
    several = [void(), healthy(), broken(), broken(error="OSError"), healthy()]
    assert the_cell(judged(asked(), several)).samples["candidate"].index == 2
    assert the_cell(judged(asked(), [void(), healthy(), healthy()])).samples["candidate"].index == 1
    assert "candidate" not in the_cell(judged(asked(), [void(), void()])).samples


def loaded(seconds: float) -> Events:
    """A healthy trial in which rank 0 loaded for so long."""
    said = [
        Event(ns=17_000_100, by="rank", rank=0, pid=200, name="load.begin"),
        Event(ns=17_000_100 + round(seconds * 1e9), by="rank", rank=0, pid=200, name="load.end"),
    ]
    return sorted([*healthy(), *said], key=lambda event: event.ns)


def test_void_trials_are_not_measured() -> None:
    """And nothing is where the trials were not made to be."""
    scenario = asked(FAULT, "measure: [{id: load, event: load}]")
    several = [loaded(9.0), *[struck(loaded(2.0))] * 5]
    control = [struck(broken())] * 8
    found = the_cell(judged(scenario, several, control))
    assert found.candidate is not None
    assert found.candidate.voids == 1
    assert [row.arms["candidate"].count for row in found.measured if row.rank == 0] == [5]
    assert the_cell(judged(scenario, several, control, measures=False)).measured == []


def test_an_arm_that_did_not_run_is_none() -> None:
    """Of a cell without a control the candidate is the only arm."""
    found = the_cell(judged(asked()))
    assert list(found.arms) == ["candidate", "control"]
    assert list(found.model_copy(update={"control": None}).arms) == ["candidate"]


def test_a_control_whose_commit_has_the_fix_is_named() -> None:
    """Both arms ran the same code, and that is what is said, with the revision that has to
    change.
    """
    same = {"candidate": ARMS["candidate"], "control": ARMS["candidate"]}
    scenario = asked()
    control = scenario.subject.control
    assert control is not None
    fixed = control.model_copy(update={"rev": "HEAD"})
    subject = scenario.subject.model_copy(update={"control": fixed})
    found = judged(scenario.model_copy(update={"subject": subject}), arms=same)
    assert VerdictCode.ARMS_ALIKE in codes_of(found)
    (said,) = (reason for reason in map(str, found.reasons) if "both arms" in reason)
    assert said.endswith(
        "both arms have the same code and arguments: the control's rev HEAD already has what the"
        " candidate has, so a fix is in it too; set rev to the commit of the broken code"
    )
    assert "does not prove" not in said


def test_hosts_are_told_where_the_scenario_says_how_many() -> None:
    """Of a cell that is wherever the run has it nothing is known of them."""
    found = the_cell(judged(asked()))
    assert found.hosts is None


@pytest.mark.parametrize(("arm", "is_alike"), [("arm: control, ", False), ("", True)])
def test_a_fault_of_one_arm_tells_the_arms_apart(arm: str, *, is_alike: bool) -> None:
    """The same code with the same arguments is a control where it alone is struck."""
    fault = f"faults: [{{id: late, kind: delay, {arm}ranks: [1], at: decode, for: 1ms}}]"
    same = {"candidate": ARMS["candidate"], "control": ARMS["candidate"]}
    found = judged(asked(fault, role="upstream"), arms=same)
    assert (VerdictCode.ARMS_ALIKE in codes_of(found)) is is_alike


# -- what could not have failed ----------------------------------------------------------------


def scored(events: Events) -> Events:
    """The trial, in which both ranks report the same numbers."""
    values = {"numbers": [float(number) for number in range(LEAST)]}
    said = [
        Event(
            ns=17_400_000 + rank,
            by="rank",
            rank=rank,
            pid=200 + rank,
            name="score",
            values={**values},
        )
        for rank in (0, 1)
    ]
    return sorted([*events, *said], key=lambda event: event.ns)


def codes_of(found: Judgement) -> list[Any]:
    return [getattr(reason, "code", None) for reason in the_cell(found).reasons]


def test_a_check_that_could_not_have_failed_is_no_pass() -> None:
    """A failure stays one."""
    scenario = parse_scenario((TEXT.rstrip() + CLOSE + "\n").encode(), name="it")
    found = judged(scenario, [scored(healthy())] * 5, [scored(broken())] * 8)
    assert VerdictCode.TOOTHLESS in codes_of(found)
    failed = judged(scenario, [scored(broken())] * 5, [scored(broken())] * 8)
    assert failed.verdict == "FAIL"
    assert VerdictCode.TOOTHLESS not in codes_of(failed)
    few = parse_scenario(
        (TEXT.rstrip() + CLOSE.replace("score.numbers", "decode.ids") + "\n").encode(), name="it"
    )
    untried = judged(few, [scored(healthy())] * 5, [scored(broken())] * 8)
    words = "No wrong array was tried on check same"
    assert any(words in sentence for sentence in untried.unshown), untried.unshown


# -- hangs -------------------------------------------------------------------------------------

HANGS = TEXT.replace(
    'check: ready, ranks: nonzero, error: AssertionError, source: assert tokenizer, share: ">=40%"',
    "hang: {function: check}, ranks: every",
)


def hanging(*, seconds: float, lines: int) -> Events:
    events = [
        seen.event for seen in hung({0: (lines,), 1: (lines,)}, seconds=seconds, at=11.0).seen
    ]
    ends = [
        Event(
            ns=12 * SECOND,
            by="server",
            rank=rank,
            pid=7 + rank,
            name="rank.exited",
            values={"code": None, "signal": "SIGKILL"},
        )
        for rank in (0, 1)
    ]
    survivors = Event(
        ns=13 * SECOND, by="server", name="world.survivors", values={"count": 0, "processes": []}
    )
    begun = [
        event
        for event in healthy()
        if event.name in ("rank.started", "rank.begin", "backend.ready")
    ]
    started = [event._replace(ns=2, pid=7 + (event.rank or 0)) for event in begun]
    return [
        events[0]._replace(values={**healthy()[0].values, "backend": "gloo"}),
        *started,
        *events[1:],
        *ends,
        survivors,
        Event(ns=14 * SECOND, by="harness", name="world.end"),
    ]


def test_hangs_that_nobody_watched_do_not_count() -> None:
    """One trial has to stand still for all of within; then the others count too."""
    scenario = parse_scenario(HANGS.encode(), name="it")
    found = the_cell(judged(scenario, control=[hanging(seconds=2.0, lines=3)] * 8))
    assert found.control is not None
    assert found.control.as_stated == 0
    watched = [hanging(seconds=10.0, lines=3), *[hanging(seconds=2.0, lines=3)] * 7]
    again = the_cell(judged(scenario, control=watched))
    assert again.control is not None
    assert again.control.as_stated == 8


def test_where_the_first_hanging_trial_stood_is_shown() -> None:
    """Of several that hung the first, of each arm that did."""
    scenario = parse_scenario(HANGS.encode(), name="it")
    control = [hanging(seconds=10.0, lines=line) for line in (3, 4, 5)]
    found = the_cell(judged(scenario, control=control))
    assert list(found.hung) == ["control"]
    assert found.hung["control"].index == 0
    assert "subject.py:3" in str(found.hung["control"].ranks[0].calls)


# -- which code ran ----------------------------------------------------------------------------


def telling(events: Events, digest: str) -> Events:
    """The trial in which each rank named this list before and after its end."""
    told = []
    for event in events:
        told.append(event)
        if event.name in ("subject.end", "subject.loaded"):
            values = {"entry": "subject.py", "elsewhere": False, "modules": [], "packages": digest}
            told.append(event._replace(name="subject.loaded", values=values, ns=event.ns + 1))
    return [event for event in told if event.name != "subject.loaded" or "packages" in event.values]


def test_what_ranks_loaded_is_in_the_record_where_they_told() -> None:
    """And in one from before they told, nothing is."""
    content = json.dumps({"installed": {}, "others": []}).encode()
    digest = hashlib.sha256(content).hexdigest()
    origin = Source(declared=(), files={})
    arms = {
        arm: ArmCode(files=CODE, arguments={"x": arm}, origin=origin)
        for arm in ("candidate", "control")
    }
    found = the_cell(
        judged(
            asked(),
            [telling(healthy(), digest)] * 5,
            [telling(broken(), digest)] * 8,
            arms=arms,
            others={path_of(digest): content},
        )
    )
    assert found.verdict == "PASS", found.reasons
    assert found.ran is not None
    assert found.ran.lists == {"candidate": [digest], "control": [digest]}
    assert the_cell(judged(asked())).ran is None


def referred(*runs: Events, origin: Source | None = None) -> tuple[Judgement, str]:
    """A cell whose reference ran like this."""
    scenario = parse_scenario(
        TEXT.replace("matrix:", "  reference: {with: {loader: whole}}\nmatrix:").encode(), name="it"
    )
    cell = cells(scenario)[0]
    files = {
        f"{folder}/{EVENTS}": text(events)
        for folder, events in zip(reference_folders(scenario, cell), runs, strict=True)
    }
    arms = {
        arm: ArmCode(
            files=CODE, arguments={"x": arm}, origin=origin if arm == "candidate" else None
        )
        for arm in ("candidate", "control")
    }
    found = judged(scenario, arms=arms, others=files)
    return found, "; ".join(found.reasons)


def test_the_reference_is_doubted_where_it_did_not_answer() -> None:
    """A run of it that failed is no reference; one that is whole is."""
    assert referred(healthy(1), healthy(1))[1] == ""
    failed = [event for event in healthy(1) if event.name != "subject.end"]
    assert "the reference failed: " in referred(failed, healthy(1))[1]


def test_the_reference_ran_the_arms_code_too() -> None:
    """A run of it that did not tell what it had loaded proves nothing."""
    found = referred(healthy(1), healthy(1), origin=Source(declared=(), files={}))[1]
    assert "the run does not prove which code ran: candidate: a rank did not report" in found


@pytest.mark.parametrize(("other", "is_alike"), [("candidate", True), ("control", False)])
def test_two_arms_that_are_compared_differ(other: str, *, is_alike: bool) -> None:
    """Where a is the same as b nothing could differ."""
    found = judged(asked(), arms={**ARMS, "reference": ARMS[other]})
    assert (VerdictCode.ARMS_ALIKE in codes_of(found)) is is_alike


def test_a_value_that_the_reason_ends_with_is_said_once() -> None:
    """Of a text, too, which the reason has in quotes."""
    assert states('must be "nan", found "1.0"', "1.0")
    assert states("must be 2, found 1", "1")
    assert states(r'must be "a\n b", found "a\nb"', "a\nb")
    assert not states("rank 1 ended", "1.0")
