"""`rankproof compare`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from harness.cli import FAIL, INCONCLUSIVE, PASS, REFUSED, USAGE, give_up
from harness.cli.arguments import signers
from harness.cli.streams import print_styled
from harness.cli.verify import policy_of
from harness.record.model import PATH, Record, RecordError
from harness.report.markdown import render_markdown
from harness.report.terminal import render_terminal
from harness.reproduce.comparison import OtherScenario, as_json, blocks, compare
from harness.run.replay import RecordReplay
from harness.trust.folder import verify_folder
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import SshsigError

CODES = {"same": PASS, "changed": FAIL, "cannot tell": INCONCLUSIVE}
WIDEST = 180
LARGEST = 64 * 2**20


class Refusal(Exception):
    """A run that was refused; the message says why."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("first", type=Path, metavar="A", help="a run's folder or report.md")
    parser.add_argument("second", type=Path, metavar="B", help="the run to compare it with")
    signers(parser)
    parser.add_argument(
        "--unverified", action="store_true", help="compare also what verification refuses"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON")
    how.add_argument("--markdown", action="store_true", help="print markdown")


def main(options: argparse.Namespace) -> int:
    """Compare two runs; the exit code says whether a result changed."""
    try:
        policy = policy_of(options)
        first, good = _load(options.first, policy, unverified=options.unverified)
        second, better = _load(options.second, policy, unverified=options.unverified)
        result = compare(first, second)
    except OSError as error:
        if error.filename is None:
            raise
        return give_up("compare", f"{error.filename}: {error.strerror}", USAGE)
    except (Refusal, SshsigError) as error:
        return give_up("compare", error, REFUSED)
    except (OtherScenario, RecordError, ValueError) as error:
        return give_up("compare", error, USAGE)
    verified = (good, better)
    if options.json:
        print(json.dumps(as_json(result, first, second, verified=verified), indent=1))
        return CODES[result.word]
    shown = blocks(result, first, second, verified=verified)
    if options.markdown:
        print(render_markdown(shown), end="")
    else:
        print_styled(render_terminal(shown, min(shutil.get_terminal_size().columns, WIDEST)))
    return CODES[result.word]


def _load(path: Path, policy: SignerPolicy, *, unverified: bool) -> tuple[Record, bool]:
    """The record of a run, and whether it was verified.

    Raises:
        Refusal: it was not, and nobody said that this does not matter.
        OSError, RecordError: the record is not there.
    """
    report = path / "report.md" if path.is_dir() else path
    replay = RecordReplay()
    verification = verify_folder(report, policy=policy, replay=replay)
    if verification.ok and replay.record is not None:
        # What was judged is what is compared, whatever happened to the folder meanwhile.
        return replay.record, True
    if not unverified:
        why = f"{verification.word}: {verification.message}"
        raise Refusal(f"{report}: {why}. Verify it, or compare it all the same with --unverified")
    print(f"{report}: not verified: {verification.word}", file=sys.stderr)
    with (report.parent / PATH).open("rb") as file:
        return Record.decode(file.read(LARGEST)), False
