"""A results folder as a verifier may touch it: bounded reads of regular files, and no link is ever
followed.

The folder may come from anybody. A listed file may be a link to a secret, a pipe that never
answers, or a terabyte of zeros; a name may hold anything but `/`. So every step of a path is opened
by itself, without following links, and the size is asked of the open file before it is read.

The way *to* the folder is the user's own and may hold links, such as `results/<scenario>/latest`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from harness.forms.digest import sha256
from harness.forms.manifest import DEEPEST, MOST_FILES
from harness.forms.manifest import NAME as MANIFEST
from harness.reason import RefusalWord
from harness.trust import sshsig
from harness.trust.footer import LARGEST_REPAIRED
from harness.trust.replay import Replay
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import Ssh
from harness.trust.statement import NAME as STATEMENT
from harness.trust.verification import Refused, Verification, Verifier

MIB = 2**20
LARGEST_REPORT = 16 * MIB
LARGEST_MANIFEST = 16 * MIB
LARGEST_FILE = 64 * MIB
LARGEST_TOTAL = 1024 * MIB
LARGEST_STATEMENT = 4 * MIB
LARGEST_KEPT = 64 * MIB

_CHUNK = MIB
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe waits for somebody to write into it.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)


class UnreadableFile(Exception):
    """File that will not be read. `kind` says why: missing, link, special, large or denied."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


class Folder:
    """Open results folder. Use it as a context manager.

    Raises:
        OSError: the folder itself cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # The folders on the way to the last file, each opened from the one above it. Only one way
        # is kept open: a manifest may name more folders than a process may hold.
        self._way: list[tuple[str, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(0)
        os.close(self._root)

    def read(self, name: str, limit: int) -> bytes:
        """Content of a file, of at most `limit` bytes.

        Raises:
            Unreadable: it is not a regular file inside the folder, or it is larger.
        """
        descriptor = self._open(name, limit)
        # Closed here also where a chunk is refused: a manifest may name more files than a process
        # may hold open.
        try:
            return b"".join(_chunks(descriptor, name, limit))
        finally:
            os.close(descriptor)

    def digest(self, name: str, limit: int, *, keep: int = 0) -> tuple[str, int, bytes | None]:
        """Sha256 of a file in hex, its size, and its content where that is at most `keep`
        bytes.

        Raises:
            Unreadable: as for `read`.
        """
        digest = hashlib.sha256()
        size = 0
        parts = []
        descriptor = self._open(name, limit)
        try:
            for chunk in _chunks(descriptor, name, limit):
                digest.update(chunk)
                size += len(chunk)
                if size <= keep:
                    parts.append(chunk)
        finally:
            os.close(descriptor)
        return digest.hexdigest(), size, b"".join(parts) if size <= keep else None

    def names(self) -> list[str]:
        """Every entry in the folder that is not a folder, links and pipes included, in no order.

        Raises:
            Unreadable: more than MOST_FILES entries beside the report, the manifest, the statement
                and the views, or a folder that is too deep or cannot be read.
        """
        paths: list[str] = []
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            try:
                # Not os.fwalk: it asks for the status of every folder three times.
                descriptor = self._parent(prefix[:-1])
                with os.scandir(descriptor) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(f"{prefix}{entry.name}/")
                        else:
                            paths.append(prefix + entry.name)
            except OSError as problem:
                raise UnreadableFile(
                    "denied", f"the folder {prefix or '.'!r} cannot be listed: {problem.strerror}"
                ) from None
            if (
                len(paths) + len(waiting) > 2 * MOST_FILES
                or len(paths) > MOST_FILES + 5
                or prefix.count("/") > DEEPEST
            ):
                raise UnreadableFile(
                    "large",
                    f"the folder contains more than {MOST_FILES} files or folders, or is more than"
                    f" {DEEPEST} levels deep",
                )
        return paths

    def _parent(self, path: str) -> int:
        steps = path.split("/") if path else []
        shared = 0
        for step, (known, _) in zip(steps, self._way, strict=False):
            if step != known:
                break
            shared += 1
        self._leave(shared)
        for step in steps[shared:]:
            self._way.append((step, os.open(step, _DIRECTORY, dir_fd=self._deepest())))
        return self._deepest()

    def _deepest(self) -> int:
        return self._way[-1][1] if self._way else self._root

    def _leave(self, depth: int) -> None:
        while len(self._way) > depth:
            os.close(self._way.pop()[1])

    def _open(self, name: str, limit: int) -> int:
        """Descriptor of a regular file of at most `limit` bytes, which the caller closes."""
        above, _, last = name.rpartition("/")
        try:
            parent = self._parent(above)
            # Asked before it is opened: opening a device can have effects of its own.
            _refuse_other(os.stat(last, dir_fd=parent, follow_symlinks=False), name, limit)
            descriptor = os.open(last, _FILE, dir_fd=parent)
        except OSError as problem:
            raise self._unreadable(name, problem) from None
        try:
            _refuse_other(os.fstat(descriptor), name, limit)
        except UnreadableFile:
            os.close(descriptor)
            raise
        return descriptor

    def _unreadable(self, name: str, problem: OSError) -> UnreadableFile:
        steps = name.split("/")
        try:
            for depth in range(1, len(steps) + 1):
                path = "/".join(steps[:depth])
                status = os.stat(
                    steps[depth - 1],
                    dir_fd=self._parent("/".join(steps[: depth - 1])),
                    follow_symlinks=False,
                )
                if stat.S_ISLNK(status.st_mode):
                    return UnreadableFile("link", f"{path!r} is a link, and links are not followed")
        except OSError:
            pass
        if isinstance(problem, FileNotFoundError | NotADirectoryError):
            return UnreadableFile("missing", f"{name!r} is missing")
        return UnreadableFile("denied", f"{name!r} cannot be read: {problem.strerror}")


@dataclass(frozen=True)
class Reader:
    """Hands listed files to a judge and a renderer, and makes sure that they still are what was
    verified.
    """

    folder: Folder
    digests: dict[str, str]
    kept: Mapping[str, bytes] = field(default_factory=dict)
    """Content that has its digest: what was read once need not be read again, and cannot have
    changed since.
    """

    def __call__(self, name: str) -> bytes:
        """Content of a listed file.

        Raises:
            Refused: the manifest does not list it, or it was changed since its digest was taken.
        """
        expected = self.digests.get(name)
        if expected is None:
            raise Refused(
                RefusalWord.EVIDENCE_MISSING,
                f"the record needs {name!r}, which the manifest does not list",
            )
        if name in self.kept:
            return self.kept[name]
        try:
            content = self.folder.read(name, LARGEST_FILE)
        except UnreadableFile as problem:
            raise Refused(
                RefusalWord.EVIDENCE_MISSING,
                f"{problem.message}, although it existed a moment ago",
            ) from None
        if sha256(content) != expected:
            raise Refused(
                RefusalWord.EVIDENCE_EDITED, f"{name!r} was changed while it was being verified"
            )
        return content


def verify_folder(
    report: Path,
    *,
    policy: SignerPolicy,
    replay: Replay | None = None,
    allow_unjudged: bool = False,
    now: datetime | None = None,
    ssh: Ssh = sshsig,
) -> Verification:
    """Verify the report at `report` and the folder it lies in.

    Whatever is wrong with them is in the result.

    Args:
        report: the path of the report; links on the way to its folder are followed, the report
            itself must not be one.
        policy: whose signature is accepted.
        replay: how the record is judged and rendered again; by default it cannot be.
        allow_unjudged: accept a report that could not be judged or rendered again. By default such
            a report is refused.
        now: the time for `policy.at == "now"`; by default the clock.
        ssh: who answers the questions about signatures.

    Raises:
        SshsigError: ssh-keygen is missing or does not answer.
    """
    verifier = Verifier(ssh=ssh, policy=policy, now=now or datetime.now(UTC))
    try:
        folder = Folder(report.parent)
    except OSError as problem:
        verifier.refuse_report(
            f"the folder {str(report.parent)!r} cannot be opened: {problem.strerror}"
        )
        return verifier.result()
    with folder, suppress(Refused):
        _walk(verifier, folder, report.name, replay or Replay())
    return verifier.result(allow_unjudged=allow_unjudged)


def _walk(verifier: Verifier, folder: Folder, name: str, replay: Replay) -> None:
    try:
        report = folder.read(name, LARGEST_REPORT)
    except UnreadableFile as problem:
        raise verifier.refuse_report(problem.message) from None
    verifier.take_report(report)
    verifier.check_signature(report)
    verifier.check_signer()
    try:
        digests = verifier.take_manifest(folder.read(MANIFEST, LARGEST_MANIFEST))
    except UnreadableFile as problem:
        digests = verifier.take_manifest(None, problem.message)
    kept = _take_files(verifier, folder, digests)
    try:
        names: list[str] = folder.names()
    except UnreadableFile as problem:
        names = [problem.message]
    # Only these exact names, and only where each will be checked below.
    known = {*replay.views, *([STATEMENT] if replay.makes_statements else [])}
    verifier.take_names(names, frozenset({name, MANIFEST, *known}))
    read = Reader(folder, digests, kept)
    verifier.judge(replay, read)
    verifier.render(replay, read)
    envelope = (
        _beside(verifier, folder, STATEMENT, RefusalWord.STATEMENT_UNREADABLE, LARGEST_STATEMENT)
        if replay.makes_statements
        else None
    )
    digest = sha256(report)
    verifier.check_statement(envelope, lambda manifest: replay.rebuild(read, digest, manifest))
    shown = {
        view: _beside(verifier, folder, view, RefusalWord.VIEW_UNREADABLE, LARGEST_FILE)
        for view in replay.views
    }
    verifier.check_views(shown, lambda view, manifest: replay.views[view](read, manifest))


def _beside(
    verifier: Verifier, folder: Folder, name: str, word: RefusalWord, limit: int
) -> bytes | None:
    """File that no manifest lists and that may be missing."""
    try:
        return folder.read(name, limit)
    except UnreadableFile as problem:
        if problem.kind == "missing":
            return None
        raise verifier.refuse_beside(word, problem.message) from None


def _take_files(verifier: Verifier, folder: Folder, digests: dict[str, str]) -> dict[str, bytes]:
    """Rule 5 for every listed file.

    Returns the content of small ones, as far as there is room for it.
    """
    kept: dict[str, bytes] = {}
    left = LARGEST_KEPT
    words = {"link": RefusalWord.EVIDENCE_IS_A_LINK, "large": RefusalWord.EVIDENCE_TOO_LARGE}
    room = LARGEST_TOTAL
    for path in digests:
        try:
            digest, size, content = folder.digest(
                path, min(LARGEST_FILE, room), keep=LARGEST_REPAIRED
            )
        except UnreadableFile as problem:
            raise verifier.refuse_file(
                words.get(problem.kind, RefusalWord.EVIDENCE_MISSING), problem.message
            ) from None
        room -= size
        verifier.take_file(path, digest, content)
        if content is not None and size <= left:
            kept[path] = content
            left = left - size
    return kept


def _refuse_other(status: os.stat_result, name: str, limit: int) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise UnreadableFile("link", f"{name!r} is a link, and links are not followed")
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile("special", f"{name!r} is not a regular file")
    if status.st_size > limit:
        raise UnreadableFile(
            "large", f"{name!r} has {status.st_size} bytes, but at most {limit} are allowed"
        )


def _chunks(descriptor: int, name: str, limit: int) -> Iterator[bytes]:
    left = limit
    while True:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except OSError as problem:
            raise UnreadableFile("denied", f"{name!r} cannot be read: {problem.strerror}") from None
        if not chunk:
            return
        left -= len(chunk)
        if left < 0:
            raise UnreadableFile(
                "large", f"{name!r} grew beyond {limit} bytes while it was being read"
            )
        yield chunk
