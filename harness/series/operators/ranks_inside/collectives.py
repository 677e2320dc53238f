"""Collectives of torch.distributed: called by every rank, and worked out on the whole by plain
torch.

A cell is one call. Each rank's input is drawn from the cell and the rank, so that one process knows
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
import torch.distributed

from harness.series.operators.ranks_inside.laid import Laid, laid
from harness.series.operators.ranks_inside.told import integers, many, shape_of

# Not declared by the module, though documented.
dist: Any = torch.distributed
Axes = Mapping[str, str]
Named = dict[str, torch.Tensor]
SPECIAL = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "-0": -0.0}
# Operators that write into what they are given.
IN_PLACE = frozenset({"all_reduce", "broadcast", "reduce"})


class CollectiveRank:
    """The ranks of a cell, and one of them."""

    def __init__(self, axes: Axes, *, rank: int, size: int) -> None:
        self.axes = axes
        self.rank = rank
        self.size = size
        self.root = size - 1 if axes.get("root") == "last" else 0

    def given(self, rank: int, name: str = "x", *, blocks: int = 1) -> Laid:
        """Return what a rank puts in; `blocks` of it one after the other."""
        axes = self.axes
        shape = list(shape_of(axes["shape"]))
        if blocks > 1:
            shape = [blocks * shape[0], *shape[1:]] if shape else [blocks]
        # Sums of three stay whole in bfloat16 and int8.
        most = 3 if axes.get("op") == "product" else 40
        drawn = integers(f"{name}-{rank}", many(shape), least=1, most=most)
        values = torch.tensor(drawn, dtype=torch.int64).reshape(shape)
        dtype = getattr(torch, axes["dtype"])
        values = (values % 2 if dtype == torch.bool else values).to(dtype)
        if dtype.is_complex:
            values = torch.complex(values.real, values.real.flip(0) if shape else values.real)
            values = values.to(dtype)
        special = SPECIAL.get(axes.get("values", ""))
        if special is not None and values.numel() and rank == self.size - 1:
            values.view(-1)[-1] = special
        return laid(values, axes.get("layout", "contiguous"))

    def room(self, *, blocks: int = 1) -> Laid:
        """Return where a result goes."""
        shape = list(shape_of(self.axes["shape"]))
        if blocks > 1:
            shape = [blocks * shape[0], *shape[1:]] if shape else [blocks]
        dtype = getattr(torch, self.axes["dtype"])
        values = torch.full(shape, 50, dtype=torch.float32).to(dtype)
        return laid(values, self.axes.get("out", "contiguous"))


def _reduced(op: str, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    pairs: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "sum": torch.add,
        "avg": torch.add,
        "product": torch.mul,
        "max": torch.maximum,
        "min": torch.minimum,
        "band": torch.bitwise_and,
        "bor": torch.bitwise_or,
        "bxor": torch.bitwise_xor,
    }
    whole = reduce(pairs[op], parts)
    return whole / len(parts) if op == "avg" else whole


def _op(axes: Axes) -> Any:
    return getattr(dist.ReduceOp, axes["op"].upper())


# -- in a rank -------------------------------------------------------------------------------------


def called(operator: str, group: CollectiveRank) -> Named:
    """Call it, and return what this rank has then."""
    given = _given(operator, group)
    rooms = _rooms(operator, group)
    how = group.axes.get("call", "sync")
    if how == "coalesced":
        together = dist._coalescing_manager  # noqa: SLF001 - the only way there is
        # Without `device`, which is for backends that cannot coalesce themselves.
        with together(async_ops=True) as manager:
            CALLS[operator](group, given.view, [room.view for room in rooms], False)
        manager.wait()
    else:
        work = CALLS[operator](group, given.view, [room.view for room in rooms], how == "async")
        if work is not None:
            work.wait()
    return _left(operator, given, rooms)


def _given(operator: str, group: CollectiveRank) -> Laid:
    blocks = group.size if operator in BLOCKS else 1
    return group.given(group.rank, blocks=blocks)


def _rooms(operator: str, group: CollectiveRank) -> list[Laid]:
    if operator in IN_PLACE:
        return []
    if operator in ("all_gather", "all_to_all"):
        return [group.room() for _ in range(group.size)]
    if operator == "gather":
        return [group.room() for _ in range(group.size)] if group.rank == group.root else []
    whole = operator in ("all_gather_into_tensor", "all_to_all_single")
    return [group.room(blocks=group.size if whole else 1)]


def _left(operator: str, given: Laid, rooms: Sequence[Laid]) -> Named:
    """Return every array that the call may have changed, and the memory around it."""
    left = {} if operator in IN_PLACE else {"given": given.buffer.clone()}
    for number, room in enumerate([given] if operator in IN_PLACE else rooms):
        left[f"result-{number}"] = room.view.clone()
        left[f"memory-{number}"] = room.buffer.clone()
    return left


BLOCKS = frozenset({"reduce_scatter_tensor", "all_to_all_single"})
Call = Callable[[CollectiveRank, torch.Tensor, list[torch.Tensor], bool], Any]


def _many(group: CollectiveRank) -> list[torch.Tensor]:
    """Return one input for each rank, of an operator that takes a list."""
    return [group.given(group.rank, f"x{number}").view for number in range(group.size)]


def _sent_round(
    group: CollectiveRank, given: torch.Tensor, rooms: list[torch.Tensor], later: bool
) -> None:
    """Send to the next rank, and receive from the one before."""
    after = (group.rank + 1) % group.size
    before = (group.rank - 1) % group.size
    if later:
        sends = dist.P2POp(dist.isend, given, after)
        receives = dist.P2POp(dist.irecv, rooms[0], before)
        for work in dist.batch_isend_irecv([sends, receives]):
            work.wait()
        return
    work = dist.isend(given, after)
    dist.recv(rooms[0], before)
    work.wait()


CALLS: Mapping[str, Call] = {
    "all_reduce": lambda g, x, _, a: dist.all_reduce(x, op=_op(g.axes), async_op=a),
    "broadcast": lambda g, x, _, a: dist.broadcast(x, g.root, async_op=a),
    "reduce": lambda g, x, _, a: dist.reduce(x, g.root, op=_op(g.axes), async_op=a),
    "all_gather": lambda _, x, out, a: dist.all_gather(out, x, async_op=a),
    "all_gather_into_tensor": lambda _, x, out, a: dist.all_gather_into_tensor(
        out[0], x, async_op=a
    ),
    "reduce_scatter": lambda g, _, out, a: dist.reduce_scatter(
        out[0], _many(g), op=_op(g.axes), async_op=a
    ),
    "reduce_scatter_tensor": lambda g, x, out, a: dist.reduce_scatter_tensor(
        out[0], x, op=_op(g.axes), async_op=a
    ),
    "scatter": lambda g, _, out, a: dist.scatter(
        out[0], _many(g) if g.rank == g.root else None, src=g.root, async_op=a
    ),
    "gather": lambda g, x, out, a: dist.gather(x, out or None, dst=g.root, async_op=a),
    "all_to_all": lambda g, _, out, a: dist.all_to_all(out, _many(g), async_op=a),
    "all_to_all_single": lambda _, x, out, a: dist.all_to_all_single(out[0], x, async_op=a),
    "send_recv": _sent_round,
}


# -- on the whole ----------------------------------------------------------------------------------


def whole(operator: str, axes: Axes, size: int) -> list[Named]:
    """Work out what each rank has to have."""
    groups = [CollectiveRank(axes, rank=rank, size=size) for rank in range(size)]
    right = [_right(operator, group) for group in groups]
    named: list[Named] = []
    for group, results in zip(groups, right, strict=True):
        given = _given(operator, group)
        rooms = [given] if operator in IN_PLACE else _rooms(operator, group)
        # The root alone has a result of these.
        if operator == "reduce" and group.rank != group.root:
            named.append({})
            continue
        for room, result in zip(rooms, results, strict=True):
            room.view.copy_(result)
        named.append(_left(operator, given, rooms))
    return named


def tolerances(axes: Axes, named: Named) -> dict[str, float]:
    """Return how far each result may be off: an average is rounded, and nothing else is."""
    dtype = getattr(torch, axes["dtype"])
    if axes.get("op") != "avg" or not (dtype.is_floating_point or dtype.is_complex):
        return {}
    return {
        name: 4 * torch.finfo(dtype).eps * float(value.abs().float().nan_to_num(posinf=0.0).max())
        for name, value in named.items()
        if value.numel()
    }


def _right(operator: str, group: CollectiveRank) -> list[torch.Tensor]:
    """Return the results of one rank."""
    size = group.size
    rank = group.rank

    def one(other: int, name: str = "x", blocks: int = 1) -> torch.Tensor:
        return group.given(other, name, blocks=blocks).view.clone()

    everyone = range(size)
    blocks = size if operator in BLOCKS else 1
    xs = [one(other, blocks=blocks) for other in everyone]
    flat = group.axes["shape"] != "scalar"
    if operator in ("all_reduce", "reduce"):
        return [_reduced(group.axes["op"], xs)]
    if operator == "broadcast":
        return [xs[group.root]]
    if operator in ("all_gather", "gather"):
        return xs if operator == "all_gather" or rank == group.root else []
    if operator == "all_gather_into_tensor":
        return [torch.cat(xs) if flat else torch.stack(xs)]
    if operator == "reduce_scatter":
        return [_reduced(group.axes["op"], [one(other, f"x{rank}") for other in everyone])]
    if operator == "reduce_scatter_tensor":
        part = _reduced(group.axes["op"], xs).chunk(size)[rank]
        return [part if flat else part.reshape(())]
    if operator == "scatter":
        return [one(group.root, f"x{rank}")]
    if operator == "all_to_all":
        return [one(other, f"x{rank}") for other in everyone]
    if operator == "all_to_all_single":
        return [torch.cat([x.chunk(size)[rank] for x in xs])]
    assert operator == "send_recv", operator
    return [xs[(rank - 1) % size]]
