"""Checks: pure functions of a trial's events that say something about every rank. One file per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.checks import agree, equal, event, no_survivors, requests, within, world
from harness.checks import exit as exit_code
from harness.checks.finding import Finding, RankFinding
from harness.checks.history import History, Seen
from harness.scenario import (
    AgreeCheck,
    EqualCheck,
    EventCheck,
    ExitCheck,
    NoSurvivorsCheck,
    RequestsCheck,
    Scenario,
    WithinCheck,
)
from harness.scenario.kinds import CheckProperties, DeclaredCheck

__all__ = ["KINDS", "Finding", "History", "Kind", "RankFinding", "Seen", "judge_trial"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of check: its options, which declare what it is, and its judgement."""

    options: type[DeclaredCheck]
    judge: Callable[[Any, History], Finding]

    @property
    def properties(self) -> CheckProperties:
        """What it is, as its options declare it."""
        return self.options.properties


KINDS: dict[str, Kind] = {
    "event": Kind(options=EventCheck, judge=event.judge),
    "agree": Kind(options=AgreeCheck, judge=agree.judge),
    "equal": Kind(options=EqualCheck, judge=equal.judge),
    "exit": Kind(options=ExitCheck, judge=exit_code.judge),
    "no-survivors": Kind(options=NoSurvivorsCheck, judge=no_survivors.judge),
    "within": Kind(options=WithinCheck, judge=within.judge),
    "requests": Kind(options=RequestsCheck, judge=requests.judge),
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
    own = [KINDS[check.kind].judge(check, history) for check in scenario.checks]
    return own + world.judge(history, ended_by_fault=ended_by_fault)
