"""How a library's tensor parallelism shares a model, worked out beside the model: no rank, no group
and no numbers.

The library's own code lays its plan on a model without numbers, over two ranks of which none
exists. This runs in the process of the reference, so that no rank that shares the model says what
it need not share.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import layout
from .engine import Plan

RANKS = 2
"""Ranks that share the model. How a parameter is placed does not depend on how many there are."""
Shape = tuple[int, ...]


def plan_of_transformers(model: Any, checkpoint: Mapping[str, Shape]) -> Plan | None:
    """Return the tensor-parallel plan of a whole model; None where this release has none for it, or
    lays none.

    Args:
        model: of transformers; only its class, its configuration and the names of its state are
            looked at.
        checkpoint: tensors and shapes.
    """
    try:
        planned, rules = _planned(model)
    except Exception:  # noqa: BLE001 - where it cannot be laid, ranks that share by it say why
        return None
    base = f"{model.base_model_prefix}."
    kept = model.state_dict().keys()
    shared = set[str]()
    whole = set[str]()
    for name, value in [*planned.named_parameters(), *planned.named_buffers()]:
        if name in kept:
            split = any(hasattr(place, "dim") for place in getattr(value, "placements", ()))
            (shared if split else whole).update(_tensors(name, value.shape, checkpoint, base=base))
    return Plan(engine="hf-tensor", rules=rules, whole=frozenset(whole - shared))


def plan_of_mlx_lm(
    folder: str, whole: Mapping[str, Shape], checkpoint: Mapping[str, Shape]
) -> Plan | None:
    """How mlx-lm shares the model of a folder; None where it does not split it, or calls its parts
    otherwise then.

    MLX is lazy: a model that is split and never evaluated has the shapes of a rank's share, and no
    weight is read.

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
    alike = set[str]()
    other = set[str]()
    for name, shape in whole.items():
        (alike if here[name] == shape else other).update(
            _tensors(name, shape, checkpoint, base="model.")
        )
    return Plan(engine="mlx-tensor", rules={}, whole=frozenset(alike - other))


class LoneGroup:
    """Stands for a group of MLX: whoever asks its rank and size need not have joined it."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size


def _tensors(name: str, shape: Shape, checkpoint: Mapping[str, Shape], *, base: str) -> set[str]:
    """Return the tensors of the checkpoint that a whole parameter is made of."""
    shares = [[(0, size)] for size in shape]
    return {block.tensor for block in layout.blocks(name, shares, checkpoint, base=base)}


def _planned(model: Any) -> tuple[Any, dict[str, str]]:
    """Return a model of the same kind with its parameters as they are placed, and the rules by
    which they are.
    """
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from transformers import initialization
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    # The first of a mesh that nobody joins: no process group is made, and none that there is takes
    # part.
    mesh = DeviceMesh(
        "cpu", list(range(RANKS)), mesh_dim_names=("tp",), _init_backend=False, _rank=0
    )
    # As it loads: what is tied is placed apart.
    with torch.device("meta"), initialization.no_tie_weights():
        planned = type(model)(copy.deepcopy(model.config))
    # No other name for it.
    rules, *_ = planned._resolve_parallel_plans(DistributedConfig(tp_size=RANKS, tp_plan="auto"))  # noqa: SLF001
    apply_tensor_parallelism(planned, mesh, rules)
    return planned, {name: str(style) for name, style in planned.tp_plan.items()}


def _shared(folder: str) -> Iterator[tuple[str, Shape]]:
    """The parameters of the first rank's share of a model of mlx-lm, with their shapes."""
    from mlx.utils import tree_flatten
    from mlx_lm import utils

    model: Any = utils.load_model(Path(folder), lazy=True, strict=False)[0]
    model.shard(LoneGroup(0, RANKS))
    parameters: Any = tree_flatten(model.parameters())
    for name, value in parameters:
        yield name, tuple(value.shape)
