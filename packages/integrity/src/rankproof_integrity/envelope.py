"""Envelope of a message: the stream it belongs to, its position there, and, of an array, dtype and
shape.

On the wire, in network order:

    0  version 1, bytes of the dtype's name, dimensions (255: it is no array), 1 if it has a position
    4  bytes of the stream's name
    6  position
   14  the sizes, 8 bytes each; the dtype's name in ASCII; the stream's name in UTF-8
"""

from __future__ import annotations

import importlib
import re
import struct
from typing import Any, NamedTuple

from .outgoing import unchanging
from .problem import Misused

_FIELDS = struct.Struct("!BBBBHq")
_VERSION = 1
_NO_ARRAY = 255
PLAIN_NAME = re.compile(r"[<>=|]?[A-Za-z][A-Za-z0-9]*")
EXTENDED = frozenset(
    ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
)
"""Dtypes of torch and MLX that numpy has from ml_dtypes."""
LONGEST_NAME = 1000
"""Bytes of a stream's name, at most."""


class Envelope(NamedTuple):
    """What a message was sent as.

    Attributes:
        stream: its stream; empty where it has none.
        position: in the stream; None where it was given none.
        dtype: of an array, as numpy and torch name it (`float32`, `bfloat16`); empty for bytes.
        shape: of an array; None for bytes.
    """

    stream: str
    position: int | None
    dtype: str
    shape: tuple[int, ...] | None

    def packed(self) -> bytes:
        """Return it as it is sent.

        Raises:
            Misused: the name of the stream is too long or no text, the position has more than 63
                bits, or the array more than 254 dimensions.
        """
        try:
            stream = self.stream.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise Misused(f"the name of a stream must be text, not {self.stream!r}") from error
        if len(stream) > LONGEST_NAME:
            raise Misused(
                f"the name of a stream may have {LONGEST_NAME} bytes, but this one has"
                f" {len(stream)}: {self.stream[:40]!r}…"
            )
        dtype = self.dtype.encode("ascii")
        shape = () if self.shape is None else self.shape
        dimensions = _NO_ARRAY if self.shape is None else len(shape)
        position = self.position
        try:
            fields = _FIELDS.pack(
                _VERSION,
                len(dtype),
                dimensions,
                position is not None,
                len(stream),
                0 if position is None else position,
            )
        except struct.error as error:
            raise Misused(
                f"position {position!r} of stream {self.stream!r} must be an integer of at most 63"
                f" bits, and an array may have 254 dimensions, not {len(shape)}"
            ) from error
        return fields + struct.pack(f"!{len(shape)}Q", *shape) + dtype + stream


def envelope_of(head: Any) -> Envelope:
    """Return what a head says.

    Raises:
        ValueError: it is none.
    """
    data = bytes(head)
    try:
        version, names, dimensions, placed, size, position = _FIELDS.unpack_from(data)
        if version != _VERSION:
            raise ValueError(f"the head of a message has the unknown version {version}")
        is_array = dimensions != _NO_ARRAY
        dimensions *= is_array
        shape = struct.unpack_from(f"!{dimensions}Q", data, _FIELDS.size)
        at = _FIELDS.size + 8 * dimensions
        if len(data) != at + names + size:
            raise ValueError("the head of a message has another length than it says")
        dtype = data[at : at + names].decode("ascii")
        stream = data[at + names :].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"the head of a message cannot be read: {error}") from error
    return Envelope(stream, position if placed else None, dtype, shape if is_array else None)


def described(array: Any) -> tuple[str, tuple[int, ...], Any]:
    """Return the dtype's name, the shape and the bytes of an array of numpy, torch or MLX.

    The bytes are in this machine's byte order, in the order of the indices.

    Raises:
        Misused: it is no array, or its bytes are not all that it holds.
    """
    dtype = getattr(array, "dtype", None)
    shape = getattr(array, "shape", None)
    if dtype is None or shape is None:
        raise Misused(f"an array of numpy, torch or MLX is needed, not {type(array).__name__}")
    name = str(dtype)
    if name.startswith("torch."):
        from .tensors import torch_bytes

        return name.removeprefix("torch."), tuple(shape), torch_bytes(array)
    if name.startswith("mlx."):
        from .tensors import mlx_bytes

        return name.removeprefix("mlx.core."), tuple(shape), mlx_bytes(array)
    if getattr(dtype, "names", None) is not None or getattr(dtype, "subdtype", None) is not None:
        raise Misused(f"an array with fields has no dtype of one name; send its bytes: {dtype}")
    data = unchanging(array.astype(dtype.newbyteorder("=")) if not dtype.isnative else array)
    return str(dtype.newbyteorder("=")), tuple(shape), data


def array_of(envelope: Envelope | None, data: Any) -> Any:
    """Return the array of numpy that was sent, over the bytes that came.

    Args:
        envelope: what it was sent as.
        data: its bytes.

    Raises:
        Misused: it was sent as bytes, or its bytes are not of that dtype and shape.
        ModuleNotFoundError: numpy, or what brings its dtype, is not installed.
    """
    if envelope is None or envelope.shape is None:
        raise Misused("this message was sent as bytes, not as an array; use its data")
    import numpy as np

    try:
        dtype = _dtype_named(envelope.dtype)
        return np.frombuffer(data, dtype=dtype).reshape(envelope.shape)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise Misused(
            f"{len(data)} bytes are no array of {envelope.dtype!r} and shape {envelope.shape}:"
            f" {error}"
        ) from error


def _dtype_named(name: str) -> Any:
    """Return numpy's dtype of a name that somebody sent: a plain one, whose elements have bytes."""
    import numpy as np

    if name in EXTENDED:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    if not PLAIN_NAME.fullmatch(name):
        raise ValueError("it is no name of a dtype")
    dtype = np.dtype(name)
    if dtype.hasobject or not dtype.itemsize:
        raise ValueError("its elements have no bytes of their own")
    return dtype
