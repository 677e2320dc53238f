"""`rankproof show`."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from harness.cli import PASS, USAGE
from harness.cli.streams import print_styled
from harness.cli.unpacked import REPORT, NoBundle, report_of
from harness.record.model import PATH, Record, RecordError
from harness.report.report import blocks
from harness.report.terminal import render_terminal

WIDEST = 140


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "run",
        type=Path,
        nargs="?",
        default=Path("results/latest"),
        help="a run's folder, or a bundle (default: results/latest)",
    )


def main(options: argparse.Namespace) -> int:
    """Show a run's record as a report. It is a view: nothing is verified."""
    try:
        with report_of(options.run) as report:
            return _show(options.run, report.parent if options.run.is_file() else options.run)
    except NoBundle as problem:
        print(f"{options.run}: {problem}", file=sys.stderr)
        return USAGE


def _show(given: Path, folder: Path) -> int:
    if not (folder / PATH).exists() and (folder / "latest" / PATH).exists():
        folder = folder / "latest"
    path = folder / PATH
    try:
        record = Record.decode(path.read_bytes())
    except OSError as error:
        print(f"{path}: {error.strerror}; name the folder of a run that ended, or a bundle", file=sys.stderr)
        return USAGE
    except RecordError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return USAGE
    width = min(shutil.get_terminal_size().columns, WIDEST)
    print_styled(render_terminal(blocks(record, manifest_digest="(a view: see report.md)"), width))
    print()
    print(f"This is a view, not verified: rankproof verify {folder / REPORT if given.is_dir() else given}")
    return PASS
