"""`rankproof verify`."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Literal

from harness.cli import PASS, REFUSED, USAGE, give_up
from harness.cli.arguments import signers
from harness.forms.git import git, refusal
from harness.run.replay import RecordReplay
from harness.trust.folder import Unreadable, read_signers, verify_folder
from harness.trust.replay import Replay
from harness.trust.signers import ALLOWED_SIGNERS, SignerPolicy, SignersMalformed, parse_at
from harness.trust.sshsig import SshsigError
from harness.trust.verification import Verification

REPORT = "report.md"


class NoBundle(Exception):
    """A bundle that may not be unpacked; the message says why."""


@contextmanager
def report_of(given: Path) -> Iterator[Path]:
    """The report at a path. A bundle is unpacked where nobody else reads, for as long as this
    lasts.

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


MATRIX = "evidence/matrix.json"
SEARCH = "evidence/search.json"
MARKS = {"passed": "ok", "absent": "none", "refused": "REFUSED", "not reached": "-"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--model", action=_Elsewhere, help=argparse.SUPPRESS)
    parser.add_argument("report", type=Path, help="report.md, the folder it lies in, or a bundle")
    signers(parser)


class _Elsewhere(argparse.Action):
    """`verify --model FILE` of BitNet.rs's guide: a model is not a report, and another command
    looks at it.
    """

    def __call__(
        self, parser: argparse.ArgumentParser, _options: object, value: object, _name: object = None
    ) -> None:
        """Name that command."""
        parser.error(
            "reports are verified here; of a model, run: rankproof tokenizer doctor --models"
            f" {value}"
        )


def main(options: argparse.Namespace) -> int:
    """Verify a report, step by step; exit 3 where it is refused."""
    # What is made here lives until the program ends: looking for cycles in it only takes time.
    gc.disable()
    try:
        with report_of(options.report) as report:
            return _verify(options, report)
    except NoBundle as problem:
        print(f"{options.report}: REFUSED: {problem}")
        return REFUSED


def _verify(options: argparse.Namespace, report: Path) -> int:
    try:
        accepted = policy_of(options)
        verification = verify_folder(report, policy=accepted, replay=replay_of(report))
    except OSError as error:
        if error.filename is None:
            raise
        return give_up("verify", f"{error.filename}: {error.strerror}", USAGE)
    except (Unreadable, SignersMalformed, ValueError) as error:
        return give_up("verify", error, USAGE)
    except SshsigError as error:
        return give_up("verify", error, REFUSED)
    allowed = " and ".join(
        [
            *(["--signer"] if accepted.fingerprints else []),
            *([accepted.allowed_from] if accepted.allowed else []),
        ]
    )
    print_steps(verification)
    shown = report if options.report.is_dir() else options.report
    if verification.ok:
        signer = f"{verification.signer} ({verification.fingerprint})"
        print(f"{shown}: verified: {verification.word}, signed by {signer}, allowed by {allowed}")
        return PASS
    print(f"{shown}: REFUSED: {verification.word}")
    return REFUSED


def replay_of(report: Path) -> Replay:
    """How what lies beside a report is judged again: as a run, or as a matrix or a search, which
    are made of runs.
    """
    if (report.parent / MATRIX).is_file():
        from harness.series.matrix import Matrix
        from harness.series.replay import SeriesReplay

        return SeriesReplay(Matrix())
    if (report.parent / SEARCH).is_file():
        from harness.series.replay import SeriesReplay
        from harness.series.search import Search

        return SeriesReplay(Search())
    return RecordReplay()


def policy_of(options: argparse.Namespace) -> SignerPolicy:
    """Whose signature the command line, or else the repository, accepts.

    Raises:
        OSError, Unreadable: a list cannot be read.
        ValueError: an option that cannot be read.
    """
    allowed = options.allowed_signers
    if allowed is None and not options.signer:
        allowed = own_signers()
    return SignerPolicy(
        allowed=read_signers(allowed) if allowed else None,
        allowed_from=str(allowed or "allowed_signers"),
        fingerprints=tuple(_fingerprint(given) for given in options.signer),
        revoked=read_signers(options.revoked) if options.revoked else None,
        at=_at(options.at),
    )


def _fingerprint(given: str) -> str:
    if not re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", given):
        raise ValueError(
            f"--signer {given}: a fingerprint looks like SHA256: and 43 characters, as `ssh-keygen"
            " -l` prints it"
        )
    return given


def _at(given: str) -> datetime | Literal["now", "report"]:
    try:
        return parse_at(given)
    except ValueError:
        raise ValueError(
            f"--at {given}: give now, report, or a time such as 2026-01-31T12:00:00Z"
        ) from None


def own_signers() -> Path | None:
    """The verifier's own list, at the top of the repository it stands in.

    Never the one beside the report.
    """
    done = git("rev-parse", "--show-toplevel")
    # Without git, or outside of a repository, the list may still lie here.
    top = Path() if done.returncode else Path(os.fsdecode(done.stdout.removesuffix(b"\n")))
    why = refusal(done.stderr)
    file = top / ALLOWED_SIGNERS
    if file.is_file():
        return file
    if why:
        print(
            f"{ALLOWED_SIGNERS} could not be looked for at the top of the repository: {why}",
            file=sys.stderr,
        )
    return None


def print_steps(verification: Verification) -> None:
    """Every step with its word."""
    for step in verification.steps:
        word = step.word or MARKS[step.outcome]
        print(f"{step.name:<10} {word:<22} {step.message}".rstrip())
