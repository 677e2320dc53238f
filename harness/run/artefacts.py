"""What ranks kept: found in their folders once they have ended, compared, and taken into the
evidence.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from harness.checks.accounted import note_accounts
from harness.checks.arrays import AgainstCheck, Known, needled, needles_in, note_needles
from harness.checks.check import Check
from harness.checks.ledgers import asks_digests, asks_ledgers
from harness.events import is_name
from harness.forms.digest import sha256_of
from harness.forms.regular_file import read_regular
from harness.forms.strict_json import JSON
from harness.history import (
    ARTEFACT_COMPARED,
    ARTEFACT_FOUND,
    ARTEFACTS_ACCOUNTED,
    LEDGERS_COMPARED,
    NEEDLES_TRIED,
    History,
)
from harness.ledger.call import NotALedger
from harness.ledger.file import ARTEFACT as LEDGER
from harness.ledger.file import LARGEST, encode, parse
from harness.ledger.outside.account import account
from harness.numeric.array import NotAnArray, header
from harness.numeric.arrays import ArrayFile
from harness.rank.artefacts import ARRAY, BFLOAT16, BYTES, FOLDER
from harness.rank.process import keep_private
from harness.record.artefacts import LARGE, PER_TRIAL, path_of
from harness.record.results import ResultsFolder
from harness.world.control.world import World

MANY = 8192
"""Of a rank so many files are looked at: 30 layers with parts, in 17 orders for three prompts, make
4,600.
"""
FILE = re.compile(r"(?P<name>.+?)(?P<suffix>\.bfloat16\.npy|\.npy|\.bin)")


@dataclass(frozen=True)
class KeptFile:
    """A file in a rank's folder: its path, the values of the event that tells of it, and where it
    is kept.
    """

    path: Path
    values: dict[str, JSON]
    piece: SpooledFile | None = None


Kept = Mapping[tuple[int, str], KeptFile]
"""What ranks kept, by rank and name."""


@dataclass
class Artefacts:
    """Those of a run. Worlds that live at the same time share it. To be closed.

    Attributes:
        results: takes them into its evidence, each file once, whoever kept it; not before the last
            trial is over.
        checks: those that compare them.
        most: bytes of them that the evidence holds.
    """

    results: ResultsFolder
    checks: Sequence[AgainstCheck]
    most: int
    # Worlds end in several threads: what is stored, spooled and refused is decided by one at a
    # time, under `_lock`.
    _known: set[str] = field(default_factory=set)
    _stored: dict[str, SpooledFile] = field(default_factory=dict)
    _spool: Spool | None = None
    _bytes: int = 0
    _refused: set[tuple[str, str]] = field(default_factory=set)
    _pricked: Known = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def spool(self, file: KeptFile) -> KeptFile:
        """Return the same where no rank finds it, in place of the rank's folder.

        Raises:
            OSError: it cannot be read, or there is no space.
        """
        with self._lock:
            if self._spool is None:
                self._spool = Spool(self.results.path)
        return file if file.piece is not None else replace(file, piece=self._spool.add(file.path))

    def write(self) -> None:
        """Write into the evidence what was taken: no rank is left that could read it.

        Raises:
            OSError: there is no space.
        """
        for path, piece in self._stored.items():
            self.results.write(path, bytes(piece.content()))
        self._stored.clear()

    def close(self) -> None:
        """Give up what was not written."""
        if self._spool is not None:
            self._spool.close()

    def take(self, world: World, scratch: Path, *, size: int) -> Kept:
        """Take those of a world whose ranks have ended, and tell of each.

        Args:
            world: takes the events.
            scratch: its folder, with one below it for each rank; the files go with it.
            size: world size.

        Raises:
            OSError: a folder cannot be read, or the evidence cannot be written.
        """
        room = PER_TRIAL
        kept: dict[tuple[int, str], KeptFile] = {}
        for rank in range(size):
            for file in look(scratch / f"rank-{rank}" / FOLDER):
                values = file.values
                if "why" not in values:
                    kept[rank, str(values["artefact"])], many = self._store(file, room=room)
                    room -= many
                world.note(ARTEFACT_FOUND, rank=rank, **values)
        return kept

    def compare(
        self, world: World, kept: Kept, *, size: int, reference: Kept, alone: bool = False
    ) -> None:
        """Compare those of a trial as the checks ask, and tell what they differ by.

        Args:
            world: takes the events.
            kept: what its ranks kept.
            size: world size.
            reference: what the reference kept.
            alone: whether that is one process, and every rank is compared with it.
        """
        for check in self.checks:
            against = check.of[0]
            name = str(check.of[1])
            for rank in check.ranks.of(size):
                if isinstance(against, int):
                    expected = kept.get((against, name))
                else:
                    expected = reference.get((0 if alone else rank, name))
                self._compare(world, check, rank, kept.get((rank, name)), expected)

    def prick(
        self, world: World, kept: Kept, *, size: int, reference: Kept, runs: History | None
    ) -> None:
        """Try the tolerances of the checks with wrong arrays, until each has refused one in the
        cell of this trial.

        Args:
            world: takes the events.
            kept: what its ranks kept.
            size: world size.
            reference: what the reference kept.
            runs: the events of the reference, if there is one.
        """
        asked = needled(self.checks)
        if not asked:
            return
        files = {file.values["sha256"]: file for file in (*reference.values(), *kept.values())}
        history = History(world.events, size=size, reference=runs)
        cell = str(history.about().get("cell"))
        for check in asked:
            with self._lock:
                if (cell, check.id) in self._refused:
                    continue
                notes = list(
                    note_needles(
                        check,
                        history,
                        file=lambda values: _file(files[values["sha256"]]),
                        known=self._pricked,
                    )
                )
                needles = [needles_in(values) for values in notes]
                if any(tried is not None and tried.is_refused for tried in needles):
                    self._refused.add((cell, check.id))
            for values in notes:
                world.note(NEEDLES_TRIED, **values)

    def compare_runs(self, world: World, kept: Kept, *, size: int, first: Kept) -> None:
        """Compare those of a reference with those of its first run, rank by rank."""
        for check in self.checks:
            if check.of[0] == "reference":
                for rank in range(size):
                    place = rank, str(check.of[1])
                    self._compare(world, check, rank, kept.get(place), first.get(place))

    def account(
        self,
        world: World,
        kept: Kept,
        *,
        checks: Sequence[Check],
        size: int,
        reference: Kept,
        runs: History | None,
    ) -> None:
        """Make the accounts that checks ask of all that was kept together, and tell them.

        Args:
            world: takes the events.
            kept: what its ranks kept.
            checks: of the scenario.
            size: world size.
            reference: what the reference kept.
            runs: the events of the reference, if there is one.
        """
        files = {
            kept_file.values["sha256"]: kept_file
            for kept_file in (*reference.values(), *kept.values())
        }
        history = History(world.events, size=size, reference=runs)
        for values in list(
            note_accounts(
                checks, history, file=lambda values_of_file: _file(files[values_of_file["sha256"]])
            )
        ):
            world.note(ARTEFACTS_ACCOUNTED, **values)

    def _store(self, file: KeptFile, *, room: int) -> tuple[KeptFile, int]:
        """Take a file in where it fits, and say so; with how many bytes of the trial's it takes."""
        path = path_of(file.values)
        many = int(file.values["bytes"])
        with self._lock:
            new = path not in self._known
            file.values["stored"] = not new or (many <= room and self._bytes + many <= self.most)
            if not new or not file.values["stored"]:
                return file, 0
            self._known.add(path)
            self._bytes += many
        kept = self.spool(file)
        assert kept.piece is not None
        self._stored[path] = kept.piece
        return kept, many

    def _compare(
        self,
        world: World,
        check: AgainstCheck,
        rank: int,
        actual: KeptFile | None,
        expected: KeptFile | None,
    ) -> None:
        """Compare a rank's array with the one that the check names.

        What is missing the check itself finds out.
        """
        if actual is None or expected is None:
            return
        values: dict[str, JSON]
        try:
            values = {"comparison": check.compare(_array(actual), _array(expected))}
        except NotAnArray as error:
            values = {"why": str(error)}
        digests = {"found": actual.values["sha256"], "expected": expected.values["sha256"]}
        world.note(ARTEFACT_COMPARED, rank=rank, check=check.id, **digests, **values)


def _array(kept: KeptFile) -> ArrayFile:
    """Return a file mapped into memory: it may be larger than what is free."""
    if "dtype" not in kept.values:
        raise NotAnArray(f"{kept.values['file']} contains bytes, not an array")
    return _file(kept)


def _file(kept: KeptFile) -> ArrayFile:
    if kept.piece is not None:
        return ArrayFile(kept.path.name, kept.piece.content())
    if not kept.values["bytes"]:
        return ArrayFile(kept.path.name, b"")  # nothing cannot be mapped
    with kept.path.open("rb") as file:
        return ArrayFile(kept.path.name, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def look(folder: Path) -> Iterator[KeptFile]:
    """Artefacts in a rank's folder, by name.

    Nothing in it is trusted: it may hold links, pipes, holes.

    Args:
        folder: may be missing.

    Yields:
        Each with artefact, file, bytes, sha256, and of an array dtype and shape; or with file and
        `why`, where it is not an artefact.

    Raises:
        OSError: the folder cannot be read.
    """
    if folder.is_symlink():
        yield KeptFile(folder, {"file": "", "why": "the rank's folder is a link"})
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    taken: dict[str, str] = {}
    for entry in entries[:MANY]:
        match = FILE.fullmatch(entry.name)
        shown = entry.name.encode("ascii", "backslashreplace").decode()[:200]
        why = _refusal(entry, match)
        if match is None or why:
            yield KeptFile(Path(entry.path), {"file": shown, "why": why})
            continue
        path = Path(entry.path)
        values: dict[str, JSON] = {
            "artefact": match["name"],
            "file": shown,
            "bytes": path.stat().st_size,
        }
        values["sha256"] = sha256_of(path)
        if match["suffix"] != BYTES:
            try:
                with path.open("rb") as file:
                    array = header(file, name=entry.name)
            except NotAnArray as error:
                yield KeptFile(path, {"file": shown, "why": str(error)})
                continue
            if array.bytes != values["bytes"]:
                why = f"it has {values['bytes']} bytes, but its header states {array.bytes} bytes"
                yield KeptFile(path, {"file": shown, "why": why})
                continue
            values |= {"dtype": array.dtype, "shape": list(array.shape)}
        if (other := taken.setdefault(match["name"], shown)) != shown:
            yield KeptFile(
                path, {"file": shown, "why": f"{match['name']} is already kept, as {other}"}
            )
            continue
        yield KeptFile(path, values)
    if len(entries) > MANY:
        yield KeptFile(
            folder,
            {
                "file": "",
                "why": f"the rank left {len(entries)} files, but only {MANY} are read",
            },
        )


def _refusal(entry: os.DirEntry[str], match: re.Match[str] | None) -> str:
    """Why a file is not an artefact; empty where it may be one."""
    if match is None or not is_name(match["name"]):
        return (
            f"its name is not a valid artefact name (dotted lower-case words, then {ARRAY},"
            f" {BFLOAT16} or {BYTES})"
        )
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    return f"it has {status.st_size} bytes; the limit is {LARGE}" if status.st_size > LARGE else ""


@dataclass(frozen=True)
class SpooledFile:
    """What one file held."""

    _file: BinaryIO
    _begin: int
    size: int

    def content(self) -> bytes | mmap.mmap:
        """All of it, mapped into memory: it may be larger than what is free."""
        if not self.size:
            return b""  # nothing cannot be mapped
        return mmap.mmap(
            self._file.fileno(), self.size, access=mmap.ACCESS_READ, offset=self._begin
        )


class Spool:
    """Where what ranks kept is until the last trial is over: in a file without a name.

    Safe to use from several threads; to be closed.

    In the results folder a rank would find it by walking up from its own code, and could hand in
    what the whole model, or a smaller world, computed. Nor may it open the file through this
    process, whose descriptors the kernel lists.
    """

    def __init__(self, folder: Path) -> None:
        """Make the file.

        Args:
            folder: on whose file system it lies.

        Raises:
            OSError: it cannot be made.
        """
        self._file: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed with it
        keep_private(private=True)
        self._end = 0
        # A piece is where the file ended before it: two threads must not write at one end.
        self._lock = threading.Lock()

    def add(self, path: Path) -> SpooledFile:
        """Take in a file.

        Raises:
            OSError: it cannot be read, or there is no space.
        """
        with self._lock, path.open("rb") as source:
            begin = self._end
            self._file.seek(begin)
            shutil.copyfileobj(source, self._file)
            self._file.flush()
            size = self._file.tell() - begin
            # Only what begins at such a place can be mapped.
            self._end = begin + size + -size % mmap.ALLOCATIONGRANULARITY
        return SpooledFile(self._file, begin, size)

    def close(self) -> None:
        """Give it back."""
        self._file.close()
        keep_private(private=False)


def cut_ledgers(scratch: Path, *, size: int) -> None:
    """Leave of each rank's ledger what was written.

    What is not one stays as it is, and is found out.

    To be called before artefacts are taken: the evidence holds what this leaves.

    Raises:
        OSError: it cannot be written.
    """
    for rank in range(size):
        folder = scratch / f"rank-{rank}" / FOLDER
        path = folder / (LEDGER + BYTES)
        if folder.is_symlink():
            continue  # nobody writes for a rank where it points to
        with contextlib.suppress(NotALedger):
            try:
                left = read_regular(path, limit=LARGEST, follow=False)
            except OSError:
                continue
            written = encode(parse(left))
            # In place of the rank's file, which may have other names.
            path.unlink()
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(written)


def compare_ledgers(
    world: World, kept: Mapping[tuple[int, str], KeptFile], *, size: int, checks: Sequence[Check]
) -> None:
    """Hold them against each other, and note what they differ by.

    Args:
        world: takes the event.
        kept: what the ranks kept.
        size: world size.
        checks: of the scenario.

    Raises:
        OSError: a ledger cannot be read.
    """
    files = {}
    for rank in range(size):
        if (ledger := kept.get((rank, LEDGER))) is not None and int(
            ledger.values["bytes"]
        ) <= LARGEST:
            files[rank] = ledger.path.read_bytes()
    asked = asks_ledgers(checks, size=size)
    transferred = asks_digests(checks, size=size)
    noted = account(files, size=size, world=world.mark, asked=asked, transferred=transferred)
    world.note(LEDGERS_COMPARED, **noted)
