"""The shipped scenario: its tokenizer, its verdict, and other tokenizers given to it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run.inputs import digests, fold
from harness.scenario import load_scenario
from tests.kit.commands import ROOT, Ran
from tests.run import hub

pytestmark = [pytest.mark.slow, pytest.mark.whole]

SCENARIO = ROOT / "scenarios" / "tokenizer-on-every-rank"
FEW = (
    "--set",
    "trials.candidate=3",
    "--set",
    "matrix.ranks=[2]",
    "--set",
    "trials.accept.failure_rate_below=70%",
)
Run = Callable[..., Ran]


def test_the_tokenizer_is_the_one_its_script_makes(tmp_path: Path) -> None:
    """Training it again gives the same bytes, and the digest that the scenario pins."""
    subprocess.run(
        [sys.executable, str(SCENARIO / "make_tokenizer.py"), str(tmp_path / "made")], check=True
    )
    made = digests(tmp_path / "made", name="made")
    assert made == digests(SCENARIO / "tokenizer", name="kept")
    assert fold(made) == load_scenario(SCENARIO).scenario.inputs["tokenizer"].sha256


@pytest.mark.long
def test_few_trials_reach_a_verdict_with_values_of_every_rank(rankproof: Run) -> None:
    """The report shows class, backend, vocabulary size, round trip, pid and imports of each
    rank.
    """
    ran = rankproof("run", str(SCENARIO), *FEW)
    assert ran.code == 0, ran.out + ran.err
    rows = {row.check: row for row in ran.record.judgement.cells[0].samples["candidate"].rows}
    assert [cell.shown for cell in rows["rust-backend"].cells] == ["Rust", "Rust"]
    assert [cell.shown for cell in rows["in-words"].cells] == [
        "'Hello world' -> 4 tokens -> 'Hello world'"
    ] * 2
    assert all("transformers" in cell.shown for cell in rows["modules-import"].cells)
    assert all(cell.shown.startswith("pid ") for cell in rows["world:ranks-are-processes"].cells)
    report = (ran.folder / "report.md").read_text()
    assert "TokenizerWrapper" in report
    assert "assert tokenizer" in report


@pytest.mark.long
def test_fresh_ranks_reach_the_same_verdict(rankproof: Run) -> None:
    """With a new interpreter per rank the answer is the same, and the report no longer lists what
    warm start hides.
    """
    one = ("--set", "world.start=fresh", "--set", "trials.candidate=1", "--set", "trials.control=1")
    ran = rankproof("run", str(SCENARIO), *FEW, *one)
    assert ran.record.run.start == "fresh"
    assert ran.record.judgement.cells[0].candidate is not None
    assert ran.record.judgement.cells[0].candidate.failed == 0
    assert ran.record.judgement.cells[0].control is not None
    assert ran.record.judgement.cells[0].control.as_stated == 1
    assert "forked from a server" not in (ran.folder / "report.md").read_text()


def test_a_tokenizer_of_the_users_takes_its_place(rankproof: Run, tmp_path: Path) -> None:
    """`--set inputs.tokenizer=FOLDER` uses the folder.

    The report says it is not pinned, and holds no path.
    """
    own = tmp_path / "own-tokenizer"
    shutil.copytree(SCENARIO / "tokenizer", own)
    (own / "extra.txt").write_text("mine")
    ran = rankproof("run", str(SCENARIO), *FEW, "--set", f"inputs.tokenizer={own}")
    assert ran.code == 0, ran.out + ran.err
    assert ran.record.run.inputs[0].pinned is False
    assert ran.record.run.inputs[0].given == "./own-tokenizer"
    assert str(tmp_path) not in (ran.folder / "report.md").read_text()


@pytest.mark.long
def test_a_tokenizer_of_the_hub_takes_its_place(rankproof: Run, tmp_path: Path) -> None:
    """`--set inputs.tokenizer=hub-id@revision` goes through huggingface_hub, and the record names
    the commit.
    """
    with hub.serve("team/tiny", SCENARIO / "tokenizer") as endpoint:
        env = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
        ran = rankproof(
            "run", str(SCENARIO), *FEW, "--set", "inputs.tokenizer=team/tiny@main", env=env
        )
    assert ran.code == 0, ran.out + ran.err
    given = ran.record.run.inputs[0]
    assert (given.given, given.revision) == ("team/tiny@main", hub.COMMIT)
    assert given.files == digests(SCENARIO / "tokenizer", name="kept")


def test_a_model_the_hub_does_not_have_is_one_line(rankproof: Run, tmp_path: Path) -> None:
    """A repository that is not there stops the run before any rank starts, with the reason."""
    with hub.serve("team/tiny", SCENARIO / "tokenizer") as endpoint:
        env = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
        ran = rankproof("run", str(SCENARIO), "--set", "inputs.tokenizer=team/other@main", env=env)
    assert ran.code == 2
    assert "from the hub: " in ran.err
    assert "Traceback" not in ran.err
