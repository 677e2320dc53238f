"""Checks: pure functions of a trial's events that say something about every rank. One file per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.checks import agree, equal, event, no_survivors, requests, within, world
from harness.checks import exit as exit_code
from harness.checks.finding import Finding, RankFinding
from harness.checks.history import History, Seen
from harness.scenario import Scenario

__all__ = ["KINDS", "Finding", "History", "RankFinding", "Seen", "judge_trial"]

KINDS: dict[str, Callable[[Any, History], Finding]] = {
    "event": event.judge,
    "agree": agree.judge,
    "equal": equal.judge,
    "exit": exit_code.judge,
    "no-survivors": no_survivors.judge,
    "within": within.judge,
    "requests": requests.judge,
}


def judge_trial(
    scenario: Scenario, history: History, *, ended_by_fault: Mapping[int, str] | None = None
) -> list[Finding]:
    """Judge one trial by every check of its scenario, and by what must hold in every trial.

    Args:
        scenario: what is asked.
        history: the trial's events.
        ended_by_fault: rank to the id of the fault that provably ended it; such a rank need not have returned.
    """
    own = [KINDS[check.kind](check, history) for check in scenario.checks]
    return own + world.judge(history, ended_by_fault=ended_by_fault)
