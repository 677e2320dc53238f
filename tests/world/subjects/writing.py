"""Subjects that write what they should not."""

import json
import os
import time
from pathlib import Path


def channel():
    """Find the event channel's descriptor, as a hostile subject would."""
    found = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) >= 200:
            try:
                found[int(entry.name)] = str(entry.readlink())
            except OSError:
                continue
    return min(number for number, target in found.items() if target.startswith("pipe:"))


def log(context, megabytes=100):
    """Flood the log."""
    if context.rank == 1:
        block = b"x" * (1 << 20)
        for _ in range(megabytes):
            os.write(1, block)


def binary(context):
    """Write anything but text to the log."""
    os.write(1, bytes(range(256)) * 16)


def raw(context, text):
    """Write to the event channel directly."""
    if context.rank == 1:
        os.write(channel(), text.encode("latin-1"))


def long_line(context):
    """Write one line of 10 MB to the event channel, and then something true."""
    if context.rank == 1:
        descriptor = channel()
        for _ in range(10):
            os.write(descriptor, b"a" * (1 << 20))
        os.write(descriptor, b"\n")
    context.emit("afterwards")


def flood(context, count=1_000_000):
    """Emit without end."""
    if context.rank == 1:
        line = b'{"event":"a"}\n' * 1000
        descriptor = channel()
        for _ in range(count // 1000):
            os.write(descriptor, line)


def forge(context):
    """Speak for the server, for the harness and for another rank, and claim the end."""
    if context.rank == 1:
        now = time.monotonic_ns()
        for line in (
            {"event": "rank.exited", "values": {"code": 0, "signal": None}},
            {"event": "world.survivors", "values": {"count": 0}},
            {"event": "subject.end"},
            {"event": "there", "ns": now, "values": {}, "by": "server", "rank": 0},
            {"event": "there", "ns": now + 10**12},
        ):
            os.write(channel(), json.dumps(line).encode() + b"\n")
        os._exit(0)
