"""The reliable transport beside a bare socket: the same messages between two processes over loopback, in turn."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from typing import Any

from harness.integrity import ReliableMessageTransport

SIZES = {"4 KiB": (4096, 8000), "1 MiB": (2**20, 400)}

BARE = """
import socket, sys
size, count = int(sys.argv[2]), int(sys.argv[3])
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
into = memoryview(bytearray(size))
for _ in range(count):
    at = 0
    while at < size:
        at += link.recv_into(into[at:])
link.sendall(b"!")
link.recv(1)
"""

OURS = """
import sys
from harness.integrity import ReliableMessageTransport
size, count = int(sys.argv[2]), int(sys.argv[3])
with ReliableMessageTransport(node="b") as transport:
    transport.connect("a", ("127.0.0.1", int(sys.argv[1])))
    for _ in range(count):
        assert len(transport.receive(source="a").data) == size
    transport.send(b"!", to="a")
"""


def bare(size: int, count: int) -> float:
    """Bytes a second of sendall and recv_into; from the first byte until the receiver says that it has the last."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = subprocess.Popen([sys.executable, "-c", BARE, str(server.getsockname()[1]), str(size), str(count)])
        link, _ = server.accept()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = bytes(size)
        begin = time.perf_counter()
        for _ in range(count):
            link.sendall(data)
        link.recv(1)
        seconds = time.perf_counter() - begin
        link.close()
        other.wait()
    return size * count / seconds


def ours(size: int, count: int) -> float:
    """The same of our transport, with its digests and acknowledgements."""
    with ReliableMessageTransport(node="a") as transport:
        address = transport.listen(("127.0.0.1", 0))
        transport.expect("b")
        other = subprocess.Popen([sys.executable, "-c", OURS, str(address[1]), str(size), str(count)])
        while not transport.connected("b"):
            time.sleep(0.001)
        data = bytes(size)
        begin = time.perf_counter()
        for _ in range(count):
            transport.send(data, to="b")
        transport.receive(source="b")
        seconds = time.perf_counter() - begin
    other.wait()
    return size * count / seconds


def measure(*, rounds: int = 5) -> dict[str, Any]:
    """By size of message: bytes a second of both (minimum, median, maximum), and the ratio of the medians."""
    found = {}
    for name, (size, count) in SIZES.items():
        sides: dict[str, list[float]] = {"bare": [], "ours": []}
        for _ in range(rounds):
            sides["bare"].append(bare(size, count))
            sides["ours"].append(ours(size, count))
        figures = {side: [min(all_), statistics.median(all_), max(all_)] for side, all_ in sides.items()}
        found[name] = figures | {"ratio": statistics.median(sides["ours"]) / statistics.median(sides["bare"])}
    return found


def show(found: dict[str, Any]) -> None:
    """Print it for people."""
    print("messages over loopback, beside a bare socket")
    for name, figures in found.items():
        speeds = ", ".join(f"{side} {figures[side][1] / 1e9:.2f} GB/s" for side in ("bare", "ours"))
        print(f"  {name:<6} {figures['ratio']:.2f} of it ({speeds}; medians)")
