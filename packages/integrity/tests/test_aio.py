"""The transport of an event loop: the same messages as under threads, whatever happens on the way,
and what only a loop has: cancellation, many peers, and no threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossing import QUICK, Crossing
from rankproof_integrity import (
    AsyncTransport,
    MessageLate,
    MessageLost,
    Misused,
    PeerRestarted,
    ReliableMessageTransport,
    TransferFailed,
    TransportLimits,
)

KEY = b"the key of this group, as of now"


def run(work: Any) -> Any:
    """In a loop of its own, with an end."""

    async def within() -> Any:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(within())


@contextlib.asynccontextmanager
async def pair(key: bytes | None = KEY, limits: TransportLimits = QUICK) -> Any:
    """Two nodes of one loop that know each other."""
    async with (
        AsyncTransport(node="a", key=key, limits=limits) as a,
        AsyncTransport(node="b", key=key, limits=limits) as b,
    ):
        address = await a.listen(("127.0.0.1", 0))
        a.expect("b")
        b.connect("a", address)
        yield a, b


@pytest.mark.parametrize("key", [None, KEY], ids=["no key", "a key"])
def test_messages_of_every_size_come_as_they_were_sent(key: bytes | None) -> None:
    """Both ways at once, of no bytes and of several frames."""

    async def work() -> None:
        chance = random.Random(1)
        sent = [chance.randbytes(size) for size in (0, 1, 4096, 2**20, 2**20 + 1, 3 * 2**20 + 7, 5)]
        async with pair(key) as (a, b):

            async def say(one: AsyncTransport, to: str) -> None:
                for data in sent:
                    await one.send(data, to=to)
                await one.flush(to=to)

            async def hear(one: AsyncTransport, source: str) -> None:
                for number, data in enumerate(sent):
                    message = await one.receive(source=source)
                    assert message.data == data
                    assert message.sequence == number

            await asyncio.gather(say(a, "b"), say(b, "a"), hear(a, "b"), hear(b, "a"))
            assert a.connected("b")

    run(work())


@pytest.mark.parametrize("listens", ["loop", "threads"])
def test_a_loop_and_threads_talk_to_each_other(listens: str) -> None:
    """They speak the same protocol, whoever listens."""

    async def work() -> None:
        other = ReliableMessageTransport(node="threads", key=KEY, limits=QUICK)
        async with AsyncTransport(node="loop", key=KEY, limits=QUICK) as loop:
            if listens == "loop":
                address = await loop.listen()
                loop.expect("threads")
                other.connect("loop", address)
            else:
                address = other.listen()
                other.expect("loop")
                loop.connect("threads", address)
            for number in range(100):
                await loop.send(b"%d" % number, to="threads", stream="s", position=number)
                message = await asyncio.to_thread(other.receive, source="loop")
                assert (message.data, message.stream, message.position) == (
                    b"%d" % number,
                    "s",
                    number,
                )
                await asyncio.to_thread(other.send, bytes(message.data), to="loop")
                assert (await loop.receive(source="threads")).data == b"%d" % number
            closing = asyncio.create_task(asyncio.to_thread(other.close))
            await loop.close()
            await closing

    run(work())


def test_what_breaks_on_the_way_is_mended() -> None:
    """Flips, cuts and stalls between the two: every message comes once and in order."""

    async def work() -> None:
        chance = random.Random(7)
        a = AsyncTransport(node="a", key=KEY, limits=QUICK)
        b = AsyncTransport(node="b", key=KEY, limits=QUICK)
        address = await a.listen()
        way = Crossing(address)
        a.expect("b")
        b.connect("a", way.address)
        sent = [chance.randbytes(chance.randrange(60_000)) for _ in range(120)]

        async def say() -> None:
            for number, data in enumerate(sent):
                if number % 17 == 5:
                    way.flip_at.append(chance.randrange(40_000))
                if number % 29 == 11:
                    way.cut()
                await b.send(data, to="a")
            await b.flush(to="a")

        saying = asyncio.create_task(say())
        for data in sent:
            assert (await a.receive(source="b")).data == data
        await saying
        assert way.connections >= 2
        assert b.health("a").counted["sent_again"] > 0
        await asyncio.gather(a.close(), b.close())
        await asyncio.to_thread(way.close)

    run(work())


def test_a_receive_that_is_cancelled_loses_nothing() -> None:
    """However often it is given up, and in whatever moment: the next is given the message."""

    async def work() -> None:
        async with pair() as (a, b):
            came = []
            for number in range(100):
                waiting = asyncio.create_task(a.receive(source="b"))
                await asyncio.sleep(0)
                await b.send(b"%d" % number, to="a")
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    came.append(bytes((await waiting).data))
            while len(came) < 100:
                came.append(bytes((await a.receive(source="b")).data))
            assert came == [b"%d" % number for number in range(100)]
            assert not a._links["b"].waiting

    run(work())


def test_a_send_that_is_cancelled_while_it_waits_for_room_sends_nothing() -> None:
    """And the next goes as soon as there is room."""

    async def work() -> None:
        limits = TransportLimits(window=1000, deadline=20)
        async with pair(limits=limits) as (a, b):
            await b.send(bytes(900), to="a")
            waiting = [asyncio.create_task(b.send(data, to="a")) for data in (b"never", bytes(901))]
            await asyncio.sleep(0.01)
            for task in waiting:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            last = asyncio.create_task(b.send(b"last", to="a"))
            assert (await a.receive(source="b")).data == bytes(900)
            assert (await a.receive(source="b")).data == b"last"
            await last

    run(work())


def test_streams_are_taken_by_name() -> None:
    """Each in its own order, whatever lies before it; the window is one for all."""

    async def work() -> None:
        limits = TransportLimits(window=100_000, deadline=20)
        async with pair(limits=limits) as (a, b):
            for number in range(30):
                await b.send(b"%d" % number, to="a", stream=f"s{number % 3}", position=number // 3)
            for name in (2, 0, 1):
                for position in range(10):
                    message = await a.receive(source="b", stream=f"s{name}")
                    assert message.position == position
                    assert int(bytes(message.data)) == 3 * position + name
            await b.flush(to="a")
            # What is not asked for fills the window, and is named by the sender's error.
            await b.send(bytes(99_000), to="a", stream="left")
            with pytest.raises(MessageLate, match="has not accepted messages 30 to 30"):
                await b.send(bytes(99_000), to="a", stream="other", timeout=0.2)
            with pytest.raises(MessageLate):
                await a.receive(source="b", stream="other", timeout=0)
            assert len((await a.receive(source="b", stream="left")).data) == 99_000

    run(work())


ARRAYS = {
    "float32": np.arange(6, dtype="f4").reshape(2, 3),
    "strided": np.arange(24, dtype="i8").reshape(4, 6)[::2, ::-3],
    "big-endian": np.arange(3, dtype=">i4"),
    "of no dimensions": np.array(1.5),
    "empty": np.zeros((0, 3), "f2"),
    "bool": np.array([True, False]),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_comes_with_dtype_and_shape(kind: str) -> None:
    """Of any layout."""

    async def work() -> None:
        async with pair() as (a, b):
            await b.send_tensor(ARRAYS[kind], to="a", stream="hidden", position=3)
            message = await a.receive(source="b")
            found = message.array()
            assert found.dtype == ARRAYS[kind].dtype.newbyteorder("=")
            np.testing.assert_array_equal(found, ARRAYS[kind])
            assert (message.stream, message.position) == ("hidden", 3)
            await b.send(b"bytes", to="a")
            with pytest.raises(Misused, match="was sent as bytes, not as an array"):
                (await a.receive(source="b")).array()

    run(work())


def test_whoever_has_a_message_is_answered_without_a_thread_for_each() -> None:
    """A hundred clients of one loop, each in turn; the process has no more threads than before."""

    async def work() -> None:
        before = threading.active_count()
        hub = AsyncTransport(node="hub", key=KEY, limits=QUICK)
        address = await hub.listen()
        clients = {
            f"client {at}": AsyncTransport(node=f"client {at}", key=KEY) for at in range(100)
        }
        for name, client in clients.items():
            hub.expect(name)
            client.connect("hub", address)
        await asyncio.gather(
            *(client.send(name.encode(), to="hub") for name, client in clients.items())
        )
        seen = set()
        for _ in clients:
            message = await hub.receive()
            assert bytes(message.data).decode() == message.source
            seen.add(message.source)
            await hub.send(b"answer to " + bytes(message.data), to=message.source)
        assert seen == set(clients)
        for name, client in clients.items():
            assert (await client.receive()).data == f"answer to {name}".encode()
        assert threading.active_count() == before
        await asyncio.gather(hub.close(), *(client.close() for client in clients.values()))

    run(work())


def test_of_many_peers_each_end_is_told_once() -> None:
    """One peer begins again; who receives from any is told of it once, and hears the others."""

    async def work() -> None:
        async with AsyncTransport(node="hub", key=KEY, limits=QUICK) as hub:
            address = await hub.listen()
            for name in ("one", "two"):
                hub.expect(name)
            one = AsyncTransport(node="one", key=KEY, epoch=1, limits=QUICK)
            two = AsyncTransport(node="two", key=KEY, limits=QUICK)
            for client in (one, two):
                client.connect("hub", address)
                await client.send(b"here", to="hub")
                await hub.receive()
            await one.close()
            with pytest.raises(MessageLost, match="one closed after sending 1"):
                await hub.receive()
            again = AsyncTransport(node="one", key=KEY, epoch=2, limits=QUICK)
            again.connect("hub", address)
            await again.send(b"again", to="hub")
            with pytest.raises(PeerRestarted, match="one restarted"):
                await hub.receive()
            await two.send(b"still", to="hub")
            assert (await hub.receive()).data == b"still"
            hub.renew("one")
            assert (await hub.receive()).data == b"again"
            await asyncio.gather(again.close(), two.close())

    run(work())


STAGE = """
import asyncio, sys
from rankproof_integrity import AsyncTransport
async def main():
    async with AsyncTransport(node="stage", key=bytes(32)) as transport:
        transport.connect("hub", ("127.0.0.1", int(sys.argv[1])))
        while True:
            message = await transport.receive(source="hub")
            await transport.send(bytes(message.data), to="hub")
asyncio.run(main())
"""


@pytest.mark.slow
def test_a_stage_that_is_killed_comes_back() -> None:
    """By SIGKILL, with a new process in its place: one error names it, and all goes on."""

    async def work() -> None:
        async with AsyncTransport(node="hub", key=bytes(32), limits=QUICK) as hub:
            address = await hub.listen()
            hub.expect("stage")
            for _ in range(2):
                command = [sys.executable, "-c", STAGE, str(address[1])]
                stage = subprocess.Popen(command)  # noqa: ASYNC220 - does not wait
                try:
                    while True:
                        try:
                            await hub.send(b"token", to="stage")
                            assert (await hub.receive(source="stage")).data == b"token"
                            break
                        except PeerRestarted:
                            hub.renew("stage")
                finally:
                    stage.send_signal(signal.SIGKILL)
                    stage.wait()

            with contextlib.suppress(TransferFailed):
                await hub.close(timeout=0.2)

    run(work())


def test_a_slip_is_said_and_sends_nothing() -> None:
    """A peer that is not there, one that is there twice, an address others reach, a closed
    transport.
    """

    async def work() -> None:
        a = AsyncTransport(node="a", limits=QUICK)
        with pytest.raises(Misused, match="a has no connection to 'b'; it has connections to: n"):
            await a.send(b"", to="b")
        a.expect("b")
        with pytest.raises(Misused, match="already has a connection to 'b'"):
            a.connect("b", ("127.0.0.1", 9))
        with pytest.raises(Misused, match="can be reached from other machines"):
            await a.listen(("0.0.0.0", 0))  # noqa: S104 - refused, which is what is tested
        with pytest.raises(Misused, match="a message must be a buffer"):
            await a.send("text", to="b")
        with pytest.raises(Misused, match="pass it as server_name"):
            a.connect("c", ("127.0.0.1", 9), tls=ssl.create_default_context())
        with pytest.raises(MessageLate, match="no message arrived within 0 s from any of 1 peers"):
            await a.receive(timeout=0)
        await a.close()
        with pytest.raises(Misused, match="the transport of a is closed"):
            await a.receive(source="b")

    run(work())


def test_who_waits_while_it_is_closed_is_told() -> None:
    """Whatever it waits for."""

    async def work() -> None:
        async with pair() as (a, b):
            await b.send(b"x", to="a")
            await a.receive(source="b")
            waiting = [asyncio.create_task(a.receive(source="b")), asyncio.create_task(a.receive())]
            await asyncio.sleep(0)
            closing = asyncio.gather(a.close(), b.close())
            for task in waiting:
                with pytest.raises((Misused, MessageLost)):
                    await task
            await closing

    run(work())


def test_strangers_are_told_nothing_and_keep_nobody_out() -> None:
    """More silent connections than are borne: a peer that connects is met."""

    async def work() -> None:
        async with AsyncTransport(node="a", key=KEY, limits=QUICK) as a:
            address = await a.listen()
            a.expect("b")
            silent = [await asyncio.open_connection(*address) for _ in range(300)]
            b = AsyncTransport(node="b", key=KEY, limits=QUICK)
            b.connect("a", address)
            await b.send(b"here", to="a")
            assert (await a.receive(source="b")).data == b"here"
            assert len(a._strangers) <= 256
            for _, writer in silent:
                writer.close()
                with contextlib.suppress(OSError):  # it was turned away
                    await writer.wait_closed()
            other = AsyncTransport(node="b", key=bytes(32), limits=QUICK)
            other.connect("a", address)
            with pytest.raises(MessageLate):
                await other.receive(source="a", timeout=0.5)
            assert "the keys differ" in other._links["a"].conversation.trouble
            await asyncio.gather(b.close(), other.close(timeout=0))

    run(work())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subprocess.run(
        [
            *command.split(),
            *("-keyout", folder / "key", "-out", folder / "cert"),
            *("-subj", "/CN=node", "-addext", "subjectAltName=DNS:node"),
        ],
        check=True,
        capture_output=True,
    )
    return folder


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a listener that requires a certificate, and of who connects with one."""
    listens = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listens.verify_mode = ssl.CERT_REQUIRED
    connects = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (listens, connects):
        context.load_cert_chain(folder / "cert", folder / "key")
        context.load_verify_locations(folder / "cert")
    return listens, connects


@pytest.mark.parametrize("front", ["loop", "threads", "both"])
def test_over_tls(certificate: Path, front: str) -> None:
    """Messages of several records and frames come both ways, whichever transport is used."""
    listens, connects = contexts(certificate)

    async def work() -> None:
        data = random.Random(3).randbytes(3 * 2**20 + 5)
        one: Any = (
            AsyncTransport(node="a", limits=QUICK)
            if front == "loop"
            else ReliableMessageTransport(node="a", limits=QUICK)
        )
        other: Any = (
            ReliableMessageTransport(node="b", limits=QUICK)
            if front == "threads"
            else AsyncTransport(node="b", limits=QUICK)
        )
        address = await called(one.listen, ("127.0.0.1", 0), tls=listens)
        one.expect("b")
        other.connect("a", address, tls=connects, server_name="node")
        for size in (0, 10, 16_384, 16_385, 2**20, len(data)):
            for sender, receiver in ((one, other), (other, one)):
                sending = asyncio.create_task(called(sender.send, data[:size], to=receiver.node))
                message = await called(receiver.receive, source=sender.node)
                assert message.data == data[:size]
                await sending
        await asyncio.gather(called(one.close), called(other.close))

    run(work())


async def called(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call it as its transport wants: awaited, or in a thread."""
    if asyncio.iscoroutinefunction(function):
        return await function(*given, **named)
    return await asyncio.to_thread(function, *given, **named)


@pytest.mark.parametrize("front", ["loop", "threads"])
def test_a_certificate_that_is_not_trusted_is_refused(certificate: Path, front: str) -> None:
    """In words, on the side that refuses it; a plain connection meets nobody."""
    listens, _ = contexts(certificate)

    async def work() -> None:
        kind: Any = AsyncTransport if front == "loop" else ReliableMessageTransport
        a, b, c = (kind(node=name, limits=QUICK) for name in "abc")
        address = await called(a.listen, ("127.0.0.1", 0), tls=listens)
        for name in "bc":
            a.expect(name)
        b.connect("a", address, tls=ssl.create_default_context(), server_name="node")
        c.connect("a", address)
        words = ""
        until = time.monotonic() + 20
        while "CERTIFICATE_VERIFY_FAILED" not in words and time.monotonic() < until:
            with pytest.raises(MessageLate) as late:
                await called(b.receive, source="a", timeout=0.2)
            words = str(late.value)
        assert "CERTIFICATE_VERIFY_FAILED" in words
        with pytest.raises(MessageLate, match="not connected"):
            await called(c.receive, source="a", timeout=0.2)
        for one in (a, b, c):
            await called(one.close, timeout=0)

    run(work())


def test_a_forked_process_is_told() -> None:
    """What its parent made is the parent's."""

    async def work() -> None:
        async with pair() as (a, b):
            await b.send(b"x", to="a")
            await a.receive(source="b")
            child = os.fork()
            if child == 0:
                told = 1
                with contextlib.suppress(BaseException):
                    try:
                        a._link("b")
                    except Misused as error:
                        told = 0 if "belongs to process" in str(error) else 2
                os._exit(told)
            assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 - it ends at once

    run(work())
