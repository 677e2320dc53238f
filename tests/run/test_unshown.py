"""A PASS says what it does not show: at the end of the run, and in the report that verifies."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.commands import SCENARIO, SUBJECT, Ran

Run = Callable[..., Ran]
Write = Callable[..., Path]

THREAD = """
    import threading
    def work():
        raise KeyError("weights")
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
"""
UNCHANGED = (
    "changed nothing that ranks reported in the first trial of each cell, so this run does not show"
    " that it was used."
)
SILENT = "The run did not record whether the ranks exchanged anything"


@pytest.mark.whole
def test_what_a_pass_does_not_show_is_told(scenario: Write, rankproof: Run) -> None:
    """An axis that `**kw` takes and ranks that nobody asks are told once, and a thread's traceback
    stands out; the report verifies.
    """
    text = SCENARIO.replace("matrix: {", "matrix: {speed: [1, 2], ").replace(
        "event, ranks: every", "event, ranks: [0]"
    )
    text = text.replace("  - {id: nobody-left, kind: no-survivors}\n", "").replace(
        "ranks: nonzero", "ranks: [0]"
    )
    subject = SUBJECT.replace("*, broken", "broken, **kw").replace(
        "broken and context.rank", "broken"
    )
    subject = f"{subject}{THREAD}"
    ran = rankproof("run", str(scenario({"scenario.yaml": text, "subject.py": subject})))
    assert ran.code == 0, ran.out + ran.err
    told = re.findall(r"not shown: (.*)", ran.out)
    assert (
        told
        == ran.record.judgement.unshown
        == [
            "No check covers what rank 1 does, only how it exits (world size 2).",
            f"{SILENT} (observe: collectives would record it), so each rank may have worked alone.",
            f"The axis speed {UNCHANGED}",
        ]
    )
    traceback = "A rank printed a traceback in a trial of the candidate that passed"
    assert f"  stands out: {traceback}. (10 trials)\n" in ran.out
    assert "no check tests" not in ran.out, "lint's note says what the run has said"
    assert re.search(
        r"candidate 0, rank 0 printed:\n +Exception in thread .*\n +Traceback", ran.out
    )
    assert "        KeyError: 'weights'" in ran.out
    report = (ran.folder / "report.md").read_text()
    first, _, rest = report.partition("\n## ")
    assert f"**Stands out.** [{traceback} (10 trials)](" in first
    assert f"**Not shown.** {told[0]} {told[1]} Failure rates below" in first
    section = rest.partition("## Also not shown")[2].partition("\n## ")[0]
    assert f"- {told[2]}\n" in section
    appendix = (ran.folder / "appendix.md").read_text()
    section = appendix.partition("## Tracebacks in trials that passed")[2].partition("\n## ")[0]
    assert "KeyError: 'weights'" in section
    signer = re.search(r"--signer (\S+)", ran.out)
    assert signer is not None
    assert rankproof("verify", str(ran.folder), "--signer", signer[1]).code == 0


@pytest.mark.slow
def test_an_argument_that_only_kw_takes_is_told(scenario: Write, rankproof: Run) -> None:
    """A control whose one argument nobody has a parameter for is the candidate, told as such beside
    the verdict.
    """
    text = SCENARIO.replace("{broken: true}", "{brokn: true}").replace("{broken: false}", "{}")
    subject = SUBJECT.replace("*, broken", "broken=False, **kw")
    ran = rankproof("run", str(scenario({"scenario.yaml": text, "subject.py": subject})))
    assert ran.code == 2
    assert (
        "the control never failed a check, so this run does not show that the checks can fail"
        in ran.out
    )
    assert (
        "not shown: The argument brokn of the control is not a parameter of the entry, which"
        " accepts it through **" in ran.out
    )


@pytest.mark.slow
def test_advice_of_lint_is_printed_by_run(scenario: Write, rankproof: Run) -> None:
    """What lint would advise stands at the end of the run too, with file, line and column."""
    ran = rankproof("run", str(scenario()), "--set", "trials.candidate=2")
    assert ran.code == 2
    assert re.search(r"  --set:1:18: note: trials.candidate: is too low for PASS", ran.out)


@pytest.mark.slow
@pytest.mark.whole
def test_what_no_control_fails_and_what_never_varies_is_told(
    scenario: Write, rankproof: Run
) -> None:
    """Of each cell, also where the control holds as required.

    Nor does a control show much that reports null.
    """
    text = SCENARIO.replace(
        "must_fail: {check: met, ranks: nonzero, error: AssertionError, source: assert thing}", "M"
    )
    text = text.replace("M}", "").replace(
        "    M\n", "    must_fail: {check: same, ranks: [1], cells: {ranks: [2]}}\n"
    )
    text = text.replace("matrix: {ranks: [2]", "matrix: {ranks: [2, 3]")
    text += "  - {id: same, kind: equal, ranks: [1], value: said.it, against: 0}\n"
    text += "  - {id: alike, kind: agree, ranks: every, value: said.word}\n"
    subject = """
def meet(context, *, broken):
    lost = broken and context.rank == 1 and context.size == 2
    context.emit("met")
    context.emit("said", it=None if lost else [context.size], word="one")
"""
    ran = rankproof("run", str(scenario({"scenario.yaml": text, "subject.py": subject})))
    assert ran.code == 0, ran.out + ran.err
    told = ran.record.judgement.unshown
    never = (
        "The control never failed the checks {}, so this run does not show that they can fail ({})."
    )
    assert (
        never.format("`met`, `ended`, `nobody-left` and `alike`", "ranks=2,backend=none") in told
    ), told
    assert (
        never.format("`met`, `ended`, `nobody-left`, `same` and `alike`", "ranks=3,backend=none")
        in told
    ), told
    assert (
        "The control failed the check `same` only because its ranks reported nothing to compare, so"
        " this run does not show that the check detects a wrong value (ranks=2,backend=none)."
        in told
    )
    assert (
        "Check `alike` saw a single value in this run, so a subject that always reports that value would pass."
        in told
    )
