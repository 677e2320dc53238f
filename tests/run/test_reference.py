"""The reference: one process that holds the whole, run twice before the trials, and compared with
by name.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.reason import VerdictCode
from harness.trust.key import find_signer
from tests.kit import forge
from tests.kit.commands import Ran, run_command

pytestmark = pytest.mark.slow

SUBJECT = """
import array
import json
import os
from pathlib import Path

def score(context, *, broken, way="plain"):
    if context.size == 1:
        assert (os.environ["WORLD_SIZE"], os.environ["RANK"], context.group.all_gather(b"x")) == ("1", "0", [b"x"])
        assert "reference" not in context.inputs
        if way == "fails":
            raise RuntimeError("the model is not there")
        if way == "hangs":
            context.emit("score.begin")
            os.read(os.pipe()[0], 1)
    else:
        found = json.loads(Path(context.inputs["reference"], "values.json").read_text())
        assert found == {"score.loss": [4.0]}, found
        assert Path(context.inputs["reference"], "weights.npy").stat().st_size > 64
    off = 0.25 if broken and context.rank else os.getpid() * 1.0 if way == "differs" and context.size == 1 else 0.0
    context.emit("score", loss=4.0)
    context.keep("logits", array.array("d", [1.0, 2.0 + off]))
    context.keep("weights", array.array("d", [5.0]))
"""
SCENARIO = """
schema: 1
id: scores
title: The ranks compute what one process computes
question: Do all ranks have the logits of the whole?
subject:
  entry: subject:score
  candidate: {with: {broken: false}}
  control:
    with: {broken: true}
    must_fail: {check: same, ranks: nonzero}
  reference: {with: {broken: false}}
matrix: {ranks: [2, 3], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: same, kind: close, ranks: every, artefact: logits, against: reference, atol: 0.125}
  - {id: loss, kind: close, ranks: every, value: score.loss, against: reference, atol: 0}
"""


def run(place: Path, *, scenario: str = SCENARIO, subject: str = SUBJECT) -> Ran:
    folder = place / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(scenario)
    (folder / "subject.py").write_text(subject)
    return run_command(place, "run", str(folder))


def verify(place: Path, report: Path) -> Ran:
    key = place / "home/.local/share/rankproof/signing_key"
    return run_command(
        place, "verify", str(report), "--signer", find_signer(explicit=str(key)).fingerprint
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scores")


@pytest.fixture(scope="module")
def ran(place: Path) -> Ran:
    """One run of it."""
    return run(place)


def test_ranks_are_compared_with_the_reference(ran: Ran, place: Path) -> None:
    """Each cell has its own, run twice.

    The record says what it was and how long it took, and is judged again.
    """
    assert ran.code == 0, ran.out + ran.err
    for cell in ran.record.judgement.cells:
        reference = cell.reference
        assert reference is not None
        assert reference.evidence == [
            f"evidence/{cell.slug}/reference-0000{index}/events.jsonl" for index in (0, 1)
        ]
        assert all(ms > 0 for ms in reference.ms)
        assert reference.reported == {"score.loss": "4.0"}
        assert [(one.name, one.dtype, one.shape) for one in reference.arrays] == [
            ("logits", "float64", [2]),
            ("weights", "float64", [1]),
        ]
    assert (
        "found 2.25, expected 2 (off by 0.25 at \\[1\\]; 1 of 2 elements beyond atol 0.125)"
        in (ran.folder / "report.md").read_text()
    )
    verified = verify(place, ran.folder / "report.md")
    assert (verified.code, "array comparisons repeated" in verified.out) == (
        0,
        True,
    ), verified.out


@pytest.mark.whole
def test_a_try_compares_with_the_reference_too(tmp_path: Path) -> None:
    """One trial of each arm: the candidate passes, the control fails as required.

    A doubt about the reference is said.
    """
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "subject.py").write_text(SUBJECT)
    for way, code, words in (
        ("plain", 0, "failed as required"),
        ("differs", 1, "returned different results in two runs"),
    ):
        reference = f"reference: {{with: {{broken: false, way: {way}}}}}"
        (folder / "scenario.yaml").write_text(
            SCENARIO.replace("reference: {with: {broken: false}}", reference)
        )
        tried = run_command(tmp_path, "run", str(folder), "--try", "--all")
        assert (tried.code, words in tried.out + tried.err) == (code, True), tried.out + tried.err


@pytest.mark.whole
def test_one_reference_for_all_cells(tmp_path: Path) -> None:
    """once: scenario runs it twice altogether, and each cell names the same."""
    ran = run(
        tmp_path, scenario=SCENARIO.replace("reference: {with", "reference: {once: scenario, with")
    )
    assert ran.code == 0, ran.out + ran.err
    found = {
        tuple(cell.reference.evidence) for cell in ran.record.judgement.cells if cell.reference
    }
    assert found == {
        tuple(f"evidence/reference/reference-0000{index}/events.jsonl" for index in (0, 1))
    }
    assert verify(tmp_path, ran.folder / "report.md").code == 0


@pytest.mark.whole
def test_a_reference_that_gives_two_answers_decides_nothing(tmp_path: Path) -> None:
    """INCONCLUSIVE, with the place and the difference; whatever the candidate did."""
    scenario = SCENARIO.replace(
        "reference: {with: {broken: false}}", "reference: {with: {broken: false, way: differs}}"
    )
    ran = run(tmp_path, scenario=scenario.replace("ranks: [2, 3]", "ranks: [2]"))
    assert ran.code == 2, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert [reason.code for reason in cell.reasons] == [VerdictCode.REFERENCE_DIFFERS]
    assert (
        "the reference returned different results in two runs: check same: artefact logits does"
        " not match: found" in str(cell.reasons[0])
    )
    assert verify(tmp_path, ran.folder / "report.md").code == 0


def test_a_reference_that_fails_ends_the_run(tmp_path: Path) -> None:
    """There is nothing to compare with: no trial is made, nothing is signed, and its traceback is
    shown.
    """
    ran = run(
        tmp_path,
        scenario=SCENARIO.replace(
            "with: {broken: false}}\nm", "with: {broken: false, way: fails}}\nm"
        ),
    )
    assert ran.code != 0
    assert "the reference failed" in ran.out + ran.err
    assert "RuntimeError: the model is not there" in ran.out + ran.err
    assert not (ran.results / "latest").exists()


@pytest.mark.whole
def test_a_reference_without_time_says_how_far_it_was(tmp_path: Path) -> None:
    """Who has a slow one learns what to set, and by what it said last whether it was slow or
    hung.
    """
    slow = SCENARIO.replace(
        "with: {broken: false}}\nm", "deadline: 5s, with: {broken: false, way: hangs}}\nm"
    )
    ran = run(tmp_path, scenario=slow)
    assert ran.code != 0
    assert (
        "the world was still running after 5 s; its last event was score.begin, "
        in ran.out + ran.err
    )
    assert "--set subject.reference.deadline=20s" in ran.out + ran.err


@pytest.mark.parametrize(
    "what", ["kept['weights'].write_bytes(mine)", "(there / 'mine.npy').write_bytes(mine)"]
)
def test_what_ranks_read_of_the_reference_stays_as_it_is(tmp_path: Path, what: str) -> None:
    """A rank that saves its own array there would be compared with itself."""
    subject = (
        SUBJECT
        + f"""
    if context.size > 1 and context.rank:
        there = Path(context.inputs["reference"])
        kept = {{path.stem: path for path in there.glob("*.npy")}}
        mine = kept["weights"].read_bytes()
        kept["weights"].chmod(0o644)
        {what}
"""
    )
    ran = run(tmp_path, subject=subject)
    assert ran.code != 0, ran.out
    name = "weights.npy" if "kept[" in what else "mine.npy"
    message = (
        f"a rank of cell ranks=2,backend=none changed {name} in the reference's folder, which other"
        " ranks also read"
    )
    assert message in ran.out + ran.err
    assert "Traceback" not in ran.out + ran.err


@pytest.mark.whole
def test_no_rank_finds_what_it_is_compared_with(tmp_path: Path) -> None:
    """Whoever walks the whole run's folder finds what the reference gave to be read, and no answer
    to hand in.
    """
    subject = (
        SUBJECT
        + """
    if context.size > 1:
        run = Path(context.inputs["reference"]).parents[1]
        context.emit("thief", found=sorted(path.name for path in run.rglob("*.npy")), sees=(run / "evidence").is_dir())
"""
    )
    checks = "".join(
        f"  - {{id: {key}, kind: equal, ranks: every, value: thief.{key}, to: {to}}}\n"
        for key, to in (("found", "[weights.npy]"), ("sees", "true"))
    )
    ran = run(
        tmp_path, scenario=SCENARIO.replace("ranks: [2, 3]", "ranks: [2]") + checks, subject=subject
    )
    assert ran.code == 0, ran.out + ran.err
    assert verify(tmp_path, ran.folder / "report.md").code == 0


GROUPED = """
import torch
import torch.distributed as dist

def score(context, *, broken):
    part = torch.tensor([float(broken and context.rank == context.size - 1) + 6 / context.size], dtype=torch.float64)
    dist.all_reduce(part)  # a reference without a group would raise here
    context.emit("score", loss=part.item(), ids=[1, 2], size=dist.get_world_size())
"""


@pytest.mark.whole
def test_a_reference_may_call_torch_distributed(tmp_path: Path) -> None:
    """backend: gloo gives it a group of itself; `equal` compares content with it, and a name nobody
    reports is told.
    """
    text = SCENARIO[: SCENARIO.index("checks:")].replace(
        "with: {broken: false}}\nm", "with: {broken: false}, backend: gloo}\nm"
    )
    text = text.replace("ranks: [2, 3], backend: [none]", "ranks: [2], backend: [gloo]").replace(
        "ranks: nonzero", "ranks: every"
    )
    checks = "- {id: same, kind: equal, ranks: every, value: score.loss, against: reference}\n"
    checks += "- {id: ids, kind: equal, ranks: every, value: score.ids, against: reference}\n"
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(f"{text}checks:\n{checks}show: [score.size, score.los]\n")
    (folder / "subject.py").write_text(GROUPED)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 0, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert cell.reference is not None
    assert cell.reference.reported == {"score.loss": "6.0", "score.ids": "[1,2]", "score.size": "1"}
    assert cell.control is not None
    assert "score.loss differs from the reference: expected 6.0, found 7.0" in str(
        cell.control.trials[0].failures
    )
    told = "No rank of the candidate reported score.los, which show names; did you mean score.loss?"
    assert told in ran.record.judgement.unshown
    assert verify(tmp_path, ran.folder / "report.md").code == 0


PROGRAM = """
import json, os
os.write(3, b'{"event": "ready"}\\n')
os.read(4, 1)
size = int(os.environ["WORLD_SIZE"])
off = 1 if os.environ["RANKPROOF_WITH_BROKEN"] == "true" and os.environ["RANK"] != "0" else 0
assert ("RANKPROOF_INPUT_REFERENCE" in os.environ) == (size > 1)
os.write(3, json.dumps({"event": "score", "values": {"loss": 4 + off, "size": size}}).encode() + b"\\n")
"""


@pytest.mark.whole
def test_a_program_is_a_reference_too(tmp_path: Path) -> None:
    """Told by its variables that it is a world of one, whatever the scenario tells its ranks of
    their world.
    """
    lines = [line for line in SCENARIO.splitlines() if "artefact" not in line]
    text = (
        "\n".join(lines)
        .replace("check: same", "check: loss")
        .replace("ranks: [2, 3]", "ranks: [2]")
    )
    text = text.replace(
        "world: {deadline: 30s}",
        "world: {deadline: 30s, env: {WORLD_SIZE: '2'}}\nshow: [score.size]",
    )
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(
        text.replace("entry: subject:score", f"program: [{sys.executable}, rank.py]")
    )
    (folder / "rank.py").write_text(PROGRAM)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 0, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert cell.reference is not None
    assert cell.reference.reported == {"score.loss": "4", "score.size": "1"}
    shown = cell.samples["candidate"].values
    assert [(row.check, [one.shown for one in row.cells]) for row in shown] == [
        ("score.size", ["2", "2"])
    ]


def without_second_run(folder: Path) -> None:
    shutil.rmtree(folder / "evidence/ranks-2-backend-none/reference-00001")


def one_run_twice(folder: Path) -> None:
    """The first run of the reference in the place of the second, so that it seems to agree with
    itself.
    """
    cell = folder / "evidence/ranks-2-backend-none"
    shutil.copyfile(cell / "reference-00000/events.jsonl", cell / "reference-00001/events.jsonl")


def of_another_cell(folder: Path) -> None:
    evidence = folder / "evidence"
    for index in (0, 1):
        name = f"reference-0000{index}/events.jsonl"
        shutil.copyfile(
            evidence / "ranks-3-backend-none" / name, evidence / "ranks-2-backend-none" / name
        )


def other_answer(folder: Path) -> None:
    """The reference reported another loss than the one that the trials were compared with."""
    path = folder / "evidence/ranks-2-backend-none/reference-00000/events.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for event in lines:
        if event["name"] == "score":
            event["values"]["loss"] = 5.0
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in lines))


def no_shape(folder: Path) -> None:
    """The event of what the reference kept is not one that a harness writes."""
    for path in folder.glob("evidence/*/reference-00000/events.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for event in lines:
            if event["name"] == "artefact.found":
                event["values"].pop("shape", None)
        path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in lines))


@pytest.mark.parametrize(
    "forgery", [without_second_run, one_run_twice, of_another_cell, other_answer, no_shape]
)
def test_a_changed_reference_is_refused(
    ran: Ran, place: Path, tmp_path: Path, forgery: Callable[[Path], Any]
) -> None:
    """Under a good signature too: it has to be there, twice, of this cell, and give what was
    compared with.
    """
    folder = tmp_path / ran.folder.parent.name / ran.folder.name
    shutil.copytree(ran.folder, folder)
    forgery(folder)
    forge.sign(folder, place / "home/.local/share/rankproof/signing_key")
    verified = verify(place, folder / "report.md")
    assert (verified.code, "REFUSED" in verified.out) == (3, True), verified.out


def test_what_cannot_be_compared_is_said_before_anything_runs(tmp_path: Path) -> None:
    """A check against a reference that the scenario has not, and a reference that no check looks
    at.
    """
    ran = run(tmp_path, scenario=SCENARIO.replace("  reference: {with: {broken: false}}\n", ""))
    assert (
        ran.code,
        "checks[0].against: needs a subject.reference section" in ran.out + ran.err,
    ) == (64, True)
    (tmp_path / "scenario/scenario.yaml").write_text(
        SCENARIO.replace("against: reference", "against: 0")
    )
    noted = run_command(tmp_path, "lint", str(tmp_path / "scenario"))
    assert "subject.reference: is not used, because no check has" in noted.out + noted.err


@pytest.mark.whole
def test_a_reference_that_lacks_what_is_compared_is_said(tmp_path: Path) -> None:
    """It gave no answer, which is not two: no trial is made."""
    subject = SUBJECT.replace(
        'context.emit("score", loss=4.0)', 'context.size > 1 and context.emit("score", loss=4.0)'
    )
    subject = subject.replace(
        'assert found == {"score.loss": [4.0]}, found', "assert found == {}, found"
    )
    ran = run(tmp_path, subject=subject, scenario=SCENARIO.replace("ranks: [2, 3]", "ranks: [2]"))
    assert (ran.code != 0, (ran.results / "latest").exists()) == (True, False)
    assert (
        "did not return a value for check loss to compare with: score.loss was not reported"
        in ran.out + ran.err
    )
