"""The wire between harness and fork server: every request arrives with its own descriptors, however
many.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.world.below import requests
from harness.world.below.requests import BATCH, Requests, send

COUNTS = st.one_of(
    st.integers(0, 6), st.sampled_from([BATCH - 1, BATCH, BATCH + 1, 2 * BATCH, 2 * BATCH + 1, 600])
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    """Descriptors of seven different files."""
    folder = tmp_path_factory.mktemp("files")
    opened = [os.open(folder / str(number), os.O_CREAT | os.O_RDWR) for number in range(7)]
    yield opened
    for descriptor in opened:
        os.close(descriptor)


def inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


@given(
    data=st.data(),
    counts=st.lists(COUNTS, min_size=1, max_size=4),
    piece=st.sampled_from([1, 7, 4096]),
)
@settings(max_examples=60, deadline=None)
def test_every_request_arrives_with_its_own_descriptors(
    files: list[int], data: st.DataObject, counts: list[int], piece: int
) -> None:
    """Whatever the counts, and in whatever pieces the bytes are read: in order, and none lost,
    swapped or left over.
    """
    start = data.draw(st.integers(0, 6))
    sent = [
        [files[(start + request + at) % 7] for at in range(count)]
        for request, count in enumerate(counts)
    ]
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "CHUNK", piece)

        def write() -> None:
            for request, descriptors in enumerate(sent):
                send(ours, {"world": "w" * (request * 50)}, descriptors)
            ours.shutdown(socket.SHUT_WR)

        writer = threading.Thread(target=write)
        writer.start()
        arrived = []
        reader = Requests(theirs)
        with contextlib.suppress(EOFError):
            while True:
                for request, descriptors in reader.receive():
                    arrived.append((len(request["world"]) // 50, list(map(inode, descriptors))))
                    assert not any(map(os.get_inheritable, descriptors))
                    for descriptor in descriptors:
                        os.close(descriptor)
        writer.join()
    assert arrived == [
        (request, list(map(inode, descriptors))) for request, descriptors in enumerate(sent)
    ]
    assert reader._received == []


def test_one_message_takes_no_more_than_a_batch(files: list[int]) -> None:
    """The limit is the kernel's: one more descriptor in a message, and it is refused."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(ours, [b" "], [files[0]] * BATCH)
        with pytest.raises(OSError, match="Invalid argument"):
            socket.send_fds(ours, [b" "], [files[0]] * (BATCH + 1))


def test_descriptors_that_are_lost_are_missed(files: list[int]) -> None:
    """A reader that may open no more gets the request with fewer than it names, and the next one
    with its own.
    """
    import resource

    ours, theirs = socket.socketpair()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reader = Requests(theirs)
    with ours, theirs:
        send(ours, {"world": "big"}, [files[0]] * 40)
        taken = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
        free = [number for number in range(soft) if number not in taken]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[10], hard))
        try:
            ((request, descriptors),) = reader.receive()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert request["descriptors"] == 40
        assert 0 < len(descriptors) < 40
        send(ours, {"world": "small"}, [files[1]])
        ((_, own),) = reader.receive()
        assert list(map(inode, own)) == [inode(files[1])]
        for descriptor in (*descriptors, *own):
            os.close(descriptor)
