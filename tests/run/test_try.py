"""`rankproof run --try`: one trial of each arm, printed and gone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.tried import exit_code
from harness.history import History
from harness.run.tried import TriedArm, TriedCell
from harness.scenario import Cell
from harness.stats.outcome import Trial
from tests.kit.commands import SCENARIO, SUBJECT, Ran

Run = Callable[..., Ran]
Write = Callable[..., Path]
KEEPS = r"""
    from array import array
    context.keep("sums", array("f", [0.5 + context.rank, -0.1, float("nan"), float("-inf")]))
    context.keep("ones", array("q"))
    context.keep("note", b"\x1b[2J of rank %d" % context.rank)
    (context._kept / "stray.txt").write_text("mine")
"""


def digest(text: str, name: str) -> str:
    """The digest that is printed beside an artefact."""
    (found,) = re.findall(
        rf"^      {name} +.*sha256 (\w+)", text.partition("    rank 2:")[0], re.MULTILINE
    )[:1]
    return str(found)


@pytest.mark.slow
def test_one_trial_of_each_arm_is_printed_and_nothing_is_left(
    scenario: Write, rankproof: Run, tmp_path: Path
) -> None:
    """Events with times, rank by rank; what ranks printed and kept; every check.

    Whether the control failed so.
    """
    subject = SUBJECT.replace(
        "    assert thing\n",
        f"{KEEPS}    print('hello\\x1b[31m', context.rank)\n    assert thing\n",
    )
    text = SCENARIO.replace("ranks: [2]", "ranks: [3, 2]")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    ran = rankproof(
        "run",
        str(scenario({"scenario.yaml": text, "subject.py": subject})),
        "--try",
        "--all",
        env={"TMPDIR": str(temporary)},
    )
    assert ran.code == 0, ran.out + ran.err
    assert not ran.results.exists()
    assert list(temporary.glob("rankproof-[!p]*")) == []
    candidate, _, control = ran.out.partition("  control: failed as required")
    assert "tried once in ranks=3,backend=none; nothing is kept or signed" in candidate
    assert "  candidate: passed, in " in candidate
    rank = candidate.partition("    rank 1:\n")[2].partition("    rank 2:")[0]
    names = re.findall(r"^ +[0-9.]+ s  (\S+)", rank, re.MULTILINE)
    assert names[:3] == ["rank.started", "rank.begin", "backend.ready"]
    assert {"met", "rank.exited"} <= set(names)
    assert re.search(r" s  met +thing thing\n", rank)
    assert "    rank 1 printed:\n      | hello\\x1b[31m 1\n" in candidate
    kept = candidate.partition("    rank 1 kept:\n")[2].partition("    rank 2:")[0]
    note = hashlib.sha256(b"\x1b[2J of rank 1").hexdigest()[:12]
    assert re.findall(r"^      ([a-z]+) +(.*)", kept, re.MULTILINE) == [
        ("note", f"14 bytes, sha256 {note}...: b'\\x1b[2J of rank 1'"),
        ("ones", "int64 [0], sha256 " + digest(kept, "ones") + "...: empty"),
        (
            "sums",
            "float32 [4], sha256 " + digest(kept, "sums") + "...: -0.1 to 1.5, 1 NaN, 1 infinite",
        ),
    ]
    assert "      stray.txt is not an artefact: its name is not a valid artefact" in kept
    assert digest(candidate.partition("rank 0 kept")[2], "sums") != digest(kept, "sums")
    assert re.search(r"    holds  met +rank 0: thing thing; rank 1: ", candidate)
    assert re.search(
        r"    FAILS  met +rank 1: event met was not reported: AssertionError at 'assert thing'\n",
        control,
    )
    assert re.search(r" s  rank.error +AssertionError at 'assert thing'\n", control)
    worlds = r"5 \+ 2 trials in 2 cells, \d+ worlds? at a time"
    assert re.search(rf"a run would take about \d+ s at this speed: {worlds}\n", control)


@pytest.mark.slow
def test_a_page_is_enough_to_see_what_happened(scenario: Write, rankproof: Run) -> None:
    """At most 40 lines: how each arm ended, the checks that failed, ranks that said the same
    together, and the last lines of the rank that failed first.
    """
    subject = SUBJECT.replace(
        "    assert thing\n", "    print('hello', context.rank)\n    assert thing\n"
    )
    text = SCENARIO.replace("ranks: [2]", "ranks: [5]")
    ran = rankproof("run", str(scenario({"scenario.yaml": text, "subject.py": subject})), "--try")
    assert ran.code == 0, ran.out + ran.err
    lines = ran.out.splitlines()
    assert len(lines) <= 40
    assert "    passed: met, ended, nobody-left; and 6 of the harness's own checks" in lines
    assert "    ranks 0-4: met" in lines
    assert (
        "    ranks 1-4: no event from the subject; raised AssertionError at 'assert thing'" in lines
    )
    assert re.search(
        r"FAILS +met +rank 1: event met was not reported: AssertionError at 'assert thing'", ran.out
    )
    assert re.search(r"last output of rank [1-4]:\n(.*\n){2}.*AssertionError", ran.out)
    assert lines[-1] == "  --all prints every event, check, log and array of these trials"


@pytest.mark.slow
def test_the_cell_that_is_tried_is_one_in_which_the_control_must_fail(
    scenario: Write, rankproof: Run
) -> None:
    """Where it must hold, a trial shows nothing of the bug."""
    text = SCENARIO.replace("matrix: {", "matrix: {size: [1, 2], ").replace(
        "source: assert thing}", "source: assert thing, cells: {size: [2]}}"
    )
    subject = SUBJECT.replace("broken)", "broken, size)").replace(
        "if broken and", "if broken and size == 2 and"
    )
    folder = str(scenario({"scenario.yaml": text, "subject.py": subject}))
    ran = rankproof("run", folder, "--try")
    assert ran.code == 0, ran.out + ran.err
    assert "tried once in size=2,ranks=2,backend=none" in ran.out


@pytest.mark.slow
def test_a_cell_is_chosen_and_its_candidate_fails(scenario: Write, rankproof: Run) -> None:
    """`--cell` takes another cell than the first.

    A candidate that fails there is exit code 1, with the check.
    """
    text = SCENARIO.replace("matrix: {", "matrix: {size: [1, 2], ")
    subject = SUBJECT.replace("broken)", "broken, size)").replace(
        "if broken and", "if (broken or size == 2) and"
    )
    folder = str(scenario({"scenario.yaml": text, "subject.py": subject}))
    ran = rankproof("run", folder, "--try", "--cell", "size=2,ranks=2,backend=none")
    assert ran.code == 1, ran.out + ran.err
    assert "tried once in size=2,ranks=2,backend=none" in ran.out
    assert "  candidate: FAILED, in " in ran.out


@pytest.mark.slow
def test_a_control_that_passes_says_so(scenario: Write, rankproof: Run) -> None:
    """Exit code 2, and how the control differs from what it must do."""
    ran = rankproof(
        "run",
        str(scenario({"subject.py": SUBJECT.replace("broken and context.rank", "False")})),
        "--try",
    )
    assert ran.code == 2
    assert "  control: did NOT fail as required: check `met` passed on every rank" in ran.out


@pytest.mark.slow
def test_what_cannot_be_tried_is_told(scenario: Write, rankproof: Run) -> None:
    """A cell that is not there and a slip are 64, a cell that cannot run here is 2.

    None of them starts a rank.
    """
    folder = scenario({"typo.yaml": SCENARIO.replace("subject:meet", "subject:meat")})
    whole = str(folder / "scenario.yaml")
    unknown = rankproof("run", whole, "--try", "--cell", "ranks=9")
    assert (unknown.code, unknown.out.count("candidate:")) == (64, 0)
    assert "cell ranks=9 does not exist; the cells are ranks=2,backend=none" in unknown.err
    alone = rankproof("run", whole, "--cell", "ranks=2,backend=none")
    assert alone.code == 64
    assert "--cell needs --try" in alone.err
    refused = rankproof("run", whole, "--try", "--set", "matrix.backend=[nccl]")
    assert refused.code == 2
    assert re.search(
        r"ranks=2,backend=nccl: SKIPPED: backend nccl: .*\n  nothing was tried", refused.out
    )
    typo = rankproof("run", str(folder / "typo.yaml"), "--try")
    assert typo.code == 64
    assert 'has no function "meat"' in typo.err


@pytest.mark.parametrize(
    ("candidate", "control", "expected"),
    [
        ("pass", True, 0),
        ("pass", None, 0),
        ("fail", True, 1),
        ("pass", False, 2),
        ("void", True, 2),
        ("fail", False, 1),
    ],
)
def test_the_exit_code_is_of_both_trials(
    candidate: str, control: bool | None, expected: int
) -> None:
    """0 only where the candidate passed and its control, if it has one, failed as required."""

    def tried(arm: str, outcome: str, as_stated: bool | None) -> TriedArm:
        trial = Trial.model_validate(
            {
                "index": 0,
                "seed": "0",
                "evidence": "",
                "ms": 1.0,
                "outcome": outcome,
                "as_stated": as_stated,
            }
        )
        history = History([], size=1)
        nothing = {"findings": [], "history": history, "logs": {}, "stacks": {}, "kept": {}}
        return TriedArm(arm=arm, trial=trial, seconds=1.0, **nothing)  # type: ignore[arg-type]

    arms = [tried("candidate", candidate, None)]
    arms += (
        [tried("control", "fail" if control else "pass", control)] if control is not None else []
    )
    cell = Cell(id="one", slug="one", ranks=1, backend="none")
    assert exit_code(TriedCell(cell=cell, skipped={}, arms=arms)) == expected
    assert exit_code(TriedCell(cell=None, skipped={"one": "no"})) == 2
