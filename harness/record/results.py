"""Results folder of one run. Nobody else writes into `results/`.

It is made as `<run>.unfinished` and gets its name when the signed report lies in it: an interrupted
run leaves a folder that says so, never a signed half.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from harness.forms.digest import sha256, sha256_of

UNFINISHED = ".unfinished"
LATEST = "latest"
LOCK = ".lock"
LOCK_WITHIN = 30.0
NOTE = "UNFINISHED.txt"
IGNORED = """\
# Results are evidence, not source. rankproof wrote this file when it made the folder; remove it to keep results in git.
*
"""
_RUN = re.compile(
    r"[^/]+/[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}(\.unfinished|\.late)?/.+|([^/]+/)?(latest|\.latest-[^/]+)|\.lock"
)


def is_of_runs(path: str) -> bool:
    """Return whether a file, by its path in the folder of all results, lies where this module
    writes.
    """
    return bool(_RUN.fullmatch(path))


class ResultsError(Exception):
    """Raised where the results folder cannot be written; says where, why, and what to do.

    Nothing was signed.
    """


class ResultsFolder:
    """Run's folder while it is being written. Safe to write to from several threads."""

    def __init__(self, root: Path, scenario: str) -> None:
        """Make the folder.

        Raises:
            ResultsError: it cannot be made.
        """
        self.made = datetime.now(UTC)
        self.id = f"{self.made:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        self.root = root
        self._scenario = root / scenario
        self.path = self._scenario / f"{self.id}{UNFINISHED}"
        self.digests: dict[str, str] = {}
        # Held while a digest is noted: lanes write the files of their trials at the same time.
        self._lock = threading.Lock()
        with _as_results_error(self.path):
            _make(root)
            with self._guard():
                self.path.mkdir(parents=True)

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Return the folder of a run that did not finish, to go on with it.

        What lies there is not taken in yet.

        Raises:
            ResultsError: its name is not one that a run gave it, or it is not there.
        """
        self = cls.__new__(cls)
        self.id = path.name.removesuffix(UNFINISHED)
        try:
            self.made = datetime.strptime(self.id.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(
                tzinfo=UTC
            )
        except ValueError:
            raise ResultsError(
                f"{path} does not have the name of a run; restore the folder's original name"
            ) from None
        if not path.is_dir():
            raise ResultsError(f"{path} does not exist; pass the folder that the run created")
        self.path = path
        self._scenario = path.parent
        self.root = path.parent.parent
        self.digests = {}
        self._lock = threading.Lock()
        return self

    def take_in(self, names: Collection[str]) -> None:
        """Take in what an earlier process wrote whole, of these names.

        Remove whatever else lies below `evidence`.

        Raises:
            ResultsError: a file cannot be read or removed.
        """
        for file in sorted((self.path / "evidence").rglob("*")):
            name = file.relative_to(self.path).as_posix()
            with _as_results_error(file):
                if name in names:
                    self.digests[name] = sha256_of(file)
                elif not file.is_dir():
                    file.unlink()

    def take(self, name: str, file: Path) -> None:
        """Move a file of the same file system here, whole or not at all, whatever ends this
        process.

        Raises:
            ResultsError: as for `write`.
        """
        target = self.path / name
        with _as_results_error(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            # In this order: the content is on the disk before the name is, and the name before
            # anybody is told of it, so that a machine that fails leaves no file that is half there.
            with file.open("rb") as content:
                os.fsync(content.fileno())
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            file.replace(target)
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        with self._lock:
            self.digests[name] = digest

    def write_whole(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all, whatever ends this process.

        Raises:
            ResultsError: as for `write`.
        """
        draft = self.path / f".{Path(name).name}.draft"
        with _as_results_error(draft):
            draft.write_bytes(data)
        self.take(name, draft)

    def write(self, name: str, data: bytes) -> None:
        """Write an evidence file, once.

        Raises:
            ResultsError: no space, read-only, or the file is there already.
        """
        target = self.path / name
        with _as_results_error(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(data)
        with self._lock:
            self.digests[name] = sha256(data)

    def read(self, name: str) -> bytes:
        """Read back a file of this run.

        Raises:
            ResultsError: it is not what was written. Ranks run as the same user, and a subject may
                write anywhere.
        """
        with _as_results_error(self.path / name):
            data = (self.path / name).read_bytes()
        if sha256(data) != self.digests.get(name):
            message = (
                f"{self.path / name} was changed during the run, but not by the harness. Nothing"
                " was signed"
            )
            raise ResultsError(message)
        return data

    def finish(
        self,
        *,
        manifest: tuple[str, bytes],
        report: tuple[str, bytes],
        beside: Iterable[tuple[str, bytes]] = (),
    ) -> Path:
        """Write the manifest, what was made of the report, then the report.

        Name the folder, point `latest` at it.

        Args:
            manifest: name and bytes.
            report: name and bytes; written last.
            beside: name and bytes of what no manifest lists: the statement and the views.

        Returns:
            The folder under its final name.

        Raises:
            ResultsError: as for `write`; the folder stays unfinished.
        """
        # The report last: where it is, all that it vouches for is on the disk.
        for name, data in (manifest, *beside, report):
            target = self.path / name
            with _as_results_error(target), target.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        final = self._scenario / self.id
        with _as_results_error(final), self._guard():
            self.path.rename(final)
            self._point_latest(final)
        self.path = final
        return final

    def abandon(self, why: str) -> None:
        """Leave a note of what happened; the folder keeps the name that says it is unfinished."""
        with contextlib.suppress(OSError):
            text = (
                f"{why}\nThis run did not finish: it has no report, and nothing is signed. The"
                " folder may be removed.\n"
            )
            (self.path / NOTE).write_text(text)

    def discard(self) -> None:
        """Leave nothing: not one trial was made."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # where other runs of the scenario lie there, it stays
            self._scenario.rmdir()

    def _point_latest(self, final: Path) -> None:
        for folder, target in (
            (self._scenario, final.name),
            (self.root, f"{self._scenario.name}/{final.name}"),
        ):
            draft = folder / f".{LATEST}-{self.id}"
            # A file system without links keeps its runs; only the shortcut is missing.
            with contextlib.suppress(OSError):
                draft.symlink_to(target)
                draft.replace(folder / LATEST)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        # Two runs that end together must not point `latest` at each other's folder, nor make and
        # remove the folder of one scenario at the same time.
        try:
            with FileLock(self.root / LOCK, timeout=LOCK_WITHIN):
                yield
        except Timeout:
            message = (
                f"{self.root / LOCK} was locked by another run for more than {LOCK_WITHIN:.0f} s;"
                " end that run, or use another folder with --results"
            )
            raise ResultsError(message) from None


def _make(root: Path) -> None:
    """Make the folder of all results where it is missing; only a new one is hidden from git."""
    try:
        root.mkdir(parents=True)
    except FileExistsError:
        if not root.is_dir():
            raise
        return
    (root / ".gitignore").write_text(IGNORED)


@contextmanager
def _as_results_error(path: Path) -> Iterator[None]:
    """Turn what the system says into one line that says what, where and what to do."""
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        todo = "Free some space" if error.errno == errno.ENOSPC else "Make the folder writable"
        message = (
            f"cannot write {path}: {what}. Nothing was signed. {todo}, or use another folder with"
            " --results"
        )
        raise ResultsError(message) from error
