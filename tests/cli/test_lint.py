"""`rankproof lint` looks at the code too: what a scenario names and the code has not is named, with
what was meant.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import main

SCENARIO = """\
schema: 1
id: meet
title: Ranks meet
question: Do all ranks meet?
subject:
  entry: subject:meet
  candidate: {with: {slow: false}}
  control:
    with: {slow: true}
    must_fail: {check: met, ranks: every, error: AssertionError, source: assert not slow}
matrix: {ranks: [2], backend: [gloo]}
world: {deadline: 60s}
seed: "20260103"
trials: {candidate: 59, control: 5}
faults:
  - {id: late, kind: pause, ranks: [1], at: tokens.load.begin, for: 200ms}
checks:
  - {id: met, kind: event, ranks: every, event: met}
  - {id: same, kind: agree, ranks: every, value: met.n}
"""
SUBJECT = """\
def meet(context, slow):
    with context.measure("tokens.load"):
        assert not slow
    context.emit("met", n=1)
"""


def linted(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> tuple[int, str]:
    """The exit code of lint for a scenario beside its code, and what it printed."""
    (folder / "scenario.yaml").write_text(text)
    (folder / "subject.py").write_text(SUBJECT)
    code = main(["lint", str(folder)])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_nothing_is_said_of_a_scenario_that_fits_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No note and no error: the events, the line and the entry are in the code."""
    assert linted(tmp_path, capsys, SCENARIO) == (0, f"{tmp_path}/scenario.yaml: ok\n")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "subject:meet",
            "subjekt:meet",
            ':6:10: subject.entry: subjekt:meet is not in|did you mean "subject:meet"?',
        ),
        (
            "    with: {slow: true}",
            "    with: {slow: true}\n    file: subjekt.py",
            'did you mean "subject.py"?',
        ),
        (
            "assert not slow",
            "assert not slw",
            'must_fail.source: is not a line of|did you mean "assert not slow"?',
        ),
    ],
    ids=["entry", "file", "source"],
)
def test_what_the_code_has_not_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    """A module, a file and a source line that are not there: at their place, with what was meant,
    and exit code 64.
    """
    code, printed = linted(tmp_path, capsys, SCENARIO.replace(old, new, 1))
    assert code == 64
    assert all(words in printed for words in said.split("|")), printed
    assert ": ok" not in printed


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "event: met",
            "event: meet",
            'checks[0].event: no file of the subject mentions this event|did you mean "met"?',
        ),
        (
            "value: met.n",
            "value: mett.n",
            "checks[1].value: no file of the subject mentions this event",
        ),
        (
            "at: tokens.load.begin",
            "at: token.load.begin",
            'faults[0].at: no file|did you mean "tokens.load"?',
        ),
        (
            "AssertionError",
            "AsertionError",
            'must_fail.error: is not a built-in exception|did you mean "AssertionError"?',
        ),
    ],
    ids=["event", "value", "at", "error"],
)
def test_a_name_that_is_nearly_one_of_the_code_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    """A note and no error, because a package may emit an event or raise an exception that no file
    here names.
    """
    code, printed = linted(tmp_path, capsys, SCENARIO.replace(old, new, 1))
    assert code == 0
    assert all(words in printed for words in ("note: ", *said.split("|"))), printed
