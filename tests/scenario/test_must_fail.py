"""What a scenario may state of its control's failure."""

from __future__ import annotations

import pytest

from harness.scenario import ScenarioError, parse_scenario

SCENARIO = """
schema: 1
id: fails
title: t
question: q
subject:
  SUBJECT
  candidate: {with: {fixed: true}}
  control: {with: {fixed: false}, must_fail: {MUST_FAIL}}
matrix: {ranks: [2]}
world: {deadline: 20s}
checks:
  - {id: works, kind: event, ranks: every, event: works}
  - {id: ended, kind: exit, ranks: every, code: 0}
  - {id: same, kind: close, ranks: every, value: score.loss, to: 1.5, atol: 0.5}
  - {id: ids, kind: agree, ranks: every, value: score.ids}
"""
ENTRY, PROGRAM = "entry: subject:check", "program: [sh, rank.sh]"


def problems(must_fail: str, subject: str = ENTRY) -> list[str]:
    text = SCENARIO.replace("MUST_FAIL", must_fail).replace("SUBJECT", subject)
    try:
        parse_scenario(text.encode(), name="s")
    except ScenarioError as error:
        return [
            f"{problem.key.rpartition('must_fail')[2]}: {problem.message}"
            for problem in error.problems
        ]
    return []


@pytest.mark.parametrize(
    ("must_fail", "subject"),
    [
        ("check: works, ranks: [1], error: ValueError, source: load()", ENTRY),
        ("check: works, ranks: [1], error: ValueError, message: no weights", ENTRY),
        ("check: ended, ranks: [1], signal: SIGSEGV", ENTRY),
        ("check: ended, ranks: [1], code: 3", PROGRAM),
        ("check: works, ranks: [1], also: [{ranks: [0], error: OSError, message: gone}]", ENTRY),
        ("hang: {source: dist.recv(x)}, ranks: [1]", ENTRY),
        ("hang: {function: recv, spins: true}, ranks: every, within: 15s", ENTRY),
        ("hang: {after: asked}, ranks: [1]", PROGRAM),
        ("hang: {function: recv, polls: [beat, look]}, ranks: every, within: 4s", ENTRY),
        ("hang: {source: dist.recv(x)}, ranks: [1], also: [{ranks: [0], code: 3}]", ENTRY),
        ("check: same, ranks: [1], missing: true", ENTRY),
        ("check: same, ranks: [1], shape: true", ENTRY),
        ("check: same, ranks: [1], nonfinite: true", ENTRY),
        ("check: ids, ranks: [1], missing: true", PROGRAM),
    ],
)
def test_what_can_be_stated(must_fail: str, subject: str) -> None:
    """An end with its place or text, a signal, a code, ends of others, and a hang at a place."""
    assert problems(must_fail, subject) == []


@pytest.mark.parametrize(
    ("must_fail", "subject", "told"),
    [
        ("ranks: [1]", ENTRY, "set check, or hang"),
        (
            "check: same, ranks: [1], missing: true, shape: true",
            ENTRY,
            ".shape: cannot be combined with missing",
        ),
        ("check: same, ranks: [1], missing: allowed", ENTRY, ".missing: must be true or false"),
        ("check: same, ranks: [1], nonfinit: true", ENTRY, ".nonfinit: is not a known key"),
        (
            "hang: {function: f}, ranks: [1], shape: true",
            ENTRY,
            ".shape: applies to a control that fails a check, but this control hangs",
        ),
        (
            "check: same, ranks: [1], code: 3, missing: true",
            ENTRY,
            ".missing: cannot be combined with error, source, message",
        ),
        (
            "check: works, ranks: [1], missing: true",
            ENTRY,
            ".missing: is never the reason why works (kind: event) fails",
        ),
        (
            "check: ids, ranks: [1], shape: true",
            ENTRY,
            ".shape: is never the reason why ids (kind: agree) fails",
        ),
        (
            "check: ids, ranks: [1], nonfinite: true",
            ENTRY,
            ".nonfinite: is never the reason why ids (kind: agree) fails",
        ),
        (
            "check: works, hang: {function: f}, ranks: [1]",
            ENTRY,
            ".hang: cannot be combined with check",
        ),
        ("check: works, ranks: [1], error: ValueError", ENTRY, ".error: is not specific enough"),
        (
            "check: works, ranks: [1], also: [{ranks: [0], error: OSError}]",
            ENTRY,
            "is not specific enough",
        ),
        (
            "check: works, ranks: [1], also: [{ranks: [0]}]",
            ENTRY,
            "does not state how these ranks end",
        ),
        ("check: ended, ranks: [1]", ENTRY, "checks nothing else"),
        ("check: ended, ranks: [1], signal: segv", ENTRY, "like SIGSEGV"),
        ("check: ended, ranks: [1], code: 3, signal: SIGSEGV", ENTRY, "cannot be combined with"),
        ("check: ended, ranks: [1], code: 0", ENTRY, ".code"),
        ("check: works, ranks: [1], within: 5s", ENTRY, ".within: is only for a hang"),
        ("hang: {}, ranks: [1]", ENTRY, "set source or function"),
        ("hang: {function: f, source: f()}, ranks: [1]", ENTRY, "cannot be combined with"),
        (
            "hang: {function: f, fails: works}, ranks: [1]",
            ENTRY,
            "must be a check that compares the ledgers of stopped ranks",
        ),
        (
            "hang: {function: f}, ranks: [1], error: OSError, message: x",
            ENTRY,
            "because a rank that hangs does not end",
        ),
        ("hang: {after: asked}, ranks: [1]", ENTRY, "is only for programs"),
        (
            "hang: {function: f}, ranks: [1]",
            PROGRAM,
            "cannot be located by source or function in a program",
        ),
        ("hang: {function: f}, ranks: [1], within: 500ms", ENTRY, "is too short"),
        ("hang: {function: f}, ranks: [1], within: 3.9s", ENTRY, "is too short"),
        ("hang: {function: f, polls: f}, ranks: [1]", ENTRY, "polls"),
        ("hang: {after: asked, polls: [beat]}, ranks: [1]", PROGRAM, "is only for Python"),
        ("hang: {function: f}, ranks: [1], within: 20s", ENTRY, "must be less than world.deadline"),
    ],
)
def test_what_cannot_be_stated(must_fail: str, subject: str, told: str) -> None:
    """What any slip would meet, what cannot be seen, and what says two things at once are mistakes
    of the file.
    """
    found = problems(must_fail, subject)
    assert any(told in problem for problem in found), found
