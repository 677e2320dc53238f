"""`rankproof show`."""

from __future__ import annotations

import argparse
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from harness.cli import PASS, USAGE
from harness.cli.streams import print_styled
from harness.cli.verify import REPORT, NoBundle, own_signers, report_of
from harness.forms.text import visible
from harness.record.model import PATH, Record, RecordError
from harness.report.issue import render_issue
from harness.report.report import report_blocks
from harness.report.terminal import render_terminal
from harness.trust import sshsig
from harness.trust.folder import LARGEST_FILE, Folder, Unreadable, read_signers
from harness.trust.signers import SignerPolicy
from harness.trust.verification import Refused, Verifier

WIDEST = 140


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "run",
        type=Path,
        nargs="?",
        default=Path("results/latest"),
        help="a run's folder, its report.md, or a bundle (default: results/latest)",
    )
    parser.add_argument(
        "--issue",
        action="store_true",
        help=(
            "print one markdown text that stands alone, to paste into an issue (at most 65,000"
            " characters)"
        ),
    )


def main(options: argparse.Namespace) -> int:
    """Show a run's record as a report. It is a view: of the evidence nothing is verified."""
    try:
        with report_of(options.run) as report:
            folder = report.parent if report.name == REPORT else report
            if not (folder / PATH).exists() and (folder / "latest" / PATH).exists():
                folder = folder / "latest"
            return _show(options, folder)
    except NoBundle as problem:
        print(f"{options.run}: {problem}", file=sys.stderr)
        return USAGE


def _show(options: argparse.Namespace, folder: Path) -> int:
    path = folder / PATH
    try:
        record = Record.decode(path.read_bytes())
        if options.issue:
            with Folder(folder) as files:
                print(render_issue(record, lambda name: files.read(name, LARGEST_FILE)), end="")
            return PASS
    except OSError as error:
        place = path if error.filename is None else error.filename
        print(
            f"{place}: {error.strerror}; name the folder of a run that ended, or a bundle",
            file=sys.stderr,
        )
        return USAGE
    except (RecordError, Unreadable) as error:
        what = f"{folder}: {error.message}" if isinstance(error, Unreadable) else f"{path}: {error}"
        print(what, file=sys.stderr)
        return USAGE
    width = min(shutil.get_terminal_size().columns, WIDEST)
    print_styled(
        render_terminal(
            report_blocks(record, manifest_digest="(a view: see report.md)"), width, record=record
        )
    )
    print()
    print(f"Signature: {_signature(folder / REPORT)}")
    given = options.run if options.run.is_file() else folder / REPORT
    print(
        f"This is a view: that the evidence bears it out, only this says: rankproof verify {given}"
    )
    return PASS


def _signature(report: Path) -> str:
    """Who signed the report, and whether the repository that the reader stands in lists them."""
    try:
        listed = own_signers()
        policy = SignerPolicy(
            allowed=read_signers(listed) if listed else None,
            allowed_from=str(listed or "allowed_signers"),
        )
        content = report.read_bytes()
        verifier = Verifier(sshsig, policy, datetime.now(UTC))
        verifier.take_report(content)
        verifier.check_signature(content)
        verifier.check_signer()
    except Refused as refused:
        return f"{refused.word}: {refused.message}"
    except (OSError, sshsig.SshsigError) as error:
        return visible(f"not checked: {error}")
    return f"good, by {verifier.fingerprint}, whom {policy.allowed_from} lists as {verifier.signer}"
