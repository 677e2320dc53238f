"""Checks: pure functions of a trial's events that say something about every rank. One file per kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from harness.checks import world
from harness.checks.agree import AgreeCheck
from harness.checks.at_least import AtLeastCheck
from harness.checks.at_most import AtMostCheck
from harness.checks.check import Check, CheckProperties
from harness.checks.close import CloseCheck
from harness.checks.collective_correct import CollectiveCorrectCheck
from harness.checks.detected_within import DetectedWithinCheck
from harness.checks.distribution import DistributionCheck
from harness.checks.environment_agrees import EnvironmentAgreesCheck
from harness.checks.equal import EqualCheck
from harness.checks.equivalent import EquivalentCheck
from harness.checks.event import EventCheck
from harness.checks.exit import ExitCheck
from harness.checks.finding import Finding, RankFinding, canonical
from harness.checks.host_lost import HostLostCheck
from harness.checks.influence import InfluenceCheck
from harness.checks.ledger_agrees import LedgerAgreesCheck
from harness.checks.no_survivors import NoSurvivorsCheck
from harness.checks.progress import ProgressCheck
from harness.checks.requests import RequestsCheck
from harness.checks.shards_cover import ShardsCoverCheck
from harness.checks.survivors_end import SurvivorsEndCheck
from harness.checks.transfers_intact import TransfersIntactCheck
from harness.checks.within import WithinCheck
from harness.history import History
from harness.plugins import OneOf, Registry

__all__ = ["KINDS", "AnyCheck", "Check", "CheckProperties", "Finding", "RankFinding", "judge_trial"]

KINDS: Registry[type[Check]] = Registry(
    "rankproof.checks",
    Check,
    {
        "event": EventCheck,
        "agree": AgreeCheck,
        "equal": EqualCheck,
        "close": CloseCheck,
        "distribution": DistributionCheck,
        "at-most": AtMostCheck,
        "at-least": AtLeastCheck,
        "exit": ExitCheck,
        "no-survivors": NoSurvivorsCheck,
        "within": WithinCheck,
        "progress": ProgressCheck,
        "detected-within": DetectedWithinCheck,
        "survivors-end": SurvivorsEndCheck,
        "host-lost": HostLostCheck,
        "environment-agrees": EnvironmentAgreesCheck,
        "requests": RequestsCheck,
        "ledger-agrees": LedgerAgreesCheck,
        "collective-correct": CollectiveCorrectCheck,
        "transfers-intact": TransfersIntactCheck,
        "equivalent": EquivalentCheck,
        "influence": InfluenceCheck,
        "shards-cover": ShardsCoverCheck,
    },
)

if TYPE_CHECKING:
    AnyCheck = Check
else:
    _Own = Annotated[Union[tuple(KINDS.own.values())], Field(discriminator="kind")]  # noqa: UP007 - known when it runs
    AnyCheck = Annotated[_Own, OneOf(KINDS)]


def judge_trial(
    checks: Sequence[Check], history: History, *, ended_by_fault: Mapping[int, str] | None = None
) -> list[Finding]:
    """Judge one trial by every check of its scenario, and by what must hold in every trial.

    Args:
        checks: what is asked.
        history: the trial's events.
        ended_by_fault: rank to the id of the fault that provably ended it; such a rank need not have returned.

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
        if not isinstance(finding, Finding) or (finding.check, finding.kind) != (check.id, check.kind):
            raise TypeError(f"its judgement is not a finding of the check {check.id}")
        asked = check.ranks.of(history.size) if "ranks" in type(check).model_fields else None
        found = [part.rank for part in finding.ranks]
        if not finding.reason and asked is not None and found != sorted(asked):
            raise ValueError(f"the check {check.id} asks the ranks {sorted(asked)}, and its finding is about {found}")
        for part in finding.ranks:
            canonical(part.observed)
        return finding
