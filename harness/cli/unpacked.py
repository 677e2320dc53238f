"""The report of a run that a command line names: by itself, by its folder, or packed in a bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPORT = "report.md"


class NoBundle(Exception):
    """A bundle that may not be unpacked; the message says why."""


@contextmanager
def report_of(given: Path) -> Iterator[Path]:
    """The report at a path. A bundle is unpacked where nobody else reads, for as long as this lasts.

    Raises:
        NoBundle: it is not, byte for byte, a bundle.
        OSError: there is not enough space for it.
    """
    if given.is_dir():
        yield given / REPORT
        return
    if given.name != REPORT and given.is_file():
        # Imported here: the usual argument is a report, and a gate verifies many.
        from harness.reproduce.archive import is_bundle
        from harness.reproduce.report_copy import NotTrusted, unpacked

        if is_bundle(given):
            with tempfile.TemporaryDirectory(prefix="rankproof-bundle-") as folder:
                try:
                    run = unpacked(given, Path(folder).resolve()) / "run"
                except NotTrusted as problem:
                    raise NoBundle(str(problem)) from None
                yield run / REPORT
            return
    yield given
