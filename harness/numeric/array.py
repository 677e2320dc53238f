"""Arrays as files: NumPy's format, read without NumPy as far as judging needs it.

A bfloat16, which the format has no name for, lies there as its bits in uint16, and the name of the
file says so. Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ast
import math
import re
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

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
    """What a header says: that of one array is that of hundreds, and parsing takes longer than
    their comparison.
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
        raise NotAnArray("it is not a file of NumPy's format (.npy)")
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
        raise NotAnArray("its header is not that of NumPy's format")
    match = re.fullmatch(r"[<>|=]([a-z][0-9])", descr) if isinstance(descr, str) else None
    dtype = DTYPES.get(match[1]) if match else None
    if dtype is None:
        raise NotAnArray(
            f"its dtype is {str(descr)[:40]}: an array of numbers is asked, "
            + ", ".join(DTYPES.values())
        )
    if name.endswith(BFLOAT16_SUFFIX):
        if dtype != "uint16":
            raise NotAnArray(
                f"its name says bfloat16, which lies in a file as uint16, and its dtype is {dtype}"
            )
        dtype = "bfloat16"
    if math.prod(max(1, one) for one in sizes) * int(descr[2:]) > SIZE_LIMIT:
        raise NotAnArray("its header says a shape that is larger than any array")
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
