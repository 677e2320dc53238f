"""What a caller gives to be sent, as bytes that stay as they are.

Or why it cannot be sent, said before anything is.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from .problem import Misused

PLAIN = frozenset("?BNQbcdefhilnqHIL")
"""Formats of elements that are nothing but their bytes, as most are: no other is looked into."""
_NAMES = re.compile(r":[^:]*:")
_ADDRESSES = re.compile(r"[OPXz&]|Z(?![fdg])")
"""Formats of addresses: Python's objects, and what C points to. (With f, d or g after it Z is a
complex number.)
"""


def unchanging(data: Any) -> Any:
    """Return a view of a buffer that nobody can write to, or its bytes, in the order of its
    indices.

    Raises:
        Misused: it is not a buffer; or its bytes are not all that it holds, and mean something
            else, or nothing, where they come.
    """
    try:
        view = memoryview(data)
    except Exception as error:
        raise Misused(_no_buffer(data, error)) from error
    if view.format not in PLAIN and _ADDRESSES.search(_NAMES.sub("", view.format)):
        raise Misused(
            f"{_kind(data)} holds addresses (its format is {view.format!r}), which mean nothing to"
            " another process: encode its elements, or give an array of numbers"
        )
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(data, masked.MaskedArray):
        raise Misused(
            f"{_kind(data)} has a mask, which is not among its bytes: send array.data and"
            " array.mask"
        )
    return view if view.readonly and view.c_contiguous else view.tobytes()


def _kind(data: Any) -> str:
    kind = type(data)
    dtype = getattr(data, "dtype", None)
    return f"{kind.__module__}.{kind.__qualname__}" + (
        f" of dtype {dtype}" if dtype is not None else ""
    )


def _no_buffer(data: Any, error: Exception) -> str:
    dtype = getattr(data, "dtype", None)
    if type(data).__module__.partition(".")[0] == "torch" or str(dtype).startswith("torch."):
        return f"a message is a buffer, and {_kind(data)} is not: give torch_bytes(tensor)"
    if getattr(dtype, "kind", "") in ("M", "m"):
        return (
            f'{_kind(data)} gives no buffer: give array.view("i8"), and view what comes as {dtype}'
        )
    return (
        f"a message is a buffer, and {_kind(data)} is not ({error}): give its bytes, or encode it"
    )
