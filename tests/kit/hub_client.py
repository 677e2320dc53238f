"""A small folder of repositories, and plain HTTP without a client library's retries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BIG = bytes(range(256)) * 4096  # 1 MiB: more than one piece of an answer


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


Ask = Callable[..., Reply]
