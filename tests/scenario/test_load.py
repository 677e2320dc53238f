"""Files, folders and overrides."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from harness.forms.document import parse_document
from harness.scenario import Scenario, ScenarioError, load_scenario, parse_scenario, scenario_files
from harness.scenario.lint.draft import ScenarioDraft
from harness.scenario.load import _imply

SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.fixture
def folder(tmp_path: Path, good: str) -> Path:
    """Return a folder with the example, which has an input."""
    text = good.replace(
        "subject:\n", "inputs:\n  tokenizer: {path: tok, sha256: " + "0" * 64 + "}\n\nsubject:\n", 1
    )
    path = tmp_path / "scenarios" / "one"
    path.mkdir(parents=True)
    (path / "scenario.yaml").write_text(text, encoding="utf-8")
    return path


def test_a_folder_means_its_scenario_file(folder: Path) -> None:
    """A folder and its scenario.yaml load as the same thing, with the exact bytes and their
    digest.
    """
    loaded = load_scenario(folder)
    assert loaded == load_scenario(folder / "scenario.yaml")
    assert loaded.text == (folder / "scenario.yaml").read_bytes()
    assert loaded.sha256 == hashlib.sha256(loaded.text).hexdigest()
    assert (loaded.path, loaded.folder) == (folder / "scenario.yaml", folder)
    assert loaded.notes == ()


def test_scenario_files_are_found_in_order_and_hidden_ones_skipped(tmp_path: Path) -> None:
    """Every file of a tree that ends in .yaml is listed, sorted.

    Hidden files and folders are not.
    """
    for name in (
        "b/scenario.yaml",
        "b/other.yaml",
        "a/x.yaml",
        "a/x.yml",
        ".git/c.yaml",
        "a/.y.yaml",
        "b/n.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [str(path.relative_to(tmp_path)) for path in scenario_files(tmp_path)]
    assert names == ["a/x.yaml", "b/other.yaml", "b/scenario.yaml"]
    assert scenario_files(tmp_path / "b" / "n.txt") == [tmp_path / "b" / "n.txt"]
    with pytest.raises(ScenarioError, match="does not exist"):
        scenario_files(tmp_path / "nothing")


def test_an_override_changes_one_value(folder: Path) -> None:
    """Numbers, texts, lists and new arguments can be set from the command line."""
    overrides = (
        "trials.candidate=3",
        "matrix.ranks=[2, 4]",
        "subject.candidate.with.steps=7",
        "world.deadline=2min",
        "checks[2].to=no",
        'seed="5"',
        "needs.cores=2",
    )
    scenario = load_scenario(folder, overrides=overrides).scenario
    assert scenario.trials.candidate == 3
    assert scenario.matrix.ranks == (2, 4)
    assert scenario.subject.candidate.with_ == {"loader": "every-rank", "steps": 7}
    assert scenario.world.deadline == 120.0
    assert scenario.checks[2].to == "no"  # type: ignore[union-attr]
    assert scenario.seed == "5"
    assert scenario.needs.cores == 2


@pytest.mark.parametrize(
    ("given", "hub", "path"),
    [
        ("gpt2@main", "gpt2@main", None),
        ("org/model@607a30d", "org/model@607a30d", None),
        ("org/model@refs/pr/1", "org/model@refs/pr/1", None),
        ("org/model", None, "org/model"),
        ("./org@main", None, "./org@main"),
        ("/srv/org@main", None, "/srv/org@main"),
        ("a/b/c@main", None, "a/b/c@main"),
    ],
)
def test_an_input_can_be_a_hub_id_or_a_path(
    given: str, hub: str | None, path: str | None, folder: Path
) -> None:
    """A text with a revision is a hub id, unless it is written as a path.

    The pinned digest goes with the old input.
    """
    text = (folder / "scenario.yaml").read_bytes()
    source = parse_scenario(text, name="s", overrides=[f"inputs.tokenizer={given}"]).inputs[
        "tokenizer"
    ]
    assert (source.hub, source.path, source.sha256) == (hub, path, None)


def test_a_path_given_on_the_command_line_is_relative_to_where_it_is_typed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The override is kept relative to the scenario's folder, and parses to the same scenario
    without any file.
    """
    monkeypatch.chdir(tmp_path)
    loaded = load_scenario(folder, overrides=["inputs.tokenizer=models/tok"])
    assert loaded.overrides == ("inputs.tokenizer=../../models/tok",)
    assert parse_scenario(loaded.text, name="x", overrides=loaded.overrides) == loaded.scenario
    absolute = load_scenario(folder, overrides=[f"inputs.tokenizer={tmp_path}"])
    assert absolute.scenario.inputs["tokenizer"].path == str(tmp_path)


def test_a_checkout_given_on_the_command_line_starts_at_the_current_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative or not: the scenario holds the way there from its own folder, as it has to for
    another machine.
    """
    monkeypatch.chdir(tmp_path)
    key = "subject.control.environment.packages.mlx-lm.path"
    for given in ("engines/mlx-lm", str(tmp_path / "engines" / "mlx-lm")):
        environment = load_scenario(
            folder, overrides=[f"{key}={given}"]
        ).scenario.subject.control.environment
        assert environment is not None
        assert (folder / environment.checkouts["mlx-lm"].path).resolve() == (
            tmp_path / "engines/mlx-lm"
        ).resolve()


@pytest.mark.parametrize(
    ("override", "column", "key", "suggestion", "words"),
    [
        ("trials.candidat=3", 1, "trials.candidat", "candidate", "not a known key"),
        ("trial.candidate=3", 1, "trial", "trials", "not a known key"),
        ("matrix.rank=[2]", 1, "matrix.rank", "ranks", "not a known key"),
        ("inputs.tokeniser=x", 1, "inputs.tokeniser", "tokenizer", "not a known key"),
        ("checks[9].id=x", 1, "checks[9]", None, "is not an item"),
        ("title[0]=x", 1, "title[0]", None, "not a mapping"),
        ("title.x=x", 1, "title.x", None, "not a mapping"),
        ("checks.id=x", 1, "checks.id", None, "is not an item"),
        ("needs[0]=x", 1, "needs[0]", None, "not a list"),
        ("world.deadline=60", 16, "world.deadline", "60s", "unit"),
        ("world.start=wrm", 13, "world.start", "warm", "warm or fresh"),
        ("title=a: b", 7, "", None, "more than one value"),
        ("title=[1", 7, "", None, "not valid YAML"),
        ("title=&a b", 7, "", None, "anchor"),
        ("title=a\0b", 8, "", None, "NUL"),
        ("nothing", 1, "", None, "key.path=value"),
        ("=x", 1, "", None, "key.path=value"),
        ("a..b=x", 1, "", None, "key.path=value"),
        ("title=" + "x" * 20_000, 1, "", None, "longer than"),
    ],
)
def test_a_wrong_override_is_a_problem_of_its_own(
    override: str, column: int, key: str, suggestion: str | None, words: str, folder: Path
) -> None:
    """Problems of overrides name --set, the number of the override, the column and what was
    meant.
    """
    with pytest.raises(ScenarioError) as caught:
        load_scenario(folder, overrides=["trials.control=5", override])
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.column) == ("--set", 2, column)
    assert (problem.key, problem.suggestion) == (key, suggestion)
    assert words in problem.message


def test_an_override_repairs_a_wrong_value(folder: Path, problems: Any) -> None:
    """What an override replaces is not complained about."""
    text = (
        (folder / "scenario.yaml")
        .read_text(encoding="utf-8")
        .replace("deadline: 60s", "deadline: *x")
    )
    found = problems(text, overrides=["world.deadline=9s"])
    assert [problem.message.split(";")[0] for problem in found] == ["is an alias"]


def test_advice_does_not_stop_a_scenario(folder: Path) -> None:
    """Too few trials for a PASS are a note on a scenario that loads."""
    (note,) = load_scenario(folder, overrides=["trials.candidate=5"]).notes
    assert note.kind == "note"
    assert (note.file, note.key) == ("--set", "trials.candidate")
    assert "45.1%" in note.message
    assert "59 trials" in note.message


NARROW = """
schema: 1
id: narrow
title: Narrow
question: What does it leave open?
role: upstream
subject: {entry: subject:run}
matrix: {ranks: [1, 2]}
faults: [{id: late, kind: delay, ranks: every, at: subject.end, for: 1s}]
checks:
  - {id: done, kind: event, ranks: [0], event: done}
  - {id: ended, kind: exit, ranks: every}
"""


def test_lint_says_what_a_run_will_not_show(folder: Path) -> None:
    """What the file alone tells of it is a note: a question may well be narrow, but its reader has
    to know.
    """
    (folder / "scenario.yaml").write_text(NARROW)
    notes = load_scenario(folder).notes
    assert [(note.key, note.message.partition(":")[0]) for note in notes] == [
        ("matrix.ranks[0]", "a world with one rank does not test anything distributed"),
        (
            "faults[0].at",
            (
                "takes effect after the subject returned, but no check needs a later event; use an"
                " earlier event"
            ),
        ),
        ("checks", "no check covers what rank 1 does, only how it exits (world size 2)"),
    ]
    wide = (
        NARROW.replace("[0], event", "every, event")
        .replace("[1, 2]", "[2]")
        .replace("subject.end", "done")
    )
    (folder / "scenario.yaml").write_text(wide)
    assert load_scenario(folder).notes == ()


@pytest.mark.parametrize(("against", "told"), [("", True), (", against: 0", False)])
def test_of_two_ranks_that_differ_both_do(
    against: str, told: bool, good: str, folder: Path
) -> None:
    """A control that must fail an `agree` check on one of two ranks never will, unless it is
    compared with a rank.
    """
    text = good.replace("kind: agree", f"kind: agree{against}")
    text = text.replace("check: tokenizer-ready", "check: same-identity")
    (folder / "scenario.yaml").write_text(text)
    notes = load_scenario(folder, overrides=["matrix.ranks=[2]", "matrix.exclude=[]"]).notes
    assert any("compares two ranks" in note.message for note in notes) is told


@pytest.mark.parametrize(
    ("control", "candidate", "kind", "words"),
    [
        (1, 5, "error", "cannot be shown"),
        (20, 59, "note", "are needed"),
        (60, 300, None, ""),
    ],
)
def test_lint_says_how_many_control_trials_a_share_needs(
    control: int, candidate: int, kind: str | None, words: str, folder: Path
) -> None:
    """A control that fails now and then must be tried often enough to be told from chance."""
    overrides = [
        'subject.control.must_fail.share=">=5%"',
        f"trials.control={control}",
        f"trials.candidate={candidate}",
    ]
    try:
        found = load_scenario(folder, overrides=overrides).notes
    except ScenarioError as error:
        found = error.problems
    about = [problem for problem in found if problem.key.endswith("share")]
    assert [problem.kind for problem in about] == ([kind] if kind else [])
    assert all(words in problem.message for problem in about)


@pytest.mark.parametrize("path", scenario_files(SCENARIOS), ids=lambda path: path.stem)
def test_the_parts_of_a_whole_scenario_are_those_that_are_read_one_by_one(path: Path) -> None:
    """A file without a mistake is linted as one with a mistake is: rules that span keys see the
    same of it.
    """
    document = parse_document(path.read_bytes(), name=str(path))
    _imply(document)
    assert ScenarioDraft.whole(
        document, Scenario.model_validate(document.tree)
    ) == ScenarioDraft.of(document)
