"""mlx-lm's own tensor parallelism over MLX's ring: each rank has its slices of every layer."""

from __future__ import annotations

from typing import Any

from . import session
from .mlx import MlxLm
from .request import Request, takes_a_request


@takes_a_request
def run(context: Any, **asked: Any) -> None:
    """Entry: load, warm up, answer every prompt; `Request` has what is asked."""
    engine = MlxLm(rank=context.rank, size=context.size, sharding="tensor", group=context.group.native)
    session.run(context, engine, Request(**asked))
