"""Every collective of MLX's ring, each result held against what it must be.

What each rank puts in follows from its number alone, so every rank knows what has to come out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

TYPES = {"int32": mx.int32, "float32": mx.float32}
# What every rank gets alike, so that one digest of it is the same everywhere.
ALIKE = frozenset({"all-sum", "all-max", "all-min", "all-gather"})


def payload(rank: int, *, elements: int, dtype: str) -> Any:
    """Return what a rank puts in: whole numbers from 1 to 3 in either type, so that no sum depends
    on its order.
    """
    return (mx.arange(elements) * (rank + 1) % 3 + 1).astype(TYPES[dtype])


def ring(mine: Any, *, rank: int, size: int, group: Any) -> Any:
    """From the rank before, while sending to the one after.

    Neighbours take turns: one listens, one speaks.
    """
    distributed = mx.distributed
    to = (rank + 1) % size
    source = (rank - 1) % size
    if rank % 2:
        received = distributed.recv_like(mine, source, group=group, stream=mx.cpu)
        mx.eval(received)
        mx.eval(distributed.send(mine, to, group=group, stream=mx.cpu))
    else:
        mx.eval(distributed.send(mine, to, group=group, stream=mx.cpu))
        received = distributed.recv_like(mine, source, group=group, stream=mx.cpu)
        mx.eval(received)
    return received


def digest(array: Any) -> str:
    """Sha256 of an array's bytes."""
    return hashlib.sha256(np.array(array).tobytes()).hexdigest()


def run(
    context: Any,
    *,
    elements: int = 1024,
    dtype: str = "float32",
    rounds: int = 1,
    defect: str = "none",
) -> None:
    """Entry: every collective, `rounds` times."""
    group = context.group.native
    distributed = mx.distributed
    own = payload(context.rank, elements=elements, dtype=dtype)
    mine = mx.zeros_like(own) if defect == "left-out" and context.rank == context.size - 1 else own
    everyone = mx.stack(
        [payload(rank, elements=elements, dtype=dtype) for rank in range(context.size)]
    )

    def do(collective: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: collective(mine, group=group, stream=mx.cpu)

    must_be: dict[str, tuple[Callable[[], Any], Any]] = {
        "all-sum": (do(distributed.all_sum), everyone.sum(0)),
        "all-max": (do(distributed.all_max), everyone.max(0)),
        "all-min": (do(distributed.all_min), everyone.min(0)),
        "all-gather": (do(distributed.all_gather), everyone.flatten()),
        "ring": (
            lambda: ring(mine, rank=context.rank, size=context.size, group=group),
            everyone[context.rank - 1],
        ),
    }
    wrong: set[str] = set()
    alike = hashlib.sha256()
    for number in range(rounds):
        for name, (collective, wanted) in must_be.items():
            context.emit("collective.begin")
            result = collective()
            mx.eval(result)  # MLX is lazy: without it nothing would be sent
            context.emit("collective.end")
            if defect == "own-value" and context.rank:
                # What a rank holds whose group is silently a group of one.
                result = mx.concatenate([mine] * (wanted.size // mine.size))
            correct = bool(mx.array_equal(result, wanted))
            wrong |= set() if correct else {name}
            if name in ALIKE:
                alike.update(digest(result).encode())
            context.emit(
                "collective",
                kind=name,
                round=number,
                digest=digest(result),
                expected=digest(wanted),
                correct=correct,
            )
    context.emit(
        "collectives.done", digest=alike.hexdigest(), wrong=sorted(wrong), correct=not wrong
    )
