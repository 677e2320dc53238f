"""A control that fails in some cells only: there as required, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.reason import DeviationCode
from harness.trust.key import find_signer
from tests.kit.commands import Ran, run_command

pytestmark = [pytest.mark.slow, pytest.mark.whole]

# What forgets the last rank where the ranks cannot be paired: wrong in worlds of an odd size only.
SUBJECT = """
def add(context, *, broken):
    ranks = range(context.size - context.size % 2 if broken else context.size)
    context.emit("sum", total=sum(2 ** rank for rank in ranks) - 2 ** context.size + 1)
"""
SCENARIO = """
schema: 1
id: forgets
title: The sum is that of every rank
question: Is the contribution of every rank in the sum?
subject:
  entry: subject:add
  candidate: {with: {broken: false}}
  control:
    with: {broken: true}
    must_fail: {check: whole, ranks: every, cells: {ranks: [3, 5]}}
matrix: {ranks: [2, 3, 4, 5], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: whole, kind: close, ranks: every, value: sum.total, to: 0, atol: 0}
"""


def run(place: Path, scenario: str) -> Ran:
    folder = place / "scenario"
    folder.mkdir(exist_ok=True)
    (folder / "scenario.yaml").write_text(scenario)
    (folder / "subject.py").write_text(SUBJECT)
    return run_command(place, "run", str(folder))


def test_the_control_fails_at_odd_sizes_only(tmp_path: Path) -> None:
    """PASS over all sizes, where the stated cells and no others fail; and it is judged again."""
    ran = run(tmp_path, SCENARIO)
    assert ran.code == 0, ran.out + ran.err
    cells = ran.record.judgement.cells
    assert [(cell.ranks, cell.verdict, cell.control_holds) for cell in cells] == [
        (2, "PASS", True),
        (3, "PASS", False),
        (4, "PASS", True),
        (5, "PASS", False),
    ]
    assert [cell.control.failed for cell in cells if cell.control] == [0, 5, 0, 5]
    told = (ran.folder / "report.md").read_text().partition("**Control.**")[2].partition("\n")[0]
    assert "evidence/ranks-3-" in told
    assert "evidence/ranks-2-" not in told, "shown as failed by a trial in which it held"
    signer = find_signer(
        explicit=str(tmp_path / "home/.local/share/rankproof/signing_key")
    ).fingerprint
    assert (
        run_command(tmp_path, "verify", str(ran.folder / "report.md"), "--signer", signer).code == 0
    )


@pytest.mark.parametrize(
    ("stated", "doubtful", "code"),
    [
        ("[3]", 5, DeviationCode.FAILED_ELSEWHERE),
        ("[3, 4, 5]", 4, DeviationCode.CHECK_HELD),
    ],
)
def test_the_wrong_cells_are_inconclusive(
    tmp_path: Path, stated: str, doubtful: int, code: DeviationCode
) -> None:
    """The cell that the statement is wrong about is named, and what the control did there."""
    ran = run(tmp_path, SCENARIO.replace("[3, 5]", stated))
    assert ran.code == 2, ran.out + ran.err
    wrong = [cell for cell in ran.record.judgement.cells if cell.verdict != "PASS"]
    assert [cell.ranks for cell in wrong] == [doubtful]
    assert wrong[0].control is not None
    assert [what.code for what in wrong[0].control.otherwise] == [code]
    word = "held" if code is DeviationCode.FAILED_ELSEWHERE else "failed"
    assert (
        f"the control {word} as required in 0 of 5 trials: instead, in 5: check whole"
        in "; ".join(map(str, wrong[0].reasons)).replace("`", "")
    )


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("{ranks: [7]}", "cells.ranks[0]: is not a value of the axis ranks: 2, 3, 4 or 5"),
        ("{sizes: [3]}", "cells.sizes: is not an axis of the matrix"),
        ("{ranks: []}", "cells.ranks"),
        ("{ranks: [3], backend: [gloo]}", "is not a value of the axis backend"),
        (
            "{ranks: [2, 3, 4, 5]}",
            "note: subject.control.must_fail.cells: matches every cell; remove it",
        ),
    ],
)
def test_cells_that_are_not_there_are_said_before_anything_runs(
    tmp_path: Path, cells: str, message: str
) -> None:
    """With the axis, its values, and what was meant."""
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO.replace("{ranks: [3, 5]}", cells))
    (folder / "subject.py").write_text(SUBJECT)
    linted = run_command(tmp_path, "lint", str(folder))
    assert message in linted.out + linted.err


def test_a_try_says_that_the_control_held(tmp_path: Path) -> None:
    """In a cell in which it must not fail; and that it failed in one in which it must."""
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "subject.py").write_text(SUBJECT)
    for ranks, words in (
        (2, "control: passed, as required for this cell"),
        (3, "control: failed as required"),
    ):
        tried = run_command(
            tmp_path, "run", str(folder), "--try", "--cell", f"ranks={ranks},backend=none"
        )
        assert (tried.code, words in tried.out) == (0, True), tried.out + tried.err
