"""Numbers of a model and the file they lie in: the same bytes on every machine, with no library's
generator.

SHAKE-256 over the seed and a tensor's name gives whole numbers, and one multiplication makes floats
of them: it is correctly rounded everywhere, which no logarithm or cosine of a normal distribution
is.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BITS = 24


@dataclass(frozen=True, kw_only=True)
class DrawnTensor:
    """A tensor to be drawn.

    Attributes:
        shape: its sizes.
        middle: what its elements lie around.
        deviation: their standard deviation; 0 for a constant.
    """

    shape: tuple[int, ...]
    deviation: float
    middle: float = 0.0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def draw(name: str, tensor: DrawnTensor, *, seed: int) -> Any:
    """Uniform numbers, `[*tensor.shape]` float32.

    Every tensor of a model has a stream of its own.
    """
    import numpy as np

    digits = hashlib.shake_256(f"{seed}\0{name}".encode()).digest(4 * tensor.elements)
    whole = (np.frombuffer(digits, "<u4") >> np.uint32(32 - BITS)).astype(np.int32) - np.int32(
        1 << (BITS - 1)
    )
    # A uniform distribution from -w to w has the deviation w / sqrt(3).
    step = np.float32(tensor.deviation * math.sqrt(3) / (1 << (BITS - 1)))
    return (whole.astype(np.float32) * step + np.float32(tensor.middle)).reshape(tensor.shape)


def safetensors(arrays: Mapping[str, Any]) -> bytes:
    """Return a safetensors file of float32 arrays, in the order of their names.

    The format is stated at https://github.com/huggingface/safetensors#format. The library may lay
    one model out otherwise from release to release, and a digest is to hold for longer.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    place = 0
    for name in sorted(arrays):
        data = arrays[name].astype("<f4").tobytes()
        shape = [int(size) for size in arrays[name].shape]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place, place + len(data)]}
        parts.append(data)
        place += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)
