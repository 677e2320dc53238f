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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli import PASS, USAGE, give_up
from harness.cli.arguments import policy_of, signers
from harness.forms.manifest import NAME as MANIFEST
from harness.report.runs_page import ListedCell, ListedRun, median_seconds, render_runs
from harness.trust.key import own_keys
from harness.trust.remembered import (
    VerificationMemory,
    names_in,
    reader_digest,
    stamp_of,
    timestamp,
    write_whole,
)
from harness.trust.signers import SignerPolicy, SignersMalformed
from harness.trust.sshsig import SshsigError

if TYPE_CHECKING:
    from harness.record.model import Record

PAGE = "index.html"
REPORT = "report.md"
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
        help="folder with runs or bundles in it (default: results)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where the page is written (default: index.html in the folder)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    signers(parser)


def main(options: argparse.Namespace) -> int:
    """Write the page; 0 also where runs are not verified, because looking decides nothing."""
    if not options.folder.is_dir():
        return give_up("view", f"{options.folder}: no such folder: name one with runs in it", USAGE)
    out = options.out or options.folder / PAGE
    if (run := run_around(out)) is not None:
        why = f"{out}: would be inside of the run {run}, which holds nothing but its evidence"
        return give_up("view", f"{why}: give another place with --out", USAGE)
    if not out.parent.is_dir():
        return give_up("view", f"{out.parent}: no such folder: make it, or change --out", USAGE)
    try:
        policy = policy_of(options, own=own_keys())
        runs = shown_runs(options.folder, policy=policy, page=out)
    except (SignersMalformed, SshsigError, ValueError) as error:
        return give_up("view", error, USAGE)
    refused = sum(bool(run.refusal) for run in runs)
    unverified = f", {refused} not verified" if refused else ""
    print(f"{out}: {len(runs)} {'run' if len(runs) == 1 else 'runs'}{unverified}")
    if options.open:
        import webbrowser

        if not webbrowser.open(out.resolve().as_uri()):
            print("No browser could be opened; open the file yourself.", file=sys.stderr)
    return PASS


def shown_runs(folder: Path, *, policy: SignerPolicy, page: Path) -> list[ListedRun]:
    """Verify the runs of a folder, or recall them, and write the page.

    Args:
        folder: searched for reports and bundles.
        policy: whose signature is accepted.
        page: where the page is written.

    Raises:
        OSError: the page cannot be written.
        SshsigError: ssh-keygen is missing.
    """
    now = datetime.now(UTC)
    reader = reader_digest(policy, now=now, environ=os.environ)
    memory = VerificationMemory(folder, reader=reader)
    runs = [_shown(place, folder, page, policy, memory) for place in run_places(folder)]
    # A memory that cannot be kept makes the next page slower, and nothing else.
    with suppress(OSError):
        memory.save()
    content = render_runs(runs, place=str(folder), made=timestamp(now))
    write_whole(page, content, mode=0o644)
    return runs


def refresh(results: Path) -> None:
    """Write the page anew after a run, where somebody has asked for one before.

    Whatever goes wrong with it is reported in a line and fails no run.
    """
    if not (results / PAGE).is_file():
        return
    try:
        defaults = argparse.Namespace(allowed_signers=None, signer=[], revoked=None, at="now")
        policy = policy_of(defaults, own=own_keys())
        shown_runs(results, policy=policy, page=results / PAGE)
    except Exception as error:  # noqa: BLE001 - the run has ended, and its report is written
        print(f"{results / PAGE} could not be written anew: {error}", file=sys.stderr)


def run_around(page: Path) -> Path | None:
    """Find the run in whose folder a page would be."""
    for folder in page.absolute().parents:
        if (folder / MANIFEST).is_file() and (folder / REPORT).is_file():
            return folder
    return None


def run_places(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Find folders with a report, and bundles; links are not followed, and there are no runs in
    runs.
    """
    if _is_there(folder / REPORT):
        yield folder
        return
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth < DEEPEST:
                yield from run_places(Path(entry.path), depth + 1)
        elif entry.name.endswith(BUNDLE) and entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


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
    run = _verified(place, name=name, path=path, policy=policy)
    if names is not None:
        memory.remember(
            name,
            names=names,
            before=before,
            after=stamp_of(place, names),
            began_ns=began,
            found=run.encode(),
        )
    return run


def _verified(place: Path, *, name: str, path: str, policy: SignerPolicy) -> ListedRun:
    # Imported here: most runs were verified before, and then nothing heavy is needed.
    from harness.cli.reports import NoBundle, replay_of, report_of
    from harness.run.replay import RecordReplay
    from harness.trust.folder import verify_folder

    now = timestamp(datetime.now(UTC))
    try:
        with report_of(place) as report:
            replay = replay_of(report)
            verification = verify_folder(report, policy=policy, replay=replay)
            page = next((name for name in ("report.html", REPORT) if (place / name).is_file()), "")
    except (NoBundle, OSError) as problem:
        return ListedRun(path=path, name=name, verified=now, refusal="NOT READ", why=str(problem))
    # A run that makes the verifier fail must not take the page of all others away.
    except Exception as problem:  # noqa: BLE001
        why = (
            f"rankproof verify fails on it ({type(problem).__name__}: {problem}): please report it"
        )
        return ListedRun(path=path, name=name, verified=now, refusal="NOT VERIFIED", why=why)
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
    verified = ListedRun(path=path, name=name, verified=now, signer=signer, page=page)
    if isinstance(replay, RecordReplay) and replay.record is not None:
        return _of_run(verified, replay.record)
    record = getattr(replay, "record", None)
    return verified if record is None else _of_series(verified, record)


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
        verdict=record.judgement.verdict,
        is_expected=record.judgement.as_expected or record.scenario.expects is None,
        scenario=record.scenario.id,
        title=record.scenario.title,
        question=record.scenario.question,
        cells=cells,
        commit=record.run.source.commit or "",
        is_changed=record.run.source.dirty,
        made=record.run.made,
        seconds=median_seconds(milliseconds),
    )


def _of_series(verified: ListedRun, record: Any) -> ListedRun:
    """Describe a matrix or a search; a search has no verdict of its own."""
    facts = record.facts
    words = [
        str(getattr(cell, "verdict", "") or getattr(cell, "word", "")) for cell in record.cells
    ]
    names = [str(getattr(cell, "case", "") or getattr(cell, "id", "")) for cell in record.cells]
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
