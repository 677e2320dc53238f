"""Tells at the end which commands of the pages were not run, and why."""

from __future__ import annotations

import pytest

from tests.docs.shown import SHOWN, NotRun


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it where the tests about commands ran."""
    ran = any(
        isinstance(report, pytest.TestReport) and "tests/docs/test_commands.py" in report.nodeid
        for reports in terminalreporter.stats.values()
        for report in reports
    )
    if ran:
        terminalreporter.section("commands of the pages that are not run", sep="-")
        for page, commands in SHOWN.items():
            for command, how in commands.items():
                if isinstance(how, NotRun):
                    terminalreporter.line(f"{page}: {command}\n    {how.because}")
