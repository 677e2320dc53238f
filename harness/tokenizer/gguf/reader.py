"""The metadata of a GGUF file, read once from front to back.

Every length is checked before it is used.

Nothing is mapped into memory: a file that somebody cuts short while it is read would end the
process with SIGBUS.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.forms.regular_file import open_regular
from harness.forms.text import quoted
from harness.tokenizer.problem import TokenizerError, Unreadable, refused

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# Bytes; where `general.alignment` is not given.
ALIGNMENT = 32
STRING = 8
ARRAY = 9
BOOL = 7


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type of fixed size."""

    name: str
    packed: struct.Struct

    @property
    def size(self) -> int:
        """Bytes."""
        return self.packed.size


SCALARS = {
    number: Scalar(name, struct.Struct(f"<{code}"))
    for number, name, code in (
        (0, "uint8", "B"),
        (1, "int8", "b"),
        (2, "uint16", "H"),
        (3, "int16", "h"),
        (4, "uint32", "I"),
        (5, "int32", "i"),
        (6, "float32", "f"),
        (BOOL, "bool", "B"),
        (10, "uint64", "Q"),
        (11, "int64", "q"),
        (12, "float64", "d"),
    )
}
NAMES = {
    **{number: scalar.name for number, scalar in SCALARS.items()},
    STRING: "string",
    ARRAY: "array",
}


@dataclass(frozen=True, slots=True)
class TensorBlock:
    """A tensor's type: its elements are stored in blocks."""

    name: str
    elements: int
    """In a block; the first dimension is a multiple of it."""
    size: int
    """Bytes of a block."""


# As in ggml.h and gguf's GGML_QUANT_SIZES (0.19); numbers that are left out were given up.
BLOCKS = {
    number: TensorBlock(name, elements, size)
    for number, name, elements, size in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    )
}


MOST_KEYS = 65_536
MOST_TENSORS = 1 << 20
# Bytes, as the format says.
LONGEST_KEY = 65_535
# Bytes of a tensor's name, as the format says.
LONGEST_NAME = 64
LONGEST_STRING = 64 << 20
MOST_STRINGS = 1 << 22
# Elements.
LARGEST_TENSOR = 1 << 48
# Bytes that are read at a time.
WINDOW = 1 << 18
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Malformed(TokenizerError):
    """This is not a GGUF file, or one that is damaged.

    Attributes:
        code: which kind of damage, in a word or two for programs.
        offset: byte of the file at which it was seen.
    """

    def __init__(self, code: str, offset: int, message: str) -> None:
        super().__init__(f"{message} (at byte {offset})")
        self.code = code
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Array:
    """An array of the file, by where it lies."""

    type: str
    """Of its elements: `string`, `int32`, …"""
    count: int
    start: int
    stop: int
    """Bytes of the file; what lies between them is the elements."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key with its value."""

    name: str
    type: str
    value: bool | int | float | bytes | Array
    offset: int
    """Byte of the file at which the value begins."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as the file describes it. Its data is not read."""

    name: str
    dimensions: tuple[int, ...]
    """The first changes fastest: a matrix of 100 rows of 32 columns has (32, 100)."""
    type: str
    offset: int
    """Byte of the file at which its data begins."""
    size: int
    """Bytes."""


class GgufFile:
    """The metadata of a GGUF file. Close it, or use it in a `with`.

    Attributes:
        version: of the format, 2 or 3.
        size: bytes of the file when it was opened.
        keys: by name, in the file's order.
        tensors: by name, in the file's order.
        data: byte at which the tensors' data begins.

    Raises:
        Malformed: it is not such a file, or a damaged one.
        OSError: it cannot be read; a folder, pipe or device is EINVAL.
    """

    version: int
    size: int
    keys: dict[str, Key]
    tensors: dict[str, Tensor]
    data: int

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._descriptor, self.size = open_regular(self.path)
        try:
            self._at = 0
            self._window = b""
            self._window_at = 0
            self._read()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def value(self, name: str) -> bool | int | float | bytes | Array | None:
        """Return the value of a key; None where it is not there."""
        key = self.keys.get(name)
        return None if key is None else key.value

    def strings(self, array: Array) -> Iterator[bytes]:
        """The elements of an array of strings, one after the other."""
        at = array.start
        unpack = _U64.unpack_from
        while at < array.stop:
            window = self._pread(min(WINDOW, array.stop - at), at)
            inside = 0
            most = len(window)
            while inside + 8 <= most and (end := inside + 8 + unpack(window, inside)[0]) <= most:
                yield window[inside + 8 : end]
                inside = end
            if not inside:  # longer than the window
                inside = 8 + unpack(window)[0]
                yield self._pread(min(inside - 8, array.stop - at - 8), at + 8)
            at += inside

    def numbers(self, array: Array) -> array[int] | array[float]:
        """Return the elements of an array of numbers; bytes for `bool`."""
        return _numbers(array, self._pread(array.stop - array.start, array.start))

    def digest(self, array: Array) -> str:
        """sha256 of the elements as they are stored, as 64 hex digits."""
        digest = hashlib.sha256()
        for at in range(array.start, array.stop, WINDOW):
            digest.update(self._pread(min(WINDOW, array.stop - at), at))
        return digest.hexdigest()

    def _read(self) -> None:
        if self.size < 24:
            raise Malformed(
                "too short",
                self.size,
                f"the file has {self.size} bytes, but the header alone needs 24",
            )
        header = self._take(24, "the header")
        if header[:4] != MAGIC:
            what = _other_format(header)
            raise Malformed("magic", 0, f"it begins with {_shown(header[:4])}, not with GGUF{what}")
        self.version, tensors, keys = struct.unpack("<IQQ", header[4:])
        if self.version not in VERSIONS:
            swapped = int.from_bytes(header[4:8], "big")
            if swapped in VERSIONS:
                raise Malformed(
                    "big-endian",
                    4,
                    f"it is written for big-endian machines (version {swapped}); convert it again",
                )
            old = "; convert the model again" if self.version in (0, 1) else ""
            raise Malformed(
                "version", 4, f"its version is {self.version}, but only 2 and 3 are supported{old}"
            )
        # The least that a key and a tensor can take: no count is believed that the file has no room
        # for.
        self._fits("tensors", tensors, MOST_TENSORS, 8 + 1 + 4 + 8 + 4 + 8, 8)
        self._fits("keys", keys, MOST_KEYS, 8 + 1 + 4 + 1, 16)
        self.keys = {}
        for number in range(keys):
            key = self._key(number)
            if key.name in self.keys:
                raise Malformed(
                    "duplicate key", key.offset, f"the key {_shown(key.name)} occurs twice"
                )
            self.keys[key.name] = key
        self._tensors(tensors, self._alignment())

    def _fits(self, what: str, count: int, most: int, least: int, at: int) -> None:
        if count > most:
            raise Malformed(
                "too many",
                at,
                (f"the header announces {count} {what}, but at most {most} are supported"),
            )
        if count * least > self.size - 24:
            raise Malformed(
                "truncated",
                at,
                f"the header announces {count} {what}, but the file's {self.size} bytes cannot"
                " contain them",
            )

    def _key(self, position: int) -> Key:
        at = self._at
        raw = self._string(LONGEST_KEY, f"the name of key {position}")
        if not raw:
            raise Malformed("empty key", at, f"key {position} has no name")
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise Malformed(
                "key encoding", at, f"the name of key {position}, {_shown(raw)}, is not UTF-8"
            ) from None
        what = f"the value of {_shown(name)}"
        kind = _U32.unpack(self._take(4, f"the type of {_shown(name)}"))[0]
        at = self._at
        value: bool | int | float | bytes | Array
        if kind in SCALARS:
            number = SCALARS[kind].packed.unpack(self._take(SCALARS[kind].size, what))[0]
            value = self._bool(number, at, what) if kind == BOOL else number
        elif kind == STRING:
            value = self._string(LONGEST_STRING, what)
        elif kind == ARRAY:
            value = self._array(f"the array {_shown(name)}")
        else:
            raise Malformed("value type", at - 4, f"{what} is of type {kind}, which does not exist")
        return Key(name=name, type=NAMES[kind], value=value, offset=at)

    @staticmethod
    def _bool(value: int, at: int, what: str) -> bool:
        if value > 1:
            raise Malformed(
                "bool", at, f"{what} is a bool, so its value must be 0 or 1, not {value}"
            )
        return bool(value)

    def _array(self, what: str) -> Array:
        kind, count = struct.unpack("<IQ", self._take(12, f"the head of {what}"))
        start = self._at
        if kind in SCALARS:
            size = count * SCALARS[kind].size
            if size > self.size - start:
                raise Malformed(
                    "truncated",
                    start,
                    f"{what}: {count} elements need {size} bytes, but only {self.size - start} are"
                    " left",
                )
            self._at += size
        elif kind == STRING:
            self._skip_strings(what, count)
        elif kind == ARRAY:
            raise Malformed(
                "nested array", start - 12, f"{what} contains arrays, which engines do not read"
            )
        else:
            raise Malformed(
                "value type",
                start - 12,
                f"{what} contains elements of type {kind}, which does not exist",
            )
        return Array(type=NAMES[kind], count=count, start=start, stop=self._at)

    def _skip_strings(self, what: str, count: int) -> None:
        """Walk from length to length: the one part of the file that cannot be skipped."""
        start = self._at
        if count > MOST_STRINGS:
            raise Malformed(
                "too many",
                start,
                (f"{what}: it has {count} strings, but at most {MOST_STRINGS} are supported"),
            )
        if count * 8 > self.size - start:
            raise Malformed(
                "truncated",
                start,
                f"{what}: {count} strings cannot fit in the {self.size - start} bytes left",
            )
        unpack = _U64.unpack_from
        done = 0
        at = start
        while done < count:
            if at + 8 > self.size:
                raise Malformed(
                    "truncated",
                    at,
                    f"{what}: element {done} of {count} begins past the end of the file",
                )
            window = self._pread(min(WINDOW, self.size - at), at)
            last = len(window) - 8
            inside = 0
            before = done
            while done < count and inside <= last:
                inside += 8 + unpack(window, inside)[0]
                done += 1
            if done == before or at + inside > self.size:
                raise Malformed(
                    "truncated",
                    at,
                    f"{what}: the file ends within the first {max(done, before + 1)} of {count} elements",
                )
            at += inside
        self._at = at

    def _alignment(self) -> int:
        key = self.keys.get("general.alignment")
        if key is None:
            return ALIGNMENT
        value = key.value
        if (
            key.type != "uint32"
            or not isinstance(value, int)
            or value < 8
            or value & (value - 1)
            or value > 1 << 20
        ):
            raise Malformed(
                "alignment",
                key.offset,
                "general.alignment must be a uint32 that is a power of two from 8 to 1048576",
            )
        return value

    def _tensors(self, count: int, alignment: int) -> None:
        announced: list[tuple[str, tuple[int, ...], int, int, int]] = []
        names: set[str] = set()
        for number in range(count):
            at = self._at
            raw = self._string(LONGEST_NAME, f"the name of tensor {number}")
            name = raw.decode(errors="backslashreplace")
            if not raw or name in names:
                wrong = (
                    f"the name {_shown(name)}, which another tensor has too"
                    if raw
                    else "an empty name"
                )
                raise Malformed("tensor name", at, f"tensor {number} has {wrong}")
            names.add(name)
            what = f"tensor {_shown(name)}"
            rank = _U32.unpack(self._take(4, f"the number of dimensions of {what}"))[0]
            if not 1 <= rank <= 4:
                raise Malformed(
                    "dimensions",
                    self._at - 4,
                    f"{what} has {rank} dimensions, but must have 1 to 4",
                )
            dimensions = struct.unpack(
                f"<{rank}Q", self._take(8 * rank, f"the dimensions of {what}")
            )
            elements = math.prod(dimensions)
            if elements > LARGEST_TENSOR:
                raise Malformed(
                    "dimensions",
                    self._at - 8 * rank,
                    f"{what} has {' x '.join(map(str, dimensions))} elements, which is too many",
                )
            kind, offset = struct.unpack("<IQ", self._take(12, f"type and offset of {what}"))
            if offset % alignment:
                raise Malformed(
                    "tensor offset",
                    self._at - 8,
                    f"{what} begins at {offset}, which is not a multiple of {alignment}",
                )
            announced.append((name, dimensions, kind, offset, self._at))
        self.data = -(-self._at // alignment) * alignment
        self.tensors = {row[0]: self._tensor(*row) for row in announced}

    def _tensor(
        self, name: str, dimensions: tuple[int, ...], kind: int, offset: int, at: int
    ) -> Tensor:
        block = BLOCKS.get(kind)
        start = self.data + offset
        if block is None:
            # New types come with new engines: what it is cannot be said, only where it begins.
            size = 0
            kind_name = f"type {kind}"
        else:
            if dimensions[0] % block.elements:
                columns = (
                    f"{dimensions[0]} columns are not a multiple of {block.elements}, which"
                    f" {block.name} requires"
                )
                raise Malformed("dimensions", at, f"tensor {_shown(name)}: {columns}")
            size = math.prod(dimensions) // block.elements * block.size
            kind_name = block.name
        if start + size > self.size:
            raise Malformed(
                "truncated",
                self.size,
                f"tensor {_shown(name)} ends at byte {start + size}, but the file ends at byte"
                f" {self.size}, so {start + size - self.size} bytes are missing; fetch it again",
            )
        return Tensor(name=name, dimensions=dimensions, type=kind_name, offset=start, size=size)

    def _string(self, longest: int, what: str) -> bytes:
        at = self._at
        length = _U64.unpack(self._take(8, f"the length of {what}"))[0]
        if length > longest:
            raise Malformed(
                "too long", at, f"{what} has {length} bytes, but at most {longest} are supported"
            )
        return self._take(length, what)

    def _take(self, count: int, what: str) -> bytes:
        if count > self.size - self._at:
            raise Malformed(
                "truncated",
                self._at,
                f"{what} needs {count} bytes, but only {max(0, self.size - self._at)} are left",
            )
        inside = self._at - self._window_at
        if not 0 <= inside <= len(self._window) - count:
            if count > WINDOW:
                self._at += count
                return self._pread(count, self._at - count)
            self._window = self._pread(min(WINDOW, self.size - self._at), self._at)
            self._window_at = self._at
            inside = 0
        self._at += count
        return self._window[inside : inside + count]

    def _pread(self, count: int, at: int) -> bytes:
        content = os.pread(self._descriptor, count, at)
        while len(content) < count and (
            more := os.pread(self._descriptor, count - len(content), at + len(content))
        ):
            content += more
        if len(content) < count:
            raise Malformed(
                "truncated", at + len(content), "the file shrank while it was being read"
            )
        return content


@contextmanager
def opened(path: Path) -> Iterator[GgufFile]:
    """Use a GGUF file; what is wrong with it, then or meanwhile, is raised as `Unreadable` with its
    path.

    Raises:
        Unreadable: it is not such a file, is damaged, or cannot be read.
    """
    try:
        with GgufFile(path) as file:
            yield file
    except Malformed as error:
        raise Unreadable(f"{path}: {error}") from None
    except OSError as error:
        raise refused(path, error) from None


def _numbers(stored: Array, content: bytes) -> array[int] | array[float]:
    code = next(
        scalar.packed.format[1] for scalar in SCALARS.values() if scalar.name == stored.type
    )
    numbers: array[int] | array[float] = array(code, content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _other_format(header: bytes) -> str:
    known: dict[str, Callable[[bytes], bool]] = {
        "an older GGML file; convert the model again": lambda head: (
            head[:4] in (b"lmgg", b"fmgg", b"tjgg", b"algg")
        ),
        "a Git LFS pointer; fetch the file itself": lambda head: head.startswith(
            b"version https://git-"
        ),
        "a web page; fetch the file itself": lambda head: head.lstrip()[:1] == b"<",
        "a safetensors file": lambda head: head[8:10] == b'{"',
        "a zip archive, as torch.save writes": lambda head: head[:4] == b"PK\x03\x04",
    }
    return next(
        (f": it looks like {what}" for what, matches in known.items() if matches(header)), ""
    )


def _shown(text: str | bytes) -> str:
    return quoted(text.decode(errors="backslashreplace") if isinstance(text, bytes) else text)
