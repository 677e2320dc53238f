"""The bytes of slices of tensors in a safetensors file, read without the library.

Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harness.forms.strict_json import JSON, NotStrict, strict_json

HEADER_LIMIT = 100_000_000
BYTES = {
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
    if len(content) < 8 or not 0 < length <= min(HEADER_LIMIT, len(content) - 8):
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
        width = BYTES.get(str(said.get("dtype")))
        shape = _whole(said.get("shape"))
        place = _whole(said.get("data_offsets"))
        if width is None or shape is None or place is None or len(place) != 2:
            raise NotSafetensors(
                f"what its header says of {name} is not dtype, shape and data_offsets"
            )
        if place[1] - place[0] != math.prod(shape) * width or not place[0] <= place[1] <= room:
            raise NotSafetensors(
                f"{name} has another size than its shape asks, or lies outside of the file"
            )
        found[name] = StoredTensor(width, tuple(shape), 8 + length + place[0])
    return found


def slice_of(
    content: bytes | mmap.mmap, tensor: StoredTensor, bounds: Sequence[tuple[int, int]]
) -> bytes:
    """The bytes of a slice, in C order.

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
