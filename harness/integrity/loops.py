"""Calls that wait, for callers that run an event loop: each in a thread, and what a cancelled one gets is not lost.

asyncio's own threads are few: with one receive that waits for each peer, no send would find a free one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from harness.integrity.incoming import Message
from harness.integrity.problem import MessageLate
from harness.integrity.records import NodeId

Answer = TypeVar("Answer")
THREAD = "integrity-call"
MOST = 1024
"""Threads, as many as calls wait at once."""


class LoopCalls:
    """Of one transport. `close` when no call can wait any more."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=MOST, thread_name_prefix=THREAD)
        self._left: defaultdict[NodeId, deque[Future[Message]]] = defaultdict(deque)

    async def call(self, work: Callable[..., Answer], *given: Any) -> Answer:
        """What it gives. Whoever is cancelled meanwhile does not end it."""
        return await asyncio.wrap_future(self._threads.submit(work, *given))

    async def receive(self, source: NodeId, receive: Callable[[], Message]) -> Message:
        """The next message of a peer; of one that was cancelled before, what came for it then or comes now."""
        left = self._left[source]
        while left and left[0].done() and isinstance(left[0].exception(), MessageLate):
            left.popleft()
        one = left.popleft() if left else self._threads.submit(receive)
        try:
            return await asyncio.shield(asyncio.wrap_future(one))
        except asyncio.CancelledError:
            left.appendleft(one)
            raise

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False)
