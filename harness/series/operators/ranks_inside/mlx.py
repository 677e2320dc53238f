"""Collectives of MLX: called by every rank, and worked out on the whole by MLX in one process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from harness.series.operators.ranks_inside.told import integers, many, shape_of

Axes = Mapping[str, str]
Named = dict[str, Any]
SPECIAL = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "-0": -0.0}


def given(axes: Axes, rank: int, size: int) -> Any:
    """Return what a rank puts in."""
    import mlx.core as mx

    shape = shape_of(axes["shape"])
    drawn = integers(f"x-{rank}", many(shape), least=1, most=40)
    if (special := SPECIAL.get(axes["values"])) is not None and rank == size - 1 and drawn:
        drawn[-1] = special  # type: ignore[call-overload]
    dtype = getattr(mx, axes["dtype"])
    values = mx.array(drawn).reshape(shape)
    values = values % 2 == 0 if dtype == mx.bool_ else values.astype(dtype)
    if dtype == mx.complex64:
        values = values + 1j * values[::-1] if shape else values + 2j
    array = laid(values, axes["layout"])
    mx.eval(array)
    return array


def laid(values: Any, layout: str) -> Any:
    """Lay out an array; an `expanded` one has the values of its first row in every row."""
    import mlx.core as mx

    if layout == "transposed":
        # Twice: the values as they were, the memory in another order.
        return mx.contiguous(values.T).T
    if layout == "strided":
        return mx.stack([values, mx.zeros_like(values)], axis=-1).reshape(
            *values.shape[:-1], 2 * values.shape[-1]
        )[..., ::2]
    if layout == "columns":
        pad = mx.zeros((*values.shape[:-1], 2), dtype=values.dtype)
        return mx.concatenate([pad, values, pad], axis=-1)[..., 2 : 2 + values.shape[-1]]
    if layout == "reversed":
        return mx.contiguous(values[..., ::-1])[..., ::-1]
    if layout == "expanded":
        return mx.broadcast_to(values[:1], values.shape)
    return values


def _function(operator: str, group: Any) -> Any:
    """Return the operator as a function of one array."""
    import mlx.core as mx

    distributed = mx.distributed
    if operator == "send_recv":

        def sent_round(x: Any) -> Any:
            size = group.size()
            rank = group.rank()
            sent = distributed.send(x, (rank + 1) % size, group=group, stream=mx.cpu)
            if rank % 2 == 0:
                mx.eval(sent)
            got = distributed.recv_like(x, (rank - 1) % size, group=group, stream=mx.cpu)
            mx.eval(got)
            mx.eval(sent)
            return got

        return sent_round
    call = getattr(distributed, operator)
    return lambda x: call(x, group=group, stream=mx.cpu)


def _transformed(function: Any, how: str) -> Any:
    """Return a function of one array that uses an operator in a transformation of MLX."""
    import mlx.core as mx

    if how == "gradient":
        return mx.grad(lambda x: (function(x) * function(x)).sum())
    if how == "vmap":
        return mx.vmap(function)
    if how == "vmap-columns":
        return mx.vmap(function, in_axes=1, out_axes=1)
    if how == "compile":
        return mx.compile(function)
    return function


def called(operator: str, axes: Axes, group: Any) -> Named:
    """Call it, and return what this rank has then."""
    import mlx.core as mx

    x = given(axes, group.rank(), group.size())
    result = _transformed(_function(operator, group), axes.get("transform", "plain"))(x)
    mx.eval(result)
    return {"result": result, "given": x}


def whole(operator: str, axes: Axes, size: int) -> list[Named]:
    """Work out what each rank has to have."""
    xs = [given(axes, rank, size) for rank in range(size)]
    return [{"result": _right(operator, axes, xs, rank), "given": xs[rank]} for rank in range(size)]


def _right(operator: str, axes: Axes, xs: list[Any], rank: int) -> Any:
    import mlx.core as mx

    size = len(xs)

    def function(x: Any) -> Any:
        """The operator, of the arrays of all ranks, of which this rank's is x."""
        every = [x if other == rank else xs[other] for other in range(size)]
        return _together(operator, every, rank)

    how = axes.get("transform", "plain")
    if how == "gradient":
        # Each rank differentiates its own loss by its own input, as MLX has it.
        return mx.grad(lambda x: (function(x) * function(x)).sum())(xs[rank])
    if how in ("vmap", "vmap-columns"):
        at = 0 if how == "vmap" else 1
        rows = [
            _together(operator, [mx.take(x, index, axis=at) for x in xs], rank)
            for index in range(xs[0].shape[at])
        ]
        return mx.stack(rows, axis=at)
    return function(xs[rank])


def _together(operator: str, every: list[Any], rank: int) -> Any:
    import mlx.core as mx

    if operator == "all_sum":
        whole = reduce(mx.add, every)
        return whole.astype(every[0].dtype)
    if operator == "all_max":
        return reduce(mx.maximum, every)
    if operator == "all_min":
        return reduce(mx.minimum, every)
    if operator == "all_gather":
        return mx.concatenate(every) if every[0].ndim else mx.stack(every)
    if operator == "sum_scatter":
        return mx.split(reduce(mx.add, every), len(every))[rank]
    assert operator == "send_recv", operator
    return every[(rank - 1) % len(every)]
