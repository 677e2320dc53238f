"""Callers that run an event loop: turns, those who are cancelled, and a loop that ends before its
calls do.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from rankproof_integrity import (
    DistributedBarrier,
    Membership,
    MemoryStore,
    Message,
    MessageLate,
    MessageLost,
    Misused,
    TokenStreamSynchronizer,
)
from rankproof_integrity.loops import LoopCalls

COUNT = 100


async def begun(*coroutines: object) -> list[asyncio.Task[Message]]:
    """Tasks that wait, each after the one before it."""
    tasks = []
    for one in coroutines:
        tasks.append(asyncio.create_task(one))  # type: ignore[arg-type]
        await asyncio.sleep(0)
    return tasks


def test_messages_go_in_the_order_in_which_they_are_awaited(pair: Callable[..., tuple]) -> None:
    """Of many tasks that send to one peer, the first to ask sends first, though each waits in a
    thread of its own.
    """
    a, b, _ = pair()

    async def send() -> list[int]:
        told = await asyncio.gather(
            *(b.send_with_validation(b"%d" % number, "a") for number in range(COUNT))
        )
        return [one.sequence for one in told]

    numbers: list[int] = []
    thread = threading.Thread(target=lambda: numbers.extend(asyncio.run(send())))
    thread.start()
    assert [int(bytes(a.receive(source="b").data)) for _ in range(COUNT)] == list(range(COUNT))
    thread.join()
    assert numbers == list(range(COUNT))


def test_who_asks_first_is_given_the_first(pair: Callable[..., tuple]) -> None:
    """Of many tasks that wait for one peer, and in a loop after another."""
    a, b, _ = pair()

    async def receive(before: int) -> None:
        tasks = await begun(*(a.receive_with_validation("b") for _ in range(COUNT)))
        for number in range(COUNT):
            b.send(b"%d" % number, to="a")
        came = [await one for one in tasks]
        assert [int(bytes(one.data)) for one in came] == list(range(COUNT))
        assert [one.sequence for one in came] == list(range(before, before + COUNT))

    for before in (0, COUNT):
        asyncio.run(receive(before))


def test_who_is_cancelled_disturbs_nobody(pair: Callable[..., tuple]) -> None:
    """Others wait at the same time: what comes is given to the first of those that are left, and to
    each one.
    """
    a, b, _ = pair()

    async def receive() -> None:
        tasks = await begun(*(a.receive_with_validation("b") for _ in range(5)))
        for at in (0, 3):
            tasks[at].cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await tasks[at]
        for number in range(4):
            b.send(b"%d" % number, to="a")
        async with asyncio.timeout(20):
            assert [bytes((await tasks[at]).data) for at in (1, 2, 4)] == [b"0", b"1", b"2"]
            assert (await a.receive_with_validation("b")).data == b"3"

    asyncio.run(receive())


def test_a_send_that_is_cancelled_is_sent_in_its_turn(pair: Callable[..., tuple]) -> None:
    """Whether its thread had begun or not: nobody has to guess what its peer was told."""
    a, b, _ = pair()

    async def send() -> None:
        tasks = await begun(*(b.send_with_validation(b"%d" % number, "a") for number in range(20)))
        for one in tasks[::3]:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(send()))
    thread.start()
    assert [int(bytes(a.receive(source="b").data)) for _ in range(20)] == list(range(20))
    thread.join()


def late(words: str) -> MessageLate:
    return MessageLate(words, peer="b")


@pytest.mark.parametrize(
    "error", [late("of the first"), MessageLost("of before", peer="b")], ids=["late", "lost"]
)
def test_what_became_of_one_who_was_cancelled_is_nobodys_error(error: Exception) -> None:
    """Its time was not the next one's, and what was wrong then may be right by now."""
    calls, go = LoopCalls(), threading.Event()
    message = Message(memoryview(b"x"), "b", 0, 1)

    def first() -> Message:
        go.wait()
        raise error

    async def receive() -> None:
        (one,) = await begun(calls.receive("b", first))
        one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await one
        if isinstance(error, MessageLate):  # while the next one waits
            (other,) = await begun(calls.receive("b", lambda: message))
            go.set()
            assert await other is message
        else:
            go.set()
            await asyncio.to_thread(calls._left["b"][0].exception)
            assert await calls.receive("b", lambda: message) is message

    asyncio.run(receive())
    calls.close()


def test_what_came_before_a_conversation_began_anew_is_given_to_nobody(
    pair: Callable[..., tuple],
) -> None:
    """It was of the last, and its number is that of another one now."""
    a, b, _ = pair()

    async def receive() -> None:
        (one,) = await begun(a.receive_with_validation("b"))
        one.cancel()
        b.send(b"old", to="a")
        with contextlib.suppress(asyncio.CancelledError):
            await one
        await asyncio.to_thread(a._calls._left["b"][0].result)

    asyncio.run(receive())
    for one, other in ((a, "b"), (b, "a")):
        line = one._lines[other]
        with line._lock:
            line.conversation._give_up("somebody has to")
        one.renew(other)
    b.send(b"new", to="a")
    assert asyncio.run(a.receive_with_validation("b")).data == b"new"


def test_a_slip_is_said_before_a_thread_is_asked(pair: Callable[..., tuple]) -> None:
    """No such peer, no buffer, a closed transport: as plain calls do, and at once."""
    a, _, _ = pair()
    for call in (lambda: a.send_with_validation(b"", "c"), lambda: a.receive_with_validation("c")):
        with pytest.raises(Misused, match="has no connection to 'c'"):
            asyncio.run(call())
    with pytest.raises(Misused, match="a message must be a buffer"):
        asyncio.run(a.send_with_validation("text", "b"))
    a.close(timeout=1)
    for call in (lambda: a.send_with_validation(b"", "b"), lambda: a.receive_with_validation("b")):
        with pytest.raises(Misused, match="is closed"):
            asyncio.run(call())


@pytest.mark.parametrize("what", ["barrier", "stream"])
def test_who_no_longer_waits_for_others_holds_up_nobody(what: str) -> None:
    """Neither its loop, which waits for threads, nor a barrier, which would break for all in the
    end.
    """
    store = MemoryStore()
    ranks = [Membership(store=store, rank=rank, world_size=2) for rank in range(2)]
    barriers = [DistributedBarrier(membership=one) for one in ranks]
    stages = [
        TokenStreamSynchronizer(store=store, stream="x", stage=stage, stages=2)
        for stage in range(2)
    ]

    async def wait() -> None:
        for _ in range(2):
            if what == "barrier":
                (one,) = await begun(barriers[0].sync_with_timeout(30))
            else:
                (one,) = await begun(stages[1].coordinate_generation(1, within=30))
            one.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await one

    waiting = threading.Thread(target=lambda: asyncio.run(wait()), daemon=True)
    waiting.start()
    waiting.join(20)
    assert not waiting.is_alive()
    if what == "barrier":
        other = threading.Thread(target=lambda: barriers[1].wait(timeout=20))
        other.start()
        assert asyncio.run(barriers[0].sync_with_timeout(20)).sequence == 0
        other.join()
    else:
        stages[0].handed_on(0)
        assert asyncio.run(stages[1].coordinate_generation(1)).may_go_on


ENDS = """
import asyncio
from rankproof_integrity import TransportLimits, ReliableMessageTransport

limits = TransportLimits(deadline=1000, silence=0.5)
a, b = (ReliableMessageTransport(node=name, limits=limits) for name in "ab")
a.expect("b")
b.connect("a", a.listen(("127.0.0.1", 0)))

async def main():
    for transport, other in ((a, "b"), (b, "a")):
        for _ in range(3):
            asyncio.create_task(transport.receive_with_validation(other))
    try:
        await asyncio.wait_for(a.receive_with_validation("b"), 0.05)
    except TimeoutError:
        pass

for _ in range(2):
    asyncio.run(main())
CLOSE
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "close", ["a.close(timeout=0.1); b.close(timeout=0.1)", ""], ids=["closed", "not closed"]
)
def test_a_loop_that_ends_leaves_no_noise_and_holds_up_nobody(close: str) -> None:
    """Nothing on stderr of tasks, loops and exceptions nobody retrieved.

    The process ends long before calls do.
    """
    found = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", ENDS.replace("CLOSE", close)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert (found.stdout, found.stderr) == ("", "")


def test_a_send_for_which_there_is_no_thread_holds_up_nobody(
    pair: Callable[..., tuple], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error, nothing of it is sent later, and the next one does not wait for it."""
    a, b, _ = pair()

    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    async def both() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading, "Thread", NoThread)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await a.send_with_validation(b"lost", "b")
        await asyncio.wait_for(a.send_with_validation(b"next", "b"), 20)

    asyncio.run(both())
    assert bytes(b.receive(source="a", timeout=20).data) == b"next"
