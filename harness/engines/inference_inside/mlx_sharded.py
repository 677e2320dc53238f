"""mlx-lm over MLX's ring, shared as an argument says: whole in each rank, by tensors or by layers."""

from __future__ import annotations

from typing import Any

from . import session
from .mlx import MlxLm
from .request import Request, takes_a_request


@takes_a_request
def run(context: Any, *, sharding: str = "tensor", integrity: str = "off", **asked: Any) -> None:
    """Entry: load, warm up, answer every prompt; `Request` has what is asked."""
    engine = MlxLm(
        rank=context.rank, size=context.size, sharding=sharding, group=context.group.native, integrity=integrity
    )
    session.run(context, engine, Request(**asked))
