"""mlx-lm's own pipeline over MLX's ring: rank 0 has the last layers, and every rank the head."""

from __future__ import annotations

from typing import Any

from . import session
from .mlx import MlxLm
from .request import Request, takes_a_request


@takes_a_request
def run(context: Any, *, integrity: str = "off", **asked: Any) -> None:
    """Entry: load, warm up, answer every prompt; `Request` has what is asked."""
    engine = MlxLm(
        rank=context.rank, size=context.size, sharding="pipeline", group=context.group.native, integrity=integrity
    )
    session.run(context, engine, Request(**asked))
