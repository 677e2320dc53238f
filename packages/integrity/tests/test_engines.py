"""The library under engines of other shapes: an event loop, microbatches forth and back, a ring of
tensors both ways.

Each runs over ways that flip bits and end connections, and is held against one device.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from crossing import QUICK, Crossing
from rankproof_integrity import DeviceCommunicationManager, MemoryStore, ReliableMessageTransport
from rankproof_integrity.attendant import THREAD


class Bent(MemoryStore):
    """A store that leads whoever asks for a rank's address over a way that damages what passes."""

    def __init__(self, held: ExitStack, chance: random.Random) -> None:
        super().__init__()
        self._held, self._chance = held, chance
        self.ways: list[Crossing] = []

    def set(self, key: str, value: bytes) -> None:
        if key.startswith("address/"):
            host, port = value.decode()[1:-1].split(",")
            way = Crossing((host.strip('" '), int(port)))
            way.flip_at += sorted(self._chance.randrange(4_000) for _ in range(6))
            way.cut_after += sorted(
                (self._chance.randrange(2_000, 9_000) for _ in range(4)), reverse=True
            )
            self._held.callback(way.close)
            self.ways.append(way)
            value = f'["{way.address[0]}", {way.address[1]}]'.encode()
        super().set(key, value)


@contextmanager
def ranks(count: int, seed: int) -> Iterator[tuple[list[DeviceCommunicationManager], Bent]]:
    """So many ranks in one process, over bad ways.

    At the end all close, and something had to be mended.
    """
    with ExitStack() as held:
        store = Bent(held, random.Random(seed))
        lines = [
            DeviceCommunicationManager(store=store, rank=rank, world_size=count, limits=QUICK)
            for rank in range(count)
        ]
        yield lines, store
        closing = [threading.Thread(target=one.close, daemon=True) for one in lines]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(60)
        assert not any(thread.is_alive() for thread in closing)
        mended = [one.transport.monitor.mended() for one in lines]
        assert sum(one["made_anew"] for one in mended) >= 1


def together(works: list[Callable[[], None]]) -> None:
    """Run each in a thread; raises what one raised."""
    raised: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        # Told to the test, which is in another thread.
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert raised == []
    assert not any(thread.is_alive() for thread in threads)


def test_one_forward_one_backward() -> None:
    """Four stages, twelve microbatches in the schedule of PipeDream: the gradients are those of one
    device.
    """
    stages, batches, width = 4, 12, 300
    weights = [
        np.random.default_rng(at).standard_normal(width).astype("f4") for at in range(stages)
    ]
    inputs = [
        np.random.default_rng(100 + at).standard_normal(width).astype("f4") for at in range(batches)
    ]

    def whole() -> list[Any]:
        found = [np.zeros(width, "f4") for _ in range(stages)]
        for given in inputs:
            states = [given]
            for weight in weights:
                states.append(states[-1] * weight)
            gradient = np.ones(width, "f4")
            for at in reversed(range(stages)):
                found[at] += gradient * states[at]
                gradient = gradient * weights[at]
        return found

    found: list[Any] = [np.zeros(width, "f4") for _ in range(stages)]

    def stage(at: int, lines: DeviceCommunicationManager) -> None:
        kept: deque[Any] = deque()
        fresh = iter(inputs)

        def forward() -> None:
            given = (
                next(fresh) if at == 0 else np.frombuffer(lines.receive(source=at - 1).data, "f4")
            )
            kept.append(given)
            if at < stages - 1:
                lines.send(given * weights[at], to=at + 1)

        def backward() -> None:
            last = at == stages - 1
            gradient = (
                np.ones(width, "f4")
                if last
                else np.frombuffer(lines.receive(source=at + 1).data, "f4")
            )
            found[at] += gradient * kept.popleft()
            if at:
                lines.send(gradient * weights[at], to=at - 1)

        ahead = min(batches, stages - at - 1)
        for _ in range(ahead):
            forward()
        for _ in range(batches - ahead):
            forward()
            backward()
        for _ in range(ahead):
            backward()

    with ranks(stages, seed=3) as (lines, _):
        together([lambda at=at: stage(at, lines[at]) for at in range(stages)])  # type: ignore[misc]
    for here, there in zip(found, whole(), strict=True):
        np.testing.assert_array_equal(here, there)


def test_a_ring_of_tensors_both_ways() -> None:
    """Four ranks add up their tensors around a ring, to the left and to the right at once, in a
    thread each.
    """
    count, rounds = 4, 10
    mine = [np.arange(2_000, dtype="i8") * (rank + 1) for rank in range(count)]
    sums: dict[tuple[int, int, int], Any] = {}

    def around(rank: int, step: int, lines: DeviceCommunicationManager) -> None:
        for turn in range(rounds):
            total, passing = mine[rank] + turn, mine[rank] + turn
            for _ in range(count - 1):
                # A direction each has a thread, and all peers of a rank one line: three messages a
                # side and turn.
                lines.send(np.concatenate([[step], passing]), to=(rank + step) % count)
                came = np.frombuffer(lines.receive(source=(rank - step) % count).data, "i8")
                assert came[0] == step
                passing = came[1:]
                total = total + passing
            sums[rank, step, turn] = total

    with ranks(count, seed=5) as (lines, _):
        together([lambda r=r, s=s: around(r, s, lines[r]) for r in range(count) for s in (1, -1)])  # type: ignore[misc]
    for (_, _, turn), total in sums.items():
        np.testing.assert_array_equal(total, sum(mine) + count * turn)
    assert len(sums) == 2 * count * rounds


def test_an_event_loop_that_gives_up_waiting_loses_nothing() -> None:
    """Receives that are cancelled again and again, and more of them at once than asyncio has
    threads.
    """
    peers = [f"peer {at}" for at in range(40)]
    hub = ReliableMessageTransport(node="hub", limits=QUICK)
    address = hub.listen(("127.0.0.1", 0))
    others = {peer: ReliableMessageTransport(node=peer, limits=QUICK) for peer in peers}
    for peer, other in others.items():
        hub.expect(peer)
        other.connect("hub", address)
    came: dict[str, list[bytes]] = {peer: [] for peer in peers}

    async def listen(peer: str) -> None:
        while len(came[peer]) < 5:
            try:
                async with asyncio.timeout(0.002 + len(came[peer]) * 0.001):
                    message = await hub.receive_with_validation(peer)
            except TimeoutError:
                continue
            came[peer].append(bytes(message.data))
            await hub.send_with_validation(b"answer", peer)

    async def work(peer: str) -> None:
        for number in range(5):
            await others[peer].send_with_validation(b"%d" % number, "hub")
            assert (await others[peer].receive_with_validation("hub")).data == b"answer"

    async def all_of_them() -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*(act(peer) for peer in peers for act in (listen, work)))

    asyncio.run(all_of_them())
    for one in (*others.values(), hub):
        one.close()
    assert came == {peer: [b"%d" % number for number in range(5)] for peer in peers}
    assert not [one for one in threading.enumerate() if one.name == THREAD]
