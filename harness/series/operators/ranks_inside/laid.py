"""Tensors of torch in every layout, each in a buffer whose other bytes are known."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# What lies between the elements of a view, and has to lie there afterwards.
BETWEEN = 77


@dataclass(frozen=True)
class Laid:
    """A tensor and the memory it is in.

    Attributes:
        view: the tensor.
        buffer: every element of its storage.
    """

    view: torch.Tensor
    buffer: torch.Tensor


def laid(values: torch.Tensor, layout: str) -> Laid:
    """Lay out a contiguous tensor.

    An `expanded` one has the values of its first row in every row.
    """
    if layout == "conj":
        buffer = values.conj().resolve_conj()
        return Laid(buffer.conj(), buffer)
    if layout == "negated":
        # The imaginary part of a conjugate is a view that negates what is in memory.
        buffer = torch.complex(values, -values)
        return Laid(buffer.conj().imag, buffer)
    if layout == "expanded":
        buffer = values[:1].clone()
        return Laid(buffer.expand(values.shape), buffer)
    view, buffer = _room(values, layout)
    view.copy_(values)
    return Laid(view, buffer)


def _room(values: torch.Tensor, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    shape = list(values.shape)

    def full(lengths: list[int]) -> torch.Tensor:
        return torch.full(lengths, BETWEEN, dtype=torch.float32).to(values.dtype)

    if layout == "offset":
        buffer = full([values.numel() + 5])
        return buffer[5:].view(shape), buffer
    if layout == "strided":
        buffer = full([*shape[:-1], 2 * shape[-1]])
        return buffer[..., ::2], buffer
    if layout == "columns":
        buffer = full([*shape[:-1], shape[-1] + 3])
        return buffer[..., 1 : 1 + shape[-1]], buffer
    if layout == "rows":
        buffer = full([2 * shape[0], *shape[1:]])
        return buffer[::2], buffer
    if layout == "transposed":
        buffer = full(shape[::-1])
        return buffer.permute(*reversed(range(len(shape)))), buffer
    assert layout == "contiguous", layout
    buffer = full(shape)
    return buffer, buffer
