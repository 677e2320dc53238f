"""Which tests reach which lines, in the process of the tests: a plug-in of pytest that traces some
modules.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Collection, Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest


class Coverage:
    """Traces the lines of some files, test by test.

    Attributes:
        lines: test to file to the lines of it that the test reached.
        seconds: how long each test took that passed, without its fixtures.
    """

    def __init__(self, files: Collection[str]) -> None:
        self._files = frozenset(files)
        self._wanted: dict[CodeType, bool] = {}
        self._now: dict[str, set[int]] = defaultdict(set)
        self.lines: dict[str, dict[str, list[int]]] = {}
        self.seconds: dict[str, float] = {}

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        code = frame.f_code
        wanted = self._wanted.get(code)
        if wanted is None:
            wanted = code.co_filename in self._files
            self._wanted[code] = wanted
        if not wanted:
            return None
        if event in {"line", "call"}:
            self._now[code.co_filename].add(frame.f_lineno)
        return self._trace

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Trace a test with its fixtures: what a fixture runs is part of what the test shows."""
        self._now = defaultdict(set)
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]  # None ends it, as for sys.settrace
            self.lines[item.nodeid] = {file: sorted(lines) for file, lines in self._now.items()}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the time of what passed; what fails without a mutant shows nothing."""
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = report.duration


def main(arguments: list[str]) -> int:
    """Run tests and write what they reach.

    Args:
        arguments: a JSON file to write, a JSON list of files to trace, and pytest's own.
    """
    out, files, *rest = arguments
    found = Coverage(json.loads(files))
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *rest], plugins=[found])
    Path(out).write_text(json.dumps({"lines": found.lines, "seconds": found.seconds}))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
