"""Scenarios whose subject is a program, from their file to a verified report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.scenario import ScenarioError, parse_scenario
from tests.kit.commands import ROOT, Ran
from tests.kit.repositories import commit, git

Run = Callable[..., Ran]
SCENARIO = """
schema: 1
id: shell
title: Ranks say yes
question: Do they?
subject:
  program: [sh, rank.sh, "{word}"]
  candidate: {with: {word: "yes"}}
  control:
    with: {word: "no"}
    must_fail: {check: said, ranks: every}
matrix: {ranks: [2]}
world: {deadline: 20s}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: said, kind: equal, ranks: every, value: said.word, to: "yes"}
  - {id: ended, kind: exit, ranks: every, code: 0}
"""
SCRIPT = """
echo '{"event": "ready"}' >&3; read -r answer <&4
echo "{\\"event\\": \\"said\\", \\"values\\": {\\"word\\": \\"$1\\"}}" >&3
"""


def write(folder: Path, text: str = SCENARIO, script: str = SCRIPT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.yaml").write_text(text)
    (folder / "rank.sh").write_text(script)
    return folder


def verified(ran: Ran, rankproof: Run) -> Ran:
    fingerprint = ran.out.split("--signer ")[1].split()[0]
    return rankproof("verify", str(ran.folder / "report.md"), "--signer", fingerprint)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shell-program", "perl-program"])
@pytest.mark.whole
def test_the_examples_pass_beside_their_controls(rankproof: Run, name: str) -> None:
    """What ships runs: the candidate passes, the control fails as required, the report verifies."""
    ran = rankproof("run", str(ROOT / "scenarios" / name))
    assert ran.code == 0, ran.out + ran.err
    assert ran.record.judgement.verdict == "PASS"
    for cell in ran.record.judgement.cells:
        assert cell.backend == "none"
        assert cell.control is not None
        assert cell.control.as_stated == cell.control.counted == 5
    assert ran.record.run.start == "fresh"
    assert verified(ran, rankproof).code == 0


@pytest.mark.slow
def test_an_interpreter_that_is_missing_skips_the_cell(tmp_path: Path, rankproof: Run) -> None:
    """Without the interpreter the cell is SKIPPED with its name, and nothing is PASS."""
    ran = rankproof("run", str(write(tmp_path / "it", SCENARIO.replace("[sh,", "[no-such-shell,"))))
    assert ran.code == 2
    cell = ran.record.judgement.cells[0]
    assert (cell.verdict, *map(str, cell.reasons)) == (
        "SKIPPED",
        "program no-such-shell: it is not in PATH",
    )


@pytest.mark.slow
def test_a_program_that_is_not_of_the_folder_is_refused(tmp_path: Path, rankproof: Run) -> None:
    """A command line without a file of the arm is not a subject: nothing is run."""
    ran = rankproof("run", str(write(tmp_path / "it", SCENARIO.replace("rank.sh,", "other.sh,"))))
    assert ran.code == 64
    assert "the command 'sh other.sh {word}' does not name a file" in ran.err


@pytest.mark.slow
def test_a_program_is_an_arm_from_a_revision(tmp_path: Path, rankproof: Run) -> None:
    """Programs come from commits and patches as modules do, executable ones included."""
    repo = tmp_path / "proj"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    commit(repo, {"bin/rank": "#!/bin/sh\n" + SCRIPT.replace("$1", "no")}, tag="broken")
    commit(repo, {"bin/rank": "#!/bin/sh\n" + SCRIPT.replace("$1", "yes")}, tag="fixed")
    text = SCENARIO.replace('[sh, rank.sh, "{word}"]', "[bin/rank]")
    text = text.replace('{with: {word: "yes"}}', "{rev: fixed}").replace(
        'with: {word: "no"}', "rev: broken"
    )
    ran = rankproof("run", str(write(repo / "scenarios" / "it", text)))
    assert ran.code == 0, ran.out + ran.err
    assert any("yes" in line for line in ran.record.changed)
    assert verified(ran, rankproof).code == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "matrix: {ranks: [2]}",
            "matrix: {ranks: [2], backend: [gloo]}",
            "a program joins no group",
        ),
        ("deadline: 20s", "deadline: 20s, start: warm", "programs are always started fresh"),
        (
            "kind: exit, ranks: every, code: 0",
            "kind: within, ranks: every, event: said, limit: 1s",
            "give the event",
        ),
        ("program: [", "entry: a:b\n  program: [", "cannot be combined with entry"),
    ],
)
def test_what_a_program_cannot_have_is_named(old: str, new: str, said: str) -> None:
    """Groups, warm starts and clocks of Python ranks are refused when the file is read."""
    with pytest.raises(ScenarioError) as error:
        parse_scenario(SCENARIO.replace(old, new).encode(), name="s.yaml")
    assert said in str(error.value)


def test_none_is_the_backend_of_a_program() -> None:
    """A program's matrix needs no backend, and may name the only one there is."""
    for matrix in ("{ranks: [2]}", "{ranks: [2], backend: [none]}"):
        scenario: Any = parse_scenario(
            SCENARIO.replace("{ranks: [2]}", matrix).encode(), name="s.yaml"
        )
        assert scenario.matrix.backend == ("none",)


HANGING = """
schema: 1
id: hanging
title: Every rank gets its answer
question: Does every rank get an answer to what it asks?
subject:
  program: [sh, rank.sh]
  candidate: {with: {fixed: true}}
  control: {with: {fixed: false}, must_fail: {hang: {after: asked}, ranks: [1], within: 10s}}
matrix: {ranks: [2]}
trials: {candidate: 5, control: 2, accept: {failure_rate_below: 50%}}
checks:
  - {id: done, kind: event, ranks: every, event: done}
"""
WAITING = """
printf '%s\\n' '{"event": "ready"}' >&3
read -r _ <&4
fifo="$RANKPROOF_SHARED/answer-$RANKPROOF_RANK"
mkfifo "$fifo"
printf '%s\\n' '{"event": "asked"}' >&3
if [ "$RANKPROOF_RANK" = 1 ]; then
    if [ "$RANKPROOF_WITH_FIXED" = true ]; then echo yes > "$fifo" & fi
    SLOW
    read -r answer < "$fifo"
fi
printf '%s\\n' '{"event": "done"}' >&3
"""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("slow", "code"), [("", 0), ('[ "$RANKPROOF_WITH_FIXED" = true ] || sleep 30', 2)]
)
def test_a_program_that_waits_for_ever_hangs_and_one_that_sleeps_does_not(
    scenario: Callable[..., Path], rankproof: Callable[..., Ran], slow: str, code: int
) -> None:
    """A program's hang is the stillness of its processes after its last event.

    A child that sleeps is not a hang.
    """
    # One that sleeps is watched for as long as a hang may take to come.
    asked = (
        HANGING.replace("within: 10s", "within: 4s").replace("control: 2", "control: 1")
        if slow
        else HANGING
    )
    ran = rankproof(
        "run", str(scenario({"scenario.yaml": asked, "rank.sh": WAITING.replace("SLOW", slow)}))
    )
    assert ran.code == code, ran.out + ran.err
    assert ("no hang was proved" in ran.out) is bool(slow)
