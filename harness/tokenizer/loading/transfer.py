"""One promised file, fetched into a place from which another process can go on.

What lies there already is kept: the rest alone is asked for (Range), and the digest is over the
whole file. So a fetch that was killed, cut or refused costs what it had not fetched. A part is
thrown away where the hub says that it has another file now (If-Range, ETag, sizes), or where the
whole is not what was promised.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import stat
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.forms.digest import git_blob, sha256
from harness.tokenizer.loading.manifest import FileRecord
from harness.tokenizer.loading.source import HubRepository, Promise
from harness.tokenizer.loading.wire import LYING_ATTEMPTS, Body, HubClient, Passing
from harness.tokenizer.problem import CacheFailed, LoadError

# A weak ETag, or a text that could break a header, cannot say whether bytes are the same.
_STRONG = re.compile(r'"[\x21\x23-\x7e]{1,200}"')
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
_PIECE = 2**20

# Is told a file's path, how many bytes of it are here, and how many it has.
Progress = Callable[[str, int, int], None]


class Transfer:
    """A file on its way; a `Part` for the wire.

    Args:
        promise: what the whole has to be.
        target: where it lies; its folder is this process's own.
        tags: a folder beside, for the ETag that a part belongs to.
        seen: is told how far it is.

    Attributes:
        whole: whether all of it is here, and is what was promised.

    Raises:
        CacheFailed: what lies there already cannot be read.
    """

    def __init__(
        self, promise: Promise, *, target: Path, tags: Path, seen: Progress | None = None
    ) -> None:
        self.promise = promise
        self._target = target
        self._seen = seen
        self._tag = tags / sha256(promise.path.encode())[:16]
        self._start_over()
        self.whole = self._take_up()

    def fetch(self, wire: HubClient, repository: HubRepository, commit: str) -> FileRecord:
        """Fetch what is missing.

        Raises:
            HubFailed: it did not come, or came with other bytes.
            CacheFailed: it cannot be written.
        """
        if not self.whole:
            path = f"/{repository.name}/resolve/{commit}/{urllib.parse.quote(self.promise.path)}"
            wire.get(path, self._take, part=self)
            self.whole = True
        return self.record()

    def record(self) -> FileRecord:
        """Return the file, once it is whole."""
        return FileRecord(
            path=self.promise.path, size=self.promise.size, sha256=self._sha256.hexdigest()
        )

    def copy(self, source: Path) -> bool:
        """Take the file from elsewhere on this machine; False, and nothing of it is kept, if it is
        another one.

        Raises:
            CacheFailed: it cannot be written.
        """
        self._start_over()
        try:
            # Not followed: whoever can write there could lead it to a file that only this user may
            # read.
            descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != self.promise.size:
                return False
            with self._opened() as out:
                while piece := stream.read(_PIECE):
                    self._put(out, piece)
        self.whole = self._have == self.promise.size and self._is_whole()
        if not self.whole:
            self._drop()
        return self.whole

    # --- the part that the wire asks about

    def rest(self) -> dict[str, str]:
        """Return the headers that ask for what is missing; none where all of it is."""
        if not self._have:
            return {}
        asked = {"Range": f"bytes={self._have}-"}
        if tag := self._known_tag():
            asked["If-Range"] = tag
        return asked

    @property
    def position(self) -> int:
        """Bytes that are here."""
        return self._have

    # --- bytes

    def _take(self, body: Body, headers: http.client.HTTPMessage) -> None:
        tag = headers.get("ETag", "")
        if body.status == 416:
            self._drop()
            raise _differs(
                "it reports fewer bytes than we already have; the partial file was discarded"
            )
        if body.status == 206:
            self._check_range(body, headers, tag)
        else:
            self._start_over()
            self._remember_tag(tag)
        with self._opened() as out:
            # Streamed and counted: memory stays at one piece, and a body without end stops at the
            # promised size.
            for piece in body.pieces():
                if self._have + len(piece) > self.promise.size:
                    self._drop()
                    raise _differs(
                        f"it sent more than the {self.promise.size:,} bytes in its listing"
                    )
                self._put(out, piece)
        if body.status == 206 and self._have < self.promise.size:
            raise Passing(
                f"it stopped before the end of the remaining data, at byte {self._have:,} of"
                f" {self.promise.size:,}",
                status=206,
            )
        if self._have != self.promise.size:
            sent = self._have
            self._drop()
            raise _differs(
                f"it sent {sent:,} bytes, but the listing gives the size as {self.promise.size:,}"
            )
        if not self._is_whole():
            said = self._broken()
            self._drop()
            raise _differs(said or "its bytes differ from the listing")

    def _check_range(self, body: Body, headers: http.client.HTTPMessage, tag: str) -> None:
        """Check that an answer to a Range holds the rest of this very file."""
        content_range = _RANGE.fullmatch(headers.get("Content-Range", ""))
        first, last, total = (
            (int(number) for number in content_range.groups()) if content_range else (-1, -1, -1)
        )
        right = first == self._have and first <= last < total == self.promise.size
        if right and body.announced not in {None, last - first + 1}:
            right = False
        if not right:
            begin = self._have
            self._drop()
            raise _differs(
                f"it answered a request for the bytes from {begin:,} on with the wrong range or"
                f" length (Content-Range: {headers.get('Content-Range', 'none')[:100]!r})"
            )
        known = self._known_tag()
        if known and _STRONG.fullmatch(tag) and tag != known:
            self._drop()
            raise _differs("its file changed during the fetch (the ETag is different)")

    def _broken(self) -> str | None:
        return self.promise.broken_by(sha256=self._sha256.hexdigest(), blob=self._blob.hexdigest())

    def _is_whole(self) -> bool:
        return self._broken() is None

    def _put(self, out: int, piece: bytes) -> None:
        rest = memoryview(piece)
        with writing(self._target):
            while rest:
                rest = rest[os.write(out, rest) :]
        self._count(piece)

    def _count(self, piece: bytes) -> None:
        self._have += len(piece)
        self._sha256.update(piece)
        self._blob.update(piece)
        if self._seen is not None:
            self._seen(self.promise.path, self._have, self.promise.size)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """The file from the byte `_have` on; on disk when the block ends well."""
        with writing(self._target):
            self._target.parent.mkdir(parents=True, exist_ok=True)
            out = os.open(
                self._target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
            )
        try:
            with writing(self._target):
                os.ftruncate(out, self._have)
                os.lseek(out, self._have, os.SEEK_SET)
            yield out
            with writing(self._target):
                os.fsync(out)
        finally:
            os.close(out)

    # --- what is kept between processes

    def _start_over(self) -> None:
        self._have = 0
        self._sha256 = hashlib.sha256()
        self._blob = git_blob(self.promise.size)

    def _drop(self) -> None:
        self._start_over()
        for path in (self._target, self._tag):
            with writing(path):
                path.unlink(missing_ok=True)

    def _take_up(self) -> bool:
        """Go on from what an earlier process left: its bytes are read, since the digest is over all
        of them.

        Returns:
            Whether the whole file is here.
        """
        try:
            descriptor = os.open(
                self._target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CacheFailed(f"cannot read {self._target}: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as stream:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                while self._have <= self.promise.size and (piece := stream.read(_PIECE)):
                    self._count(piece)
        if self._have < self.promise.size:
            return False
        if self._have == self.promise.size and self._is_whole():
            return True
        self._drop()
        return False

    def _known_tag(self) -> str | None:
        try:
            tag = self._tag.read_text(encoding="ascii")
        except (OSError, ValueError):
            return None
        return tag if _STRONG.fullmatch(tag) else None

    def _remember_tag(self, tag: str) -> None:
        with writing(self._tag):
            if not _STRONG.fullmatch(tag):
                self._tag.unlink(missing_ok=True)
                return
            self._tag.parent.mkdir(parents=True, exist_ok=True)
            self._tag.write_text(tag, encoding="ascii")


def _differs(what: str) -> Passing:
    return Passing(what, status=200, most=LYING_ATTEMPTS, differs=True)


@contextlib.contextmanager
def writing(where: Path) -> Iterator[None]:
    """Say of an error of the file system what to do. What waits for the hub stays outside of it."""
    try:
        yield
    except OSError as error:
        raise unwritable(where, error) from error


def unwritable(where: Path, error: OSError) -> LoadError:
    """Return the error that a place which cannot be written becomes."""
    return CacheFailed(
        f"cannot write {where}: {error.strerror}. Free some space or pass a writable folder as"
        " cache=; the existing files were not changed"
    )
