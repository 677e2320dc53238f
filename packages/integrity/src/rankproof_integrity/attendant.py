"""Attend to a transport's lines in a thread, while no caller does: acknowledge, send again, connect
anew.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping

from .frame import Greeting, GreetingRefusal, Header
from .line import LONG, Line
from .link import TransportLimits
from .meeting import Stranger, Strangers, refusal_of
from .proof import UNPROVED, Session, Unproved
from .reader import Torn
from .records import NodeId
from .wire import StreamWire, Trust

THREAD = "integrity-attendant"
ACCEPTED = 32
"""Connections that are accepted in a row: then those that were before are listened to."""
REST = 0.1
"""Seconds for which nobody is accepted after that failed: where no descriptor is free, the kernel
would ask at once.
"""
AGAIN = 0.005
"""Seconds after which what is due and could not be done, since the kernel took no more, is tried
again.
"""


class Arrivals:
    """Counts what came to any line, for whoever waits for all of them.

    Attributes:
        waiting: how many threads wait.
    """

    def __init__(self) -> None:
        # Of the count; whoever has it takes no line's lock, so that none waits for the other.
        self._changed = threading.Condition()
        self._count = 0
        self.waiting = 0

    def count(self) -> int:
        """Return how often something came."""
        return self._count

    def note(self) -> None:
        """Something came, or a line's state changed."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float) -> bool:
        """Wait until the count is no longer `seen`; gives whether it changed in time."""
        with self._changed:
            self.waiting += 1
            try:
                within = min(seconds, threading.TIMEOUT_MAX)
                return self._changed.wait_for(lambda: self._count != seen, within)
            finally:
                self.waiting -= 1


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
        self.arrivals = Arrivals()
        self.until = math.inf
        self._watched: dict[int, Line] = {}
        self._listeners: dict[int, tuple[socket.socket, Trust]] = {}
        self._strangers = Strangers[int]()
        self._strange_wires: dict[int, StreamWire] = {}
        self._all_at = 0.0
        self._due: list[tuple[float, int, Line]] = []
        self._due_at: dict[Line, float] = {}
        self._counted = 0
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

    def arrived(self) -> None:
        """See `Watcher`."""
        if self.arrivals.waiting:
            self.arrivals.note()

    def listen(self, listener: socket.socket, trust: Trust) -> None:
        """Accept connections from now on, and have whoever connects prove what there is to."""
        self._listeners[listener.fileno()] = listener, trust
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
        for listener, _ in self._listeners.values():
            listener.close()
        for wire in self._strange_wires.values():
            wire.close()

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
            until = self._attend_due(now)
            for descriptor in self._strangers.late(now):
                self._dismiss(descriptor).close()
            if self._strangers.due is not None:
                until = min(until, self._strangers.due)
            for descriptor, rests in list(self._resting.items()):
                if now >= rests:
                    del self._resting[descriptor]
                    self._selector.register(descriptor, selectors.EVENT_READ)
                else:
                    until = min(until, rests)
            self.until = until
            happened = self._selector.select(max(0.0, min(until - time.monotonic(), LONG)))
            ready = [key.fd for key, _ in happened]

    def _attend_due(self, now: float) -> float:
        """Have the lines that are due take a step; gives when the next is.

        All are asked where somebody woke this thread, and every `limits.unhurried` seconds, for a
        caller changes when its line is due. Between, one of a hundred lines costs one.
        """
        if now >= self._all_at or (self._due and self._due[0][0] <= now):
            self.arrivals.note()  # a step may end a conversation
        if now >= self._all_at:
            self._all_at = now + self._limits.unhurried if self._lines else math.inf
            for line in list(self._lines.values()):
                self._schedule(line, line.attend_due(now), now)
        while self._due and self._due[0][0] <= now:
            due, _, line = heapq.heappop(self._due)
            if self._due_at.get(line) == due:
                self._schedule(line, line.attend_due(now), now)
        return min(self._all_at, self._due[0][0]) if self._due else self._all_at

    def _schedule(self, line: Line, due: float | None, now: float) -> None:
        """Remember when a line is due; what was remembered before is void."""
        if due is None:
            self._due_at.pop(line, None)
            return
        due = max(due, now + AGAIN)
        if self._due_at.get(line) != due:
            self._due_at[line] = due
            self._counted += 1  # decides between two that are due at once
            heapq.heappush(self._due, (due, self._counted, line))

    def _happened(self, descriptor: int) -> None:
        if descriptor == self._read:
            os.read(self._read, 4096)
            self._asked = False  # before lines are asked: who changes one after that asks again
            self._all_at = 0.0
            self.arrivals.note()
        elif descriptor in self._listeners:
            self._accept(*self._listeners[descriptor])
        elif descriptor in self._strangers:
            self._listen_to(descriptor)
        elif (line := self._watched.get(descriptor)) is not None:
            self._schedule(line, line.attend(ready=True), time.monotonic())
            self.arrivals.note()

    def _accept(self, listener: socket.socket, trust: Trust) -> None:
        for _ in range(ACCEPTED):
            try:
                connected, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # it was gone before it was accepted, or no descriptor is free
                self._selector.unregister(listener.fileno())
                self._resting[listener.fileno()] = time.monotonic() + REST
                return
            crowded = self._strangers.crowded_out()
            if crowded is not None:
                self._dismiss(crowded).close()
            try:
                wire = trust.wire(connected, initiator=False, longest=UNPROVED)
            except OSError:  # it was gone before TLS began
                connected.close()
                continue
            host = address[0] if isinstance(address, tuple) else ""
            stranger = Stranger(trust.key, host=host, now=time.monotonic())
            self._strangers.add(wire.fileno(), stranger)
            self._strange_wires[wire.fileno()] = wire
            self._selector.register(wire.fileno(), selectors.EVENT_READ)

    def _dismiss(self, descriptor: int) -> StreamWire:
        self._selector.unregister(descriptor)
        self._strangers.remove(descriptor)
        return self._strange_wires.pop(descriptor)

    def _listen_to(self, descriptor: int) -> None:
        stranger = self._strangers[descriptor]
        wire = self._strange_wires[descriptor]
        try:
            for header, payload in wire.receive():
                greeting = stranger.came(header, payload)
                if greeting is not None:
                    self._dismiss(descriptor)
                    self._meet(wire, greeting, header, payload, stranger.session)
                    return
                while (said := stranger.next_frame()) is not None:
                    wire.put(*said)
        except Unproved as unproved:
            self.refused = str(unproved)
            self._dismiss(descriptor)
            _refuse(wire, GreetingRefusal(unproved.answer), toward=0)
            wire.close()
        except Torn:
            self._dismiss(descriptor).close()

    def _meet(
        self,
        wire: StreamWire,
        greeting: Greeting,
        header: Header,
        payload: memoryview,
        session: Session | None,
    ) -> None:
        """Hand a connection to the line of who greets. Who is refused is told why."""
        refusal = refusal_of(greeting, header.epoch, node=self._node, peers=self._lines)
        if refusal is None:
            self._lines[greeting.node].take_wire(wire, header, payload, session=session)
            self.arrivals.note()
            return
        self.refused = refusal.words
        _refuse(wire, refusal, toward=header.epoch)
        wire.close()


def _refuse(wire: StreamWire, refusal: GreetingRefusal, *, toward: int) -> None:
    """Say why a connection is about to be closed, where that may be said."""
    if refusal.words:
        with contextlib.suppress(Torn):
            wire.put(*refusal.packed(toward=toward))
