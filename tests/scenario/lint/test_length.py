"""A title has at most 80 characters and a question at most 200, in whatever we ship."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.cli import main
from harness.scenario import load_scenario, scenario_files
from harness.scenario.model import LONGEST, Scenario

ROOT = Path(__file__).parents[3]
SHIPPED = [
    path
    for place in ("scenarios", "docs/examples", "tests")
    for path in scenario_files(ROOT / place)
]
SCENARIO = """\
schema: 1
id: length
title: TITLE
question: QUESTION
subject:
  program: [sh, rank.sh]
  candidate: {with: {fixed: true}}
  control: {with: {fixed: false}, must_fail: {check: works, ranks: every, code: 3}}
matrix: {ranks: [2]}
checks: [{id: works, kind: event, ranks: every, event: works}]
"""
TITLE = "Every rank works"
QUESTION = "Does every rank work?"


def linted(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    title: str = TITLE,
    question: str = QUESTION,
) -> tuple[int, str]:
    """The exit code of lint, and what it printed."""
    text = SCENARIO.replace("TITLE", title).replace("QUESTION", question)
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    (folder / "rank.sh").touch()
    code = main(["lint", str(folder)])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("letter", ["e", "é", "語", "🙂"])
def test_a_title_of_81_characters_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], letter: str
) -> None:
    """Characters are counted, not bytes; 80 of them are accepted."""
    file = tmp_path / "scenario.yaml"
    assert linted(tmp_path, capsys, title=letter * 80) == (0, f"{file}: ok\n")
    code, printed = linted(tmp_path, capsys, title=letter * 81)
    assert code == 64
    assert printed == (
        f"{file}:3:8: title: has 81 characters, but at most 80 fit the first line of a report;"
        " shorten it\n"
    )


@pytest.mark.parametrize("folded", ["{}", ">-\n  {}", ">\n  {}", "|\n  {}"])
def test_a_question_of_201_characters_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folded: str
) -> None:
    """However YAML writes it: line breaks count as one space, and a last one does not count."""
    between = "\n  " if folded[0] in ">|" else " "
    question = folded.format(between.join(["word"] * 39 + ["words"]))
    file = tmp_path / "scenario.yaml"
    assert linted(tmp_path, capsys, question=question) == (0, f"{file}: ok\n")
    code, printed = linted(tmp_path, capsys, question=question.replace("words", "words?"))
    assert code == 64
    assert printed == (
        f"{file}:4:11: question: has 201 characters, but at most 200 fit the head of a report;"
        " shorten it\n"
    )


def test_list_shows_a_title_of_80_characters_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a line of its own, whatever the width of the terminal."""
    linted(tmp_path, capsys, title="e" * 80)
    assert main(["list", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"    {'e' * 80}"


def test_a_run_takes_a_longer_title(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Evidence that is signed contains such: only lint refuses them."""
    linted(tmp_path, capsys, title="e" * 120, question="e" * 2000)
    assert load_scenario(tmp_path).notes == ()


def test_the_schema_tells_editors_the_limits() -> None:
    """The description of each key gives its limit."""
    for key, (most, _) in LONGEST.items():
        assert f"at most {most} characters" in str(Scenario.model_fields[key].description)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_we_ship_fits(path: Path) -> None:
    """Scenarios, examples, and those of the tests; a plug-in's too, which is not installed here."""
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    texts = Scenario.model_construct(title=tree["title"], question=tree["question"])
    assert list(texts.overlong()) == []
