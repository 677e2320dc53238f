"""Slips of an honest engineer in a control: each is judged as what it was, and none as the bug that
was stated.
"""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent
from typing import Any

import pytest

from harness.reason import DeviationCode
from harness.scenario import cells, parse_scenario
from harness.stats import outcome
from tests.kit.worlds import Lived

SCENARIO = """
schema: 1
id: slips
title: t
question: q
subject:
  entry: slipping:the_bug
  candidate: {with: {x: 1}}
  control:
    must_fail:
MUST_FAIL
matrix: {ranks: [2], backend: [BACKEND]}
checks:
  - {id: ready, kind: event, ranks: every, event: ready}
  - {id: value, kind: equal, ranks: every, value: ready.value, to: 1}
  - {id: ended, kind: exit, ranks: every, code: 0}
"""
READY = "{check: ready, ranks: [1]}"
ASSERT = "{check: ready, ranks: [1], error: AssertionError, source: assert tokenizer}"
CLOSED = "{check: ready, ranks: [1], error: RuntimeError, source: context.group.barrier()}"

STATED = {
    "the_bug": ASSERT,
    "silent_rank": READY,
    "wrong_value": "{check: value, ranks: every}",
    "peer_leaves": CLOSED,
    "both_ends_are_the_bug": (
        "{check: ready, ranks: [1], error: RuntimeError, source: context.group.barrier(), "
        "also: [{ranks: [0], error: ValueError, message: no weights}]}"
    ),
    "dies_of_a_signal": "{check: ready, ranks: [1], signal: SIGSEGV}",
    "leaves_with_a_code": "{check: ended, ranks: [1], code: 3}",
}
SLIPS: dict[tuple[str, str], DeviationCode] = {
    ("name_error", READY): DeviationCode.SLIP,
    ("missing_import", READY): DeviationCode.SLIP,
    ("missing_attribute", READY): DeviationCode.SLIP,
    ("misspelt_keyword", READY): DeviationCode.SLIP,
    (
        "misspelt_keyword",
        "{check: ready, ranks: [1], source: 'return function(*args, **kwargs)'}",
    ): DeviationCode.SLIP,
    ("subclass_of_a_slip", READY): DeviationCode.SLIP,
    ("emit_of_something_else", READY): DeviationCode.SLIP,
    (
        "emit_of_something_else",
        "{check: ready, ranks: [1], error: ValueError, message: JSON}",
    ): DeviationCode.SLIP,
    ("setup_assert", READY): DeviationCode.UNSTATED_END,
    ("setup_assert", ASSERT): DeviationCode.OTHER_SOURCE,
    ("missing_file", READY): DeviationCode.UNSTATED_END,
    ("peer_slips_and_i_am_slow", READY): DeviationCode.OTHER_RANKS,
    ("peer_slips_and_i_am_slow", "{check: ready, ranks: every}"): DeviationCode.SLIP,
    ("peer_slips_and_i_notice", "{check: ready, ranks: every}"): DeviationCode.SLIP,
    (
        "peer_falls_first",
        "{check: ready, ranks: every, error: AssertionError, source: assert context.rank == 0}",
    ): DeviationCode.OTHER_ERROR,
    ("out_of_memory", READY): DeviationCode.UNSTATED_END,
    ("out_of_memory", "{check: ready, ranks: [1], signal: SIGSEGV}"): DeviationCode.OTHER_SIGNAL,
    ("another_signal", "{check: ended, ranks: [1], signal: SIGSEGV}"): DeviationCode.OTHER_SIGNAL,
    ("unmeant_code", READY): DeviationCode.UNSTATED_END,
    ("unmeant_code", "{check: ended, ranks: [1], code: 4}"): DeviationCode.OTHER_EXIT_CODE,
    ("sys_exit", "{check: ended, ranks: [1], code: 3}"): DeviationCode.OTHER_EXIT_CODE,
    ("falls_before_its_value", "{check: value, ranks: [1]}"): DeviationCode.UNSTATED_END,
    ("same_error_elsewhere", ASSERT): DeviationCode.OTHER_SOURCE,
    ("hangs_instead", READY): DeviationCode.DEADLINE,
    ("the_bug", "{check: ready, ranks: [0]}"): DeviationCode.OTHER_RANKS,
    ("the_bug", "{check: value, ranks: [0]}"): DeviationCode.OTHER_RANKS,
    ("silent_rank", "{check: ended, ranks: [1], code: 3}"): DeviationCode.CHECK_HELD,
}


def judged(lived: Lived, must_fail: str, *, backend: str = "gloo") -> outcome.Trial:
    """The trial as the judge sees it."""
    text = SCENARIO.replace("MUST_FAIL", indent(must_fail, "      ")).replace("BACKEND", backend)
    scenario = parse_scenario(text.encode(), name="scenario.yaml")
    trial, _ = outcome.judge(scenario, cells(scenario)[0], "control", 0, lived.history)
    return trial


@pytest.mark.parametrize("entry", STATED)
def test_a_control_that_fails_as_its_bug_does_counts(
    live: Callable[..., Lived], entry: str
) -> None:
    """The stated error, a silent rank, a wrong value, a peer that left, an end that `also` names, a
    signal, a code.
    """
    trial = judged(live(f"slipping:{entry}"), STATED[entry])
    assert trial.as_stated is True, trial.otherwise


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "code"), SLIPS.items(), ids=[f"{entry}-{code}" for (entry, _), code in SLIPS.items()]
)
def test_a_slip_in_a_control_is_told_as_what_it_is(
    live: Callable[..., Lived], case: tuple[str, str], code: DeviationCode
) -> None:
    """No slip is taken for the bug, whatever the control is said to do."""
    entry, must_fail = case
    rest: dict[str, Any] = {"deadline": 1.0} if entry == "hangs_instead" else {}
    trial = judged(live(f"slipping:{entry}", **rest), must_fail)
    assert trial.as_stated is False
    assert trial.otherwise is not None
    assert trial.otherwise.code == code, trial.otherwise
