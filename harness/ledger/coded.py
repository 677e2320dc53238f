"""Payloads of which every element is known: it follows from the rank, the index and the sequence of
the call. Pure.

Values are whole numbers from 1, so small that a sum over all ranks is exact in the type. Two calls
after each other never have the same value at an index; along the index values follow a fixed
disorder, another one for each rank, so that no shift, swap or other rank's part looks the same, and
a sum shows whose part of it is not right.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence

MOST = {
    "float16": 2**11,
    "bfloat16": 2**8,
    "float32": 2**24,
    "float64": 2**53,
    "int8": 2**7 - 1,
    "uint8": 2**8 - 1,
    "int16": 2**15 - 1,
    "uint16": 2**16 - 1,
    "int32": 2**31 - 1,
    "uint32": 2**32 - 1,
    "int64": 2**63 - 1,
    "uint64": 2**64 - 1,
}
"""Each type, and up to what whole number it has every one."""
FORMATS = {
    "float16": "<e",
    "float32": "<f",
    "float64": "<d",
    "int8": "<b",
    "uint8": "<B",
    "int16": "<h",
    "uint16": "<H",
    "int32": "<i",
    "uint32": "<I",
    "int64": "<q",
    "uint64": "<Q",
}
REDUCED = frozenset({"all_reduce", "reduce_scatter"})
OPERATIONS = frozenset(
    {"all_reduce", "all_gather", "broadcast", "reduce_scatter", "all_to_all", "send", "recv"}
)
REDUCTIONS: dict[str, Callable[[Sequence[int]], int]] = {"sum": sum, "max": max, "min": min}
BLOCK = 4093
"""Elements after which the disorder begins again, shifted. A prime."""
OF_BLOCK = 5
OF_SEQUENCE = 8
LARGEST_WORLD = 8
MOST_ELEMENTS = 1 << 23
Value = Callable[[int], int]
"""The value at an index, from what stands there before rank and sequence are counted in."""


@functools.cache
def modulus(dtype: str, size: int) -> int:
    """Return how many values there are: the largest prime of one byte that leaves a sum exact, with
    one rank's part twice.
    """
    most = min(251, MOST[dtype] // (size + 1))
    return next(
        number for number in range(most, 1, -1) if all(number % other for other in range(2, number))
    )


@functools.cache
def _disorder(count: int) -> bytes:
    """Return the numbers below `count` along the first block."""
    disorder = bytearray()
    for index in range(BLOCK):
        # The finaliser of MurmurHash3, which spreads neighbours.
        mixed = (index + 1) * 0x85EBCA6B & 0xFFFFFFFF
        mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        disorder.append((mixed ^ mixed >> 16) % count)
    return bytes(disorder)


def encoded(value: int, dtype: str) -> bytes:
    """Return a value as it lies in memory, little-endian."""
    if dtype == "bfloat16":
        return struct.pack("<f", value)[2:]
    return struct.pack(FORMATS[dtype], value)


def decoded(data: bytes, dtype: str) -> float | int:
    """Return an element read back."""
    element: float | int
    if dtype == "bfloat16":
        (element,) = struct.unpack("<f", bytes(2) + data)
    else:
        (element,) = struct.unpack(FORMATS[dtype], data)
    return element


def width(dtype: str) -> int:
    """Return the bytes of an element."""
    return 2 if dtype == "bfloat16" else struct.calcsize(FORMATS[dtype])


def given_by(rank: int, sequence: int, *, count: int) -> Value:
    """Return the values of one rank in one call, of `count` different ones."""
    return lambda residue: 1 + ((residue + sequence * OF_SEQUENCE) * (rank + 1) + rank) % count


def of_all(values: Sequence[Value], reduction: str) -> Value:
    """Return the values of a reduction over ranks."""
    reduce = REDUCTIONS[reduction]
    return lambda residue: reduce([value(residue) for value in values])


def fill(value: Value, *, first: int, elements: int, dtype: str, size: int) -> bytes:
    """Return the elements from an index on.

    Args:
        value: what gives them.
        first: the index of the first.
        elements: how many.
        dtype: their type.
        size: world size.
    """
    count = modulus(dtype, size)
    table = [encoded(value(residue), dtype) for residue in range(count)]
    disorder = _disorder(count)
    blocks: dict[int, bytes] = {}
    pieces = []
    index = first
    end = first + elements
    while index < end:
        block, place = divmod(index, BLOCK)
        shift = block * OF_BLOCK % count
        here = min(BLOCK - place, end - index)
        if here < BLOCK:
            pieces.append(
                b"".join([table[(at + shift) % count] for at in disorder[place : place + here]])
            )
        else:
            if shift not in blocks:
                blocks[shift] = b"".join([table[(at + shift) % count] for at in disorder])
            pieces.append(blocks[shift])
        index += here
    return b"".join(pieces)


def given(
    operation: str, *, rank: int, size: int, sequence: int, elements: int, dtype: str
) -> bytes:
    """Return what a rank puts into a call: `elements`, or as many for each rank where each gets its
    own.
    """
    many = elements * (size if operation in ("reduce_scatter", "all_to_all") else 1)
    value = given_by(rank, sequence, count=modulus(dtype, size))
    return fill(value, first=0, elements=many, dtype=dtype, size=size)


def sources(operation: str, *, size: int, other: int) -> list[int | None]:
    """Return whose elements a rank gets from a call, part by part; None for all ranks' together.

    Args:
        operation: one of `OPERATIONS`.
        size: world size.
        other: the root or the other end.
    """
    if operation == "send":
        return []
    if operation in REDUCED:
        return [None]
    return [other] if operation in ("broadcast", "recv") else list(range(size))


# Each argument decides which bytes are right.
def expected(
    operation: str,
    source: int | None,
    *,
    rank: int,
    size: int,
    sequence: int,
    elements: int,
    dtype: str,
    reduction: str = "sum",
) -> bytes:
    """Return what a rank must get from a call in one part.

    Args:
        operation: one of `OPERATIONS`.
        source: as `sources` names the part.
        rank: that gets it.
        size: world size.
        sequence: of the call, from 1.
        elements: of the part.
        dtype: one of `MOST`.
        reduction: one of `REDUCTIONS`.
    """
    count = modulus(dtype, size)
    first = rank * elements if operation in ("reduce_scatter", "all_to_all") else 0
    if source is not None:
        value = given_by(source, sequence, count=count)
    else:
        parts = [given_by(giver, sequence, count=count) for giver in range(size)]
        value = of_all(parts, reduction)
    return fill(value, first=first, elements=elements, dtype=dtype, size=size)


# Each argument decides which bytes come out.
def with_halves_swapped(
    swapped: Value,
    others: Sequence[Value],
    *,
    first: int,
    elements: int,
    of: int,
    dtype: str,
    size: int,
) -> bytes:
    """Return a sum to which one rank gave the halves of its elements in the other order.

    Args:
        swapped: the values of that rank.
        others: those of the others.
        first: the index of the first element of the sum.
        elements: how many it has.
        of: how many elements each rank gave.
        dtype: their type.
        size: world size.
    """
    count = modulus(dtype, size)
    half = of // 2
    whole = _disorder(count)

    def residue(index: int) -> int:
        block, place = divmod(index, BLOCK)
        return (whole[place] + block * OF_BLOCK) % count

    values = [
        sum(other(residue(index)) for other in others) + swapped(residue((index - half) % of))
        for index in range(first, first + elements)
    ]
    return b"".join([encoded(value, dtype) for value in values])


def halves_swapped(data: bytes, dtype: str) -> bytes:
    """Return the same elements with the halves in the other order."""
    at = len(data) - len(data) // width(dtype) // 2 * width(dtype)
    return data[at:] + data[:at]
