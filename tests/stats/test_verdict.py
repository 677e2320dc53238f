"""Verdicts from histories made by hand: every rule of the design, each seen to decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.events import Event
from harness.forms.digest import fold
from harness.history import History
from harness.reason import DeviationCode, Skip, SkipCode, VerdictCode
from harness.scenario import Scenario, cells, json_schema, parse_scenario
from harness.stats.outcome import EVENTS, CellFacts, moments_of, trial_folder
from harness.stats.verdict import ArmCode, Judgement, judge, merge
from tests.kit.histories import healthy

TEXT = """
schema: 1
id: it
title: It
question: Does it?
subject:
  entry: subject:run
  candidate: {{with: {{loader: every-rank}}}}
  control:
    with: {{loader: rank-0-only}}
    must_fail: {{check: ready, ranks: nonzero, error: AssertionError, source: assert tokenizer, share: {share}}}
matrix: {{ranks: [2], backend: [gloo]}}
trials: {{candidate: {candidate}, control: {control}, accept: {{failure_rate_below: {below}}}}}
checks:
  - {{id: ready, kind: event, ranks: every, event: tokenizer.ready}}
  - {{id: ended, kind: exit, ranks: every, code: 0}}
"""
CODE = {"subject.py": "a" * 64}
ARMS = {
    "candidate": ArmCode(files=CODE, arguments={"x": 1}),
    "control": ArmCode(files=CODE, arguments={"x": 2}),
}
Events = list[Event]


def scenario(
    *, candidate: int = 59, control: int = 5, share: str = "every", below: str = "5%"
) -> Scenario:
    text = TEXT.format(candidate=candidate, control=control, share=share, below=below)
    return parse_scenario(text.encode(), name="it")


def broken(
    error: str = "AssertionError", source: str = "assert tokenizer", ranks: Sequence[int] = (1,)
) -> Events:
    """A trial in which these ranks raise instead of getting ready."""
    events = []
    for event in healthy():
        if event.rank in ranks and event.name in ("tokenizer.ready", "subject.end"):
            continue
        ended = event.rank in ranks and event.name == "rank.exited"
        events.append(event._replace(values={"code": 1, "signal": None}) if ended else event)
    for rank in ranks:
        values = {"type": error, "source": source, "message": ""}
        events.append(
            Event(
                ns=17_500_000 + rank,
                by="rank",
                rank=rank,
                pid=200 + rank,
                name="rank.error",
                values=values,
            )
        )
    return sorted(events, key=lambda event: event.ns)


def void() -> Events:
    spoiled = Event(
        ns=10,
        by="harness",
        name="harness.error",
        values={"type": "OSError", "message": "No space left on device"},
    )
    return [healthy()[0], spoiled, healthy()[-1]]


def loosened() -> Events:
    """A trial in which the harness lost its hold after a rank had begun: the rank may have done
    that.
    """
    lost = Event(
        ns=18_000_000,
        by="harness",
        name="harness.error",
        values={"type": "KeeperGone", "message": "gone"},
    )
    return sorted([*healthy(), lost], key=lambda event: event.ns)


def judged(
    candidate: Sequence[Events],
    control: Sequence[Events],
    *,
    arms: dict[str, ArmCode] = ARMS,
    share: str = "every",
    planned_candidate: int | None = None,
    below: str = "5%",
) -> Judgement:
    """Judge one cell made of these trials."""
    asked = scenario(
        candidate=planned_candidate or len(candidate),
        control=len(control),
        share=share,
        below=below,
    )
    files: dict[str, bytes] = {}
    cell = cells(asked)[0]
    for arm, trials in (("candidate", candidate), ("control", control)):
        for index, events in enumerate(trials):
            path = f"{trial_folder(cell.slug, arm, index)}/{EVENTS}"
            files[path] = "".join(event.line() + "\n" for event in events).encode()
    facts = CellFacts(id=cell.id, skipped=None, candidate=len(candidate), control=len(control))
    return judge(asked, [(cell, facts)], arms=arms, read=files.__getitem__, names=files)


def clean(count: int) -> list[Events]:
    return [healthy()] * count


def test_enough_clean_trials_and_a_control_that_fails_as_stated_are_a_pass() -> None:
    """59 clean trials and 5 of 5 stated failures: PASS, with the bound and Fisher's p."""
    found = judged(clean(59), [broken()] * 5)
    assert (found.verdict, found.reasons) == ("PASS", [])
    cell = found.cells[0]
    assert cell.candidate is not None
    assert cell.control is not None
    assert cell.candidate.upper == pytest.approx(0.0495, abs=1e-4)
    assert (cell.control.as_stated, cell.control.p_value) == (5, pytest.approx(1.3e-7, rel=0.01))


def test_58_clean_trials_are_not_enough() -> None:
    """One trial too few leaves the bound above 5 %: INCONCLUSIVE, and it says so."""
    found = judged(clean(58), [broken()] * 5)
    assert found.verdict == "INCONCLUSIVE"
    assert "5.0%" in found.reasons[0]
    assert [reason.code for reason in found.cells[0].reasons] == [VerdictCode.TOO_FEW_TRIALS]


def test_a_bound_as_high_as_what_is_accepted_is_not_below_it() -> None:
    """One clean trial leaves 95 % at 95 % confidence: the verdict asks for less, as the schema
    tells editors.
    """
    (cell,) = judged(clean(1), [broken()] * 50, below="95%").cells
    assert cell.verdict == "INCONCLUSIVE"
    assert (
        "no failure in 1 trial only shows a failure rate below 95.0%; required: below 95.0%"
        in str(cell.reasons[0])
    )
    told = json_schema()["$defs"]["Accept"]["properties"]["failure_rate_below"]["description"]
    assert "must be below this" in told


def test_one_failure_in_59_is_a_fail_and_one_in_100_is_not() -> None:
    """What decides is the bound: 1 of 59 may be 7.8 %, 1 of 100 is below 4.7 %."""
    assert judged([*clean(58), broken()], [broken()] * 5).verdict == "FAIL"
    assert judged([*clean(99), broken()], [broken()] * 5).verdict == "PASS"


CONTROLS: dict[str, tuple[list[Events], str, DeviationCode]] = {
    "passes": (clean(5), "passed on every rank", DeviationCode.CHECK_HELD),
    "once passes": ([*[broken()] * 4, healthy()], "4 of 5", DeviationCode.CHECK_HELD),
    "fails on another rank": (
        [broken(ranks=(0,))] * 5,
        "failed on rank 0 instead of rank 1",
        DeviationCode.OTHER_RANKS,
    ),
    "fails on more ranks": (
        [broken(ranks=(0, 1))] * 5,
        "failed on ranks 0, 1 instead of rank 1",
        DeviationCode.OTHER_RANKS,
    ),
    "raises something else": (
        [broken(error="OSError")] * 5,
        "did not raise AssertionError",
        DeviationCode.OTHER_ERROR,
    ),
    "fails on another line": (
        [broken(source="assert model")] * 5,
        "did not fail at 'assert tokenizer'",
        DeviationCode.OTHER_SOURCE,
    ),
    "hangs": (
        [
            [
                *broken(),
                Event(
                    ns=10**10,
                    by="harness",
                    name="world.deadline",
                    values={"after": 60.0, "ranks": [1]},
                ),
            ]
        ]
        * 5,
        "deadline",
        DeviationCode.DEADLINE,
    ),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_that_behaves_otherwise_is_inconclusive(name: str) -> None:
    """A control that passes, hangs, or fails elsewhere or otherwise proves nothing, and the reason
    says what it did.
    """
    control, what, code = CONTROLS[name]
    found = judged(clean(59), control)
    assert found.verdict == "INCONCLUSIVE"
    assert any(what in reason for reason in found.reasons)
    assert VerdictCode.CONTROL_NOT_AS_STATED in [reason.code for reason in found.cells[0].reasons]
    tally = found.cells[0].control
    assert tally is not None
    assert [instead.code for instead in tally.otherwise] == [code]
    assert {trial.otherwise.code for trial in tally.trials if trial.otherwise} == {code}


def test_a_share_needs_significance_too() -> None:
    """2 of 10 meet '>=20%' and differ from 59 clean trials (p = 0.019); 1 of 20 meets its share and
    does not differ.
    """
    control = [*[broken()] * 2, *clean(8)]
    assert judged(clean(59), control, share='">=20%"').verdict == "PASS"
    assert judged(clean(59), control, share='">=30%"').verdict == "INCONCLUSIVE"
    few = judged(clean(59), [broken(), *clean(19)], share='">=5%"')
    assert few.verdict == "INCONCLUSIVE"
    assert any("Fisher" in reason for reason in few.reasons)


def test_void_trials_are_not_counted_and_the_second_bound_counts_them() -> None:
    """A trial that the harness spoiled counts for neither side.

    A bound that takes it for a failure stands beside.
    """
    found = judged([*clean(59), void()], [broken()] * 5, planned_candidate=59)
    cell = found.cells[0]
    assert found.verdict == "PASS"
    assert cell.candidate is not None
    assert (cell.candidate.counted, cell.candidate.voids, cell.candidate.failed) == (59, 1, 0)
    assert cell.candidate.upper_with_voids > cell.candidate.upper
    assert "No space left" in str(cell.candidate.trials[59].void)


def test_a_rank_cannot_make_its_own_failure_void() -> None:
    """An error of the harness after a rank has begun is a failure, in both arms.

    Only before it is a trial void.
    """
    found = judged([*clean(58), loosened()], [broken()] * 5)
    assert found.verdict == "FAIL"
    assert found.cells[0].candidate is not None
    assert found.cells[0].candidate.voids == 0
    control = judged(clean(59), [*[broken()] * 4, loosened()])
    assert control.verdict == "INCONCLUSIVE"


def test_too_few_counted_trials_are_inconclusive_and_say_why() -> None:
    """Void trials that were not replaced leave the claim open."""
    found = judged([*clean(58), void()], [broken()] * 5, planned_candidate=59)
    assert found.verdict == "INCONCLUSIVE"
    assert any("No space left" in reason for reason in found.reasons)


UNPROVEN: dict[str, Callable[[Event], Event]] = {
    "elsewhere": lambda event: event._replace(
        values={"entry": None, "elsewhere": True, "modules": []}
    ),
    "stray": lambda event: event._replace(values={**event.values, "strays": ["subject.part"]}),
    "other code": lambda event: event._replace(
        values={
            **event.values,
            "modules": [{"module": "subject", "file": "subject.py", "sha256": "b" * 64}],
        }
    ),
}


@pytest.mark.parametrize("name", UNPROVEN)
def test_code_that_is_not_proved_is_inconclusive_even_if_it_fails(name: str) -> None:
    """An entry from elsewhere, or a module that is not the arm's, decides nothing in either
    direction.
    """
    events = [
        UNPROVEN[name](event) if event.name == "subject.loaded" else event for event in broken()
    ]
    found = judged([*clean(58), events], [broken()] * 5)
    assert found.verdict == "INCONCLUSIVE"
    assert "the run does not prove which code ran" in found.reasons[0]


@pytest.mark.parametrize(
    ("files", "folder"),
    [([{"file": "subject.py", "sha256": "b" * 64}], fold(CODE)), ([], "0" * 64), (None, None)],
)
def test_a_program_from_a_folder_that_is_not_the_arms_is_inconclusive(
    files: object, folder: object
) -> None:
    """The digests that were taken before it was executed decide, of its file and of the whole
    folder.
    """
    honest = [{"file": "subject.py", "sha256": CODE["subject.py"]}] if files is None else files
    values = {"files": honest, "folder": folder or fold(CODE)}
    executed = Event(
        ns=2_500_000, by="server", rank=1, pid=201, name="program.started", values=values
    )
    found = judged(
        [*clean(58), sorted([*clean(1)[0], executed], key=lambda event: event.ns)], [broken()] * 5
    )
    assert found.verdict == ("PASS" if files is None else "INCONCLUSIVE")


def test_the_same_code_with_the_same_arguments_is_no_control() -> None:
    """Two equal arms are INCONCLUSIVE whatever they did."""
    same = {"candidate": ARMS["candidate"], "control": ARMS["candidate"]}
    assert judged(clean(59), [broken()] * 5, arms=same).verdict == "INCONCLUSIVE"


def test_verdicts_merge_by_the_worst() -> None:
    """FAIL beats INCONCLUSIVE beats PASS, SKIPPED says nothing, and nothing is INCONCLUSIVE."""
    assert merge(["PASS", "INCONCLUSIVE", "FAIL"]) == "FAIL"
    assert merge(["PASS", "INCONCLUSIVE"]) == "INCONCLUSIVE"
    assert merge(["PASS", "SKIPPED"]) == "PASS"
    assert merge(["SKIPPED"]) == "INCONCLUSIVE"
    assert merge([]) == "INCONCLUSIVE"


def test_the_first_failure_is_told_from_its_consequences() -> None:
    """The rank that failed first by the monotonic clock is the cause.

    The others are listed behind it.
    """
    late = Event(
        ns=18_000_000,
        by="rank",
        rank=0,
        pid=200,
        name="rank.error",
        values={"type": "RuntimeError", "message": "Connection closed by peer"},
    )
    events = sorted([*broken(), late], key=lambda event: event.ns)
    trial = judged(clean(59), [events] * 5).cells[0].control
    assert trial is not None
    first, consequences = trial.trials[0].first, trial.trials[0].consequences
    assert first is not None
    assert (first.rank, [moment.rank for moment in consequences]) == (1, [0])


FAULT = "faults: [{id: late, kind: delay, ranks: [1], at: decode, for: 1ms}]\n"


def struck(events: Events) -> Events:
    """The trial with a delay of rank 1 at `decode`, proved: held for 2 ms before anything else of
    it was heard.
    """
    ns = next(event.ns for event in events if (event.rank, event.name) == (1, "decode"))
    later = [event._replace(ns=event.ns + (4_000_000 if event.ns > ns else 0)) for event in events]
    values = {"fault": "late"}
    notes = [
        Event(ns=ns + 100, by="harness", rank=1, pid=201, name="fault.struck", values=values),
        Event(ns=ns + 2_000_100, by="harness", rank=1, pid=201, name="fault.undone", values=values),
    ]
    return sorted([*later, *notes], key=lambda event: event.ns)


def with_fault(candidate: Sequence[Events], control: Sequence[Events]) -> Judgement:
    """Judge with a scenario that has the fault."""
    text = (
        TEXT.format(candidate=len(candidate), control=len(control), share="every", below="5%")
        + FAULT
    )
    planned = parse_scenario(text.encode(), name="it")
    cell = cells(planned)[0]
    texts = {
        f"{trial_folder(cell.slug, arm, index)}/{EVENTS}": (
            "".join(event.line() + "\n" for event in events).encode()
        )
        for arm, trials in (("candidate", candidate), ("control", control))
        for index, events in enumerate(trials)
    }
    facts = CellFacts(id=cell.id, skipped=None, candidate=len(candidate), control=len(control))
    return judge(planned, [(cell, facts)], arms=ARMS, read=texts.__getitem__, names=texts.keys())


def outcomes(found: Judgement) -> tuple[list[str], list[str]]:
    cell = found.cells[0]
    assert cell.candidate is not None
    assert cell.control is not None
    return [trial.outcome for trial in cell.candidate.trials], [
        trial.outcome for trial in cell.control.trials
    ]


def test_a_trial_counts_when_its_fault_is_proved() -> None:
    """With the proof in every trial the verdict is what it would be without faults."""
    found = with_fault([struck(events) for events in clean(59)], [struck(broken())] * 5)
    assert found.verdict == "PASS", found.reasons


def test_a_clean_trial_without_the_proof_is_void_and_a_failed_one_is_a_failure() -> None:
    """A void takes the place of a clean trial only, never of a failed check: FAIL, whoever left the
    event out.
    """
    found = with_fault(
        [*[struck(events) for events in clean(57)], healthy(), broken()], [struck(broken())] * 5
    )
    candidate, _ = outcomes(found)
    assert candidate == ["pass"] * 57 + ["void", "fail"]
    assert found.verdict == "FAIL"


def test_a_control_without_the_proof_counts_only_where_it_failed_first() -> None:
    """A control that returns on the struck rank without the strike is void.

    One that died there before it is not.
    """
    died = [event for event in broken() if (event.rank, event.name) != (1, "decode")]
    lived = [event for event in broken(ranks=(0,)) if (event.rank, event.name) != (1, "decode")]
    found = with_fault([struck(events) for events in clean(59)], [died, lived, healthy()])
    cell = found.cells[0]
    assert outcomes(found)[1] == ["fail", "void", "void"]
    assert cell.control is not None
    assert (cell.control.as_stated, cell.control.counted) == (1, 1)
    assert (
        str(cell.control.trials[1].void)
        == "fault late on rank 1 has no proof: it never emitted decode, and returned"
    )


def test_a_rank_that_a_fault_ended_failed_when_the_fault_struck() -> None:
    """Its end is seen after its peer has complained, as on a busy machine: it is the cause all the
    same.
    """
    events = [
        Event(ns=1, by="harness", rank=None, name="world.begin"),
        Event(
            ns=2,
            by="harness",
            rank=1,
            name="fault.struck",
            values={"fault": "gone", "kind": "kill"},
        ),
        Event(
            ns=3,
            by="rank",
            rank=0,
            name="rank.error",
            values={"type": "RuntimeError", "message": "peer closed"},
        ),
        Event(
            ns=4,
            by="server",
            rank=1,
            name="rank.exited",
            values={"code": None, "signal": "SIGKILL"},
        ),
        Event(ns=5, by="server", rank=0, name="rank.exited", values={"code": 1, "signal": None}),
    ]
    history = History(events, size=2)
    assert [found.rank for found in moments_of(history)] == [0, 1]
    first, second = moments_of(history, ended_by_fault={1: "gone"})
    assert (first.rank, first.what, first.line) == (1, "ended by fault gone: SIGKILL", 4)
    assert second.rank == 0


@pytest.mark.parametrize(
    ("skipped", "verdict"),
    [(Skip(SkipCode.MACHINE_GPUS, "needs 1 GPU"), "INCONCLUSIVE"), (None, "PASS")],
)
def test_a_control_that_had_to_fail_in_skipped_cells_only_shows_nothing(
    skipped: Skip | None, verdict: str
) -> None:
    """Where it held in every cell that ran, nothing failed anywhere: no PASS, though each cell did
    as required.
    """
    text = TEXT.format(candidate=5, control=5, share="every, cells: {gpu: [true]}", below="50%")
    asked = parse_scenario(
        text.replace("backend: [gloo]", "backend: [gloo], gpu: [false, true]").encode(), name="it"
    )
    files: dict[str, bytes] = {}
    facts = []
    for cell in cells(asked):
        must_fail = cell.axes["gpu"] is True
        count = 0 if must_fail and skipped is not None else 5
        facts.append(
            CellFacts(
                id=cell.id, skipped=skipped if must_fail else None, candidate=count, control=count
            )
        )
        for arm, events in (
            ("candidate", healthy()),
            ("control", broken() if must_fail else healthy()),
        ):
            for index in range(count):
                path = f"{trial_folder(cell.slug, arm, index)}/{EVENTS}"
                files[path] = "".join(event.line() + "\n" for event in events).encode()
    found = judge(
        asked,
        list(zip(cells(asked), facts, strict=True)),
        arms=ARMS,
        read=files.__getitem__,
        names=files,
    )
    assert found.verdict == verdict, found.reasons
    codes = [reason.code for reason in found.cells[0].reasons]
    assert codes == ([VerdictCode.CONTROL_NEVER_FAILED] if skipped else [])


@pytest.mark.parametrize(
    ("failing", "verdicts"),
    [
        ({1: (1,), 2: (0, 1)}, ["PASS", "PASS"]),
        ({1: (1,), 2: (1,)}, ["PASS", "INCONCLUSIVE"]),
        ({1: (0, 1), 2: (0, 1)}, ["INCONCLUSIVE", "PASS"]),
    ],
)
def test_ranks_of_a_control_by_an_axis(
    failing: dict[int, tuple[int, ...]], verdicts: list[str]
) -> None:
    """In the cells with a stated value exactly the ranks stated for it must fail; else those of
    `ranks`.
    """
    share = 'every, ranks_by: {parts: {"2": every}}'
    text = TEXT.format(candidate=5, control=5, share=share, below="50%")
    asked = parse_scenario(
        text.replace("backend: [gloo]", "backend: [gloo], parts: [1, 2]").encode(), name="it"
    )
    files: dict[str, bytes] = {}
    facts = []
    for cell in cells(asked):
        facts.append(CellFacts(id=cell.id, skipped=None, candidate=5, control=5))
        ranks = failing[int(str(cell.axes["parts"]))]
        for arm, events in (("candidate", healthy()), ("control", broken(ranks=ranks))):
            for index in range(5):
                path = f"{trial_folder(cell.slug, arm, index)}/{EVENTS}"
                files[path] = "".join(event.line() + "\n" for event in events).encode()
    found = judge(
        asked,
        list(zip(cells(asked), facts, strict=True)),
        arms=ARMS,
        read=files.__getitem__,
        names=files,
    )
    assert [cell.verdict for cell in found.cells] == verdicts, found.reasons
