"""Which slices of the checkpoint a parameter is made of: libraries rename, stack and join tensors
as they load them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

# How checkpoints call gate, up and down of an expert.
TRIPLES = (("w1", "w3", "w2"), ("gate_proj", "up_proj", "down_proj"))
Range = tuple[int, int]


@dataclass(frozen=True)
class ParameterBlock:
    """A box of a parameter as a rank holds it.

    Attributes:
        local: begin and end in each dimension of what the rank holds.
        tensor: the checkpoint's name.
        whole: begin and end in each dimension of that tensor.
    """

    local: tuple[Range, ...]
    tensor: str
    whole: tuple[Range, ...]


def blocks(
    name: str,
    shares: Sequence[Sequence[Range]],
    checkpoint: Mapping[str, tuple[int, ...]],
    *,
    base: str = "",
) -> Iterator[ParameterBlock]:
    """The boxes that a parameter consists of.

    Args:
        name: of the parameter in the running model.
        shares: for each dimension, the parts of the whole parameter that the rank holds, in the
            order it holds them.
        checkpoint: tensors and shapes, as `checkpoint.shapes` gives them.
        base: prefix that the checkpoint may do without (GPT-2's `transformer.`).

    A parameter that nothing of the checkpoint goes by is told under its own name.
    """
    known = _known(name, checkpoint, base)
    if known is None and (stack := _experts(name, checkpoint)) is not None:
        yield from _stacked(stack, shares, checkpoint)
        return
    for local, whole in _boxes(shares):
        yield ParameterBlock(local, known or name, whole)


def whole_shape(
    name: str, checkpoint: Mapping[str, tuple[int, ...]], *, base: str = "", turned: bool = False
) -> tuple[int, ...] | None:
    """Return the shape of the whole parameter, of which a rank may hold a part; None where the
    checkpoint does not tell.

    With `turned` the model holds a matrix the other way round than the checkpoint; the rest is as
    for `blocks`.
    """
    if (known := _known(name, checkpoint, base)) is not None:
        return checkpoint[known][::-1] if turned else checkpoint[known]
    if (stack := _experts(name, checkpoint)) is None:
        return None
    prefix, matrices = stack
    number = sum(
        1
        for tensor in checkpoint
        if tensor.startswith(prefix) and tensor.endswith(f".{matrices[0]}.weight")
    )
    rows, columns = checkpoint[f"{prefix}0.{matrices[0]}.weight"]
    return number, rows * len(matrices), columns


def _known(name: str, checkpoint: Mapping[str, Any], base: str) -> str | None:
    tries = (
        name,
        name.removeprefix(base),
        name.replace(".mlp.", ".block_sparse_moe."),
        base + name,
    )
    return next((tensor for tensor in tries if tensor in checkpoint), None)


def _boxes(
    shares: Sequence[Sequence[Range]],
) -> Iterator[tuple[tuple[Range, ...], tuple[Range, ...]]]:
    """Every combination of the parts of each dimension: where it lies in the rank's array, and in
    the whole.
    """
    placed = []
    for parts in shares:
        begin = 0
        here = []
        for part in parts:
            end = begin + part[1] - part[0]
            here.append(((begin, end), part))
            begin = end
        placed.append(here)
    for box in product(*placed):
        yield tuple(local for local, _ in box), tuple(whole for _, whole in box)


def _experts(name: str, checkpoint: Mapping[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """Return the prefix of the experts that a stacked parameter holds, and the matrices that follow
    each other in its rows.
    """
    match = re.fullmatch(
        r"(.*\.)(?:experts|switch_mlp)\.(gate_up_proj|gate_proj|up_proj|down_proj)(?:\.weight)?",
        name,
    )
    if match is None:
        return None
    stem, which = match.groups()
    for place in (stem, stem.replace(".mlp.", ".block_sparse_moe.")):
        for gate, up, down in TRIPLES:
            if f"{place}experts.0.{gate}.weight" in checkpoint:
                held = {
                    "gate_up_proj": (gate, up),
                    "gate_proj": (gate,),
                    "up_proj": (up,),
                    "down_proj": (down,),
                }
                return f"{place}experts.", held[which]
    return None


def _stacked(
    made: tuple[str, tuple[str, ...]],
    shares: Sequence[Sequence[Range]],
    checkpoint: Mapping[str, tuple[int, ...]],
) -> Iterator[ParameterBlock]:
    """The boxes of a stack `[experts, rows, columns]`, expert by expert and matrix by matrix."""
    prefix, matrices = made
    rows = checkpoint[f"{prefix}0.{matrices[0]}.weight"][0]
    for local, whole in _boxes(shares):
        for offset, expert in enumerate(range(*whole[0])):
            for number, matrix in enumerate(matrices):
                begin = max(whole[1][0], number * rows)
                end = min(whole[1][1], (number + 1) * rows)
                if begin >= end:
                    continue
                at = local[1][0] + begin - whole[1][0]
                yield ParameterBlock(
                    (
                        (local[0][0] + offset, local[0][0] + offset + 1),
                        (at, at + end - begin),
                        local[2],
                    ),
                    f"{prefix}{expert}.{matrix}.weight",
                    ((begin - number * rows, end - number * rows), whole[2]),
                )
