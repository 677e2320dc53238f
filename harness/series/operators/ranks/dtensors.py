"""Expressions over DTensors: in every rank, and over the plain tensors in one process.

A cell is an expression of `x` and perhaps `y`, what is done to its result, and where the shards
are. The same text is evaluated both times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed
import torch.distributed.tensor
import torch.nn.functional as functional  # noqa: PLR0402 - mypy knows it by this name alone
from torch.utils import _pytree

from harness.series.operators.ranks.told import integers, many, shape_of

tensors: Any = torch.distributed.tensor
mesh_of: Any = torch.distributed.device_mesh.init_device_mesh
pytree: Any = _pytree
Axes = Mapping[str, str]
Named = dict[str, torch.Tensor]
# Sums of whole numbers up to this are whole, in any order.
EXACT = 2**20
# Roundings of the largest element that another order of sums may cost.
MARGIN = 16
_MESHES: dict[tuple[int, ...], Any] = {}


def plain_inputs(axes: Axes) -> Named:
    """Return the whole tensors: x of distinct elements, y of small ones."""
    dtype = getattr(torch, axes["dtype"])
    shape = shape_of(axes["shape"])
    count = many(shape)
    order = torch.tensor(integers("order", count, least=0, most=10**6)).argsort()
    x = (order - count // 3).reshape(shape)
    drawn = integers("y", count, least=1, most=4)
    y = torch.tensor(drawn, dtype=torch.int64).reshape(shape)
    if dtype == torch.bool:
        return {"x": x % 3 == 0, "y": y % 2 == 0}
    return {"x": x.to(dtype), "y": y.to(dtype)}


def _mesh(axes: Axes, size: int) -> Any:
    """Return a mesh of as many dimensions as there are placements."""
    dimensions = axes["placement"].count(",") + 1
    shape = (size,) if dimensions == 1 else (2, size // 2)
    if shape not in _MESHES:
        _MESHES[shape] = mesh_of("cpu", shape)
    return _MESHES[shape]


def _placed(whole: torch.Tensor, mesh: Any, placement: str) -> Any:
    """Make a DTensor of a plain tensor."""
    words = placement.split(",")
    placements = [_placement(word) for word in words]
    if not any(word.startswith("P") for word in words):
        # Every rank has the whole, so nothing is sent.
        return tensors.distribute_tensor(whole, mesh, placements, src_data_rank=None)
    # A part of each rank along the dimensions that are partial; the others are sharded after it.
    local = whole
    for dimension, word in enumerate(words):
        if word.startswith("P"):
            local = _part(local, word[2:], mesh.get_local_rank(dimension), mesh.size(dimension))
    for dimension, word in enumerate(words):
        if word.startswith("S"):
            at = int(word[1:])
            local = local.tensor_split(mesh.size(dimension), at)[mesh.get_local_rank(dimension)]
    return tensors.DTensor.from_local(local.contiguous(), mesh, placements, run_check=False)


def _placement(word: str) -> Any:
    if word == "R":
        return tensors.Replicate()
    return tensors.Partial(word[2:]) if word.startswith("P") else tensors.Shard(int(word[1:]))


def _part(whole: torch.Tensor, kind: str, rank: int, size: int) -> torch.Tensor:
    """Return the part of a rank, such that all parts reduce to the whole."""
    count = whole.numel()
    drawn = [integers(f"part-{other}", count, least=0, most=3) for other in range(1, size)]
    others = [
        torch.tensor(row, dtype=torch.int64).reshape(whole.shape).to(whole.dtype) for row in drawn
    ]
    if kind in ("sum", "avg"):
        first = whole * size if kind == "avg" else whole
        return others[rank - 1] if rank else first - sum(others)
    least = others[rank - 1] if rank else torch.zeros_like(whole)
    return whole - least if kind == "max" else whole + least


def _evaluated(expression: str, axes: Axes, inputs: Mapping[str, Any]) -> Any:
    """Evaluate the expression, and then what is done to its result."""
    names = {"torch": torch, "F": functional, **inputs}
    # The text is one of the catalogue, and it is what the report shows.
    value = eval(expression, names)  # noqa: S307
    if not isinstance(value, torch.Tensor):
        return value
    return eval(axes["then"].format("value"), {**names, "value": value})  # noqa: S307


def _results(expression: str, axes: Axes, inputs: Mapping[str, Any]) -> Named:
    """Return results, and gradients where these are asked for, as plain tensors."""
    wanted = axes["gradient"] == "yes"
    for value in inputs.values():
        value.requires_grad_(wanted)
    leaves, _ = pytree.tree_flatten(_evaluated(expression, axes, inputs))
    named: Named = {}
    for number, leaf in enumerate(leaves):
        if leaf is not None:
            named[f"result-{number}"] = _plain(leaf)
    if wanted:
        leaves[0].square().sum().backward()
        for name, value in inputs.items():
            if value.grad is not None:
                named[f"gradient of {name}"] = _plain(value.grad)
    return named


def _plain(value: Any) -> torch.Tensor:
    if isinstance(value, tensors.DTensor):
        value = value.full_tensor()
    return torch.as_tensor(value).detach()


def _used(expression: str) -> Sequence[str]:
    return ["x", "y"] if re.search(r"\by\b", expression) else ["x"]


def called(expression: str, axes: Axes, *, size: int) -> Named:
    """Evaluate in a rank."""
    mesh = _mesh(axes, size)
    plain = plain_inputs(axes)
    placements = {"x": axes["placement"], "y": axes.get("other", axes["placement"])}
    inputs = {name: _placed(plain[name], mesh, placements[name]) for name in _used(expression)}
    return _results(expression, axes, inputs)


def whole(expression: str, axes: Axes) -> tuple[Named, dict[str, float]]:
    """Evaluate on the whole; returns the results, and how far each may be off.

    What is not made of whole numbers may be off by what another order of its sums makes of it: the
    distance to the same in float64, and the rounding of the dtype, each with a margin.
    """
    plain = {name: plain_inputs(axes)[name] for name in _used(expression)}
    results = _results(expression, axes, {name: value.clone() for name, value in plain.items()})
    finer: Named = {}
    if plain["x"].is_floating_point():
        try:
            finer = _results(
                expression, axes, {name: value.double() for name, value in plain.items()}
            )
        except Exception:  # noqa: BLE001 - an expression that float64 cannot have
            finer = {}
    return results, {name: _tolerance(result, finer.get(name)) for name, result in results.items()}


def _tolerance(result: torch.Tensor, finer: torch.Tensor | None) -> float:
    if not (result.is_floating_point() or result.is_complex()) or not result.numel():
        return 0.0
    values = torch.view_as_real(result) if result.is_complex() else result
    finite = values.double()[values.double().isfinite()]
    if not finite.numel():
        return 0.0
    off = torch.zeros(())
    if finer is not None and finer.shape == result.shape and not result.is_complex():
        off = (finer.double() - result.double()).abs().nan_to_num(posinf=0.0)
        is_whole = bool((finite == finite.round()).all()) and float(finite.abs().sum()) < EXACT
        if is_whole and not off.any() and result.dtype in (torch.float32, torch.float64):
            return 0.0
    return MARGIN * torch.finfo(result.dtype).eps * float(finite.abs().max()) + 8 * float(off.max())
