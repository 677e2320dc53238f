"""What mlx-lm's tensor parallelism makes of a model, worked out beside it, in a group of two of which nobody is there.

MLX is lazy: a model that is split and never evaluated has the shapes of a rank's share, and no weight is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import layout
from .engine import Plan

ENGINE = "mlx-tensor"
RANKS = 2
Shape = tuple[int, ...]


class Nobody:
    """Stands for the group of MLX of which this would be the first rank."""

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return RANKS


def plan_of(folder: str, whole: Mapping[str, Shape], checkpoint: Mapping[str, Shape]) -> Plan | None:
    """How mlx-lm shares the model of a folder; None where it does not split it, or calls its parts otherwise then.

    Args:
        folder: as `mlx_lm` loads it.
        whole: the shapes of the parameters of the whole model, by name.
        checkpoint: tensors and shapes.
    """
    try:
        here = dict(_shared(folder))
    except Exception:  # noqa: BLE001 - where it cannot be split, ranks that share it so say why
        return None
    if here.keys() != whole.keys():
        return None
    alike, other = set[str](), set[str]()
    for name, shape in whole.items():
        shares = [[(0, size)] for size in shape]
        held = {block.tensor for block in layout.blocks(name, shares, checkpoint, base="model.")}
        (alike if here[name] == shape else other).update(held)
    return Plan(engine=ENGINE, rules={}, whole=frozenset(alike - other))


def _shared(folder: str) -> Iterator[tuple[str, Shape]]:
    from mlx.utils import tree_flatten
    from mlx_lm import utils

    model: Any = utils.load_model(Path(folder), lazy=True, strict=False)[0]
    model.shard(Nobody())
    found: Any = tree_flatten(model.parameters())
    for name, value in found:
        yield name, tuple(value.shape)
