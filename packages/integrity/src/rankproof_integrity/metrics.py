"""Metrics: what was counted and how long it took, as records and as Prometheus text.

Standard library alone. The names, their units and what they mean are `KNOWN`; another name is
refused, so that nobody looks at a counter that nothing counts.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from .problem import Misused

Labels = tuple[tuple[str, str], ...]

BUCKETS = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Upper ends in seconds: from a check of one token to a device that is made anew."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Meaning of one name.

    Attributes:
        kind: a counter only grows; a gauge is what it is now; a histogram counts durations in
            seconds.
        labels: the names of its labels, all of which have to be given.
        words: what it says.
    """

    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    words: str


KNOWN: Mapping[str, Metric] = MappingProxyType(
    {
        "integrity_tokens_total": Metric(
            kind="counter",
            labels=("level",),
            words="Tokens that passed, by level of the checks.",
        ),
        "integrity_failures_total": Metric(
            kind="counter", labels=("error",), words="Violated invariants, by name."
        ),
        "integrity_unvalidated_total": Metric(
            kind="counter",
            labels=(),
            words="Tokens that validation outside the token path skipped.",
        ),
        "integrity_recoveries_total": Metric(
            kind="counter",
            labels=("action", "outcome"),
            words="Attempts to recover, by action and outcome.",
        ),
        "integrity_fallbacks_total": Metric(
            kind="counter",
            labels=("mode",),
            words="Decisions of the group, by resulting mode.",
        ),
        "integrity_level": Metric(
            kind="gauge", labels=(), words="Level of the checks: 0 off, 1 light, 2 full."
        ),
        "integrity_token_seconds": Metric(
            kind="histogram",
            labels=(),
            words="Time from one token to the next, as reported by the engine.",
        ),
        "integrity_check_seconds": Metric(
            kind="histogram",
            labels=("level",),
            words="Time inside this library for each token: its overhead.",
        ),
        "integrity_detection_seconds": Metric(
            kind="histogram",
            labels=(),
            words="Time from handing a token to a validation thread until that thread reports a"
            " failure.",
        ),
        "integrity_recovery_seconds": Metric(
            kind="histogram",
            labels=("action",),
            words="Time of an attempt to recover, without the wait before it.",
        ),
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One number, or one histogram, with its labels.

    Attributes:
        name: of `KNOWN`.
        labels: names and values.
        value: the number; of a histogram the sum of its durations.
        count: of a histogram how many durations; else null.
        buckets: of a histogram how many were at most as long as each of `BUCKETS`; they grow.
    """

    name: str
    labels: Labels
    value: float
    count: int | None = None
    buckets: tuple[int, ...] = ()


class _Histogram:
    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0


class Metrics:
    """Counts for one process. Several threads may count at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], _Histogram] = {}

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter.

        Raises:
            Misused: not a counter of `KNOWN`, other labels than it has, less than nothing, or
                not a finite number.
        """
        if by < 0:
            raise Misused(f"{name} is a counter and cannot fall by {-by}")
        if not by < math.inf:
            # It would stay there: no number that is added later shows in it.
            raise Misused(f"{name} is a counter and cannot grow by {by}")
        key = _key(name, "counter", labels)
        with self._lock:
            self._numbers[key] = self._numbers.get(key, 0) + by

    def set(self, name: str, value: float, **labels: str) -> None:
        """Say what a gauge is now.

        Raises:
            Misused: not a gauge of `KNOWN`, or other labels than it has.
        """
        key = _key(name, "gauge", labels)
        with self._lock:
            self._numbers[key] = value

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to a histogram.

        Raises:
            Misused: not a histogram of `KNOWN`, other labels than it has, or a duration that is not
                one.
        """
        if not 0 <= seconds < math.inf:
            raise Misused(f"{name}: {seconds} is not a duration in seconds")
        key = _key(name, "histogram", labels)
        with self._lock:
            known = self._histograms.get(key)
            if known is None:
                known = self._histograms[key] = _Histogram()
            known.counts[bisect_left(BUCKETS, seconds)] += 1
            known.sum += seconds

    def samples(self) -> list[Sample]:
        """Everything that was counted so far, sorted by name and labels."""
        with self._lock:
            numbers = [
                Sample(name=name, labels=labels, value=value)
                for (name, labels), value in self._numbers.items()
            ]
            held = [(key, list(known.counts), known.sum) for key, known in self._histograms.items()]
        for (name, labels), counts, total in held:
            growing = [sum(counts[: end + 1]) for end in range(len(BUCKETS))]
            numbers.append(
                Sample(
                    name=name, labels=labels, value=total, count=sum(counts), buckets=tuple(growing)
                )
            )
        return sorted(numbers, key=lambda sample: (sample.name, sample.labels))

    def prometheus(self) -> str:
        """Everything in Prometheus' text format 0.0.4 (`text/plain; version=0.0.4;
        charset=utf-8`).
        """
        lines: list[str] = []
        said = ""
        for sample in self.samples():
            if sample.name != said:
                said = sample.name
                known = KNOWN[sample.name]
                lines += [f"# HELP {said} {known.words}", f"# TYPE {said} {known.kind}"]
            if sample.count is None:
                lines.append(f"{said}{_braces(sample.labels)} {sample.value!r}")
                continue
            ends = (*(repr(end) for end in BUCKETS), "+Inf")
            for end, count in zip(ends, (*sample.buckets, sample.count), strict=True):
                lines.append(f"{said}_bucket{_braces((*sample.labels, ('le', end)))} {count}")
            lines.append(f"{said}_sum{_braces(sample.labels)} {sample.value!r}")
            lines.append(f"{said}_count{_braces(sample.labels)} {sample.count}")
        return "".join(line + "\n" for line in lines)


def _key(name: str, kind: str, labels: Mapping[str, str]) -> tuple[str, Labels]:
    known = KNOWN.get(name)
    if known is None or known.kind != kind:
        there = ", ".join(known_name for known_name, metric in KNOWN.items() if metric.kind == kind)
        raise Misused(f"{name} is not a {kind} of this library; it has only {there}")
    if set(labels) != set(known.labels):
        raise Misused(f"{name} has the labels {sorted(known.labels)}, but got {sorted(labels)}")
    return name, tuple((label, labels[label]) for label in known.labels)


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
