"""The results folder of one run. Nobody else writes into `results/`.

It is made as `<run>.unfinished` and gets its name when the signed report lies in it: an interrupted run leaves a folder
that says so, never a signed half.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from harness.forms.digest import sha256

UNFINISHED = ".unfinished"
LATEST = "latest"
LOCK = ".lock"
LOCK_WITHIN = 30.0
NOTE = "UNFINISHED.txt"
IGNORED = """\
# Results are evidence, not source. rankproof wrote this file when it made the folder; remove it to keep results in git.
*
"""
_RUN = re.compile(r"[^/]+/[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}(\.unfinished)?/.+|([^/]+/)?(latest|\.latest-[^/]+)|\.lock")


def is_of_runs(path: str) -> bool:
    """Whether a file, by its path in the folder of all results, lies where this module writes."""
    return bool(_RUN.fullmatch(path))


class ResultsError(Exception):
    """The results folder cannot be written; the message says where, why, and what to do. Nothing was signed."""


class ResultsFolder:
    """A run's folder while it is being written. Safe to write to from several threads."""

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
        self._lock = threading.Lock()
        with _as_results_error(self.path):
            _make(root)
            with self._guard():
                self.path.mkdir(parents=True)

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
            ResultsError: it is not what was written. Ranks run as the same user, and a subject may write anywhere.
        """
        with _as_results_error(self.path / name):
            data = (self.path / name).read_bytes()
        if sha256(data) != self.digests.get(name):
            message = (
                f"{self.path / name} was changed while the run was going on, and not by the harness. Nothing was signed"
            )
            raise ResultsError(message)
        return data

    def finish(
        self, *, manifest: tuple[str, bytes], report: tuple[str, bytes], beside: Iterable[tuple[str, bytes]] = ()
    ) -> Path:
        """Write the manifest, what was made of the report, then the report; name the folder, point `latest` at it.

        Args:
            manifest: name and bytes.
            report: name and bytes; written last.
            beside: name and bytes of what no manifest lists: the statement and the views.

        Returns:
            The folder under its final name.

        Raises:
            ResultsError: as for `write`; the folder stays unfinished.
        """
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
                f"{why}\nThis run did not finish: it has no report, and nothing is signed. The folder may be removed.\n"
            )
            (self.path / NOTE).write_text(text)

    def discard(self) -> None:
        """Leave nothing: not one trial was made."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # where other runs of the scenario lie there, it stays
            self._scenario.rmdir()

    def _point_latest(self, final: Path) -> None:
        for folder, target in ((self._scenario, final.name), (self.root, f"{self._scenario.name}/{final.name}")):
            draft = folder / f".{LATEST}-{self.id}"
            # A file system without links keeps its runs; only the shortcut is missing.
            with contextlib.suppress(OSError):
                draft.symlink_to(target)
                draft.replace(folder / LATEST)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            with FileLock(self.root / LOCK, timeout=LOCK_WITHIN):
                yield
        except Timeout:
            message = (
                f"{self.root / LOCK} is held by another run for more than {LOCK_WITHIN:.0f} s: "
                "end that run, or use another folder with --results"
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
        message = f"cannot write {path}: {what}. Nothing was signed. {todo}, or use another folder with --results"
        raise ResultsError(message) from error
