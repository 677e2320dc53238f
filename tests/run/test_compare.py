"""`rankproof diff` on runs that were really made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.commands import Pair, Ran

pytestmark = pytest.mark.slow


@pytest.mark.whole
def test_a_run_beside_itself(pair: Pair, rankproof: Callable[..., Ran]) -> None:
    """A run compared with itself is verified, pairs every trial, and is the same: half is what it
    accepts.
    """
    ran = rankproof(
        "diff", str(pair.good), str(pair.good / "report.md"), "--signer", pair.signer, "--json"
    )
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["word"], found["pairs"]) == ("same", 5)
    assert [run["verified"] for run in found["runs"]] == [True, True]
    rows = {row["what"]: (row["values"], row["word"], row["more"]) for row in found["rows"]}
    assert rows["verdict"] == (["PASS", "PASS"], "same", None)
    assert rows["trials that failed"] == (["0 of 5", "0 of 5"], "same", None)
    assert rows["trials that failed as required"][1] == "same"


@pytest.mark.whole
def test_an_unverified_run_is_refused(
    pair: Pair, rankproof: Callable[..., Ran], tmp_path: Path
) -> None:
    """What verification refuses is not compared, unless it is asked for by name.

    It is then marked.
    """
    edited = shutil.copytree(pair.good, tmp_path / "edited")
    (edited / "results.json").write_bytes(
        (edited / "results.json").read_bytes().replace(b"Ranks meet", b"Ranks MEET")
    )
    both = (str(pair.good), str(edited), "--signer", pair.signer)
    refused = rankproof("diff", *both)
    assert (refused.code, refused.out) == (3, "")
    assert "EVIDENCE EDITED" in refused.err
    ran = rankproof("diff", *both, "--unverified", "--markdown")
    assert ran.code == 0, ran.err
    assert "not verified: EVIDENCE EDITED" in ran.err
    assert "| **NO** |" in ran.out
    nobody = rankproof("diff", str(pair.good), str(pair.good))
    assert (nobody.code, "UNKNOWN SIGNER" in nobody.err) == (3, True)


def test_two_scenarios(pair: Pair, rankproof: Callable[..., Ran]) -> None:
    """Two runs of two scenarios are a usage error."""
    ran = rankproof("diff", str(pair.good), str(pair.bad), "--signer", pair.signer)
    assert ran.code == 64
    assert "meet and parting are different scenarios" in ran.err


def test_nothing_to_compare(pair: Pair, rankproof: Callable[..., Ran], tmp_path: Path) -> None:
    """A folder without a run is one line, no traceback."""
    refused = rankproof("diff", str(tmp_path), str(pair.good), "--signer", pair.signer)
    assert (refused.code, "NO REPORT" in refused.err) == (3, True)
    ran = rankproof("diff", str(tmp_path), str(pair.good), "--signer", pair.signer, "--unverified")
    assert ran.code == 64
    assert "Traceback" not in ran.err
