"""Attend to a transport's lines in a thread, while no caller does: acknowledge, send again, connect
anew.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import frame
from .frame import SHOWN, Greeting, GreetingRefusal, begun_before, greeting_of
from .line import LONG, Line
from .link import TransportLimits
from .records import NodeId
from .wire import StreamWire, Torn

THREAD = "integrity-attendant"
STRANGER = 5.0
"""Seconds that whoever connects has to say who it is."""
STRANGERS = 64
GREETING = 64 * 1024
"""How many of them may be silent at once, and the bytes that the first frame of one may have:
nobody knows him yet.
"""
REST = 0.1
"""Seconds for which nobody is accepted after that failed: where no descriptor is free, the kernel
would ask at once.
"""
AGAIN = 0.005
"""Seconds after which what is due and could not be done, since the kernel took no more, is tried
again.
"""


@dataclass(frozen=True)
class Stranger:
    """Connection on which nobody has said yet who they are."""

    wire: StreamWire
    until: float


class Attendant:
    """One thread for all lines of a transport; it starts with the first line or listener.

    It wakes when something comes that no caller waits for, and to look at the clock: whenever
    something is due, and no less than every `limits.unhurried` seconds. So a caller whose message
    has an acknowledgement due then, or a deadline after that, need not wake it.

    Args:
        node: whose.
        lines: of the transport, which adds to them.
        limits: the transport's.

    Attributes:
        until: see `Watcher`.
        refused: why the last who greeted was refused; empty where nobody was.
    """

    def __init__(
        self, *, node: NodeId, lines: Mapping[NodeId, Line], limits: TransportLimits
    ) -> None:
        self._node = node
        self._lines = lines
        self._limits = limits
        self.refused = ""
        self.until = math.inf
        self._watched: dict[int, Line] = {}
        self._listeners: dict[int, socket.socket] = {}
        self._strangers: dict[int, Stranger] = {}
        self._resting: dict[int, float] = {}  # listeners, and until when
        self._stopped = self._asked = False
        self._thread: threading.Thread | None = None
        # Two callers may wake it at once, and it may be stopped while one does: there is one
        # thread, and none after the stop.
        self._starting = threading.Lock()
        # Callers add and remove meanwhile, for the kernel keeps the set.
        self._selector = selectors.DefaultSelector()
        # What wakes the thread has to be a descriptor, because it waits for descriptors. Nobody may
        # wait for the pipe itself: a full one wakes the thread too, and an empty one has done so.
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._selector.register(self._read, selectors.EVENT_READ)

    def watch(self, line: Line, descriptor: int, events: int) -> None:
        """See `Watcher`."""
        # In this order: as soon as the kernel knows the descriptor, the thread may ask whose it is.
        self._watched[descriptor] = line
        self._selector.register(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        """See `Watcher`."""
        # The other way round: an event that was on its way finds no line.
        self._selector.unregister(descriptor)
        del self._watched[descriptor]

    def listen(self, listener: socket.socket) -> None:
        """Accept connections from now on."""
        self._listeners[listener.fileno()] = listener
        self._selector.register(listener.fileno(), selectors.EVENT_READ)
        self.wake()

    def wake(self) -> None:
        """See `Watcher`."""
        if self._thread is None:
            self._start()
        if not self._asked:
            # Before the write: the thread clears it after its read, and so never before.
            self._asked = True
            with contextlib.suppress(BlockingIOError):  # full: it is woken anyway
                os.write(self._write, b"\0")

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End, with every listener and stranger. The lines go on alone; `close` comes when they do
        not.
        """
        with self._starting:
            self._stopped = True
        # Outside of the lock: `wake` takes it where there is no thread yet.
        if self._thread is not None:
            self.wake()
            self._thread.join()
        self._hang_up()

    def _hang_up(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        for stranger in self._strangers.values():
            stranger.wire.close()

    def let_go(self) -> None:
        """See `Held`."""
        self._stopped = True
        self._hang_up()
        self.close()

    def close(self) -> None:
        """Let go of what lines used, once all are closed."""
        self._selector.close()
        os.close(self._read)
        os.close(self._write)

    def _run(self) -> None:
        ready: Iterable[int] = ()
        while True:
            for descriptor in ready:
                self._happened(descriptor)
            # Checked after `_asked` was cleared, because `stop` sets `_stopped` first and then
            # looks at `_asked`: one of the two sees the other. Checked before, a stop in between
            # was slept through for an hour.
            if self._stopped:
                return
            # From here on whatever becomes due wakes this thread, for it may have been asked
            # before.
            self.until = math.inf
            now = time.monotonic()
            until = now + self._limits.unhurried if self._lines else math.inf
            for line in list(self._lines.values()):
                if (due := line.attend_due(now)) is not None:
                    until = min(until, max(due, now + AGAIN))
            for descriptor, stranger in list(self._strangers.items()):
                if now >= stranger.until:
                    self._dismiss(descriptor).wire.close()
                until = min(until, stranger.until)
            for descriptor, rests in list(self._resting.items()):
                if now >= rests:
                    del self._resting[descriptor]
                    self._selector.register(descriptor, selectors.EVENT_READ)
                else:
                    until = min(until, rests)
            self.until = until
            happened = self._selector.select(max(0.0, min(until - time.monotonic(), LONG)))
            ready = [key.fd for key, _ in happened]

    def _happened(self, descriptor: int) -> None:
        if descriptor == self._read:
            os.read(self._read, 4096)
            self._asked = False  # before lines are asked: who changes one after that asks again
        elif descriptor in self._listeners:
            self._accept(self._listeners[descriptor])
        elif descriptor in self._strangers:
            self._listen_to(descriptor)
        elif (line := self._watched.get(descriptor)) is not None:
            line.attend(ready=True)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connected, _ = listener.accept()
        except OSError:  # it was gone before it was accepted, or no descriptor is free
            self._selector.unregister(listener.fileno())
            self._resting[listener.fileno()] = time.monotonic() + REST
            return
        if len(self._strangers) >= STRANGERS:
            # Who has been silent for longest: a peer greets at once, and is not kept out by those
            # who say nothing.
            self._dismiss(next(iter(self._strangers))).wire.close()
        wire = StreamWire(connected, longest=GREETING)
        self._strangers[wire.fileno()] = Stranger(wire, time.monotonic() + STRANGER)
        self._selector.register(wire.fileno(), selectors.EVENT_READ)

    def _dismiss(self, descriptor: int) -> Stranger:
        self._selector.unregister(descriptor)
        return self._strangers.pop(descriptor)

    def _listen_to(self, descriptor: int) -> None:
        wire = self._strangers[descriptor].wire
        try:
            first = next(wire.receive(), None)
        except Torn:
            self._dismiss(descriptor).wire.close()
            return
        if first is not None:
            self._dismiss(descriptor)
            wire.longest = self._limits.message
            self._introduce(wire, *first)

    def _introduce(self, wire: StreamWire, header: frame.Header | None, payload: object) -> None:
        """Its first frame says who it is. Who greets is told why he is refused.

        On all others it is closed.
        """
        if (
            header is not None
            and header.kind is frame.Kind.HELLO
            and isinstance(payload, memoryview)
        ):
            line, refusal = _line_for(
                greeting_of(payload), header.epoch, node=self._node, lines=self._lines
            )
            if line is not None:
                line.take_wire(wire, header, payload)
                return
            if refusal is not None:
                self.refused = refusal.words
                with contextlib.suppress(Torn):
                    wire.put(*refusal.packed(toward=header.epoch))
        wire.close()


def _line_for(
    greeting: Greeting, epoch: int, *, node: NodeId, lines: Mapping[NodeId, Line]
) -> tuple[Line | None, GreetingRefusal | None]:
    """Return the line that waits for who greets so, or why none does."""
    here = f"{greeting.peer[:SHOWN]!r}"
    there = f"{greeting.node[:SHOWN]!r}"
    if greeting.peer != node:
        words = (
            f"{there} wanted to connect to {here}, but {node!r} listens at this address; connect"
            f" to the address of {here}"
        )
        return None, GreetingRefusal(words, frame.REFUSED | frame.ANOTHER)
    line = lines.get(greeting.node)
    if line is None:
        return None, GreetingRefusal(
            f"{there} connected to {node!r}, which does not expect that name; call expect({there})"
            f" on {node!r}"
        )
    if not line.waits:
        words = (
            f"{there} and {node!r} both connect to each other; one of them must listen and expect"
            " the other"
        )
        return None, GreetingRefusal(words)
    met = line.conversation.peer_epoch
    if epoch < met:
        return None, GreetingRefusal(
            begun_before(greeting.node, epoch, node, met), frame.REFUSED | frame.BEFORE
        )
    return line, None
