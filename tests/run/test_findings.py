"""Findings: a defect that a scenario states, and its script, which the run executes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.commands import Ran
from tests.run.test_faults import sign_again, signer

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]
Write = Callable[..., Path]
SUBJECT = """
def ask(context, answer, arm=""):
    context.emit("answer", value=answer)
"""
SCENARIO = """
schema: 1
id: pydantic-adds
title: A model adds one to its numbers
question: Does a model keep its numbers?
role: upstream
finding:
  library: pydantic
  harm: wrong-values
  happens: The number is 2.
  should: The number should be 1.
  at_fault: ["2.0"]
  right: "3.0"
  reports: [pydantic/pydantic#1]
subject:
  entry: subject:ask
  candidate: {with: {answer: 1}}
  control:
    with: {answer: 2}
    must_fail: {check: right, ranks: every}
matrix: {ranks: [1], backend: [none]}
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: right, kind: equal, ranks: every, value: answer.value, to: 1}
"""
SCRIPT = """
import sys
PATH, END = "/v1/completions", "\\n"
print("DEFECT: the number is 2")
sys.exit(1)
"""


@pytest.fixture
def found(scenario: Write, rankproof: Run) -> Callable[..., Ran]:
    """Run a scenario with a finding."""

    def run(text: str = SCENARIO, script: str = SCRIPT) -> Ran:
        files = {"scenario.yaml": text, "subject.py": SUBJECT, "standalone.py": script}
        return rankproof("run", str(scenario(files)))

    return run


@pytest.mark.whole
def test_a_finding_is_shown_with_its_script(found: Callable[..., Ran], rankproof: Run) -> None:
    """SHOWN with exit code 0; the issue text has the version and the script, and a changed exit
    code is refused.
    """
    ran = found()
    assert ran.code == 0, ran.out + ran.err
    assert "  SHOWN in" in ran.out
    version = __import__("pydantic").VERSION
    headline = f"DEFECT in pydantic {version}: A model adds one to its numbers"
    report = (ran.folder / "report.md").read_text()
    assert report.startswith(f"# {headline}")
    assert "**Expected.** The number should be 1." in report
    issue = rankproof("show", "--issue", str(ran.folder), "--signer", signer(ran))
    assert issue.code == 0
    assert issue.out.startswith(f"## {headline}\n")
    assert SCRIPT.strip() in issue.out
    assert (
        "exited with code 1. The last line of its output was: `DEFECT: the number is 2`"
        in issue.out
    )
    assert issue.out.count("\n") <= 60
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 0, verified.out
    log = ran.folder / "evidence/finding/control/events.jsonl"
    log.write_text(log.read_text().replace('"code":1', '"code":0'))
    sign_again(ran)
    refused = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert refused.code == 3


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("print('right')", "but exited with code 0: right"),
        ("raise SystemExit(2)", "but exited with code 2"),
        ("import library_that_is_not_there", "but exited with code 1"),
        ("import os; os.kill(os.getpid(), 9)", "but it SIGKILL"),
    ],
)
@pytest.mark.whole
def test_a_script_that_does_not_show_the_defect_leaves_it_open(
    found: Callable[..., Ran], script: str, why: str
) -> None:
    """INCONCLUSIVE with exit code 2, whatever the ranks showed."""
    ran = found(script=script)
    assert ran.code == 2, ran.out + ran.err
    assert "INCONCLUSIVE in" in ran.out
    assert f"in the environment of the control, {why}" in ran.out


def test_a_defect_that_is_gone_is_not_shown(found: Callable[..., Ran]) -> None:
    """NOT SHOWN with exit code 1, where the control never fails."""
    ran = found(SCENARIO.replace("answer: 2}", "answer: 1, arm: broken}"))
    assert ran.code == 1, ran.out + ran.err
    assert "  NOT SHOWN in" in ran.out
    report = (ran.folder / "report.md").read_text()
    assert "**Verdict.** **NOT SHOWN**" in report


def test_the_script_reaches_its_loopback_and_nothing_else(found: Callable[..., Ran]) -> None:
    """A server of this machine's loopback is out of its reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"""
import socket
with socket.create_server(("127.0.0.1", 0)) as own:
    socket.create_connection(own.getsockname(), timeout=5).close()
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=5)
except ConnectionRefusedError:
    raise SystemExit("DEFECT: it is refused")
"""
        ran = found(script=script)
    assert ran.code == 0, ran.out + ran.err
    ends = [
        json.loads(line)
        for line in (ran.folder / "evidence/finding/control/events.jsonl").read_text().splitlines()
    ]
    assert [event["values"]["code"] for event in ends if event["name"] == "rank.exited"] == [1]


def test_a_finding_without_its_script_is_not_run(scenario: Write, rankproof: Run) -> None:
    """The message names the file, before any trial is made."""
    ran = rankproof("run", str(scenario({"scenario.yaml": SCENARIO, "subject.py": SUBJECT})))
    assert ran.code == 2
    assert "finding.script: standalone.py cannot be read" in ran.err
