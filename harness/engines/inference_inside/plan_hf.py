"""What transformers' tensor parallelism makes of a model, worked out beside it: no rank, no group and no numbers.

transformers' own code resolves the plan and lays it on a model without numbers, over a mesh of two ranks of which none
is there. It runs in the process of the reference, so that no rank that shares the model says what it need not share.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from . import layout
from .engine import Plan

ENGINE = "hf-tensor"
RANKS = 2
"""Of the mesh. How a parameter is placed does not depend on how many there are."""


def plan_of(model: Any, checkpoint: Mapping[str, tuple[int, ...]]) -> Plan | None:
    """The tensor-parallel plan of a whole model; None where this release has none for it, or lays none.

    Args:
        model: of transformers; only its class, its configuration and the names of its state are looked at.
        checkpoint: tensors and shapes.
    """
    try:
        planned, rules = _planned(model)
    except Exception:  # noqa: BLE001 - where it cannot be laid, ranks that share by it say why
        return None
    base, kept = f"{model.base_model_prefix}.", model.state_dict().keys()
    shared, whole = set[str](), set[str]()
    for name, value in [*planned.named_parameters(), *planned.named_buffers()]:
        if name in kept:
            shares = [[(0, size)] for size in value.shape]
            split = any(hasattr(place, "dim") for place in getattr(value, "placements", ()))
            (shared if split else whole).update(
                block.tensor for block in layout.blocks(name, shares, checkpoint, base=base)
            )
    return Plan(engine=ENGINE, rules=rules, whole=frozenset(whole - shared))


def _planned(model: Any) -> tuple[Any, dict[str, str]]:
    """A model of the same kind with its parameters as they are placed, and the rules by which they are."""
    from torch.distributed.device_mesh import DeviceMesh
    from transformers import initialization
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    # The first of a mesh that nobody joins: no process group is made, and none that there is takes part.
    mesh = DeviceMesh("cpu", list(range(RANKS)), mesh_dim_names=("tp",), _init_backend=False, _rank=0)
    with torch.device("meta"), initialization.no_tie_weights():  # as it loads: what is tied is placed apart
        planned = type(model)(copy.deepcopy(model.config))
    rules, *_ = planned._resolve_parallel_plans(DistributedConfig(tp_size=RANKS, tp_plan="auto"))  # noqa: SLF001 - no other name for it
    apply_tensor_parallelism(planned, mesh, rules)
    return planned, {name: str(style) for name, style in planned.tp_plan.items()}
