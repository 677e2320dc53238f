"""Metrics for OpenTelemetry, where its API is installed: the counters and gauges of `Metrics`, read
when it collects.

Histograms are given as their sum and count: the durations themselves are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .metrics import KNOWN, Metrics
from .problem import Misused


def observe(metrics: Metrics, *, meter: Any = None) -> None:
    """Let OpenTelemetry read these metrics whenever its reader collects.

    Args:
        metrics: read at each collection; nothing is added to the token path.
        meter: of OpenTelemetry; else the one named `rankproof_integrity` of its global provider.

    Raises:
        Misused: opentelemetry-api is not installed.
    """
    try:
        from opentelemetry import metrics as api  # type: ignore[import-not-found, unused-ignore]
    except ModuleNotFoundError as error:
        raise Misused(
            "OpenTelemetry is not installed here: pip install opentelemetry-api opentelemetry-sdk, "
            "or take Metrics.prometheus() or Metrics.samples(), which need nothing"
        ) from error
    meter = api.get_meter("rankproof_integrity") if meter is None else meter
    for name, known in KNOWN.items():
        if known.kind == "histogram":
            for part in ("sum", "count"):
                meter.create_observable_counter(
                    f"{name}_{part}",
                    callbacks=[_reader(metrics, name, part, api.Observation)],
                    description=known.words,
                    unit="s" if part == "sum" else "1",
                )
        else:
            create = (
                meter.create_observable_counter
                if known.kind == "counter"
                else meter.create_observable_gauge
            )
            create(
                name,
                callbacks=[_reader(metrics, name, "value", api.Observation)],
                description=known.words,
                unit="1",
            )


def _reader(
    metrics: Metrics, name: str, part: str, observation: Any
) -> Callable[[Any], Iterable[Any]]:
    def read(_options: Any) -> Iterable[Any]:
        for sample in metrics.samples():
            if sample.name == name:
                yield observation(
                    sample.count if part == "count" else sample.value, dict(sample.labels)
                )

    return read
