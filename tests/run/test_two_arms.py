"""A equals B: two arms run as worlds of the same ranks, b compared with a, and a defect that must
be seen.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.reason import VerdictCode
from harness.trust.key import find_signer
from tests.kit import forge, repositories
from tests.kit.commands import Ran, run_command
from tests.run.test_reference import verify

pytestmark = [pytest.mark.slow, pytest.mark.whole]  # several runs, verified and forged

SUBJECT = """
import array
import os

def score(context, *, fast, way="plain"):
    assert "reference" not in context.inputs
    loss = [1.0 + context.rank, 2.0, 3.0]
    if fast and way == "wrong" and context.rank:
        loss[1] += 0.5
    if fast and way.startswith("once ") and not os.path.exists(way[5:]):
        open(way[5:], "w").close()
        loss[1] += 0.5
    if not fast and way == "differs":
        loss[1] += os.getpid()
    if way == "nothing":
        loss = None
    ids = [] if way == "empty" else [1, 2, 3 + context.seed % 1000]
    if not (fast and way == "silent"):
        context.emit("score", loss=loss, ids=ids)
    context.keep("logits", array.array("f", [0.5, 1.5, 2.5 + context.rank]))
"""
SCENARIO = """
schema: 1
id: same
title: The fast way computes what the plain one computes
question: Do both give the same values?
subject:
  entry: subject:score
  compare:
    a: {with: {fast: false}}
    b: {with: {fast: true}}
    defect:
      - {value: score.loss, ranks: nonzero, absolute: 0.25}
      - {artefact: logits, ulp: 4}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 4, control: 4, accept: {failure_rate_below: 60%}, max_voids: 0}
checks:
  - {id: loss, kind: close, ranks: every, value: score.loss, against: a, atol: 0.125}
  - {id: logits, kind: close, ranks: every, artefact: logits, against: a, ulp: 2}
  - {id: ids, kind: equal, ranks: every, value: score.ids, against: a}
"""


def run(place: Path, *, scenario: str = SCENARIO) -> Ran:
    folder = place / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(scenario)
    (folder / "subject.py").write_text(SUBJECT)
    return run_command(place, "run", str(folder))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("same")


@pytest.fixture(scope="module")
def ran(place: Path) -> Ran:
    """One run of it."""
    return run(place)


def test_b_is_compared_with_a_rank_for_rank(ran: Ran, place: Path) -> None:
    """PASS: no trial of b differs, every one with the defects fails at each check that compares
    what they change.

    The report says what a and b are, which checks no defect reached, and speaks of a and b alone.
    """
    assert ran.code == 0, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    assert [(way.what, way.ranks, way.count) for way in cell.control.how] == [
        ("check `logits` detects the defect", [0, 1], 4),
        ("check `loss` detects the defect", [1], 4),
    ]
    strikes = [strike for trial in cell.control.trials for strike in trial.strikes]
    assert all(strike.proved for strike in strikes)
    assert len({strike.description for strike in strikes}) > 4  # each trial has its own element
    assert ran.record.changed == ['-with: {"fast":false}', '+with: {"fast":true}']
    assert (
        "B with the defect never failed the check `ids`, so this run does not show that it can fail."
        in ran.record.judgement.unshown
    )
    assert (
        "A and b were bit-identical in every trial that passed, by the checks `loss`, `logits` and `ids`, so"
        " this run does not show that the values that they compare depend on the difference between a and b."
        in ran.record.judgement.unshown
    )
    text = "".join((ran.folder / name).read_text() for name in ("report.md", "appendix.md"))
    for words in (
        "## Runs of arm a\n\n### Compared with ranks=2,backend=none\n\nThe runs took ",
        "| reported or saved by rank 0 | value |",
        "Diff from a to b",
        "| cell | verdict | b failed |",
        "| with | ",
    ):
        assert words in text
    for line in text.splitlines():
        said = line.replace("candidate/", "").replace("candidate-", "").replace("control-", "")
        assert "the candidate" not in said, line
        assert "the control" not in said, line
    verified = verify(place, ran.folder / "report.md")
    assert (verified.code, "array comparisons repeated" in verified.out) == (
        0,
        True,
    ), verified.out


def test_a_try_compares_too(tmp_path: Path) -> None:
    """One trial of b, and one with the defects; b that differs fails."""
    for way, code, words in (
        ("plain", 0, "b with the defect: failed as required"),
        ("wrong", 1, "b: FAILED"),
    ):
        folder = tmp_path / way
        folder.mkdir()
        (folder / "scenario.yaml").write_text(
            SCENARIO.replace("fast: true", f"fast: true, way: {way}")
        )
        (folder / "subject.py").write_text(SUBJECT)
        tried = run_command(tmp_path, "run", str(folder), "--try", "--all")
        assert (tried.code, words in tried.out) == (code, True), tried.out + tried.err


WITH_B = "{with: {fast: true}}"


def test_bits_are_told_of_trials_that_passed(tmp_path: Path) -> None:
    """B that differs from a in its first trial is not said to have given the bits of a in every
    trial.
    """
    folder = tmp_path / "scenario"
    folder.mkdir()
    once = SCENARIO.replace(WITH_B, f"{{with: {{fast: true, way: once {tmp_path / 'mark'}}}}}")
    (folder / "scenario.yaml").write_text(once)
    (folder / "subject.py").write_text(SUBJECT)
    told = run_command(tmp_path, "run", str(folder), "--jobs", "1")
    assert told.code == 1, told.out + told.err
    candidate = told.record.judgement.cells[0].candidate
    assert candidate is not None
    assert candidate.failed == 1
    said = [
        sentence
        for sentence in told.record.judgement.unshown
        if sentence.startswith("A and b were bit-identical")
    ]
    assert [sentence.partition(",")[0] for sentence in said] == [
        "A and b were bit-identical in every trial that passed"
    ]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("old", "new", "code", "reason", "words"),
    [
        # b differs on one rank
        (WITH_B, "{with: {fast: true, way: wrong}}", 1, VerdictCode.FAILURE_RATE, ""),
        # b does not report the value: its trials fail, and what was to be changed in it never came
        (WITH_B, "{with: {fast: true, way: silent}}", 1, VerdictCode.FAILURE_RATE, ""),
        # the defect is smaller than what is allowed
        (
            "absolute: 0.25",
            "absolute: 0.0625",
            2,
            VerdictCode.CONTROL_NOT_AS_STATED,
            (
                "check `loss` passed on every rank: it allows atol 0.125, but an element of"
                " score.loss was changed by 0.0625"
            ),
        ),
        (
            "ulp: 4",
            "ulp: 2",
            2,
            VerdictCode.CONTROL_NOT_AS_STATED,
            "it allows 2 ulp, but an element of logits was",
        ),
        # nothing in the value can be changed so
        (
            "value: score.loss, ranks: nonzero, absolute: 0.25",
            "value: score.ids, one: character",
            2,
            VerdictCode.CONTROL_TRIALS_VOID,
            "score.ids: nothing in it can be changed by one character",
        ),
        # a gives two answers
        (
            "{with: {fast: false}}",
            "{with: {fast: false, way: differs}}",
            2,
            VerdictCode.REFERENCE_DIFFERS,
            "a returned different results",
        ),
        # a and b are one: lint leaves that to the verdict in a self-test
        (WITH_B, "{with: {fast: false}}", 2, VerdictCode.ARMS_ALIKE, "a and b have the same code"),
    ],
)
def test_a_slip_is_not_a_pass(
    tmp_path: Path, old: str, new: str, code: int, reason: VerdictCode, words: str
) -> None:
    """What differs FAILs; a comparison that shows nothing is INCONCLUSIVE, for its own reason."""
    assert old in SCENARIO
    text = SCENARIO.replace(old, new)
    if reason is VerdictCode.ARMS_ALIKE:
        text = text.replace("title:", "role: self-test\nexpects: INCONCLUSIVE\ntitle:")
        code = 0
    ran = run(tmp_path, scenario=text)
    assert ran.code == code, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    found = next((str(one) for one in cell.reasons if one.code == reason), None)
    assert found is not None, cell.reasons
    assert words in found
    assert verify(tmp_path, ran.folder / "report.md").code == 0


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (
            "nothing",
            (
                "a returned no value that check loss could compare with on rank 0: score.loss: the value"
                " is not a number"
            ),
        ),
        (
            "empty",
            "a returned no value that check ids could compare with on rank 0: score.ids is empty",
        ),
    ],
)
def test_nothing_is_not_equal_to_nothing(tmp_path: Path, way: str, words: str) -> None:
    """A value that is null or empty in both ends the run before its first trial."""
    text = SCENARIO.replace("fast: true", f"fast: true, way: {way}").replace(
        "fast: false", f"fast: false, way: {way}"
    )
    ran = run(tmp_path, scenario=text)
    assert ran.code == 2
    assert words in ran.out + ran.err
    assert not (ran.results / "latest").exists()


# -- cheats ------------------------------------------------------------------------------------


def events(folder: Path, trial: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change events of a trial."""
    path = folder / "evidence/ranks-2-backend-none" / trial / "events.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for event in lines:
        change(event)
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in lines))


def other_reference(folder: Path) -> None:
    """A reported something else than the trials were compared with."""
    for run_of in ("reference-00000", "reference-00001"):
        events(
            folder,
            run_of,
            lambda event: event["name"] == "score" and event["values"].update(loss=[9.0, 9.0, 9.0]),
        )


def without_a_defect_trial(folder: Path) -> None:
    shutil.rmtree(folder / "evidence/ranks-2-backend-none/control-00003")


def larger_defect(folder: Path) -> None:
    """The proof tells of a larger change than the one that is stated."""
    events(
        folder,
        "control-00000",
        lambda event: (
            event["values"].get("of") == "score.loss" and event["values"].update(after=99.0)
        ),
    )


def other_before(folder: Path) -> None:
    """The proof tells of another number before: the report would not be what the change makes of
    it.
    """
    events(
        folder,
        "control-00000",
        lambda event: (
            event["values"].get("of") == "score.loss" and event["values"].update(before=0.0)
        ),
    )


def other_element(folder: Path) -> None:
    """The proof of what was changed in the array names another element."""

    def change(event: dict[str, Any]) -> None:
        if event["values"].get("of") == "logits" and event["name"] == "fault.perturbed":
            event["values"]["position"] = [(event["values"]["position"][0] + 1) % 3]

    events(folder, "control-00000", change)


def not_struck(folder: Path) -> None:
    """The harness did not order the change."""
    events(
        folder,
        "control-00001",
        lambda event: event["name"] == "fault.struck" and event.update(name="fault.other"),
    )


def other_code(folder: Path) -> None:
    """What the defect was injected into is not b."""
    path = folder / "evidence/source/control/subject.py"
    path.write_text(path.read_text() + "# another\n")


def same_code(folder: Path) -> None:
    """A was b all along, and the record does not say so."""
    forge.facts(folder, arguments={"reference": {"fast": True}})


CHEATS = [
    other_reference,
    without_a_defect_trial,
    larger_defect,
    other_before,
    other_element,
    not_struck,
    other_code,
    same_code,
]


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_forged_comparison_is_refused(
    ran: Ran, place: Path, tmp_path: Path, cheat: Callable[[Path], Any]
) -> None:
    """Under a good signature too: the verdict follows from a's events, b's, and what each defect
    did.
    """
    folder = tmp_path / ran.folder.parent.name / ran.folder.name
    shutil.copytree(ran.folder, folder)
    cheat(folder)
    forge.sign(folder, place / "home/.local/share/rankproof/signing_key")
    verified = verify(place, folder / "report.md")
    assert (verified.code, "REFUSED" in verified.out) == (3, True), verified.out


# -- what a and b may differ in ----------------------------------------------------------------

SHORT = """
schema: 1
id: released
title: The release says what the last one did
question: Do both say the same?
subject:
  entry: subject:say
  compare:
    a: {A}
    b: {B}
    defect: {value: said.text, one: character}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 4, control: 4, accept: {failure_rate_below: 60%}}
checks:
  - {id: text, kind: equal, ranks: every, value: said.text, against: a}
"""


@pytest.mark.whole
def test_two_releases_are_compared(tmp_path: Path, offered: dict[str, str]) -> None:
    """Each in its own environment: what b says otherwise is named beside what a said, and the
    versions differ.
    """
    folder = tmp_path / "scenario"
    folder.mkdir()
    arms = [
        f'{{environment: {{packages: {{greeting: "{version}"}}}}}}' for version in ("1.0", "2.0")
    ]
    (folder / "scenario.yaml").write_text(SHORT.replace("{A}", arms[0]).replace("{B}", arms[1]))
    subject = "import greeting\n\ndef say(context):\n    context.emit('said', text=greeting.TEXT)\n"
    (folder / "subject.py").write_text(subject)
    differs = run_command(tmp_path, "run", str(folder), env=offered)
    assert differs.code == 1, differs.out + differs.err
    assert differs.record.changed == ["-greeting 1.0", "+greeting 2.0"]
    said = 'said.text differs from a: expected "HELLO", found "hello"'
    for cell in differs.record.judgement.cells:
        assert cell.candidate is not None
        assert all(said in trial.failures[0].reasons[0] for trial in cell.candidate.trials)
    assert "| package | a | b | comparison |" in (differs.folder / "report.md").read_text()
    (library,) = differs.record.libraries
    assert library.versions == {"reference": "1.0", "candidate": "2.0"}
    assert {"-TEXT = WORD.upper()", "+TEXT = WORD"} <= set(library.modules[0].lines)
    (folder / "subject.py").write_text(subject.replace("greeting.TEXT", "greeting.TEXT.lower()"))
    same = run_command(tmp_path, "run", str(folder), env=offered)
    assert same.code == 0, same.out + same.err
    assert verify(tmp_path, same.folder / "report.md").code == 0


@pytest.mark.whole
def test_two_revisions_are_compared_and_reproduced(tmp_path: Path) -> None:
    """The code of each is laid out from its commit; two names of one tree are the same code.

    It can be run again.
    """
    top = repositories.make(tmp_path / "repo")
    subject = (
        "from proj import greeting\n\ndef say(context):\n    context.emit('said',"
        " text=greeting(0))\n"
    )
    yaml = SHORT.replace("{A}", "{rev: broken}").replace("{B}", "{rev: fixed}")
    repositories.commit(top, {"check/scenario.yaml": yaml, "check/subject.py": subject})
    ran = run_command(tmp_path, "run", str(top / "check"))
    assert ran.code == 0, ran.out + ran.err
    assert {name: one.rev for name, one in ran.record.run.revisions.items()} == {
        "candidate": "fixed",
        "control": "fixed",
        "reference": "broken",
    }
    assert "--- a/proj.py" in ran.record.changed
    assert "| a | broken: " in (ran.folder / "report.md").read_text()
    key = str(tmp_path / "home/.local/share/rankproof/signing_key")
    signer = ("--signer", find_signer(explicit=key).fingerprint)
    again = run_command(
        tmp_path, "reproduce", str(ran.folder / "report.md"), *signer, "--repo", str(top)
    )
    assert (again.code, "REPRODUCED" in again.out) == (0, True), again.out + again.err
    alike = run_command(
        tmp_path, "run", str(top / "check"), "--set", "subject.compare.a.rev=fixed~0"
    )
    assert alike.code == 2, alike.out + alike.err
    assert [reason.code for cell in alike.record.judgement.cells for reason in cell.reasons] == [
        VerdictCode.ARMS_ALIKE
    ]


LEFT = """
from pathlib import Path

def score(context, *, fast, place):
    file = Path(place, f"score-{context.rank}")
    if not fast:
        file.write_text(str(7.5 + context.rank))
    context.emit("score", loss=[float(file.read_text())])
"""
AGREES = """
schema: 1
id: left
title: The fast way computes what the plain one computes
question: Do both give the same values?
subject:
  entry: subject:score
  compare:
    a: {with: {fast: false, place: PLACE}}
    b: {with: {fast: true, place: PLACE}}
    defect: {value: score.loss, ranks: every, absolute: 0.25}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 4, control: 4, accept: {failure_rate_below: 60%}, max_voids: 0}
checks:
  - {id: loss, kind: close, ranks: every, value: score.loss, against: a, atol: 0.125}
"""


def test_b_may_read_what_a_left_behind(tmp_path: Path) -> None:
    """No record shows that b computed what it reports: that it may have read it is told, and that
    nothing was heard.
    """
    (tmp_path / "scenario.yaml").write_text(AGREES.replace("PLACE", str(tmp_path)))
    (tmp_path / "subject.py").write_text(LEFT)
    done = run_command(tmp_path, "run", str(tmp_path))
    assert done.code == 0, done.out + done.err
    text = (done.folder / "report.md").read_text()
    assert (
        "The same applies to a and b: if they agree, the reason may be that b read data that a left behind, or the reverse"
        in text
    )
    assert "The run did not record whether the ranks exchanged anything" in text
    assert "imported torch" not in text
