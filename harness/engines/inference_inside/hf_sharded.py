"""transformers over gloo, shared as an argument says: whole in each rank, by tensors or by layers."""

from __future__ import annotations

from typing import Any

from .carried import answered
from .request import Request, takes_a_request


@takes_a_request
def run(context: Any, *, sharding: str = "tensor", integrity: str = "off", **asked: Any) -> None:
    """Entry: load, warm up, answer every prompt; `Request` has what is asked."""
    answered(context, Request(**asked), sharding=sharding, integrity=integrity)
