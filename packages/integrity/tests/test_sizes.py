"""Messages of every size at which a wire changes how it reads, in any order."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankproof_integrity import ReliableMessageTransport, TransportLimits, frame, reader

BOUNDS = (0, reader.SCRATCH, reader.CHUNK, frame.LARGEST, 3 * frame.LARGEST)
NEAR = sorted(
    {
        max(0, at + by)
        for at in BOUNDS
        for by in (-frame.SIZE - 1, -frame.SIZE, -1, 0, 1, frame.SIZE)
    }
)
SIZES = st.sampled_from(NEAR) | st.integers(0, 2000) | st.integers(0, 2**20)
NOISE = random.Random(18).randbytes(max(NEAR) + 4096)


def exchanged(a: ReliableMessageTransport, b: ReliableMessageTransport, sizes: list[int]) -> None:
    """Messages of these sizes come as they were sent, to both ends at once."""
    messages = [NOISE[at % 4096 :][:size] for at, size in enumerate(sizes)]

    def send(one: ReliableMessageTransport, to: str) -> None:
        for message in messages:
            one.send(message, to=to)

    threads = [
        threading.Thread(target=send, args=pair, daemon=True) for pair in ((a, "b"), (b, "a"))
    ]
    for thread in threads:
        thread.start()
    for message in messages:
        assert a.receive(source="b").data == message
        assert b.receive(source="a").data == message
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.slow
def test_over_a_stream(tmp_path: Path) -> None:
    """Whatever the sizes and their order."""
    a, b = (ReliableMessageTransport(node=name) for name in "ab")
    with a, b:
        a.expect("b")
        b.connect("a", a.listen(str(tmp_path / "a")))

        @settings(deadline=None)
        @given(sizes=st.lists(SIZES, min_size=1, max_size=12))
        def come(sizes: list[int]) -> None:
            exchanged(a, b, sizes)

        come()


@pytest.mark.slow
def test_small_messages_among_large_ones(tmp_path: Path) -> None:
    """Ten thousand of a few bytes and three of 64 MiB, from several threads: each thread's come
    once and in order.
    """
    a, b = (
        ReliableMessageTransport(node=name, limits=TransportLimits(deadline=120)) for name in "ab"
    )
    large = bytes(64 * 2**20)
    with a, b:
        a.expect("b")
        b.connect("a", a.listen(str(tmp_path / "a")))

        def small(thread: int) -> None:
            for number in range(2_500):
                b.send(b"%d %d" % (thread, number), to="a")

        def big() -> None:
            for _ in range(3):
                b.send(large, to="a")

        threads = [threading.Thread(target=small, args=(at,), daemon=True) for at in range(4)]
        threads.append(threading.Thread(target=big, daemon=True))
        for thread in threads:
            thread.start()
        came: dict[int, list[int]] = {at: [] for at in range(4)}
        for _ in range(10_003):
            data = a.receive(source="b").data
            if len(data) > 100:
                came.setdefault(-1, []).append(len(data))
            else:
                thread_of, number = bytes(data).split()
                came[int(thread_of)].append(int(number))
        for thread in threads:
            thread.join(60)
        assert came == {at: list(range(2_500)) for at in range(4)} | {-1: [len(large)] * 3}
