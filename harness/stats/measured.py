"""Measurements of a scenario: per rank and arm the median over the trials, with a distribution-free
interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from harness.forms.model import Model
from harness.history import History, hub_log_flaw, hub_requests
from harness.scenario import Measure
from harness.stats.outcome import Arm

BEGIN = "subject.begin"
END = "subject.end"
PROBED = "rank.measured"
FIELDS = {
    "rss": "private_bytes",
    "cpu": "cpu_seconds",
    "read": "read_bytes",
    "written": "written_bytes",
}
WORDS = {
    "rss": "growth of private memory by the end of the subject",
    "cpu": "processor time of the subject",
    "read": "bytes read by the subject",
    "written": "bytes written by the subject",
    "peak": "peak memory of the process, including shared pages",
    "requests": "requests to the hub",
    "received": "bytes received from the hub",
}
OF_THE_HUB = ("requests", "received")
CONFIDENCE = 0.95


class MeasuredSummary(Model):
    """Values of one rank in one arm. `low` and `high` hold the median at 95 %.

    Fewer than six values they span.
    """

    count: int
    median: float
    low: float
    high: float


class Measured(Model):
    """One row of the impact table: one measurement on one rank.

    An arm that is absent was not measured.
    """

    id: str
    what: str
    unit: str
    rank: int
    arms: dict[Arm, MeasuredSummary]


Values = Mapping[tuple[str, int], Sequence[float]]


def values(measures: Iterable[Measure], history: History) -> dict[tuple[str, int], float]:
    """Return what one trial measured: by the row's id and the rank.

    What did not happen is left out, never zero.
    """
    measured: dict[tuple[str, int], float] = {}
    for row in measures:
        for rank in range(history.size):
            value = _value(row, history, rank)
            if value is not None:
                measured[row.id, rank] = value
    return measured


def _value(row: Measure, history: History, rank: int) -> float | None:
    if row.event is not None:
        return _between(row, history, rank)
    if row.probe == "peak":
        return _peak(history, rank)
    return _requests(row, history, rank) if row.probe in OF_THE_HUB else _growth(row, history, rank)


def rows(measures: Iterable[Measure], *, size: int, arms: Mapping[Arm, Values]) -> list[Measured]:
    """Return the table of a cell.

    Args:
        measures: the scenario's rows.
        size: world size of the cell.
        arms: per arm, the values of its trials by row and rank.
    """
    table = []
    for row in measures:
        for rank in row.ranks.of(size):
            summaries = {
                arm: summarise(known[row.id, rank])
                for arm, known in arms.items()
                if known.get((row.id, rank))
            }
            if row.against is None:
                summaries = {
                    arm: summary for arm, summary in summaries.items() if arm == "candidate"
                }
            unit = "s" if row.event is not None or row.probe == "cpu" else "bytes"
            unit = "requests" if row.probe == "requests" else unit
            what = (
                f"time from {row.event}.begin to {row.event}.end"
                if row.event
                else WORDS[row.probe or "rss"]
            )
            table.append(Measured(id=row.id, what=what, unit=unit, rank=rank, arms=summaries))
    return table


def summarise(values: Sequence[float]) -> MeasuredSummary:
    """Median and interval. The interval is between two of the values, chosen by the binomial
    distribution.

    Source: Conover, Practical Nonparametric Statistics, on confidence intervals for a quantile.
    """
    ordered = sorted(values)
    count = len(ordered)
    # So many values may lie outside on each side that this is not likelier than what is left of the
    # confidence.
    outside = 0
    chance = 0.5**count
    while chance <= (1 - CONFIDENCE) / 2:
        outside += 1
        chance += math.comb(count, outside) * 0.5**count
    outside = max(0, outside - 1)
    return MeasuredSummary(
        count=count, median=median(ordered), low=ordered[outside], high=ordered[count - 1 - outside]
    )


def _between(row: Measure, history: History, rank: int) -> float | None:
    begins = history.said(rank, f"{row.event}.begin")
    ends = history.said(rank, f"{row.event}.end")
    if not begins or not ends or ends[0].event.ns < begins[0].event.ns:
        return None
    return (ends[0].event.ns - begins[0].event.ns) / 1e9


def _growth(row: Measure, history: History, rank: int) -> float | None:
    field = FIELDS[row.probe or "rss"]
    probes = {
        seen.event.values.get("at"): seen.event.values.get(field)
        for seen in history.noted(PROBED, rank)
    }
    begin = probes.get(BEGIN)
    end = probes.get(END)
    return (
        float(end - begin)
        if isinstance(begin, int | float) and isinstance(end, int | float)
        else None
    )


def _peak(history: History, rank: int) -> float | None:
    """Told by the process that forked the rank, so it is there for ranks that failed too."""
    end = history.exit(rank)
    held = end.event.values.get("max_rss_kib") if end is not None else None
    return float(held * 1024) if isinstance(held, int) else None


def _requests(row: Measure, history: History, rank: int) -> float | None:
    if hub_log_flaw(history):
        return None
    requests = hub_requests(history, rank)
    if row.probe == "requests":
        return float(len(requests))
    sizes = [seen.event.values.get("bytes") for seen in requests]
    return float(sum(size for size in sizes if isinstance(size, int)))
