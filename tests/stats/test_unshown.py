"""What a run leaves open follows from its scenario and events, and is told in the run, the record
and the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from harness.events import Event
from harness.forms.strict_json import JSON
from harness.history import CODED_END, LEDGERS_COMPARED
from harness.report.blocks import BulletList, with_code
from harness.report.limits import limits_section
from harness.report.summary import UNSHOWN_SHOWN, first_screen
from harness.report.terminal import render_terminal
from harness.scenario import cells, parse_scenario
from harness.stats.outcome import EVENTS, CellFacts, trial_folder
from harness.stats.verdict import ArmCode, Judgement, judge
from tests.kit.histories import healthy
from tests.kit.records import record
from tests.stats.test_verdict import broken

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
observe: [collectives]
checks:
  - {id: ready, kind: event, ranks: every, event: tokenizer.ready}
"""
COMPARED = TEXT.replace(
    "  - {id: ready, ",
    "  - {id: same, kind: agree, ranks: every, value: chosen.ids}\n  - {id: as-stated, kind: equal,"
    " ranks: every, value: chosen.ids, to: [1, 2]}\n  - {id: ready, ",
)
TWO = TEXT.replace("backend: [gloo]", "backend: [gloo], size: [1, 2]")
ARMS = {
    arm: ArmCode(files={"subject.py": "a" * 64}, arguments={"loader": arm})
    for arm in ("candidate", "control")
}
Change = Callable[[Event], Event]
UNCHANGED = (
    "changed nothing that ranks reported in the first trial of each cell, so this run does not show"
    " that it was used."
)


def ledgers(*, calls: int, **checks: JSON) -> Event:
    """What the harness notes of the ledgers of two ranks."""
    values: dict[str, JSON] = {"ranks": [{"calls": calls}, {"calls": calls}], "checks": checks}
    return Event(
        ns=18_500_000, by="harness", rank=None, pid=None, name=LEDGERS_COMPARED, values=values
    )


def talking(size: int) -> list[Event]:
    """A healthy trial whose ranks called collectives with each other."""
    return [*healthy(size), ledgers(calls=3, step={"matched": [3, 3]})]


def judged(
    text: str,
    *,
    candidate: Callable[[int], list[Event]] = talking,
    control: Callable[[int], list[Event]] = lambda _: broken(),
    change: Callable[[Mapping[str, object]], Change] = lambda _: lambda event: event,
    logs: Mapping[str, bytes] | None = None,
    count: int = 4,
    failing: int = 0,
) -> Judgement:
    """Judge every cell of a scenario, of trials that are all the same, but for the first `failing`
    ones of the candidate; `change` makes a cell's events its own.
    """
    asked = parse_scenario(text.encode(), name="it")
    files: dict[str, bytes] = dict(logs or {})
    planned = []
    for cell in cells(asked):
        counts = {"candidate": count, "control": count if asked.subject.control else 0}
        for arm, make in (("candidate", candidate), ("control", control)):
            events = map(change(cell.axes), make(cell.ranks))
            lines = "".join(
                event.line() + "\n" for event in sorted(events, key=lambda event: event.ns)
            ).encode()
            places = [f"{trial_folder(cell.slug, arm, index)}/{EVENTS}" for index in range(count)]
            files.update(dict.fromkeys(places, lines))
            if arm == "candidate":
                failed = "".join(event.line() + "\n" for event in broken()).encode()
                files.update(dict.fromkeys(places[:failing], failed))
        planned.append((cell, CellFacts(id=cell.id, skipped=None, **counts)))
    return judge(asked, planned, arms=ARMS, read=files.__getitem__, names=files)


def test_a_run_in_which_everything_is_shown_leaves_nothing_open() -> None:
    """Every rank asked, every check failed by the control: no sentence."""
    found = judged(TEXT)
    assert found.verdict == "PASS", found.reasons
    assert (found.unshown, found.printed) == ([], [])


def test_ranks_that_no_check_asks_are_named() -> None:
    """A check of rank 0 alone leaves the others open, and an exit code is not an answer to what a
    rank did.
    """
    text = TEXT.replace("kind: event, ranks: every", "kind: event, ranks: [0]").replace(
        "ranks: nonzero", "ranks: [0]"
    )
    text += "  - {id: ended, kind: exit, ranks: every}\n"
    found = judged(text, control=lambda _: broken(ranks=(0,)))
    assert found.verdict == "PASS"
    assert found.unshown == ["No check covers what rank 1 does, only how it exits (world size 2)."]
    assert (
        judged(text.replace("[0]", "[1]"), control=lambda _: broken())
        .unshown[0]
        .endswith("check covers what rank 0 does, only how it exits (world size 2).")
    )
    compared = "  - {id: same, kind: agree, ranks: [0], against: 1, value: decode.ids}\n"
    assert not any("how it exited" in sentence for sentence in judged(text + compared).unshown)


def test_a_world_of_one_is_named_with_its_cells() -> None:
    """One rank tests nothing distributed.

    Where other cells have more, the sentence names the cells it means.
    """
    text = TEXT.replace("ranks: [2]", "ranks: [1, 2]").replace("ranks: nonzero", "ranks: [0]")
    found = judged(text, control=lambda _: broken(ranks=(0,)))
    assert (
        "A world with one rank does not test anything distributed (ranks=1,backend=gloo)."
        in found.unshown
    )
    alone = judged(
        text.replace("ranks: [1, 2]", "ranks: [1]"), control=lambda _: broken(ranks=(0,))
    )
    assert "A world with one rank does not test anything distributed." in alone.unshown


def test_a_check_that_no_control_failed_is_named() -> None:
    """What never failed may be unable to.

    Where no check failed at all, that decides the verdict.
    """
    text = TEXT + "  - {id: spoke, kind: event, ranks: every, event: decode}\n"
    found = judged(text)
    assert found.verdict == "PASS"
    assert found.unshown == [
        "The control never failed the check `spoke`, so this run does not show that it can fail."
    ]
    never = judged(text, control=healthy)
    assert never.verdict == "INCONCLUSIVE"
    assert any("the control never failed a check, so" in reason for reason in never.reasons)
    assert any(
        "The control never failed the checks `ready` and `spoke`, so" in each
        for each in never.unshown
    )


def test_what_ledgers_and_digests_cannot_see_is_told() -> None:
    """Two equal receives in each other's place, which coded payloads alone see."""
    told = (
        "Checks step and whole cannot detect that the subject swapped two receives of the same shape"
        " and type without tags, because every call still has a matching call and every byte arrives"
        " as it was sent."
    )
    asked = (
        "  - {id: step, kind: ledger-agrees, ranks: every}\n  - {id: whole, kind: transfers-intact,"
        " ranks: every}\n"
    )
    text = TEXT.replace("observe: [collectives]", "observe: [collectives, digests]") + asked
    assert [told in sentence for sentence in judged(text).unshown].count(True) == 1
    assert not any(told in sentence for sentence in judged(TEXT).unshown)


def test_combinations_that_are_left_out_are_told() -> None:
    """A cell that fails can be left out: by name."""
    text = TEXT.replace(
        "ranks: [2], backend: [gloo]", "ranks: [2, 3], backend: [gloo], exclude: [{ranks: 3}]"
    )
    said = "Combinations that matrix.exclude leaves out were not tested: ranks=3."
    assert said in judged(text).unshown
    assert not any("exclude" in sentence for sentence in judged(TEXT).unshown)


def with_size(*, arm: str = "both") -> Callable[[Mapping[str, object]], Change]:
    """Let ranks report the axis: of both arms, or of a control alone, which never gets ready on
    rank 1.
    """

    def of(axes: Mapping[str, object]) -> Change:
        return lambda event: (
            event._replace(values={**event.values, "size": axes["size"]})
            if event.name == "decode"
            else event
        )

    return of


def test_an_axis_that_changed_nothing_is_named() -> None:
    """Cells that differ in one axis and report the same on every rank do not show that it was
    used.
    """
    said = f"The axis size {UNCHANGED}"
    assert judged(TWO).unshown == [said]
    assert judged(TWO, change=with_size()).unshown == []
    assert judged(TEXT.replace("backend: [gloo]", "backend: [gloo], size: [1]")).unshown == []


def test_an_axis_that_one_of_two_changes_is_not_named() -> None:
    """Of two axes the one that ranks report had its effect.

    The other one, over all values of the first, had none.
    """
    found = judged(TWO.replace("size: [1, 2]", "size: [1, 2], speed: [a, b]"), change=with_size())
    assert found.unshown == [f"The axis speed {UNCHANGED}"]


@pytest.mark.parametrize("told", [["size"], ["size", "loader"], [], None, "size", [3]])
def test_an_argument_that_is_swallowed_is_named(told: object) -> None:
    """What the entry has no parameter for is told by the ranks.

    What else they may write there breaks nothing.
    """

    def swallow(axes: Mapping[str, object]) -> Change:
        def change(event: Event) -> Event:
            event = with_size()(axes)(event)
            return (
                event._replace(values={"swallowed": told})
                if event.name == "subject.begin"
                else event
            )

        return change

    found = "\n".join(judged(TWO, change=swallow).unshown)
    names = told if isinstance(told, list) else []
    assert ("The axis size is not a parameter of the entry" in found) == ("size" in names)
    assert ("The argument loader of the control is not a parameter" in found) == ("loader" in names)


@pytest.mark.parametrize("stored", [True, False])
def test_artefacts_that_the_evidence_does_not_hold_are_counted(stored: bool) -> None:
    """What checks made of them is all that there is; those that it holds leave nothing open."""

    def kept(size: int) -> list[Event]:
        values: dict[str, JSON] = {
            "artefact": "logits",
            "sha256": "a" * 64,
            "bytes": 9,
            "stored": stored,
        }
        events = healthy(size)
        end = max(event.ns for event in events) + 1
        return [
            *events,
            Event(ns=end, by="harness", rank=1, pid=201, name="artefact.found", values=values),
        ]

    said = [one for one in judged(TEXT, candidate=kept).unshown if "not in the evidence" in one]
    assert [one[:22] for one in said] == ([] if stored else ["4 artefacts of ranks a"])


def struck(at: str) -> Callable[[int], list[Event]]:
    """A trial whose rank 1 was held at an event, provably."""

    def make(size: int) -> list[Event]:
        events = healthy(size)
        place = next(event.ns for event in events if (event.rank, event.name) == (1, at))
        notes = [
            Event(
                ns=place + after,
                by="harness",
                rank=1,
                pid=201,
                name=f"fault.{what}",
                values={"fault": "late"},
            )
            for what, after in (("struck", 100), ("undone", 2_000_100))
        ]
        later = [
            event._replace(ns=event.ns + (4_000_000 if event.ns > place else 0)) for event in events
        ]
        return [*later, *notes]

    return make


@pytest.mark.parametrize(
    ("at", "over"), [("tokenizer.ready", True), ("subject.begin", False), ("subject.end", True)]
)
def test_a_fault_that_strikes_after_the_work_is_named(at: str, over: bool) -> None:
    """A fault behind the last event that a check asks for disturbed nothing that is looked at."""
    fault = f"faults: [{{id: late, kind: delay, ranks: [1], at: {at}, for: 1ms}}]\n"
    found = judged(TEXT + fault, candidate=struck(at))
    said = (
        "Fault late struck after the last event that a check uses in 4 of 4 trials of the"
        " candidate, so it could not affect the result."
    )
    assert (said in found.unshown) is over


def test_the_report_shows_it_all() -> None:
    """The first sentences are on the first screen, each other one is an item of the section."""
    text = TWO.replace("observe: [collectives]\n", "").replace("ranks: every", "ranks: [1]")
    text += "  - {id: spoke, kind: event, ranks: [1], event: decode}\n"
    found = judged(text, candidate=healthy)
    shown, more = found.unshown[:UNSHOWN_SHOWN], found.unshown[UNSHOWN_SHOWN:]
    assert (len(shown), len(more)) == (2, 2)
    whole = record().model_copy(update={"judgement": found})
    first = render_terminal(first_screen(whole), 2_000).plain
    words = " ".join(shown).replace("`", "")  # a terminal shows names of checks in another style
    assert f"Not shown   {words} Failure rates below " in first
    (items,) = [block.items for block in limits_section(whole) if isinstance(block, BulletList)]
    assert list(items[: len(more)]) == [with_code(sentence) for sentence in more]


def chosen(ids: Callable[[int], list[int]]) -> list[Event]:
    """A trial in which ranks report these ids."""
    made = []
    for event in healthy():
        made.append(event)
        if event.name == "tokenizer.ready":
            assert event.rank is not None
            made.append(event._replace(name="chosen", values={"ids": ids(event.rank)}))
    return made


@pytest.mark.parametrize(
    ("candidate", "control", "told"),
    [
        (lambda _: [1, 2], None, True),
        (lambda _: [], None, True),
        (lambda rank: [rank], None, False),
        (lambda _: [1, 2], lambda _: [7], False),  # the control another
    ],
)
def test_values_that_never_vary_are_told(
    candidate: Callable[[int], list[int]], control: Callable[[int], list[int]] | None, *, told: bool
) -> None:
    """What ranks agree on and was one value in the whole run is told.

    Not what the scenario states itself.
    """
    judgement = judged(
        COMPARED,
        candidate=lambda _: chosen(candidate),
        control=lambda _: broken() if control is None else chosen(control),
    )
    words = "Check `same` saw a single value in this run, so a subject that always reports that value would pass."
    assert [one for one in judgement.unshown if "single value" in one] == ([words] if told else [])


SILENT = "The ledgers contain no collective call or transfer between ranks"
ALONE = "Ranks made collective calls, but no check compared the calls of different ranks"
UNSEEN = "The run did not record whether the ranks exchanged anything"


@pytest.mark.parametrize(
    ("noted", "told"),
    [
        ([], SILENT),
        ([ledgers(calls=0)], SILENT),
        ([ledgers(calls=2)], ALONE),
        ([ledgers(calls=2, step={"matched": [0, 0]})], SILENT),
        ([ledgers(calls=2, step={"matched": [2, 2]})], ""),
        ([ledgers(calls=2, step={"matched": [0, 0]}, whole={"compared": [1, 1]})], ""),
    ],
)
def test_a_world_that_never_talks_is_told(noted: list[Event], told: str) -> None:
    """Ranks whose ledgers hold no call, or no call that another rank took part in, may each have
    worked alone.
    """
    found = judged(TEXT, candidate=lambda size: [*healthy(size), *noted])
    for words in (SILENT, ALONE):
        assert any(sentence.startswith(words) for sentence in found.unshown) is (words == told)


def test_a_world_that_nobody_observed_is_told() -> None:
    """Without ledgers a report of ranks that work alone would read the same.

    A world of one has nobody to talk to.
    """
    text = TEXT.replace("observe: [collectives]\n", "")
    assert any(sentence.startswith(UNSEEN) for sentence in judged(text, candidate=healthy).unshown)
    alone = text.replace("ranks: [2]", "ranks: [1]").replace("ranks: nonzero", "ranks: [0]")
    found = judged(alone, candidate=healthy, control=lambda _: broken(ranks=(0,)))
    assert not any(UNSEEN in sentence for sentence in found.unshown)
    coded = Event(ns=18_000_000, by="rank", rank=0, pid=200, name=CODED_END, values={"calls": 1})
    found = judged(text, candidate=lambda size: [*healthy(size), coded])
    assert not any(UNSEEN in sentence for sentence in found.unshown)


def test_a_check_that_failed_for_want_of_a_value_is_named() -> None:
    """A control that dies before it reports fails every check.

    It shows that the one it fails as required can fail.
    """
    text = TEXT + "  - {id: text, kind: equal, ranks: every, value: decode.text, to: Hello world}\n"

    def silent(_: int) -> list[Event]:
        return [event for event in broken() if event.name != "decode"]

    found = judged(text, control=silent)
    assert found.verdict == "PASS", found.reasons
    said = (
        "The control failed the check `text` only because its ranks reported nothing to compare, so"
        " this run does not show that the check detects a wrong value."
    )
    assert said in found.unshown

    def wrong(_: int) -> list[Event]:
        return [
            event._replace(values={"text": "x"}) if event.name == "decode" else event
            for event in broken()
        ]

    assert not any("text" in sentence for sentence in judged(text, control=wrong).unshown)


@pytest.mark.parametrize(
    ("given", "more", "is_told"),
    [
        ([], "", True),
        (None, "", True),
        ([None, ""], "", True),
        ([7], "", False),
        ([], ", empty: allowed", False),
    ],
)
def test_a_control_that_reports_nothing_has_shown_no_wrong_value(
    given: JSON, more: str, *, is_told: bool
) -> None:
    """Null and empty values are what a function gives that forgets to return, also where that fails
    as required.
    """
    text = COMPARED.replace(
        "check: ready, ranks: nonzero, error: AssertionError, source: assert tokenizer", "MUST"
    )
    text = text.replace("MUST", "check: same, ranks: [1]").replace(
        "value: chosen.ids}", f"value: chosen.ids{more}}}", 1
    )
    text = text.replace(
        "ranks: every, value: chosen.ids", "ranks: every, against: 0, value: chosen.ids", 1
    )
    lost = [
        (
            event._replace(values={"ids": given})
            if (event.name, event.rank) == ("chosen", 1)
            else event
        )
        for event in chosen(lambda _: [1, 2])
    ]
    found = judged(text, candidate=lambda _: chosen(lambda _: [1, 2]), control=lambda _: lost)
    assert found.verdict == "PASS", found.reasons
    words = "only because its ranks reported nothing to compare, so this run does not show that"
    assert any(words in sentence and "same" in sentence for sentence in found.unshown) is is_told


def test_a_check_is_named_in_the_cells_whose_control_never_failed_it() -> None:
    """Where the control is stated to hold, the checks it failed in other cells are named all the
    same.
    """
    text = TWO.replace("source: assert tokenizer}", "source: assert tokenizer, cells: {size: [2]}}")

    of_cells = iter([talking(2), broken()])
    found = judged(text, control=lambda _: next(of_cells))
    held = "The control never failed the check `ready`, so this run does not show that it can fail"
    assert f"{held} (ranks=2,backend=gloo,size=1)." in found.unshown
    assert not any("size=2" in sentence for sentence in found.unshown)
