"""Messages between the processes of a world, on the wire: lines of JSON, and the descriptors that
they speak of.

The kernel takes 253 descriptors with one message and no more, and hands none on together with those
of another: so what belongs to a line comes in batches, each with a byte, and the last with the line
itself. A reader that has the end of the line has all of them, however the bytes were cut into
pieces.
"""

from __future__ import annotations

import array
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BATCH = 253  # Linux' SCM_MAX_FD
PADDING = b" "  # which JSON does not mind
CHUNK = 64 * 1024


def send(
    channel: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Send a request, and the descriptors that go with it; blocks until it is with the kernel.

    Raises:
        OSError: nobody reads, or the kernel takes no more descriptors (ETOOMANYREFS: as many are
            under way already as this process may have open).
    """
    line = json.dumps({**request, "descriptors": len(descriptors)}).encode() + b"\n"
    *batches, last = [
        descriptors[at : at + BATCH] for at in range(0, max(1, len(descriptors)), BATCH)
    ]
    for batch in batches:
        socket.send_fds(channel, [PADDING], list(batch))
    sent = socket.send_fds(channel, [line], list(last))
    channel.sendall(line[sent:])


class Requests:
    """Receiving end: requests in the order they were sent, each with its descriptors, closed on
    exec.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._buffer = b""
        self._received: list[int] = []

    def receive(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Take what waits, and give the requests that are whole with it, with fewer descriptors
        where some were lost.

        Raises:
            EOFError: the harness is gone.
        """
        # Which socket.recv_fds of Python 3.11 does not pass on.
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        try:
            data, ancillary, _, _ = self._channel.recvmsg(
                CHUNK, socket.CMSG_SPACE(4 * BATCH), flags
            )
        except ConnectionError:
            data = b""
            ancillary = []
        if not data:
            raise EOFError
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                self._received += numbers
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            count = request.get("descriptors", 0)
            handed = self._received[:count]
            self._received = self._received[count:]
            yield request, handed
