"""Arrays as evidence: every element in JSON, bit for bit, whatever library holds them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, TypedDict

Scalar = float | int | str


class ToldArray(TypedDict):
    """An array in full.

    Attributes:
        dtype: as its library calls it, without the library.
        shape: lengths of its dimensions.
        values: elements in C order; complex ones as two numbers, NaN and the infinities as text,
            booleans as 0 and 1.
    """

    dtype: str
    shape: list[int]
    values: list[Scalar]


def told(array: Any) -> ToldArray:
    """Return an array of torch, MLX or numpy in full."""
    library = type(array).__module__.partition(".")[0]
    name = str(array.dtype).rpartition(".")[2]
    if library == "torch":
        plain = _plain_of_torch(array)
    elif library == "mlx":
        import mlx.core as mx

        plain = array.view(mx.uint8) != 0 if array.dtype == mx.bool_ else array
    else:
        name = array.dtype.name
        plain = array.view("uint8") != 0 if name == "bool" else array
        plain = plain.astype("float64") if name == "bfloat16" else plain
    return ToldArray(dtype=name, shape=list(array.shape), values=_flat(plain.tolist()))


def _plain_of_torch(array: Any) -> Any:
    import torch

    plain = array.detach().resolve_conj().resolve_neg().contiguous()
    if plain.dtype == torch.bool:
        # A sum of booleans leaves a byte of 2, which counts as true everywhere but in a view.
        return plain.view(torch.uint8) != 0
    # What has no `tolist` has a wider type that holds every value of it.
    return plain.float() if "float8" in str(plain.dtype) else plain


def _flat(values: Any) -> list[Scalar]:
    if isinstance(values, list):
        return [scalar for row in values for scalar in _flat(row)]
    if isinstance(values, complex):
        return [*_flat(values.real), *_flat(values.imag)]
    if isinstance(values, float) and not math.isfinite(values):
        return [str(values)]
    return [int(values) if isinstance(values, bool) else values]


def integers(seed: str, count: int, *, least: int, most: int) -> list[int]:
    """Draw whole numbers, the same wherever they are drawn."""
    # Not for secrets: every process has to draw the same.
    drawn = random.Random(seed)  # noqa: S311
    return [drawn.randint(least, most) for _ in range(count)]


def shape_of(text: str) -> tuple[int, ...]:
    """Read a shape: `3x4`, or `scalar`."""
    return () if text == "scalar" else tuple(int(part) for part in text.split("x"))


def many(shape: Sequence[int]) -> int:
    """Return how many elements a shape has."""
    return math.prod(shape)
