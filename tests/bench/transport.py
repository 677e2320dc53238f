"""The reliable transport beside a bare socket: the same messages between two processes over
loopback, in turn.

Beside the bytes a second, which whatever else runs disturbs, the processor's time of all threads of
both processes.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

from harness._integrity import ReliableMessageTransport

SIZES = {"4 KiB": (4096, 8000), "1 MiB": (2**20, 400)}

BARE = """
import socket, sys, time
size, count = int(sys.argv[2]), int(sys.argv[3])
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
into = memoryview(bytearray(size))
begin = time.process_time()
for _ in range(count):
    at = 0
    while at < size:
        at += link.recv_into(into[at:])
link.sendall(b"%.9f" % (time.process_time() - begin))
link.recv(1)
"""

OURS = """
import sys, time
from harness._integrity import ReliableMessageTransport
size, count = int(sys.argv[2]), int(sys.argv[3])
with ReliableMessageTransport(node="b") as transport:
    transport.connect("a", ("127.0.0.1", int(sys.argv[1])))
    transport.receive(source="a")
    begin = time.process_time()
    for _ in range(count):
        assert len(transport.receive(source="a").data) == size
    transport.send(b"%.9f" % (time.process_time() - begin), to="a")
"""


def bare(size: int, count: int) -> tuple[float, float]:
    """Bytes a second of sendall and recv_into, from the first byte until the receiver says that it
    has the last.

    Beside them, seconds of the processor for one message, on both sides together.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = subprocess.Popen(
            [sys.executable, "-c", BARE, str(server.getsockname()[1]), str(size), str(count)]
        )
        link, _ = server.accept()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = os.urandom(size)  # zeros would all lie in one page
        begin, busy = time.perf_counter(), time.process_time()
        for _ in range(count):
            link.sendall(data)
        theirs = float(link.recv(100))
        seconds, busy = time.perf_counter() - begin, time.process_time() - busy
        link.close()
        other.wait()
    return size * count / seconds, (busy + theirs) / count


def ours(size: int, count: int) -> tuple[float, float]:
    """The same of our transport, with its digests and acknowledgements."""
    with ReliableMessageTransport(node="a") as transport:
        address = transport.listen(("127.0.0.1", 0))
        transport.expect("b")
        other = subprocess.Popen(
            [sys.executable, "-c", OURS, str(address[1]), str(size), str(count)]
        )
        transport.send(b"", to="b")
        transport.flush(to="b")
        data = os.urandom(size)  # zeros would all lie in one page
        begin, busy = time.perf_counter(), time.process_time()
        for _ in range(count):
            transport.send(data, to="b")
        theirs = float(bytes(transport.receive(source="b").data))
        seconds, busy = time.perf_counter() - begin, time.process_time() - busy
    other.wait()
    return size * count / seconds, (busy + theirs) / count


def measure(*, rounds: int = 5) -> dict[str, Any]:
    """By size of message: of both, bytes a second and seconds of the processor a message, and
    ratios of the medians.

    Each is the minimum, median and maximum of the rounds. A ratio of 1 is a transport that costs
    nothing.
    """
    found = {}
    for name, (size, count) in SIZES.items():
        turns = [(bare(size, count), ours(size, count)) for _ in range(rounds)]
        speeds, costs = (
            {
                side: _spread([turn[at][which] for turn in turns])
                for at, side in enumerate(("bare", "ours"))
            }
            for which in (0, 1)
        )
        found[name] = speeds | {
            "processor": costs,
            "ratio": speeds["ours"][1] / speeds["bare"][1],
            "processor_ratio": costs["bare"][1] / costs["ours"][1],
        }
    return found


def _spread(figures: list[float]) -> list[float]:
    return [min(figures), statistics.median(figures), max(figures)]


def show(found: dict[str, Any]) -> None:
    """Print it for people."""
    print("messages over loopback, beside a bare socket")
    for name, figures in found.items():
        speeds = ", ".join(f"{side} {figures[side][1] / 1e9:.2f} GB/s" for side in ("bare", "ours"))
        costs = ", ".join(
            f"{side} {figures['processor'][side][1] * 1e6:.0f} us" for side in ("bare", "ours")
        )
        print(f"  {name:<6} {figures['ratio']:.2f} of its speed ({speeds}; medians)")
        print(
            f"  {'':<6} {figures['processor_ratio']:.2f} by the processor's time of both sides"
            f" ({costs} a message)"
        )
