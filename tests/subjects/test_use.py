"""A scenario with a ready subject: mistakes are named, its code is evidence, and its report can be reproduced."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.gate.discrepancies import foreign
from harness.scenario import ScenarioError, json_schema, parse_scenario
from harness.subjects import READY
from tests.reproduce.conftest import Person
from tests.run.conftest import ROOT
from tests.run.repositories import commit, git

SCENARIO = """\
schema: 1
id: sums
title: Collectives give what they must
question: Do they?
subject:
  use: torch-allreduce
  candidate: {with: {elements: 16}}
  control:
    with: {elements: 16, defect: own-value}
    must_fail: {check: right, ranks: nonzero}
matrix: {ranks: [2]}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: right, kind: equal, ranks: every, value: collectives.done.correct, to: true}
  - {id: alike, kind: agree, ranks: every, value: collectives.done.digest}
"""


def problems(text: str) -> list[Any]:
    try:
        parse_scenario(text.encode(), name="s.yaml")
    except ScenarioError as error:
        return list(error.problems)
    return []


SHARED = """\
schema: 1
id: shared
title: One reference for all
question: Is it?
inputs: {model: {made: qwen2}}
subject:
  use: hf-sharded
  candidate: {with: {}}
  control: {with: {tokenizer: rank-0-only}, must_fail: {check: same, ranks: nonzero}}
  reference: {with: {}, once: scenario}
matrix: {ranks: [2], AXIS}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks: [{id: same, kind: equal, ranks: every, value: generated.ids, against: reference}]
"""


def test_one_reference_stands_for_axes_that_change_nothing_of_what_comes_out() -> None:
    """How the model is shared and in which chunks it is read may differ between cells, and what is asked may not."""
    for axis in ("sharding: [tensor, pipeline]", "prefill_chunk: [0, 3]"):
        assert problems(SHARED.replace("AXIS", axis)) == []
    (found,) = problems(SHARED.replace("AXIS", "max_new_tokens: [4, 8]"))
    assert "subject.reference.once: one reference cannot stand for the axis max_new_tokens" in str(found)


def test_a_scenario_needs_no_python() -> None:
    """It loads, and its function is the ready subject's."""
    scenario = parse_scenario(SCENARIO.encode(), name="s.yaml")
    assert scenario.subject.function == "torch_allreduce:run"
    assert scenario.subject.entry is None


@pytest.mark.parametrize(
    ("old", "new", "key", "message", "suggestion"),
    [
        ("torch-allreduce", "torch-alreduce", "subject.use", "is not a ready subject; there are", "torch-allreduce"),
        ("torch-allreduce", "torch_allreduce", "subject.use", "is not a ready subject", "torch-allreduce"),
        ("{elements: 16}", "{elemnts: 16}", "subject.candidate.with.elemnts", "is not an argument", "elements"),
        ("{elements: 16}", "{elements: 0}", "subject.candidate.with.elements", "a whole number from 1 to", None),
        ("{elements: 16}", "{elements: true}", "subject.candidate.with.elements", "a whole number from 1 to", None),
        ("own-value", "own-valu", "subject.control.with.defect", "must be one of none, own-value", "own-value"),
        ("ranks: [2]", "ranks: [2]\n  dtyp: [int64]", "matrix.dtyp", "is not an argument", "dtype"),
        ("ranks: [2]", "ranks: [2]\n  dtype: [int46]", "matrix.dtype[0]", "must be one of int64", "int64"),
        (
            "ranks: [2]",
            "ranks: [2]\n  backend: [mlx-ring]",
            "matrix.backend[0]",
            "not a backend that torch-allreduce",
            None,
        ),
        ("  use:", "  path: code\n  use:", "subject.path", "is for code of your own", None),
        ("candidate: {", "candidate: {rev: main, ", "subject.candidate.rev", "is for code of your own", None),
        ("candidate: {", "candidate: {file: a.py, ", "subject.candidate.file", "is for code of your own", None),
        (
            "done.correct",
            "dine.correct",
            "checks[0].value",
            "is not a value of torch-allreduce",
            "collectives.done.correct",
        ),
        (
            "done.correct",
            "done.corect",
            "checks[0].value",
            "is not a value of torch-allreduce",
            "collectives.done.correct",
        ),
        ("torch-allreduce", "tokenizer-load", "inputs", "holds no tokenizer, which the candidate reads", None),
    ],
)
def test_a_mistake_is_named(old: str, new: str, key: str, message: str, suggestion: str | None) -> None:
    """Where, what is allowed, and what was probably meant."""
    text = SCENARIO.replace("{ranks: [2]}", "\n  ranks: [2]").replace(old, new)
    found = [one for one in problems(text) if one.key == key]
    assert found, problems(text)
    assert (message, suggestion) in [
        (message if message in one.message else one.message, one.suggestion) for one in found
    ]


PIPELINE = (
    SCENARIO.replace("torch-allreduce", "torch-pipeline")
    .replace("elements: 16", "steps: 4")
    .replace("own-value", "wrong-shard")
    .replace("collectives.done.correct", "decoded.correct")
    .replace("collectives.done.digest", "decoded.tokens")
)


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("wrong-shard", "own-part", ["subject.control.with.defect"]),
        ("wrong-shard", "wrong-shard, layers: 1", ["subject.control.with.layers"]),
        ("steps: 4", "layers: 1", ["subject.candidate.with.layers", "subject.control.with.layers"]),
        ("ranks: [2]", "ranks: [2, 3], layers: [2, 3]", ["matrix.layers"]),
        ("ranks: [2]", "ranks: [2, 3], layers: [2, 3], exclude: [{ranks: 3, layers: 2}]", []),
        ("wrong-shard", "own-part, parallel: tensor, layers: 1", []),
        ("ranks: [2]", "ranks: [2], parallel: [tensor]", []),
    ],
)
def test_arguments_with_which_a_pipeline_would_not_start_are_named(old: str, new: str, keys: list[str]) -> None:
    """A control that refuses its arguments fails every check, and shows nothing of its defect."""
    assert not problems(PIPELINE)
    assert [one.key for one in problems(PIPELINE.replace(old, new))] == keys


@pytest.mark.parametrize(
    ("more", "key", "suggestion"),
    [
        ("faults: [{id: f, kind: kill, ranks: [1], at: colective}]\n", "faults[0].at", "collective"),
        ("measure: [{id: m, event: colective}]\n", "measure[0].event", "collective"),
        ("measure: [{id: m, event: collectives.done}]\n", "measure[0].event", "collective"),
    ],
)
def test_an_event_that_it_never_tells_is_named(more: str, key: str, suggestion: str | None) -> None:
    """A fault that could not strike and a row that nobody could measure are found before a run."""
    (found,) = problems(SCENARIO + more)
    assert (found.key, found.suggestion) == (key, suggestion)


def test_events_of_every_rank_may_be_asked_for() -> None:
    """What the harness and the runtime tell is there whatever the subject is."""
    check = "  - {id: quick, kind: within, ranks: every, event: subject.end, limit: 30s}\n"
    assert not problems(f"{SCENARIO}{check}faults: [{{id: f, kind: pause, ranks: [1], at: backend.ready, for: 9ms}}]\n")


def test_a_backend_follows_from_the_subject() -> None:
    """Where the matrix names none, one is taken that the subject works on."""
    scenario = parse_scenario(SCENARIO.replace("torch-allreduce", "mlx-allreduce").encode(), name="s.yaml")
    assert scenario.matrix.backend == ("mlx-ring",)


def test_an_input_is_named_by_an_argument() -> None:
    """Two arms may load two tokenizers; a name that no input has is a mistake."""
    text = SCENARIO.replace("torch-allreduce", "tokenizer-load").replace(
        "elements: 16, defect: own-value", "tokenizer: old"
    )
    text = text.replace("elements: 16", "tokenizer: new")
    text = text[: text.index("checks:")] + "checks: [{id: right, kind: event, ranks: every, event: tokenizer.ready}]\n"
    named = text + "inputs: {old: {path: a}, new: {path: b}}\n"
    assert not problems(named)
    (found,) = problems(named.replace("old: {path", "older: {path"))
    assert (found.key, found.suggestion) == ("subject.control.with.tokenizer", "older")


def test_editors_are_told_the_names() -> None:
    """The exported schema offers every ready subject."""
    assert json_schema()["$defs"]["Subject"]["properties"]["use"]["examples"] == list(READY)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a scenario that names a ready subject, and no code."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, {"scenarios/sums/scenario.yaml": SCENARIO})
    return folder


def another_version(place: Path) -> str:
    """A Rankproof whose ready subject is another one: what PYTHONPATH finds it by."""
    shutil.copytree(ROOT / "harness", place / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    file = place / "harness" / "subjects" / "torch_allreduce_inside.py"
    file.write_text(file.read_text() + "\n# of another version\n")
    return str(place)


@pytest.fixture
def ann(tmp_path: Path) -> Person:
    """Who makes the run."""
    return Person(tmp_path / "ann")


@pytest.mark.slow
@pytest.mark.whole
def test_a_report_of_a_ready_subject_is_reproduced(ann: Person, project: Path, tmp_path: Path) -> None:
    """PASS, reproduced here; with another version SOURCE DIFFERS names the file, and the evidence still runs."""
    ran = ann("run", "scenarios/sums", cwd=project)
    assert ran.code == 0, ran.out
    report, record = str(ran.folder), ran.record
    assert (record.scenario.use, record.scenario.entry) == ("torch-allreduce", "torch_allreduce:run")
    file = ran.folder / "evidence" / "source" / "control" / "torch_allreduce.py"
    assert file.read_bytes() == READY["torch-allreduce"].files()["torch_allreduce.py"]
    text = (ran.folder / "report.md").read_text()
    assert "ready subject `torch-allreduce`" in text
    assert "not about code of this repository" in text
    ann.trusts = [ann.fingerprint]
    assert ann("verify", report).code == 0

    again = ann("reproduce", report, cwd=project)
    assert again.code == 0, again.out
    assert "ready subject torch-allreduce" in again.out
    assert ann("reproduce", report, "--repo", str(project), "--dry-run").code == 0

    other = {"PYTHONPATH": another_version(tmp_path / "other")}
    differs = ann("reproduce", report, cwd=project, env=other)
    assert differs.code == 2, differs.out
    assert "SOURCE DIFFERS" in differs.out
    assert "candidate: torch_allreduce.py differs" in differs.out
    assert "control: torch_allreduce.py differs" in differs.out
    kept = ann("reproduce", report, "--from-evidence", cwd=project, env=other)
    assert kept.code == 0, kept.out

    elsewhere = ann("reproduce", report, "--source", str(project), cwd=project)
    assert elsewhere.code == 64, elsewhere.out
    assert "comes with Rankproof: no other source holds its candidate" in elsewhere.out

    bundle = ann("bundle", report, "--out", str(tmp_path / "sums.tar.xz"))
    assert bundle.code == 0, bundle.out
    assert ann("reproduce", str(tmp_path / "sums.tar.xz"), "--dry-run").code == 0

    # A gate takes it for what it is: no file of the commit, but the ready subject of the version that decides.
    known: Any = SimpleNamespace(sha256=record.scenario.sha256, scenario=parse_scenario(SCENARIO.encode(), name="s"))
    basis: Any = SimpleNamespace(commit_files={})
    assert foreign(record, known, basis, lambda path: (ran.folder / path).read_bytes()) == ()
    files = {"torch_allreduce.py": "0" * 64}
    changed = record.model_copy(
        update={"arms": {**record.arms, "candidate": record.arms["candidate"].model_copy(update={"files": files})}}
    )
    (line,) = foreign(changed, known, basis, lambda path: (ran.folder / path).read_bytes())
    assert line.startswith("candidate: torch_allreduce.py (not the ready subject torch-allreduce of this version")


def test_ready_subjects_are_listed(ann: Person) -> None:
    """Each with what it does, takes and emits."""
    listed = ann("list", "--subjects")
    assert listed.code == 0
    for name, subject in READY.items():
        assert f"{name}  (" in listed.out
        assert all(f"with {argument} (default" in listed.out for argument in subject.arguments)
        assert all(f"emits {event}" in listed.out for event in subject.emits)
