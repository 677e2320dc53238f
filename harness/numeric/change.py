"""One element of a value or of an array, changed by a stated size: the same wherever it is worked
out.

A rank changes what it reports, and whoever judges works out again what became of what. Standard
library only.
"""

from __future__ import annotations

import hashlib
import io
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from harness.numeric.array import NotAnArray, header

ABSOLUTE = "absolute"
RELATIVE = "relative"
ULP = "ulp"
TOKEN = "token"  # noqa: S105 - of a text
CHARACTER = "character"
# Formats of `struct` for a float and for its bits, by dtype. The upper half of a float32's bits are
# a bfloat16.
FLOATS = {
    "float64": ("<d", "<Q"),
    "float32": ("<f", "<I"),
    "float16": ("<e", "<H"),
    "bfloat16": ("<f", "<I"),
}
BFLOAT16_STEP = 1 << 16
# Formats of one element in a file, by NumPy's name of it without the order of its bytes.
CODES = {"f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q"}
CODES |= {
    code.replace("i", "u"): word.upper() for code, word in CODES.items() if code.startswith("i")
}
MOST = 1 << 16
"""So many elements are tried, from the seeded one on, until there is one that can be changed so."""

Position = list[int | str]
Order = Mapping[str, Any]
"""What is asked: `change` and its `size`, and what the seeded choice follows from: `seed`, `rank`
and `fault`.
"""


class Changed(NamedTuple):
    """One element that was changed: the whole as it is now (None of a file), which element, what it
    was and is.
    """

    whole: Any
    position: Position
    before: Any
    after: Any


def verb(order: Order) -> str:
    """Return what is done to an element, in words: `changed by 0.001 (absolute)`."""
    if order["change"] in (TOKEN, CHARACTER):
        return f"changed by one {order['change']}"
    return f"changed by {order['size']:g} ({order['change']})"


def place(order: Order) -> int:
    """Return a number that chooses among any elements: of the trial, the rank and the fault."""
    text = "\0".join(("perturb 1", str(order["seed"]), str(order["rank"]), order["fault"]))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


# -- values of events --------------------------------------------------------------------------


def change_value(value: Any, order: Order) -> Changed | None:
    """Change one element of what JSON holds: one that the order is for.

    None where there is none.
    """
    leaves = list(_leaves(value, [], texts=order["change"] == CHARACTER))
    first = place(order)
    for number in range(min(len(leaves), MOST)):
        position, leaf = leaves[(first + number) % len(leaves)]
        if isinstance(leaf, str):
            index = first % len(leaf)
            other = "y" if leaf[index] == "x" else "x"
            text = leaf[:index] + other + leaf[index + 1 :]
            return Changed(replaced(value, position, text), [*position, index], leaf[index], other)
        after = change_number(leaf, order, dtype="float64")
        if after is not None:
            return Changed(replaced(value, position, after), position, leaf, after)
    return None


def restored(value: Any, position: Position, before: Any) -> Any:
    """Return a value as it was before the element at a position was changed.

    Raises:
        LookupError: it has no such element.
        TypeError: the position is not one.
    """
    found = value
    for depth, part in enumerate(position):
        if isinstance(found, str):
            if type(part) is not int or not 0 <= part < len(found) or not isinstance(before, str):
                raise LookupError("the text has no character at this index")
            return replaced(value, position[:depth], found[:part] + before + found[part + 1 :])
        found = found[part]
    return replaced(value, position, before)


def replaced(value: Any, position: Position, leaf: Any) -> Any:
    """Return a copy with another element at a position."""
    if not position:
        return leaf
    part = position[0]
    rest = position[1:]
    if isinstance(value, dict):
        return {**value, part: replaced(value[part], rest, leaf)}
    copy = list(value)
    # A list has no other positions.
    copy[part] = replaced(copy[part], rest, leaf)  # type: ignore[index]
    return copy


def _leaves(value: Any, position: Position, *, texts: bool) -> Iterator[tuple[Position, Any]]:
    """Numbers, or texts that are not empty, with where they are."""
    if isinstance(value, dict):
        for key in sorted(key for key in value if isinstance(key, str)):
            yield from _leaves(value[key], [*position, key], texts=texts)
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from _leaves(one, [*position, index], texts=texts)
    elif (isinstance(value, str) and value) if texts else type(value) in (int, float):
        yield position, value


# -- numbers -----------------------------------------------------------------------------------


def change_number(before: float, order: Order, *, dtype: str) -> int | float | None:
    """A number changed as ordered, in its dtype; None where that changes nothing, or gives no
    number of the dtype.

    Args:
        before: the number; a whole one of JSON has no dtype, and becomes a float where the size is
            a part of one.
        order: what is asked.
        dtype: such as `float32` or `int64`.
    """
    change = order["change"]
    size = order["size"]
    after: int | float | None
    try:
        if not math.isfinite(before):
            return None
        if change == TOKEN:
            after = before + 1 if isinstance(before, int) else None
        elif change == ULP:
            after = before + size if isinstance(before, int) else _step(before, size, dtype)
        else:
            step = size if change == ABSOLUTE else abs(before) * size
            whole = isinstance(before, int) and float(step).is_integer()
            after = before + int(step) if whole else _rounded(before + step, dtype)
        return None if after is None or after == before or not math.isfinite(after) else after
    except OverflowError:
        return None


def _rounded(value: float, dtype: str) -> float | None:
    """Return the nearest number of a dtype; None for one that has no fractions."""
    if dtype not in FLOATS:
        return None
    real, whole = FLOATS[dtype]
    packed = struct.pack(real, value)
    if dtype == "bfloat16":
        bits = struct.unpack(whole, packed)[0]
        # To the nearest, and of two as near to the even one.
        bits += BFLOAT16_STEP // 2 - 1 + (bits // BFLOAT16_STEP) % 2
        packed = struct.pack(whole, bits // BFLOAT16_STEP * BFLOAT16_STEP)
    return float(struct.unpack(real, packed)[0])


def _step(value: float, many: int, dtype: str) -> float | None:
    """Return the float that lies so many numbers of its dtype further from zero; None where there
    is none.
    """
    if dtype not in FLOATS:
        return None
    real, whole = FLOATS[dtype]
    steps = many * (BFLOAT16_STEP if dtype == "bfloat16" else 1)
    try:
        after = struct.unpack(
            real, struct.pack(whole, struct.unpack(whole, struct.pack(real, value))[0] + steps)
        )[0]
    except struct.error:
        return None
    return float(after) if math.copysign(1, after) == math.copysign(1, value) else None


# -- arrays ------------------------------------------------------------------------------------


class ArrayInFile:
    """An array in a file of NumPy's format, changed in its place."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Read the header.

        Args:
            file: open for reading and writing.
            name: of the file, whose suffix tells a bfloat16.

        Raises:
            NotAnArray: it is not an array of numbers.
        """
        file.seek(0)
        self._file = file
        self._head = header(file, name=name)
        if (code := CODES.get(self._head.descr[1:])) is None:
            raise NotAnArray(
                f"its dtype is {self._head.dtype}, but only arrays with a numeric dtype can be changed"
            )
        self._format = (">" if self._head.descr[0] == ">" else "<") + code
        self._size = struct.calcsize(self._format)

    def change(self, order: Order) -> Changed | None:
        """Change one element in the file; None where none of those that are tried can be changed
        so.
        """
        elements = math.prod(self._head.shape)
        first = place(order)
        for number in range(min(elements, MOST)):
            index = (first + number) % elements
            before = self.get(index)
            after = change_number(before, order, dtype=self._head.dtype)
            if after is not None and self.put(index, after):
                return Changed(None, self.position(index), before, after)
        return None

    def get(self, index: int) -> int | float:
        """Return an element, by its place in the file."""
        self._file.seek(self._head.begin + index * self._size)
        found: int | float = struct.unpack(self._format, self._file.read(self._size))[0]
        if self._head.dtype == "bfloat16":
            return float(struct.unpack("<f", struct.pack("<I", int(found) * BFLOAT16_STEP))[0])
        return found

    def put(self, index: int, value: float) -> bool:
        """Write an element; whether the dtype holds it."""
        try:
            if self._head.dtype == "bfloat16":
                value = struct.unpack("<I", struct.pack("<f", value))[0] // BFLOAT16_STEP
            packed = struct.pack(self._format, value)
        except (struct.error, OverflowError):
            return False
        self._file.seek(self._head.begin + index * self._size)
        self._file.write(packed)
        self._file.flush()
        return True

    def position(self, index: int) -> Position:
        """Where an element lies, an axis each, by its place in the file."""
        shape = self._head.shape
        found = [0] * len(shape)
        for axis in range(len(shape)) if self._head.fortran else reversed(range(len(shape))):
            index, found[axis] = divmod(index, shape[axis])
        return [*found]

    def index(self, position: Position) -> int | None:
        """Return the place in the file of an element; None where the array has none there."""
        if len(position) != len(self._head.shape):
            return None
        index = 0
        pairs = list(zip(position, self._head.shape, strict=True))
        for part, size in reversed(pairs) if self._head.fortran else pairs:
            if type(part) is not int or not 0 <= part < size:
                return None
            index = index * size + part
        return index


def restored_file(
    content: bytes, name: str, position: Position, before: float, order: Order
) -> bytes:
    """Return what a file was before an element was changed, if the order makes of that what the
    file is.

    Else nothing.

    Args:
        content: of the file that was changed.
        name: of the file.
        position: of the element.
        before: what it was.
        order: what was asked.
    """
    file = io.BytesIO(content)
    try:
        array = ArrayInFile(file, name)
    except NotAnArray:
        return b""
    index = array.index(position)
    if index is None or not array.put(index, before):
        return b""
    original = file.getvalue()
    array.change(order)
    return original if file.getvalue() == content != original else b""
