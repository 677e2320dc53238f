"""Expressions over DTensors: in every rank, and over the plain tensors in one process.

A cell is an expression of `x` and perhaps `y`, what is done to its result, and where the shards
are. The same text is evaluated both times.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed
import torch.distributed.tensor
import torch.nn.functional as functional  # noqa: PLR0402 - mypy knows it by this name alone
from torch.utils import _pytree

from harness.series.operators.ranks_inside.told import integers, many, shape_of

tensors: Any = torch.distributed.tensor
mesh_of: Any = torch.distributed.device_mesh.init_device_mesh
pytree: Any = _pytree
Axes = Mapping[str, str]
Named = dict[str, torch.Tensor]
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
    # The text is one of the catalogue, and it is what the report shows.
    value = eval(expression, {"torch": torch, "F": functional, **inputs})  # noqa: S307
    return _then(axes, value) if isinstance(value, torch.Tensor) else value


def _then(axes: Axes, value: torch.Tensor) -> Any:
    return eval(axes["then"].format("value"), {"torch": torch, "value": value})  # noqa: S307


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


class RoundingDecides(ValueError):
    """An expression whose result depends on the last bits of a rounded value."""


def whole(expression: str, axes: Axes) -> tuple[Named, dict[str, float]]:
    """Evaluate on the whole; returns the results, and how far each may be off.

    Another order of sums costs roundings of the dtype, and makes about the distance that there is
    to the same in float64; each has a margin.

    Raises:
        RoundingDecides: a rounded value becomes a whole number or a truth value.
    """
    used = _used(expression)
    plain = {name: value for name, value in plain_inputs(axes).items() if name in used}
    results = _results(expression, axes, {name: value.clone() for name, value in plain.items()})
    before = _evaluated(
        expression,
        {**axes, "then": "{}"},
        {name: value.clone() for name, value in plain.items()},
    )
    if isinstance(before, torch.Tensor) and axes["then"] != "{}":
        _demand_steady(axes, before)
    finer: Named = {}
    if plain["x"].is_floating_point():
        # There may be none: not every expression takes float64.
        with contextlib.suppress(Exception):
            finer = _results(expression, axes, {name: x.double() for name, x in plain.items()})
    values = [one for one in (*plain.values(), before) if isinstance(one, torch.Tensor)]
    coarse = max(map(_eps, values))
    scale = _scale(before) if isinstance(before, torch.Tensor) else 0.0
    tolerances: dict[str, float] = {}
    for name, result in results.items():
        if own := _eps(result):
            rounding = MARGIN * max(coarse, own) * max(scale, _scale(result))
            tolerances[name] = rounding + 8 * _distance(result, finer.get(name))
    return results, tolerances


def _demand_steady(axes: Axes, before: torch.Tensor) -> None:
    """Refuse what comes out otherwise when a rounded value moves by a few roundings."""
    eps = _eps(before)
    result = _then(axes, before)
    if not eps or _eps(result):
        return
    for factor in (1 - MARGIN * eps, 1 + MARGIN * eps):
        if not torch.equal(_then(axes, before * factor), result):
            raise RoundingDecides(f"{axes['then']} depends on how its argument was rounded")


def _eps(value: torch.Tensor) -> float:
    """Return the rounding of its dtype; 0 where it has none."""
    is_rounded = value.is_floating_point() or value.is_complex()
    return torch.finfo(value.dtype).eps if is_rounded else 0.0


def _scale(value: torch.Tensor) -> float:
    """Return its largest finite element."""
    sizes = value.detach().double().abs() if not value.is_complex() else value.detach().abs()
    finite = sizes[sizes.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def _distance(result: torch.Tensor, finer: torch.Tensor | None) -> float:
    """Return how far it is from the same in float64."""
    if finer is None or finer.shape != result.shape or not result.numel():
        return 0.0
    return float((finer - result).abs().double().nan_to_num(posinf=0.0).max())
