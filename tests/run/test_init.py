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
    "an error alone": ("--error", "CacheMiss"),
    "an error of five arguments": ("--error", "UnicodeDecodeError"),
    "odd words": ("--title", 'He said: "it: works" # really', "--question", "¿Funciona? 日本語 {x}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
@pytest.mark.whole
def test_it_lints_clean_and_runs_to_a_pass(rankproof: Run, tmp_path: Path, name: str) -> None:
    """Whatever is answered, the folder is a scenario whose control fails as stated, without a change.

    But for the group, which is the same whatever is answered: it is joined once, and left out of the other runs.
    """
    made = rankproof("init", "my-fix", "--ranks", "2", *LINES[name])
    assert made.code == 0, made.err
    assert rankproof("lint", "my-fix").code == 0
    apart: tuple[str, ...] = ()
    if name != "default":
        apart = ("--set", "matrix.backend=[none]")
        subject = tmp_path / "my-fix" / "subject.py"
        text = subject.read_text()
        assert text.count("    context.group.barrier()\n") == 1
        subject.write_text(text.replace("    context.group.barrier()\n", ""))
    ran = rankproof("run", "my-fix", *FEW, *apart)
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


@pytest.mark.parametrize("name", ["123", "1e3", "0x1f", "true", "null", "on", "a1"])
def test_a_name_stays_a_text(tmp_path: Path, name: str) -> None:
    """YAML reads some names as numbers or truths unless they are quoted."""
    write(tmp_path / "it", Answers(id=name, title="t", question="q"))
    assert load_scenario(tmp_path / "it").scenario.id == name


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"error": "torch.OutOfMemoryError"}, "its last part alone"),
        ({"error": "class"}, "not the name of an exception"),
        ({"error": "SystemExit"}, "without an error"),
        ({"title": "\udcff"}, "no UTF-8"),
    ],
)
def test_an_answer_that_could_not_be_played_is_refused(tmp_path: Path, answers: dict[str, str], message: str) -> None:
    """What would not run as it is, or cannot be written, is told before anything is written."""
    with pytest.raises(InitError, match=message):
        write(tmp_path / "it", Answers(id="it", **{"title": "t", "question": "q", **answers}))
    assert not (tmp_path / "it").exists()


@pytest.mark.slow
@pytest.mark.whole
def test_a_hang_is_written_run_and_verified(rankproof: Run, tmp_path: Path) -> None:
    """`init --hang` writes a deadlock that is proved as one; the report shows where each rank stood, and verifies."""
    assert rankproof("init", "my-hang", "--hang", "--ranks", "2").code == 0
    assert rankproof("lint", "my-hang").code == 0
    ran = rankproof("run", "my-hang", *FEW, "--set", "trials.control=2")
    assert ran.code == 0, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    assert "The world stood still for 2" in report
    assert " in check: dist.all_reduce(total)" in report
    signer = ran.out.rpartition("--signer ")[2].strip()
    assert rankproof("verify", str(ran.folder / "report.md"), "--signer", signer).code == 0


def test_a_hang_raises_nothing(rankproof: Run) -> None:
    """What an error needs is refused beside --hang."""
    made = rankproof("init", "my-hang", "--hang", "--error", "ValueError")
    assert made.code == 64
    assert "--error is for a bug that raises" in made.err
