"""What a run of the tests says of itself."""

from __future__ import annotations

from collections import Counter

import pytest

SECOND = 1.0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that took over a second and are not marked `slow`, with a fixture that they were first to need.

    Said, never a failure: on a busy machine any test may take long, and `-m "not slow"` shows what all of them cost.
    """
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and "slow" not in report.keywords:
                seconds[report.nodeid] += report.duration
    longest = [(name, took) for name, took in seconds.most_common(10) if took > SECOND]
    if longest:
        terminalreporter.section("over a second and not marked slow", sep="-")
        for name, took in longest:
            terminalreporter.line(f"{took:6.1f} s  {name}")
