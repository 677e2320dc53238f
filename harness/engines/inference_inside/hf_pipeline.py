"""A decoder of transformers split by layers over the ranks, in stages of our own."""

from __future__ import annotations

from typing import Any

from .carried import answered
from .request import Request, takes_a_request


@takes_a_request
def run(context: Any, *, integrity: str = "off", **asked: Any) -> None:
    """Entry: load, warm up, answer every prompt; `Request` has what is asked."""
    answered(context, Request(**asked), sharding="pipeline", integrity=integrity)
