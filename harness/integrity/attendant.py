"""The thread that attends to a transport's lines while no caller does: it acknowledges, sends again, connects anew."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from harness.integrity import frame
from harness.integrity.line import Line
from harness.integrity.records import NodeId
from harness.integrity.wire import StreamWire, Torn

TURN = 0.005
"""Seconds between two looks at a line whose callers do the work."""
STRANGER = 5.0
"""Seconds that whoever connects has to say who it is."""
STRANGERS = 64


@dataclass(frozen=True)
class Stranger:
    """A connection on which nobody has said yet who they are."""

    wire: StreamWire
    until: float


class Attendant:
    """One thread for all lines of a transport; it starts with the first line or listener.

    Args:
        lines: of the transport, which adds to them.
        longest: bytes of the longest message.
    """

    def __init__(self, *, lines: Mapping[NodeId, Line], longest: int) -> None:
        self._lines, self._longest = lines, longest
        self._listeners: list[socket.socket] = []
        self._strangers: dict[int, Stranger] = {}
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def listen(self, listener: socket.socket) -> None:
        """Accept connections from now on."""
        self._listeners.append(listener)
        self.wake()

    def wake(self) -> None:
        """Look again at what there is."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="integrity-attendant", daemon=True)
            self._thread.start()
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"\0")

    def stop(self) -> None:
        """End, with every listener and stranger."""
        self._stopped = True
        if self._thread is not None:
            self.wake()
            self._thread.join()
        for listener in self._listeners:
            listener.close()
        for stranger in self._strangers.values():
            stranger.wire.close()
        os.close(self._read)
        os.close(self._write)

    def _run(self) -> None:
        while not self._stopped:
            self._turn()

    def _turn(self) -> None:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        for listener in self._listeners:
            poll.register(listener, select.POLLIN)
        for descriptor in self._strangers:
            poll.register(descriptor, select.POLLIN)
        idle, patience = self._watch(poll)
        ready = {descriptor for descriptor, _ in poll.poll(patience)}
        if self._read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        self._attend(idle)
        for listener in list(self._listeners):
            if listener.fileno() in ready:
                self._accept(listener)
        self._listen_to_strangers(ready)

    def _watch(self, poll: select.poll) -> tuple[list[Line], float | None]:
        """Add what lines without callers wait for; gives these lines, and milliseconds until one is due."""
        now = time.monotonic()
        until = min((stranger.until for stranger in self._strangers.values()), default=math.inf)
        idle = []
        for line in list(self._lines.values()):
            watched = line.watched()
            if watched is None:
                until = min(until, now + TURN)
                continue
            idle.append(line)
            for descriptor, events in watched[0]:
                # One that a caller closed since is told by poll, and looked at again.
                if descriptor >= 0:
                    poll.register(descriptor, events)
            until = min(until, math.inf if watched[1] is None else watched[1])
        for line in self._lines.values():
            line.attended, line.turn = until, TURN
        return idle, None if until == math.inf else max(0.0, until - now) * 1000 + 0.5

    @staticmethod
    def _attend(idle: list[Line]) -> None:
        busy = any(line.callers for line in idle)
        for line in idle:
            line.attend()
        if busy:
            # Callers came: they do the work, and this thread stays out of their way for a moment.
            for line in idle:
                line.attended = time.monotonic() + TURN
            time.sleep(TURN)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connected, _ = listener.accept()
            if len(self._strangers) >= STRANGERS:
                connected.close()
                return
            wire = StreamWire(connected, longest=self._longest)
            self._strangers[wire.fileno()] = Stranger(wire, time.monotonic() + STRANGER)

    def _listen_to_strangers(self, ready: set[int]) -> None:
        for descriptor, stranger in list(self._strangers.items()):
            if descriptor not in ready and time.monotonic() < stranger.until:
                continue
            del self._strangers[descriptor]
            try:
                first = next(stranger.wire.receive(), None)
            except Torn:
                stranger.wire.close()
                continue
            if first is None and time.monotonic() < stranger.until:
                self._strangers[descriptor] = stranger
                continue
            self._introduce(stranger.wire, *(first or (None, None)))

    def _introduce(self, wire: StreamWire, header: frame.Header | None, payload: object) -> None:
        """Its first frame says who it is; a wire of which nobody expects anything is closed."""
        if header is not None and header.kind is frame.Kind.HELLO and isinstance(payload, memoryview):
            names = bytes(payload).decode(errors="replace").split("\n")
            line = self._lines.get(names[0])
            if line is not None and line.is_for(names, header.epoch):
                line.take_wire(wire, header, payload)
                return
        wire.close()
