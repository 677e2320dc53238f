"""Reference of a cell: whether it is one, and what it reported and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field, ValidationError

from harness.checks import world
from harness.checks.accounted import accounted
from harness.checks.arrays import AgainstCheck
from harness.checks.finding import canonical
from harness.events import EventError
from harness.forms.model import Model
from harness.forms.strict_json import JSON
from harness.history import ARTEFACT_FOUND, ARTEFACT_KEPT, ENVIRONMENT_TOLD, History
from harness.reason import VerdictCode, VerdictReason
from harness.scenario import Cell, Scenario, reference_of
from harness.stats.ends import harness_error, shown
from harness.stats.outcome import EVENTS, reference_folders

# What the runtime emits for every rank is not the reference's answer.
RUNTIME = frozenset(
    {
        *(
            "rank.begin",
            "backend.ready",
            "subject.loaded",
            "subject.begin",
            "subject.end",
            "rank.error",
            "ready",
        ),
        *(
            "group.made",
            ARTEFACT_KEPT,
            ENVIRONMENT_TOLD,
            "fault.env",
            "fault.skewed",
            "fault.torch-set",
        ),
    }
)


class KeptArray(Model):
    """Array that the reference kept."""

    name: str
    dtype: str
    shape: list[int]
    sha256: str


class ReferenceRuns(Model):
    """Runs of a reference.

    Attributes:
        evidence: path of the events of each; the first is what the arms are compared with.
        ms: how long each took, in milliseconds.
        reported: event and key to the values, as text; of several ranks those of rank 0.
        arrays: what it kept; of several ranks, rank 0.
    """

    evidence: list[str]
    ms: list[float]
    reported: dict[str, str] = Field(default_factory=dict)
    arrays: list[KeptArray] = Field(default_factory=list)


def read_reference(
    scenario: Scenario, cell: Cell, *, read: Callable[[str], bytes]
) -> tuple[list[tuple[str, History]], ReferenceRuns | None]:
    """Return the runs of a cell's reference, each with the path of its events.

    The second is compared with the first.

    Raises:
        EventError: its events cannot be read.
    """
    if (plan := reference_of(scenario, cell)) is None:
        return [], None
    histories: list[tuple[str, History]] = []
    for folder in reference_folders(scenario, cell):
        path = f"{folder}/{EVENTS}"
        first = histories[0][1] if histories else None
        histories.append((path, History.read(read(path), size=plan.size, reference=first)))
    try:
        return histories, _summary(histories)
    except ValidationError as error:  # no harness wrote these
        raise EventError(
            f"the reference did not report its artefacts: {error.errors()[0]['msg']}"
        ) from None


def doubts(scenario: Scenario, histories: Sequence[History]) -> list[VerdictReason]:
    """Why a reference is not one: it failed, or it does not agree with itself as near as the checks
    ask.

    Args:
        scenario: whose checks compare with it.
        histories: its runs.
    """
    who = (
        "the reference"
        if scenario.subject.compare is None
        else scenario.subject.called("reference")
    )
    reasons = []
    for history in histories:
        broken = [finding for finding in world.judge(history) if not finding.passed]
        if (error := harness_error(history)) is not None:
            reasons.append(
                VerdictReason(VerdictCode.REFERENCE_FAILED, f"{who} did not run: {error}")
            )
        elif broken:
            why = broken[0].reason or broken[0].ranks[0].reason
            reasons.append(
                VerdictReason(
                    VerdictCode.REFERENCE_FAILED, f"{who} failed: {broken[0].check}: {why}"
                )
            )
    if reasons:
        return list(dict.fromkeys(reasons))
    last = histories[-1]
    for accounted_check in accounted(scenario.checks):
        reasons += [
            VerdictReason(code, f"{who} {why}") for code, why in accounted_check.doubts(last)
        ]
    for check in scenario.checks:
        if not isinstance(check, AgainstCheck) or check.of[0] != "reference":
            continue
        # Of a world of one, whichever ranks are compared with it.
        for rank in (0,) if scenario.subject.compare is None else check.ranks.of(last.size):
            part = check.judge_rank(last, rank)
            where = f" on rank {rank}" if last.size > 1 else ""
            if part.missing:
                why = (
                    f"{who} did not return a value for check {check.id} to compare with{where}:"
                    f" {part.reason}"
                )
                reasons.append(VerdictReason(VerdictCode.REFERENCE_FAILED, why))
            elif not part.passed and part.uncompared and _said_alike(check, last, rank):
                why = (
                    f"{who} returned no value that check {check.id} could compare with{where}:"
                    f" {part.reason}"
                )
                reasons.append(VerdictReason(VerdictCode.REFERENCE_FAILED, why))
            elif not part.passed:
                why = f"{who} returned different results in two runs{where}: check {check.id}: {part.reason}"
                reasons.append(VerdictReason(VerdictCode.REFERENCE_DIFFERS, why))
    return reasons


def _said_alike(check: AgainstCheck, history: History, rank: int) -> bool:
    """Return whether the value that a check compares is the same in both runs, whatever it is."""
    value: str | None = getattr(check, "value", None)
    if value is None or history.reference is None:
        return False
    event, _, key = value.rpartition(".")
    runs = (history, history.reference)
    texts = [[canonical(said) for said, _ in run.values(rank, event, key)] for run in runs]
    return texts[0] == texts[1]


def values_of(history: History) -> dict[str, list[JSON]]:
    """Return what rank 0 of a reference reported: event and key, joined by a dot, to the values in
    order.
    """
    values: dict[str, list[JSON]] = {}
    for seen in history.seen:
        if (seen.event.by, seen.event.rank) == ("rank", 0) and seen.event.name not in RUNTIME:
            for key, value in seen.event.values.items():
                values.setdefault(f"{seen.event.name}.{key}", []).append(value)
    return values


def _summary(histories: Sequence[tuple[str, History]]) -> ReferenceRuns:
    first = histories[0][1]
    arrays: list[Any] = [
        {
            "name": values.get("artefact"),
            **{key: values.get(key) for key in ("dtype", "shape", "sha256")},
        }
        for values in (seen.event.values for seen in first.noted(ARTEFACT_FOUND, 0))
        if "dtype" in values
    ]
    return ReferenceRuns.model_validate(
        {
            "evidence": [path for path, _ in histories],
            "ms": [
                round((one.seen[-1].event.ns - one.start_ns()) / 1e6, 3) if one.seen else 0.0
                for _, one in histories
            ],
            "reported": {
                name: shown(values[0] if len(values) == 1 else values)
                for name, values in values_of(first).items()
            },
            "arrays": arrays,
        }
    )
