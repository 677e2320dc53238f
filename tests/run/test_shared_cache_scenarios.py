"""The scenarios about shared caches, threads and forks: a small part of each folder runs here."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from harness.scenario import load_scenario, scenario_files
from tests.kit.commands import ROOT, Ran

CACHES, THREADS = (
    ROOT / "scenarios" / "shared-cache-cold-start",
    ROOT / "scenarios" / "threads-and-forks",
)
# Too few for a PASS, which is not asked here.
FEW = (
    "--unsigned",
    "--set",
    "matrix.ranks=[2]",
    "--set",
    "trials.candidate=1",
    "--set",
    "trials.control=1",
)


def test_scenarios_that_take_their_time_run_on_demand() -> None:
    """Each of these scenarios is a claim with a control, and none of them runs unless it is
    named.
    """
    loaded = [
        load_scenario(file) for folder in (CACHES, THREADS) for file in scenario_files(folder)
    ]
    assert len(loaded) == 15
    for found in loaded:
        assert (found.scenario.role, "on-demand" in found.scenario.tags) == ("claim", True)
        assert found.scenario.subject.control is not None


@pytest.mark.long
def test_half_a_file_is_noticed_by_the_loader_and_not_by_the_hubs_cache(
    rankproof: Callable[..., Ran],
) -> None:
    """The loader replaces the halved file.

    From the hub's cache every rank gets another tokenizer, without an error.
    """
    ran = rankproof("run", str(CACHES / "half-a-file.yaml"), *FEW)
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    assert (cell.candidate.failed, cell.control.as_stated) == (0, 1), ran.out + ran.err


@pytest.mark.long
def test_a_shared_tokenizer_gives_wrong_ids_and_one_for_each_thread_does_not(
    rankproof: Callable[..., Ran],
) -> None:
    """Threads with tokenizers of their own get their own ids.

    With one for all they do not, in every trial.
    """
    ran = rankproof(
        "run",
        str(THREADS / "one-tokenizer-for-all.yaml"),
        "--unsigned",
        "--set",
        "matrix.ranks=[1]",
    )
    assert (ran.code, ran.record.judgement.verdict) == (0, "PASS"), ran.out + ran.err


@pytest.mark.long
# Every rank imports transformers anew, which takes a minute for both.
@pytest.mark.parametrize(
    "file",
    [
        pytest.param("remote-code-copy.yaml", marks=pytest.mark.long),
        pytest.param("remote-code-half.yaml", marks=pytest.mark.whole),
    ],
)
def test_code_that_is_not_whole_yet_is_imported_by_transformers_and_not_by_the_loader(
    rankproof: Callable[..., Ran], file: str
) -> None:
    """While the writer is stopped the other rank waits and loads, or with AutoTokenizer imports
    what is there.
    """
    ran = rankproof("run", str(THREADS / file), *FEW, "--set", "faults[0].for=1s")
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    assert (cell.candidate.failed, cell.control.as_stated) == (0, 1), ran.out + ran.err
    assert [
        strike.proved for arm in (cell.candidate, cell.control) for strike in arm.trials[0].strikes
    ] == [True, True]


@pytest.mark.long
def test_code_whose_writer_is_not_stopped_is_imported_whole(rankproof: Callable[..., Ran]) -> None:
    """Without the stop every rank of the candidate and the writer of the control load the same
    tokenizer: it is the stop that the verdict is about.
    """
    nothing = [
        word
        for arm in ("candidate", "control")
        for word in ("--set", f"subject.{arm}.with.stands=false")
    ]
    ran = rankproof(
        "run", str(THREADS / "remote-code-half.yaml"), *FEW, *nothing, "--set", "faults=[]"
    )
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    # transformers may read what is half written without any stop, so of the control only the rank
    # that writes is sure to load the whole.
    for arm, ranks in ((cell.candidate, {0, 1}), (cell.control, {0})):
        lines = (ran.folder / arm.trials[0].evidence).read_text().splitlines()
        events = [json.loads(line) for line in lines]
        same = {event["rank"] for event in events if event["name"] == "tokenizer.same"}
        assert same >= ranks
