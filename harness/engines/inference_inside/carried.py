"""A session with transformers whose stages hand on as is asked, and what came of that."""

from __future__ import annotations

from typing import Any

from . import session
from .handover import handover
from .hf import Transformers
from .request import Request


def answered(context: Any, request: Request, *, sharding: str, integrity: str) -> None:
    """Load, warm up, answer every prompt; tell what was mended between stages, or which message was lost.

    Args:
        context: of the rank.
        request: what is asked.
        sharding: `single`, `tensor` or `pipeline`.
        integrity: of a pipeline: `off`, `light` or `full`.
    """
    distributed, rank, size = context.group.native, context.rank, context.size
    with handover(integrity, distributed=distributed, rank=rank, size=size, folder=context.shared) as between:
        engine = Transformers(rank=rank, size=size, sharding=sharding, distributed=distributed, handover=between)
        try:
            session.run(context, engine, request)
        except between.failures as error:
            context.emit("lost", peer=error.peer, message=error.sequence)
            raise
        if (mended := between.mended()) is not None:
            context.emit(
                "carried",
                damaged=mended["damaged"],
                sent_again=mended["sent_again"],
                duplicates=mended["duplicates"],
                early=mended["early"],
                made_anew=mended["made_anew"],
            )
