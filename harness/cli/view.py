"""`rankproof view`: one page over all runs of a folder, each verified or called not verified."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli import PASS, USAGE, give_up
from harness.cli.arguments import policy_of, signers
from harness.forms.manifest import NAME as MANIFEST
from harness.report.runs_page import (
    DEFAULT_MARK,
    MARK,
    ListedCell,
    ListedRun,
    median_seconds,
    render_runs,
)
from harness.trust.key import own_keys
from harness.trust.remembered import (
    VerificationMemory,
    names_in,
    reader_digest,
    stamp_of,
    timestamp,
    write_back,
    write_whole,
)
from harness.trust.signers import SignerPolicy, SignersMalformed
from harness.trust.sshsig import NoSshKeygen, SshsigError

if TYPE_CHECKING:
    from harness.record.model import Record

PAGE = "index.html"
REPORT = "report.md"
RECORD = "results.json"
BUNDLE = ".rankproof.tar.xz"
# Folders below the one that is named; runs are two below results/.
DEEPEST = 8
MOST_RUNS = 20_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("results"),
        help="folder that contains runs or bundles (default: results)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="file to write the page to (default: index.html in the folder)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    signers(parser)


def main(options: argparse.Namespace) -> int:
    """Write the page; 0 also where runs are not verified, because looking decides nothing."""
    if not options.folder.is_dir():
        return give_up(
            "view", f"{options.folder}: no such folder; give one that contains runs", USAGE
        )
    out = options.out or options.folder / PAGE
    if (run := run_around(out)) is not None:
        why = f"{out}: inside the run {run}, which may contain only its evidence"
        return give_up("view", f"{why}; give another path with --out", USAGE)
    if not out.parent.is_dir():
        return give_up("view", f"{out.parent}: no such folder; create it, or change --out", USAGE)
    if out.exists() and not is_ours(out):
        why = f"{out} already exists, and this command did not write it"
        return give_up("view", f"{why}; give another path with --out", USAGE)
    try:
        own = own_keys()
        policy = policy_of(options, own=own)
        is_default = policy == default_policy(own)
        runs = shown_runs(options.folder, policy=policy, is_default=is_default, page=out)
    except (SignersMalformed, SshsigError, ValueError) as error:
        return give_up("view", error, USAGE)
    refused = sum(bool(run.refusal) for run in runs)
    unverified = f", {refused} not verified" if refused else ""
    print(f"{out}: {len(runs)} {'run' if len(runs) == 1 else 'runs'}{unverified}")
    if options.open:
        import webbrowser

        if not webbrowser.open(out.resolve().as_uri()):
            print("Could not open a browser; open the file yourself.", file=sys.stderr)
    return PASS


def shown_runs(
    folder: Path, *, policy: SignerPolicy, is_default: bool, page: Path
) -> list[ListedRun]:
    """Verify the runs of a folder, or recall them, and write the page.

    Args:
        folder: searched for reports and bundles.
        policy: whose signature is accepted.
        is_default: whether that is also whose signature is accepted without options.
        page: where the page is written.

    Raises:
        OSError: the page cannot be written.
        SshsigError: ssh-keygen is missing.
    """
    now = datetime.now(UTC)
    reader = reader_digest(policy, now=now, environ=os.environ)
    memory = VerificationMemory(folder, reader=reader)
    unread: list[str] = []
    places = list(islice(run_places(folder, unread=unread), MOST_RUNS + 1))
    if len(places) > MOST_RUNS:
        unread.append(f"more than {MOST_RUNS} runs: the others are not shown")
    runs = [_shown(place, folder, page, policy, memory) for place in places[:MOST_RUNS]]
    # A memory that cannot be kept makes the next page slower, and nothing else.
    with suppress(OSError):
        memory.save()
    content = render_runs(
        runs,
        place=str(folder),
        made=timestamp(now),
        unread=unread,
        is_default=is_default,
    )
    try:
        write_whole(page, content, mode=0o666 & ~_umask())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(page)) from None
    return runs


def refresh(results: Path) -> None:
    """Write the page anew after a run, where somebody has asked for one before without options.

    Whatever goes wrong with it is reported in a line and fails no run.
    """
    page = results / PAGE
    # A page that was made with other signers stays as its reader made it.
    if not is_ours(page, made_by_default=True):
        return
    try:
        shown_runs(results, policy=default_policy(own_keys()), is_default=True, page=page)
    except Exception as error:  # noqa: BLE001 - the run has ended, and its report is written
        print(f"{page} could not be updated: {error}", file=sys.stderr)


def default_policy(own: tuple[str, ...]) -> SignerPolicy:
    """Whose signature a page accepts that is made without options."""
    defaults = argparse.Namespace(allowed_signers=None, signer=[], revoked=None, at="now")
    return policy_of(defaults, own=own)


def is_ours(page: Path, *, made_by_default: bool = False) -> bool:
    """Tell whether a file is a page that this command made, and not somebody's own."""
    try:
        with page.open("rb") as file:
            head = file.read(4096).decode(errors="replace")
    except OSError:
        return False
    return MARK in head and (not made_by_default or DEFAULT_MARK in head)


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


def run_around(page: Path) -> Path | None:
    """Find the run in whose folder a page would be."""
    # The folder may be reached by a link.
    for folder in (page.parent.resolve(), *page.parent.resolve().parents):
        if (folder / MANIFEST).is_file() and (folder / REPORT).is_file():
            return folder
    return None


def run_places(folder: Path, *, unread: list[str], depth: int = 0) -> Iterator[Path]:
    """Find folders with a report, and bundles; links are not followed, and there are no runs in
    runs.

    Args:
        folder: searched, but for hidden folders in it.
        unread: takes what cannot be searched, with the reason.
        depth: of the folder below the one that was named.
    """
    if _is_there(folder / REPORT):
        yield folder
        # A report that somebody left in a folder of runs hides none of them.
        if _is_there(folder / MANIFEST) or _is_there(folder / RECORD):
            return
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        unread.append(f"{folder}: {error.strerror}")
        return
    for entry in found:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth < DEEPEST:
                yield from run_places(Path(entry.path), unread=unread, depth=depth + 1)
            else:
                unread.append(f"{entry.path}: nested more than {DEEPEST} folders deep")
        elif entry.name.endswith(BUNDLE) and entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _is_file(path: Path) -> bool:
    """Tell whether a path is a file, and no link to one."""
    return path.is_file() and not path.is_symlink()


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except OSError:
        return False
    return True


def _shown(
    place: Path, folder: Path, page: Path, policy: SignerPolicy, memory: VerificationMemory
) -> ListedRun:
    """Recall a run, or verify it."""
    name = os.path.relpath(place, folder)
    path = os.path.relpath(place, page.parent)
    if (kept := memory.recall(name, place)) is not None:
        with suppress(TypeError, KeyError):
            return ListedRun.decode({**kept, "path": path})
    is_folder = place.is_dir()
    names = names_in(place) if is_folder else [""]
    began = time.time_ns()
    before = stamp_of(place, names) if names is not None else None
    with suppress(OSError):
        write_back(place, names or [])
    try:
        run = _verified(place, name=name, path=path, policy=policy)
    # Without ssh-keygen no run is verified, and the command ends with that.
    except NoSshKeygen:
        raise
    # A failure may pass (no space, too many open files), so none is remembered; and a run that
    # makes the verifier fail must not take the page of all others away.
    except Exception as problem:  # noqa: BLE001
        return _failed(problem, name=name, path=path)
    # A certificate ends by itself, and no list says when.
    if names is not None and not run.is_certified:
        memory.remember(
            name,
            place,
            names=names,
            before=before,
            after=stamp_of(place, names),
            began_ns=began,
            found=run.encode(),
        )
    return run


def _verified(place: Path, *, name: str, path: str, policy: SignerPolicy) -> ListedRun:
    # Imported here: most runs were verified before, and then nothing heavy is needed.
    from harness.cli.reports import replay_of, report_of
    from harness.run.replay import RecordReplay
    from harness.trust.folder import verify_folder

    now = timestamp(datetime.now(UTC))
    with report_of(place) as report:
        replay = replay_of(report)
        verification = verify_folder(report, policy=policy, replay=replay)
        # What was not verified may be any page: its text is all that is offered.
        names = ("report.html", REPORT) if verification.ok else (REPORT,)
        page = next((name for name in names if _is_file(place / name)), "")
    if not verification.ok:
        return ListedRun(
            path=path,
            name=name,
            verified=now,
            refusal=verification.word,
            why=verification.message,
            page=page,
        )
    signer = "MINE" if verification.is_mine else verification.signer or ""
    verified = ListedRun(
        path=path,
        name=name,
        verified=now,
        signer=signer,
        page=page,
        is_certified=verification.key != verification.fingerprint,
    )
    if isinstance(replay, RecordReplay) and replay.record is not None:
        return _of_run(verified, replay.record)
    record = getattr(replay, "record", None)
    return verified if record is None else _of_series(verified, record)


def _failed(problem: Exception, *, name: str, path: str) -> ListedRun:
    """List a run whose verification came to no end."""
    from harness.cli.reports import NoBundle

    now = timestamp(datetime.now(UTC))
    if isinstance(problem, NoBundle | OSError):
        return ListedRun(path=path, name=name, verified=now, refusal="NOT READ", why=str(problem))
    why = f"rankproof verify failed on it ({type(problem).__name__}: {problem}); please report this"
    return ListedRun(path=path, name=name, verified=now, refusal="NOT VERIFIED", why=why)


def _of_run(verified: ListedRun, record: Record) -> ListedRun:
    cells = []
    milliseconds: list[float] = []
    for cell in record.judgement.cells:
        tally = cell.candidate
        if tally is None:
            cells.append(ListedCell(cell.id, cell.verdict))
            continue
        cells.append(ListedCell(cell.id, cell.verdict, tally.failed, tally.counted))
        milliseconds += [trial.ms for trial in tally.trials if trial.outcome != "void"]
    return replace(
        verified,
        verdict=record.word,
        is_expected=record.judgement.as_expected or record.scenario.expects is None,
        scenario=record.scenario.id,
        title=record.headline,
        question=record.scenario.question,
        cells=cells,
        commit=record.run.source.commit or "",
        is_changed=record.run.source.dirty,
        made=record.run.made,
        seconds=median_seconds(milliseconds),
    )


def _of_series(verified: ListedRun, record: Any) -> ListedRun:
    """Describe a matrix, a search or a conformance; a search has no verdict of its own."""
    facts = record.facts
    parts = record.rows if facts.kind == "conformance" else record.cells
    words = [str(getattr(part, "verdict", "") or getattr(part, "word", "")) for part in parts]
    names = [
        str(next(filter(None, (getattr(part, key, "") for key in ("case", "id", "name")))))
        for part in parts
    ]
    return replace(
        verified,
        verdict=getattr(record, "verdict", "VERIFIED"),
        scenario=facts.kind,
        title=f"{facts.kind} {facts.id}",
        cells=[ListedCell(name, word) for name, word in zip(names, words, strict=True)],
        commit=facts.source.commit or "",
        is_changed=facts.source.dirty,
        made=facts.made,
    )
