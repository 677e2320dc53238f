"""The whole model in each rank, by transformers: what a reference is, in a world of one."""

from __future__ import annotations

from typing import Any

from . import session
from .hf import Transformers
from .request import Request, takes_a_request


@takes_a_request
def run(context: Any, **asked: Any) -> None:
    """Entry: load, warm up, answer every prompt; `Request` has what is asked."""
    engine = Transformers(rank=0, size=1, sharding="single")
    session.run(context, engine, Request(**asked))
