"""Checks: pure functions of a trial's events that say something about every rank.

One file per kind or family of kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from harness.checks import world
from harness.checks.check import Check, CheckProperties
from harness.checks.finding import Finding, RankFinding, canonical
from harness.history import History
from harness.registry import OneOf, Package, Registry, declared_in

__all__ = ["KINDS", "AnyCheck", "Check", "CheckProperties", "Finding", "RankFinding", "judge_trial"]

# Kinds enter by their own files alone. These are listed first, in this order, the others by name.
# fmt: off
LISTED_FIRST = (
    "event", "agree", "equal", "close", "distribution", "at-most", "at-least", "exit",
    "no-survivors", "served", "within", "progress", "detected-within", "survivors-end", "host-lost",
    "environment-agrees", "requests", "ledger-agrees", "collective-correct", "transfers-intact",
    "equivalent", "influence", "shards-cover",
)
# fmt: on

KINDS: Registry[type[Check]] = Registry(
    "rankproof.checks",
    Check,
    Package("harness.checks", declared_in(Path(__file__).parent, first=LISTED_FIRST)),
)

if TYPE_CHECKING:
    AnyCheck = Check
else:
    AnyCheck = Annotated[Any, OneOf(KINDS)]


def judge_trial(
    checks: Sequence[Check], history: History, *, ended_by_fault: Mapping[int, str] | None = None
) -> list[Finding]:
    """Judge one trial by every check of its scenario, and by what must hold in every trial.

    Args:
        checks: what is asked.
        history: the trial's events.
        ended_by_fault: rank to the id of the fault that provably ended it; such a rank need not
            have returned.

    Raises:
        PluginFailed: a plug-in's check raised.
    """
    findings = [_judge(check, history) for check in checks]
    in_error = {
        part.rank: check.id
        for check, finding in zip(checks, findings, strict=True)
        for part in (finding.ranks if check.properties.demands_an_error else ())
        # To raise an error is not to end by it: whoever had to be stopped did not finish.
        if part.passed and (check.properties.may_be_stopped or not history.was_stopped(part.rank))
    }
    return findings + world.judge(history, ended_by_fault=ended_by_fault, in_error=in_error)


def _judge(check: Check, history: History) -> Finding:
    if check.kind not in KINDS.plugins:
        return check.judge(history)
    with KINDS.guarded(check.kind):
        finding: object = check.judge(history)
        if not isinstance(finding, Finding) or (finding.check, finding.kind) != (
            check.id,
            check.kind,
        ):
            raise TypeError(
                f"its judge() must return a Finding with check {check.id} and kind {check.kind}"
            )
        asked = check.ranks.of(history.size) if "ranks" in type(check).model_fields else None
        found = [part.rank for part in finding.ranks]
        if not finding.reason and asked is not None and found != sorted(asked):
            raise ValueError(
                f"the check {check.id} covers the ranks {sorted(asked)}, but its finding is about"
                f" {found}"
            )
        for part in finding.ranks:
            canonical(part.observed)
        return finding
