"""The scenarios about tokenizers that are silently wrong: a part of each runs here."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from harness.record.model import Record
from harness.scenario import load_scenario
from tests.kit.commands import ROOT, Ran

SILENT = ROOT / "scenarios" / "silent-wrong-tokenizer"
AGREE = ROOT / "scenarios" / "ranks-agree-on-tokenizer"
ONE_TRIAL = [
    part
    for key in ("trials.candidate=1", "trials.control=1", "trials.accept.failure_rate_below=96%")
    for part in ("--set", key)
]


def test_both_are_claims_that_run_on_demand() -> None:
    """Both gate our own loader, neither runs unless it is named, and their trials suffice for their
    bounds.
    """
    for folder in (SILENT, AGREE):
        found = load_scenario(folder / "scenario.yaml")
        assert (found.scenario.role, found.scenario.tags) == ("claim", ("on-demand",))
        assert found.notes == ()


@pytest.mark.long
def test_faults_of_a_hub_make_plain_transformers_wrong_and_our_loader_say_so(
    rankproof: Callable[..., Ran], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each fault is proved by the log.

    Ours is never another, AutoTokenizer is, and stays so on its cache.
    """
    settings = ['matrix.layouts=["llama2"]', 'matrix.kinds=["missing"]', "matrix.ranks=[1]"]
    settings.append('inputs.repositories.layouts=["llama2"]')
    ran = rankproof(
        "run",
        str(SILENT),
        "--unsigned",
        *ONE_TRIAL,
        *(part for one in settings for part in ("--set", one)),
    )
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    # One trial of each cannot set the arms apart; what the trials showed is what this test is
    # about.
    assert failing(ran.record, "candidate") == set(), ran.out + ran.err
    assert failing(ran.record, "control") == {"never-another", "another-by-name"}
    ours = events(ran.folder, cell.candidate.trials[0].evidence, "cell")
    plain = events(ran.folder, cell.control.trials[0].evidence, "cell")
    assert {one["outcome"] for one in ours} == {"error", "not-struck"}
    assert all(
        one["struck"] and one["answers"] for one in ours + plain if one["outcome"] != "not-struck"
    )
    wrong = {one["target"]: one["after"] for one in plain if one["outcome"] == "different"}
    assert wrong["tokenizer.model"] == "different"
    assert {one["after"] for one in ours} <= {"", "same"}

    table = module(SILENT / "table.py")
    assert table.main(ran.folder) == 0
    said = capsys.readouterr().out
    assert "| llama2 | `tokenizer.model` | missing |" in said
    assert f"control: {len(wrong)} cells" in said


@pytest.mark.long  # each rank imports transformers anew, and so do its loads
def test_ranks_with_faults_get_the_right_tokenizer_or_an_error(
    rankproof: Callable[..., Ran],
) -> None:
    """Struck ranks load the reference or tell an error.

    With AutoTokenizer just those have another tokenizer.
    """
    settings = [
        "matrix.ranks=[4]",
        "measure=[]",
        "subject.candidate.with.deadline=4",
        (
            "checks=[{id: reference-or-error, kind: equal, ranks: every, value: load.another, to:"
            " false}]"
        ),
    ]
    ran = rankproof(
        "run",
        str(AGREE),
        "--unsigned",
        *ONE_TRIAL,
        *(part for one in settings for part in ("--set", one)),
    )
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    assert failing(ran.record, "candidate") == set(), ran.out + ran.err
    assert failing(ran.record, "control") == {"reference-or-error"}
    ours = events(ran.folder, cell.candidate.trials[0].evidence, "load", by_rank=True)
    plain = events(ran.folder, cell.control.trials[0].evidence, "load", by_rank=True)
    assert [one["outcome"] for one in ours] == ["same", "same", "same", "error"]
    assert [one["outcome"] for one in plain] == ["same", "different", "different", "different"]
    # Two ranks hold tokenizers that work and do not agree with the others'.
    assert len({one["identity"] for one in plain}) == 3


def failing(record: Record, arm: Literal["candidate", "control"]) -> set[str]:
    (cell,) = record.judgement.cells
    return {row.check for row in cell.samples[arm].rows if not row.passed}


def events(
    folder: Path, evidence: str, name: str, *, by_rank: bool = False
) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / evidence).read_text().splitlines()]
    found = [line for line in lines if (line["by"], line["name"]) == ("rank", name)]
    return [
        line["values"]
        for line in (sorted(found, key=lambda line: line["rank"]) if by_rank else found)
    ]


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
