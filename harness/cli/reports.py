"""`rankproof verify`, `show`, `diff` and `bundle`: a report that was made, checked, printed,
compared with another, and packed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from harness.cli import FAIL, INCONCLUSIVE, PASS, REFUSED, USAGE, give_up
from harness.cli.arguments import inputs, policy_of, signers
from harness.cli.streams import print_styled
from harness.forms.source import expanded
from harness.forms.text import visible
from harness.reason import RefusalWord
from harness.record.model import PATH, Record, RecordError
from harness.run.replay import RecordReplay
from harness.trust.folder import LARGEST_FILE, Folder, UnreadableFile, verify_folder
from harness.trust.key import is_ci, own_keys
from harness.trust.replay import Replay
from harness.trust.signers import SignerPolicy, SignersMalformed
from harness.trust.sshsig import SshsigError
from harness.trust.verification import Verification

if TYPE_CHECKING:
    from harness.report.blocks import Block

REPORT = "report.md"


class NoBundle(Exception):
    """Bundle that may not be unpacked; the message says why."""


@contextmanager
def report_of(given: Path) -> Iterator[Path]:
    """Report at a path. A bundle is unpacked where nobody else reads, for as long as this
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
OPERATORS = "evidence/operators.json"
CONFORMANCE = "evidence/conformance.json"
SERVED = "evidence/served.json"
MARKS = {"passed": "ok", "absent": "none", "refused": "REFUSED", "not reached": "-"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command; its name is the last word of the parser's."""
    takes = {
        "verify": _verify_arguments,
        "show": _show_arguments,
        "diff": _compare_arguments,
        "bundle": _bundle_arguments,
    }
    takes[parser.prog.rpartition(" ")[2]](parser)


def main(options: argparse.Namespace) -> int:
    """Verify a report, show it, compare it with another, or bundle it."""
    commands = {"verify": _verify, "show": _show_run, "diff": _compare, "bundle": _bundle}
    return commands[options.command](options)


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--model", action=_Elsewhere, help=argparse.SUPPRESS)
    parser.add_argument("report", type=Path, help="report.md, its folder, or a bundle")
    signers(parser)
    parser.add_argument(
        "--mine",
        action="store_true",
        help=(
            "accept reports signed with your own key, even if it is not in the list (ignored in CI)"
        ),
    )


class _Elsewhere(argparse.Action):
    """`verify --model FILE` of BitNet.rs's guide: a model is not a report, and another command
    looks at it.
    """

    def __call__(
        self, parser: argparse.ArgumentParser, _options: object, value: object, _name: object = None
    ) -> None:
        """Name that command."""
        parser.error(
            "this command verifies reports; to check a model, run: rankproof tokenizer doctor"
            f" --models {value}"
        )


def _verify(options: argparse.Namespace) -> int:
    """Verify a report, step by step; exit 3 where it is refused."""
    # What is made here lives until the program ends: looking for cycles in it only takes time.
    gc.disable()
    try:
        with report_of(options.report) as report:
            return _verified(options, report)
    except NoBundle as problem:
        print(f"{options.report}: REFUSED: {problem}")
        return REFUSED


def _verified(options: argparse.Namespace, report: Path) -> int:
    own = own_keys() if options.mine else ()
    if options.mine and not own:
        why = "CI is set" if is_ci(os.environ) else "no usable key of yours was found"
        return give_up("verify", f"--mine: {why}; use --signer or --allowed-signers", USAGE)
    try:
        accepted = policy_of(options, own=own)
        verification = verify_folder(report, policy=accepted, replay=replay_of(report))
    except OSError as error:
        if error.filename is None:
            raise
        return give_up("verify", f"{error.filename}: {error.strerror}", USAGE)
    except (UnreadableFile, SignersMalformed, ValueError) as error:
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
    if verification.ok and verification.is_mine:
        print(f"{shown}: verified: MINE, signed by your own key {verification.fingerprint}")
        return PASS
    if verification.ok:
        signer = f"{verification.signer} ({verification.fingerprint})"
        print(f"{shown}: verified: {verification.word}, signed by {signer}, allowed by {allowed}")
        return PASS
    print(f"{shown}: REFUSED: {verification.word}")
    is_unknown = verification.word == RefusalWord.UNKNOWN_SIGNER
    if is_unknown and not options.signer and verification.fingerprint in own_keys():
        print(
            "It is signed by your own key. To accept it: rankproof verify --mine"
            f" {quote(str(shown))}"
        )
    return REFUSED


def replay_of(report: Path) -> Replay:
    """How what lies beside a report is judged again: as a run, as a matrix or a search, which are
    made of runs, as a sweep of operators, as a conformance, or as a sweep of those.
    """
    if (report.parent / MATRIX).is_file():
        from harness.series.matrix import MatrixSeries
        from harness.series.replay import SeriesReplay

        return SeriesReplay(MatrixSeries())
    if (report.parent / SEARCH).is_file():
        from harness.series.replay import SeriesReplay
        from harness.series.search import Search

        return SeriesReplay(Search())
    if (report.parent / OPERATORS).is_file():
        from harness.series.operators.sweep import OperatorsSeries
        from harness.series.replay import SeriesReplay

        return SeriesReplay(OperatorsSeries())
    if (report.parent / CONFORMANCE).is_file():
        from harness.conformance.judged import Conformance
        from harness.series.replay import SeriesReplay

        return SeriesReplay(Conformance())
    if (report.parent / SERVED).is_file():
        from harness.conformance.sweep.judged import ServedSweep
        from harness.series.replay import SeriesReplay

        return SeriesReplay(ServedSweep())
    return RecordReplay()


def print_steps(verification: Verification) -> None:
    """Every step with its word."""
    for step in verification.steps:
        word = step.word or MARKS[step.outcome]
        print(f"{step.name:<10} {word:<22} {step.message}".rstrip())


SHOW_WIDEST = 140


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
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
        help=("print a self-contained markdown summary (about one screen) to paste into an issue"),
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="print the whole report and its appendix, not only the first screen",
    )
    signers(parser)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What `show` says of a report, which is verified before a word of it is printed.

    Attributes:
        word: of the refusal; empty where the report verifies.
        line: who signed it, or why it does not verify.
        is_signed: whether a good signature covers the report.
        record: what was judged again; None where that was not reached.
    """

    word: str
    line: str
    is_signed: bool = False
    record: Any = None

    @property
    def code(self) -> int:
        """Exit code: that of `rankproof verify`."""
        return REFUSED if self.word else PASS

    def mark(self, blocks: Iterable[Block]) -> list[Block]:
        """Blocks as they may be shown: below NOT VERIFIED and without a PASS where it does not
        verify.
        """
        from harness.report.unverified import unverified

        if not self.word:
            return list(blocks)
        return list(unverified(blocks, word=self.word, is_signed=self.is_signed))


def _show_run(options: argparse.Namespace) -> int:
    """Show a run's record as a report, and first whether it verifies."""
    try:
        with report_of(options.run) as report:
            folder = report.parent if report.name == REPORT else report
            if not (folder / PATH).exists() and (folder / "latest" / PATH).exists():
                folder = folder / "latest"
            if any((folder / path).is_file() for path in (CONFORMANCE, SERVED)):
                return _show_servers(options, folder)
            if any((folder / path).is_file() for path in (MATRIX, SEARCH, OPERATORS)):
                print(f"{folder} is a series of runs; read {folder / REPORT}", file=sys.stderr)
                return USAGE
            return _show(options, folder)
    except NoBundle as problem:
        print(f"{options.run}: {problem}", file=sys.stderr)
        return USAGE


def _show(options: argparse.Namespace, folder: Path) -> int:
    # Imported here, as in `diff`: whoever verifies needs none of it, and a gate verifies many.
    from harness.report.appendix import appendix_blocks
    from harness.report.issue import render_issue
    from harness.report.report import report_blocks
    from harness.report.summary import first_screen
    from harness.report.terminal import render_terminal

    path = folder / PATH
    try:
        data = path.read_bytes()
        checked = _checked(options, folder)
        # What was judged is what is shown, whatever happens to the folder meanwhile.
        record = checked.record or Record.decode(data)
        if options.issue:
            with Folder(folder) as files:
                text = render_issue(
                    record, lambda name: files.read(name, LARGEST_FILE), checked.mark
                )
            print(text, end="")
            return checked.code
    except OSError as error:
        place = path if error.filename is None else error.filename
        print(
            f"{place}: {error.strerror}; give the folder of a finished run, or a bundle",
            file=sys.stderr,
        )
        return USAGE
    except (SignersMalformed, ValueError) as error:
        return give_up("show", error, USAGE)
    except (RecordError, UnreadableFile) as error:
        what = (
            f"{folder}: {error.message}"
            if isinstance(error, UnreadableFile)
            else f"{path}: {error}"
        )
        print(what, file=sys.stderr)
        return USAGE
    width = min(shutil.get_terminal_size().columns, SHOW_WIDEST)
    given = options.run if options.run.is_file() else folder
    if given.is_absolute() and given.is_relative_to(Path.cwd()):
        given = given.relative_to(Path.cwd())
    shown = first_screen(record)
    if options.all:
        unsigned = "(not signed here: see report.md)"
        shown = [*report_blocks(record, manifest_digest=unsigned), *appendix_blocks(record)]
    print_styled(render_terminal(checked.mark(shown), width, record=record))
    print()
    # To the minute: with the fingerprint of a key it is a line of 80 columns.
    print(f"Made {record.run.made[:16]}Z. {checked.line}")
    place = shlex.quote(str(given))
    if not options.all:
        print(f"The rest:     rankproof show --all {place}")
    print(f"The evidence: rankproof verify {place}")
    return checked.code


def _show_servers(options: argparse.Namespace, folder: Path) -> int:
    """Show a conformance, or a sweep of several."""
    from harness.report.terminal import render_terminal

    try:
        data = (folder / PATH).read_bytes()
        checked = _checked(options, folder)
        if (folder / SERVED).is_file():
            from harness.conformance.sweep import report as sweep
            from harness.conformance.sweep.record import ServedRecord

            served = ServedRecord.decode(data)
            made = served.facts.made
            blocks = [*sweep.first_screen(served), *(sweep.body(served) if options.all else ())]
        else:
            from harness.conformance import report as conformance
            from harness.conformance.record import ConformanceRecord

            one = ConformanceRecord.decode(data)
            made = one.facts.made
            rest = conformance.body(one) if options.all else ()
            blocks = [*conformance.first_screen(one), *rest]
    except (SignersMalformed, ValueError) as error:
        return give_up("show", error, USAGE)
    except (OSError, RecordError) as error:
        print(f"{folder / PATH}: {error}", file=sys.stderr)
        return USAGE
    shown = checked.mark(blocks)
    print_styled(render_terminal(shown, min(shutil.get_terminal_size().columns, SHOW_WIDEST)))
    report = shlex.quote(str(folder / REPORT))
    print(f"\nMade {made[:16]}Z. {checked.line}")
    print(f"Check that the evidence supports it: rankproof verify {report}")
    return checked.code


def _checked(options: argparse.Namespace, folder: Path) -> Checked:
    """Verify a report for whoever looks at it: their list, or `--signer`, and their own keys.

    Raises:
        OSError, SignersMalformed: a list cannot be read.
        ValueError: an option that cannot be read.
    """
    policy = policy_of(options, own=own_keys())
    report = folder / REPORT
    replay = replay_of(report)
    try:
        found = verify_folder(report, policy=policy, replay=replay)
    except (UnreadableFile, SshsigError) as error:
        why = error.message if isinstance(error, UnreadableFile) else str(error)
        return Checked(word="NOT CHECKED", line=visible(f"NOT VERIFIED: {why}"))
    if not found.ok:
        line = f"NOT VERIFIED: {found.word}: {found.message}"
        return Checked(word=found.word, line=line, is_signed=found.fingerprint is not None)
    record = replay.record if isinstance(replay, RecordReplay) else None
    if found.is_mine:
        line = f"MINE: {found.fingerprint}"
    elif found.fingerprint in policy.fingerprints:
        line = f"Signature: good, by {found.fingerprint}, given with --signer"
    else:
        listed = f"listed in {policy.allowed_from} as {found.signer}"
        line = f"Signature: good, by {found.fingerprint}, {listed}"
    return Checked(word="", line=line, is_signed=True, record=record)


COMPARED_CODES = {"same": PASS, "changed": FAIL, "cannot tell": INCONCLUSIVE}
COMPARE_WIDEST = 180
LARGEST = 64 * 2**20


class NotCompared(Exception):
    """Run that was refused; the message says why."""


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("first", type=Path, metavar="A", help="a run's folder or report.md")
    parser.add_argument("second", type=Path, metavar="B", help="the run to compare it with")
    signers(parser)
    parser.add_argument(
        "--unverified", action="store_true", help="compare the runs even if they fail verification"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON")
    how.add_argument("--markdown", action="store_true", help="print markdown")


def _compare(options: argparse.Namespace) -> int:
    """Compare two runs; the exit code says whether a result changed."""
    from harness.report.markdown import render_markdown
    from harness.report.terminal import render_terminal
    from harness.reproduce.comparison import OtherScenario, as_json, blocks, compare

    try:
        policy = policy_of(options, own=own_keys())
        first, good = _record_of(options.first, policy, unverified=options.unverified)
        second, better = _record_of(options.second, policy, unverified=options.unverified)
        result = compare(first, second)
    except OSError as error:
        if error.filename is None:
            raise
        return give_up("diff", f"{error.filename}: {error.strerror}", USAGE)
    except (NotCompared, SshsigError) as error:
        return give_up("diff", error, REFUSED)
    except (OtherScenario, RecordError, ValueError) as error:
        return give_up("diff", error, USAGE)
    verified = (good, better)
    if options.json:
        print(json.dumps(as_json(result, first, second, verified=verified), indent=1))
        return COMPARED_CODES[result.word]
    shown = blocks(result, first, second, verified=verified)
    if options.markdown:
        print(render_markdown(shown), end="")
    else:
        print_styled(
            render_terminal(shown, min(shutil.get_terminal_size().columns, COMPARE_WIDEST))
        )
    return COMPARED_CODES[result.word]


def _record_of(path: Path, policy: SignerPolicy, *, unverified: bool) -> tuple[Record, bool]:
    """Record of a run, and whether it was verified.

    Raises:
        NotCompared: it was not, and nobody said that this does not matter.
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
        raise NotCompared(f"{report}: {why}. Verify it, or compare it anyway with --unverified")
    print(f"{report}: not verified: {verification.word}", file=sys.stderr)
    with (report.parent / PATH).open("rb") as file:
        return Record.decode(file.read(LARGEST)), False


LEAKS_SHOWN = 20


def _bundle_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", type=Path, help="a run's folder, such as results/latest")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="file to write (default: SCENARIO-RUN.rankproof.tar.xz)",
    )
    inputs(parser)
    parser.add_argument(
        "--inputs-limit",
        type=int,
        default=64,
        metavar="MIB",
        help="maximum total size of the included inputs (default: 64 MiB)",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=["home", "host", "secret", "user"],
        help="allow this kind of private data in the bundle (repeatable)",
    )


def _bundle(options: argparse.Namespace) -> int:
    """Write a bundle; exit 2 where something in it must not leave this machine."""
    from harness.reproduce.bundle import BundleError, Leaks, bundle, usual_name

    try:
        given = paths(options.input, what="--input")
        out = options.out or Path(usual_name(options.run))
        done = bundle(
            options.run,
            out,
            inputs=given,
            inputs_limit=options.inputs_limit * 2**20,
            allowed=options.allow,
        )
    except Leaks as error:
        for leak in error.leaks[:LEAKS_SHOWN]:
            print(f"{leak.path}:{leak.line}: {leak.what} ({leak.kind})", file=sys.stderr)
        more = (
            f", {len(error.leaks) - LEAKS_SHOWN} not shown"
            if len(error.leaks) > LEAKS_SHOWN
            else ""
        )
        print(
            f"rankproof bundle: {error}{more}. A signed run cannot be edited: run it again without",
            file=sys.stderr,
        )
        print(
            "them, or allow a kind by name, as in --allow user. Nothing was written",
            file=sys.stderr,
        )
        return INCONCLUSIVE
    except (BundleError, ValueError) as error:
        return give_up("bundle", error, USAGE)
    for carried in done.index.inputs:
        if not carried.carried:
            print(f"input {carried.name} is not included, only its digest: {carried.why_not}")
    total = sum(member.size for member in done.index.members)
    print(
        f"{done.path}: {len(done.index.members)} files, {total} bytes, packed"
        f" {done.path.stat().st_size}"
    )
    print(f"sha256 {done.sha256}")
    return PASS


def paths(named: list[str], *, what: str) -> dict[str, Path]:
    """`NAME=PATH` by name.

    Raises:
        ValueError: something is not of this form.
    """
    places = {}
    for text in named:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise ValueError(f"{what} {text}: must be NAME=PATH")
        places[name] = expanded(path)
    return places
