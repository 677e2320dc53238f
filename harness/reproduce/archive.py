"""A bundle as bytes: one tar in one xz stream, written in one way and read in that way only
(docs/adr/0027).

The first member is the index: path, size and sha256 of every other member, sorted. From it a reader
works out every byte of the tar that is not content, and refuses the first that is another. So
nothing of a hostile header is ever interpreted: a link, a device, a second name, an owner or a
sparse map is simply not what the index says.

    ArchiveError
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import Field

from harness.forms import manifest
from harness.forms.model import Model, parse_json

FORMAT: Literal[1] = 1
INDEX = "index.json"
FOLDERS = ("inputs", "lock", "run")
MIB = 2**20
LARGEST_INDEX = 32 * MIB
LARGEST_TOTAL = 2048 * MIB
LONGEST_STEP = 255
BLOCK = 512
CHUNK = 64 * 1024
PRESET = 6
# What reading costs at most: a stream may ask for a dictionary of gigabytes. Preset 6 needs 9 MiB.
MEMORY = 16 * MIB
END = bytes(2 * BLOCK)


class ArchiveError(Exception):
    """File that is not a bundle, or one that must not be unpacked.

    The message says what is wrong with it.
    """


class Member(Model):
    """A file of the bundle. `size` is in bytes."""

    path: str
    size: int = Field(ge=0, le=LARGEST_TOTAL)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class CarriedInput(Model):
    """An input of the run: whether its files are in the bundle, and why not."""

    name: str
    digest: str
    carried: bool
    why_not: str = ""


class Index(Model):
    """What a bundle holds.

    Attributes:
        bundle: version of this format.
        rankproof: version of the program that wrote it.
        report: sha256 of the report.
        inputs: every input of the run.
        members: every other file of the tar, sorted by the bytes of its path.
    """

    bundle: Literal[1]
    rankproof: str
    report: str = Field(pattern=r"^[0-9a-f]{64}$")
    inputs: list[CarriedInput]
    members: list[Member]

    def encode(self) -> bytes:
        """Encode an index in the one way it is written."""
        return (
            json.dumps(self.model_dump(mode="json"), ensure_ascii=True, indent=1).encode() + b"\n"
        )


def pack(out: BinaryIO, index: Index, open_member: Callable[[str], BinaryIO]) -> None:
    """Write a bundle. The same index and contents give the same bytes, with one version of liblzma.

    `open_member` opens the content of a member by its path.

    Raises:
        ArchiveError: a name or size that no bundle may have, or a content that is not what the
            index says.
    """
    _demand_plain(index)
    with lzma.open(out, "wb", format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, preset=PRESET) as tar:
        data = index.encode()
        for piece in (_header(INDEX, len(data)), data, _padding(len(data))):
            tar.write(piece)
        for member in index.members:
            tar.write(_header(member.path, member.size))
            digest = hashlib.sha256()
            left = member.size
            with open_member(member.path) as content:
                while piece := content.read(CHUNK):
                    digest.update(piece)
                    left -= len(piece)
                    if left < 0:
                        break
                    tar.write(piece)
            if left or digest.hexdigest() != member.sha256:
                raise ArchiveError(
                    f"{member.path} was changed while it was being packed; bundle the run again"
                )
            tar.write(_padding(member.size))
        tar.write(END)


def unpack(file: BinaryIO, target: Path) -> Index:
    """Unpack a bundle into a folder that is not there yet, in bounded memory.

    Nothing is left of one that is refused.

    Raises:
        ArchiveError: it is not, byte for byte, a bundle.
        OSError: the folder cannot be made, or there is not enough space.
    """
    target.mkdir(mode=0o700)
    try:
        return _unpack(_Stream(file), target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def is_bundle(path: Path) -> bool:
    """Tell whether a file begins as a bundle does."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(6) == b"\xfd7zXZ\0"
    return False


def _unpack(stream: _Stream, target: Path) -> Index:
    index = _read_index(stream)
    _demand_plain(index)
    total = sum(member.size for member in index.members)
    if total > (free := shutil.disk_usage(target).free):
        raise ArchiveError(
            f"it unpacks to {total} bytes, but only {free} bytes are free in {target.parent}"
        )
    for member in index.members:
        stream.demand(_header(member.path, member.size), what=member.path)
        path = target / member.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256()
        # The folder is ours and new, and holds nothing but what was written here: no link can lie
        # on the way.
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "wb") as out:
            for piece in stream.take(member.size):
                digest.update(piece)
                out.write(piece)
        if digest.hexdigest() != member.sha256:
            raise ArchiveError(
                f"{member.path!r} does not match the index: its sha256 is {digest.hexdigest()}"
            )
        stream.demand(_padding(member.size), what=f"the padding of {member.path}")
    stream.demand(END, what="its end")
    stream.finish()
    return index


def _read_index(stream: _Stream) -> Index:
    start = b"".join(stream.take(BLOCK))
    # The one number that is read from a header; the header must then be the one that this number
    # gives.
    text = start[124:135]
    if len(text) != 11 or text.strip(b"01234567"):
        raise ArchiveError("it does not begin with an index")
    size = int(text, 8)
    if start != _header(INDEX, size):
        raise ArchiveError("it does not begin with an index")
    if size > LARGEST_INDEX:
        raise ArchiveError(f"its index has {size} bytes, but at most {LARGEST_INDEX} are allowed")
    data = b"".join(stream.take(size))
    stream.demand(_padding(size), what="the padding of the index")
    try:
        index = parse_json(Index, data)
    except ValueError as error:
        raise ArchiveError(f"its index: {error}") from None
    if index.encode() != data:
        raise ArchiveError("its index is not in canonical form")
    return index


def _demand_plain(index: Index) -> None:
    """Refuse names that lead elsewhere or that some file system takes for one another, and more
    bytes than allowed.
    """
    members = index.members
    if (total := sum(member.size for member in members)) > LARGEST_TOTAL:
        raise ArchiveError(f"it declares {total} bytes, but at most {LARGEST_TOTAL} are allowed")
    try:
        # The rules for the names of evidence, and for their order.
        listed = manifest.parse(
            b"".join(f"{member.sha256}  {member.path}\n".encode() for member in members)
        )
    except (manifest.ManifestMalformed, UnicodeEncodeError) as error:
        reason = str(error).replace(manifest.NAME, "the index")
        raise ArchiveError(
            f"it contains a name that is not allowed in a bundle: {reason}"
        ) from None
    if list(listed) != [member.path for member in members]:
        raise ArchiveError("it contains a name with a line break, which is not allowed in a bundle")
    files = {member.path.casefold() for member in members}
    for member in members:
        first, *rest = member.path.split("/")
        if first not in FOLDERS or not rest:
            raise ArchiveError(f"{member.path!r} is not in any of {', '.join(FOLDERS)}")
        if any(len(step.encode()) > LONGEST_STEP for step in rest):
            raise ArchiveError(
                f"a component of the path {member.path[:80]!r}... is longer than {LONGEST_STEP}"
                " bytes"
            )
        above = member.path.casefold().split("/")[:-1]
        if any("/".join(above[: depth + 1]) in files for depth in range(len(above))):
            raise ArchiveError(
                f"{member.path!r} cannot be extracted, because one of its parent folders is a file"
                " in this bundle"
            )


def _header(path: str, size: int) -> bytes:
    about = tarfile.TarInfo(path)
    about.size = size
    about.mode = 0o644
    return about.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


class _Stream:
    """Unpacked bytes of one xz stream, taken in pieces."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._xz = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MEMORY)

    def take(self, count: int) -> Iterator[bytes]:
        """Exactly so many bytes."""
        while count:
            piece = self._some(min(count, CHUNK))
            if not piece:
                raise ArchiveError("it ends early")
            count -= len(piece)
            yield piece

    def demand(self, expected: bytes, *, what: str) -> None:
        """Refuse where the next bytes are others."""
        if b"".join(self.take(len(expected))) != expected:
            raise ArchiveError(
                f"{what!r} differs from the index, because it is a link or a device, or has a"
                " different name or size"
            )

    def finish(self) -> None:
        """Refuse anything behind the end."""
        if self._some(1):
            raise ArchiveError("it contains more bytes than its index declares")
        if self._xz.unused_data or self._file.read(1):
            raise ArchiveError("data follows its end")

    def _some(self, most: int) -> bytes:
        """At least one byte and at most so many; none at the end of the stream."""
        while not self._xz.eof:
            try:
                data = self._file.read(CHUNK) if self._xz.needs_input else b""
                if self._xz.needs_input and not data:
                    raise ArchiveError("it ends early")
                if piece := self._xz.decompress(data, most):
                    return piece
            except lzma.LZMAError as error:
                raise ArchiveError(f"it is not an xz file, or was damaged: {error}") from None
            except EOFError:
                break
        return b""
