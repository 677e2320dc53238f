"""Sums and gathers of coded payloads: every element tells of which rank, call and place it is."""

from __future__ import annotations

import importlib
from typing import Any

ELEMENTS = (1, 17, 1025, 4097)


def conform(context: Any, *, rounds: int = 3, keeps: str) -> None:
    """Sum and gather in several sizes and types, over and over.

    Args:
        context: of the rank.
        rounds: how often.
        keeps: what a rank takes for its result: all (of every rank), or own (rank 1 keeps what it
            gave itself, as code does that forgets to wait for a call).
    """
    library: Any = importlib.import_module("mlx.core" if context.backend == "mlx-ring" else "torch")
    coded = context.coded(library)
    forgets = keeps == "own" and context.rank == 1
    for _ in range(rounds):
        for elements in ELEMENTS:
            for dtype in ("float32", "int32"):
                call = coded.call("all_reduce", elements=elements, dtype=dtype)
                own = (
                    library.array(call.given)
                    if context.backend == "mlx-ring"
                    else call.given.clone()
                )
                found = summed(context, call.given)
                call.received(own if forgets else found)
                call = coded.call("all_gather", elements=elements, dtype=dtype)
                call.received(gathered(context, call))
    coded.done()


def summed(context: Any, given: Any) -> Any:
    """The sum over all ranks."""
    if context.backend == "mlx-ring":
        import mlx.core as mx

        found = mx.distributed.all_sum(given, group=context.group.native)
        mx.eval(found)
        return found
    context.group.native.all_reduce(given)
    return given


def gathered(context: Any, call: Any) -> Any:
    """What every rank gave, in the order of ranks."""
    if context.backend == "mlx-ring":
        import mlx.core as mx

        return mx.split(
            mx.distributed.all_gather(call.given, group=context.group.native), context.size
        )
    rows = [call.blank() for _ in range(context.size)]
    context.group.native.all_gather(rows, call.given)
    return rows
