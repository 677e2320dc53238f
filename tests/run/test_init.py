"""`rankproof init`: what it writes lints clean and runs, whatever the answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run.init import Answers, InitError, write
from harness.scenario import ScenarioError, load_scenario
from tests.run.conftest import Ran

Run = Callable[..., Ran]
FEW = ("--set", "trials.candidate=5", "--set", "trials.accept.failure_rate_below=60%")
LINES = {
    "default": (),
    "raise": ("--error", "ValueError", "--source", 'raise ValueError("no cache")', "--failing", "[1]"),
    "own error": ("--error", "CacheMiss", "--source", 'raise CacheMiss("x")', "--failing", "every"),
    "cannot be played": ("--error", "KeyError", "--source", "value = table[key]"),
    "assert of something else": ("--source", "assert cache.ready"),
    "odd words": ("--title", 'He said: "it: works" # really', "--question", "¿Funciona? 日本語 {x}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_it_lints_clean_and_runs_to_a_pass(rankproof: Run, tmp_path: Path, name: str) -> None:
    """Whatever is answered, the folder is a scenario whose control fails as stated, without a change."""
    made = rankproof("init", "my-fix", "--ranks", "2", *LINES[name])
    assert made.code == 0, made.err
    assert rankproof("lint", "my-fix").code == 0
    ran = rankproof("run", "my-fix", *FEW)
    assert ran.code == 0, ran.out + ran.err


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    """Nothing is overwritten."""
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(InitError, match="not an empty folder"):
        write(tmp_path, Answers(id="it", title="t", question="q"))
    assert (tmp_path / "mine").read_text() == "keep"


def test_an_answer_that_no_scenario_can_hold_writes_nothing(tmp_path: Path) -> None:
    """A rank that no world has is told with its place, before anything is written."""
    with pytest.raises(ScenarioError):
        write(tmp_path / "it", Answers(id="it", title="t", question="q", failing="[9]"))
    assert not (tmp_path / "it").exists()
    with pytest.raises(InitError, match="lower-case"):
        write(tmp_path / "it", Answers(id="It's", title="t", question="q"))


def test_what_is_written_can_be_read_by_an_editor(tmp_path: Path) -> None:
    """The schema line points at the schema beside the scenarios, where there is one."""
    (tmp_path / "scenario.schema.json").write_text("{}")
    write(tmp_path / "it", Answers(id="it", title="t", question="q"))
    assert "$schema=../scenario.schema.json" in (tmp_path / "it" / "scenario.yaml").read_text()
    assert load_scenario(tmp_path / "it").scenario.id == "it"
