"""Arrays as files: NumPy's format and safetensors, read without either library.

A bfloat16, which the format has no name for, lies there as its bits in uint16, and the name of the
file says so. Sources: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html and
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import ast
import math
import mmap
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

from harness.forms.strict_json import JSON, NotStrict, strict_json

MAGIC = b"\x93NUMPY"
SUFFIX = ".npy"
BFLOAT16_SUFFIX = ".bfloat16.npy"
HEADER_LIMIT = 4096
SIZE_LIMIT = 1 << 62
"""Bytes of an array, counting an axis of no element as one: NumPy makes no larger one, not even an
empty one.
"""
DTYPES = {
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "b1": "bool",
    **{
        f"{sign}{size}": f"{word}{8 * size}"
        for sign, word in (("i", "int"), ("u", "uint"))
        for size in (1, 2, 4, 8)
    },
}


class NotAnArray(ValueError):
    """A file that is not an array of numbers in NumPy's format; the message says why."""


class ArrayHeader(NamedTuple):
    """What a file says of its array.

    Attributes:
        dtype: such as `float32`, whatever the order of its bytes; `bfloat16` by the name of the
            file.
        shape: an axis each; empty for a single number.
        bytes: length of the whole file.
        begin: where the array begins in it, in bytes.
        descr: NumPy's own name of the dtype, with the order of its bytes.
        fortran: whether the first axis runs fastest.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    begin: int
    descr: str
    fortran: bool


@lru_cache(maxsize=256)
def _literal(text: str) -> Any:
    """Return what a header says: that of one array is that of hundreds, and parsing takes longer
    than their comparison.
    """
    return ast.literal_eval(text)


def header(file: BinaryIO, *, name: str) -> ArrayHeader:
    """Read the header of an array's file, which is at its beginning.

    Args:
        file: open for reading.
        name: of the file, whose suffix tells a bfloat16.

    Raises:
        NotAnArray: it is not NumPy's format, of a dtype that is not judged here (objects, texts,
            complex numbers), or its header does not say what it has to.
    """
    start = file.read(8)
    if len(start) < 8 or not start.startswith(MAGIC) or start[6] not in (1, 2, 3):
        raise NotAnArray("it is not in NumPy's .npy format")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > HEADER_LIMIT:
        raise NotAnArray(f"its header has {length} bytes; the limit is {HEADER_LIMIT}")
    try:
        text = file.read(length).decode("utf-8" if start[6] == 3 else "latin-1")
        found = _literal(text.strip())
        descr = found["descr"]
        shape = found["shape"]
        sizes = tuple(shape)
        whole = all(type(size) is int and size >= 0 for size in sizes)
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        whole = False
        descr = None
    if not whole or set(found) != {"descr", "fortran_order", "shape"} or len(sizes) > 32:
        raise NotAnArray("its header is not in NumPy's format")
    match = re.fullmatch(r"[<>|=]([a-z][0-9])", descr) if isinstance(descr, str) else None
    dtype = DTYPES.get(match[1]) if match else None
    if dtype is None:
        raise NotAnArray(
            f"its dtype is {str(descr)[:40]}, but it must be one of " + ", ".join(DTYPES.values())
        )
    if name.endswith(BFLOAT16_SUFFIX):
        if dtype != "uint16":
            raise NotAnArray(
                f"its name says bfloat16, which is stored as uint16, but its dtype is {dtype}"
            )
        dtype = "bfloat16"
    if math.prod(max(1, one) for one in sizes) * int(descr[2:]) > SIZE_LIMIT:
        raise NotAnArray("its header states a shape that is too large for an array")
    begin = 8 + width + length
    size = begin + math.prod(sizes) * int(descr[2:])
    return ArrayHeader(
        dtype=dtype,
        shape=sizes,
        bytes=size,
        begin=begin,
        descr=descr,
        fortran=found["fortran_order"] is True,
    )


SAFETENSORS_HEADER_LIMIT = 100_000_000
SAFETENSORS_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}


class NotSafetensors(ValueError):
    """A file that is not of this format; the message says why."""


class StoredTensor(NamedTuple):
    """One tensor: bytes of an element, an axis each, and where it begins in the file."""

    width: int
    shape: tuple[int, ...]
    begin: int


def tensors(content: bytes | mmap.mmap) -> dict[str, StoredTensor]:
    """Read what a file holds, by name.

    Raises:
        NotSafetensors: its header is not one, or tells of bytes that are not there.
    """
    length = int.from_bytes(bytes(content[:8]), "little")
    if len(content) < 8 or not 0 < length <= min(SAFETENSORS_HEADER_LIMIT, len(content) - 8):
        raise NotSafetensors("it does not begin with the length of a header")
    try:
        header = strict_json(bytes(content[8 : 8 + length]).rstrip())
    except NotStrict as error:
        raise NotSafetensors(f"its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise NotSafetensors("its header is not a mapping")
    found = {}
    room = len(content) - 8 - length
    for name, about in header.items():
        if name == "__metadata__":
            continue
        said: Mapping[str, JSON] = about if isinstance(about, dict) else {}
        width = SAFETENSORS_BYTES.get(str(said.get("dtype")))
        shape = _whole(said.get("shape"))
        place = _whole(said.get("data_offsets"))
        if width is None or shape is None or place is None or len(place) != 2:
            raise NotSafetensors(
                f"its header does not contain a valid dtype, shape and data_offsets for {name}"
            )
        if place[1] - place[0] != math.prod(shape) * width or not place[0] <= place[1] <= room:
            raise NotSafetensors(
                f"the size of {name} does not match its shape, or part of it is outside the file"
            )
        found[name] = StoredTensor(width, tuple(shape), 8 + length + place[0])
    return found


def slice_of(
    content: bytes | mmap.mmap, tensor: StoredTensor, bounds: Sequence[tuple[int, int]]
) -> bytes:
    """Return the bytes of a slice, in C order.

    Args:
        content: of the file.
        tensor: one of its tensors.
        bounds: begin and end of each of its axes, within the tensor.
    """
    inner = tensor.width
    axes = list(zip(tensor.shape, bounds, strict=True))
    # The last axes that are whole, and the one before them, lie together.
    while axes and axes[-1][1] == (0, axes[-1][0]):
        inner *= axes.pop()[0]
    if not axes:
        return bytes(content[tensor.begin : tensor.begin + inner])
    starts = [tensor.begin]
    stride = inner
    strides: list[int] = []
    for size, _ in reversed(axes):
        strides.insert(0, stride)
        stride *= size
    for (_, (begin, end)), step in list(zip(axes, strides, strict=True))[:-1]:
        starts = [start + index * step for start in starts for index in range(begin, end)]
    begin, end = axes[-1][1]
    return b"".join(bytes(content[start + begin * inner : start + end * inner]) for start in starts)


def _whole(numbers: JSON) -> list[int] | None:
    fits = isinstance(numbers, list) and all(
        type(number) is int and number >= 0 for number in numbers
    )
    return numbers if fits else None
