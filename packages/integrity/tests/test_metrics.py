"""Metrics as records, and in Prometheus' text format."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankproof_integrity.fallback import FallbackCoordinator
from rankproof_integrity.metrics import BUCKETS, KNOWN, Metrics
from rankproof_integrity.problem import Misused
from rankproof_integrity.records import EnhancedTokenChunk, FailureClass, RecoveryAction
from rankproof_integrity.recovery import FailureMode, RecoveryManager
from rankproof_integrity.store import MemoryStore
from rankproof_integrity.stream_validator import (
    AdaptiveStrictness,
    StreamValidator,
    ValidationBeside,
)
from rankproof_integrity.token_validator import TokenValidator

# What the format allows, from its specification: no more, so that a line that is off is not read
# kindly.
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
LINE = re.compile(
    rf"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{(?P<labels>{LABEL}(?:,{LABEL})*)\}})? (?P<value>\S+)"
)


def read(text: str) -> tuple[dict[str, str], dict[tuple[str, tuple[tuple[str, str], ...]], float]]:
    """Types by name, and values by name and labels."""
    types: dict[str, str] = {}
    values = {}
    assert text == "" or text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            assert word in {"HELP", "TYPE"}
            if word == "TYPE":
                assert name not in types, "said once, and all its lines behind it"
                types[name] = rest
            continue
        match = LINE.fullmatch(line)
        assert match is not None, line
        found = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match["labels"] or "")
        unescaped = tuple(
            (name, re.sub(r"\\(.)", lambda one: "\n" if one[1] == "n" else one[1], value))
            for name, value in found
        )
        assert next(reversed(types)) == re.sub("_(bucket|sum|count)$", "", match["name"])
        assert (match["name"], unescaped) not in values
        values[match["name"], unescaped] = float(match["value"])
    return types, values


@settings(max_examples=settings().max_examples // 5)
@given(
    st.lists(st.tuples(st.text(max_size=8), st.floats(0, 1e6, allow_nan=False)), max_size=12),
    st.lists(st.floats(0, 20), max_size=20),
)
def test_what_is_counted_is_what_is_written(
    counts: list[tuple[str, float]], times: list[float]
) -> None:
    """Any label, and any number, comes back from the text.

    A histogram's buckets grow to its count.
    """
    metrics = Metrics()
    for error, by in counts:
        metrics.count("integrity_failures_total", by, error=error)
    for seconds in times:
        metrics.observe("integrity_token_seconds", seconds)
    types, values = read(metrics.prometheus())
    assert set(types.items()) <= {(name, known.kind) for name, known in KNOWN.items()}
    for error in {error for error, _ in counts}:
        total = sum(by for one, by in counts if one == error)
        assert values["integrity_failures_total", (("error", error),)] == pytest.approx(total)
    if times:
        buckets = [
            values["integrity_token_seconds_bucket", (("le", repr(end)),)] for end in BUCKETS
        ]
        assert buckets == [sum(seconds <= end for seconds in times) for end in BUCKETS]
        assert values["integrity_token_seconds_bucket", (("le", "+Inf"),)] == len(times)
        assert values["integrity_token_seconds_count", ()] == len(times)
        assert values["integrity_token_seconds_sum", ()] == pytest.approx(sum(times))
    rows = json.loads(json.dumps([dataclasses.asdict(sample) for sample in metrics.samples()]))
    assert len(rows) == len({error for error, _ in counts}) + bool(times)


def test_a_name_that_nothing_counts_is_refused() -> None:
    """A slip of the name, of a label or of the kind is an error where it is made."""
    metrics = Metrics()
    slips: list[Callable[[], None]] = [
        lambda: metrics.count("integrity_failure_total", error="gap"),
        lambda: metrics.count("integrity_failures_total"),
        lambda: metrics.count("integrity_failures_total", error="gap", rank="1"),
        lambda: metrics.count("integrity_level"),
        lambda: metrics.count("integrity_unvalidated_total", -1),
        lambda: metrics.count("integrity_unvalidated_total", float("nan")),
        lambda: metrics.count("integrity_unvalidated_total", float("inf")),
        lambda: metrics.observe("integrity_token_seconds", float("nan")),
        lambda: metrics.observe("integrity_token_seconds", -0.1),
        lambda: metrics.set("integrity_token_seconds", 1),
    ]
    for slip in slips:
        with pytest.raises(Misused):
            slip()
    assert metrics.samples() == []


def test_each_part_counts_what_it_does() -> None:
    """Attempts, decisions, levels, and how late a thread found a failure are there after they
    happened.
    """
    metrics = Metrics()
    manager = RecoveryManager(
        actions={RecoveryAction.FALL_BACK: lambda _mode, _number: 1 / 0},
        metrics=metrics,
    )
    manager.recover(FailureMode(failure=FailureClass.CATASTROPHIC, position=0))
    group = FallbackCoordinator(MemoryStore(), rank=0, size=1, metrics=metrics)
    group.propose("alone", position=0)
    group.agree(position=0, timeout=0)
    chunk = EnhancedTokenChunk(token_id=1, sequence_position=0, source_device_rank=0)
    validator = StreamValidator(
        tokens=TokenValidator(vocabulary=5), strictness=AdaptiveStrictness(), metrics=metrics
    )
    with ValidationBeside(validator.check, metrics=metrics) as beside:
        beside.offer(chunk)
    samples = {(one.name, one.labels): one for one in metrics.samples()}
    failed = (("action", "fall-back"), ("outcome", "failed"))
    assert samples["integrity_recoveries_total", failed].value == 1
    assert samples["integrity_recovery_seconds", failed[:1]].count == 1
    assert samples["integrity_fallbacks_total", (("mode", "single"),)].value == 1
    assert samples["integrity_failures_total", (("error", "checksum"),)].value == 1
    assert samples["integrity_check_seconds", (("level", "light"),)].count == 1
    assert samples["integrity_detection_seconds", ()].count == 1
    assert samples["integrity_level", ()].value == 2


def test_threads_count_together() -> None:
    """What four threads count at once is all there."""
    metrics = Metrics()

    def work() -> None:
        for _ in range(500):
            metrics.count("integrity_unvalidated_total")
            metrics.observe("integrity_check_seconds", 1e-6, level="full")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    samples = {sample.name: sample for sample in metrics.samples()}
    assert samples["integrity_unvalidated_total"].value == 2000
    assert samples["integrity_check_seconds"].count == 2000
