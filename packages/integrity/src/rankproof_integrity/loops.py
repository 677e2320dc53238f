"""Waiting calls, for callers that run an event loop: each in a thread, in the order in which they
were made.

asyncio's own threads are few: with one receive that waits for each peer, no send would find a free
one. And the interpreter does not end before they do, though one may wait for a peer that is gone.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from .incoming import Message
from .problem import MessageLate, Misused
from .records import NodeId

if TYPE_CHECKING:
    import asyncio

Answer = TypeVar("Answer")
THREAD = "integrity-call"
MOST = 1024
"""Threads, as many as calls wait at once; whatever is more waits for one of them."""


class CallThreads:
    """Threads that nobody waits for at the end of the process.

    What was asked for first begins first.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        # Of the counts, and of the order of what is asked: two callers must not both take the one
        # thread that is free.
        self._lock = threading.Lock()
        self._free = self._count = 0
        self._closed = False

    def submit(self, work: Callable[[], Answer]) -> Future[Answer]:
        """Have a call made; gives where its answer will be.

        Raises:
            Misused: it is closed.
            RuntimeError: the system gives no further thread.
        """
        future: Future[Answer] = Future()
        with self._lock:
            if self._closed:
                raise Misused("the transport was already closed")
            if self._free:
                self._free -= 1
            elif self._count < MOST:
                threading.Thread(target=self._run, name=THREAD, daemon=True).start()
                self._count += 1
            # Where no thread could be started nothing is left behind.
            self._asked.put((future, work))
        return future

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            future, work = asked
            try:
                answer = work()
            except BaseException as error:  # noqa: BLE001 - raised to who asked
                future.set_exception(error)
            else:
                future.set_result(answer)
            del asked, future, work  # not to be kept until the next comes
            with self._lock:
                self._free += 1

    def close(self) -> None:
        """Let them end, when no call can wait any more."""
        with self._lock:
            self._closed = True
            for _ in range(self._count):
                self._asked.put(None)


class LoopCalls:
    """Of one transport. `close` when no call can wait any more."""

    def __init__(self) -> None:
        self._threads = CallThreads()
        # Of `_offered`: two loops may send to one peer, and each message waits for the one before.
        self._lock = threading.Lock()
        self._left: defaultdict[NodeId, deque[Future[Message]]] = defaultdict(deque)
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, defaultdict[NodeId, asyncio.Lock]]
        self._turns = WeakKeyDictionary()
        self._offered: dict[NodeId, threading.Event] = {}

    async def send(
        self, to: NodeId, offer: Callable[[], int], then: Callable[[int], Answer]
    ) -> Answer:
        """Offer a message after those that were asked for before, and do the rest beside theirs.

        Whoever is cancelled meanwhile ends neither: it is sent, in its turn.
        """
        offered = threading.Event()
        with self._lock:
            before = self._offered.get(to)

            def work() -> Answer:
                try:
                    if before is not None:
                        before.wait()
                    number = offer()
                finally:
                    offered.set()
                return then(number)

            call = self._threads.submit(work)
            # After it: the next one would wait for ever for what was never begun.
            self._offered[to] = offered
        return await _answer(call)

    async def receive(self, source: NodeId, receive: Callable[[], Message]) -> Message:
        """Return the next message of a peer; where a call was cancelled before, what came for it
        then or comes now.

        Who asks first is given the first: one at a time waits in a thread, the others for their
        turn.
        """
        import asyncio  # by whoever has a loop: a transport without one is imported without it

        left = self._left[source]
        turns = self._turns.setdefault(asyncio.get_running_loop(), defaultdict(asyncio.Lock))
        async with turns[source]:
            while True:
                self._dismiss(left)
                is_new = not left
                call = self._threads.submit(receive) if is_new else left.popleft()
                try:
                    return await _answer(call)
                except MessageLate:
                    if is_new:
                        raise  # else it was the time of one that began before
                except (asyncio.CancelledError, GeneratorExit):
                    # It goes on in its thread: the next who asks is given what it brings.
                    left.appendleft(call)
                    raise

    @staticmethod
    def _dismiss(left: deque[Future[Message]]) -> None:
        """Drop errors that nobody was there for: what they say is said again, if it is still so."""
        while left and left[0].done() and left[0].exception() is not None:
            left.popleft()

    def renew(self, source: NodeId) -> None:
        """Begin a new conversation: what came of the last and was not taken is gone."""
        left = self._left[source]
        for call in [call for call in left if call.done()]:
            left.remove(call)

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()


class Waits:
    """Waiting of one thing for others, in threads, one after the other.

    Each is given an event that says that nobody waits for it any more, and gives None where it
    ended because of that. What it came to all the same, since both may happen at once, is the next
    one's.
    """

    def __init__(self) -> None:
        self._left: deque[Future[Any]] = deque()

    async def wait(self, work: Callable[[threading.Event], Answer | None]) -> Answer:
        """Return what comes of the one before, or of this."""
        import asyncio

        while True:
            left = threading.Event()
            call = self._left.popleft() if self._left else self._begun(work, left)
            try:
                answer: Answer | None = await _answer(call)
            except (asyncio.CancelledError, GeneratorExit):
                left.set()
                self._left.appendleft(call)
                raise
            if answer is not None:
                return answer

    @staticmethod
    def _begun(work: Callable[[threading.Event], Answer], left: threading.Event) -> Future[Answer]:
        call = Future[Answer]()

        def run() -> None:
            try:
                call.set_result(work(left))
            except BaseException as error:  # noqa: BLE001 - raised to who asked
                call.set_exception(error)

        threading.Thread(target=run, name=THREAD, daemon=True).start()
        return call


async def _answer(call: Future[Answer]) -> Answer:
    """Return what a thread answers. It does not matter to the thread who waits, or whether the loop
    is there still.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    there = loop.create_future()

    def tell() -> None:
        if not there.done():
            there.set_result(None)

    def wake(_: Future[Answer]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell)

    call.add_done_callback(wake)
    await there
    return call.result()
