"""`rankproof show`."""

from __future__ import annotations

import argparse
import shutil
import sys

from harness.cli import PASS, USAGE
from harness.record.model import PATH, Record, RecordError
from harness.report.report import blocks
from harness.report.terminal import render_terminal

WIDEST = 140


def main(options: argparse.Namespace) -> int:
    """Show a run's record as a report. It is a view: nothing is verified."""
    folder = options.run.parent if options.run.is_file() else options.run
    if not (folder / PATH).exists() and (folder / "latest" / PATH).exists():
        folder = folder / "latest"
    path = folder / PATH
    try:
        record = Record.decode(path.read_bytes())
    except OSError as error:
        print(f"{path}: {error.strerror}; name the folder of a run that ended", file=sys.stderr)
        return USAGE
    except RecordError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return USAGE
    width = min(shutil.get_terminal_size().columns, WIDEST)
    print(render_terminal(blocks(record, manifest_digest="(a view: see report.md)"), width))
    print(f"This is a view, not verified: rankproof verify {folder / 'report.md'}")
    return PASS
