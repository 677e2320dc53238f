"""The benchmark still runs: what only a person starts by hand breaks without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import verifying


@pytest.mark.whole
def test_verify_and_gate_are_measured_on_a_report_that_both_accept(tmp_path: Path) -> None:
    """A report that the bench makes of itself, smaller: verified, and let through the gate by the bench's policy."""
    figures = verifying.measure(tmp_path, rounds=1, candidate=59, control=3)
    assert figures["files"] > 5
    assert all(figures[f"{command}_wall_seconds"][1] > 0 for command in ("verify", "gate"))
