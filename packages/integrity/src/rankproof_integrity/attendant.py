"""Attend to a transport's lines in a thread, while no caller does: acknowledge, send again, connect
anew.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import frame
from .frame import SHOWN, Greeting, GreetingRefusal, begun_before, greeting_of
from .line import LONG, Line
from .link import TransportLimits
from .proof import PATIENCE, UNPROVED, Introduction, Session, Unproved, opened
from .reader import Torn
from .records import NodeId
from .wire import StreamWire, Trust

THREAD = "integrity-attendant"
STRANGERS = 256
"""How many connections there may be at once on which nobody has said yet who they are."""
OLDEST = 16
"""Among how many of them it is chosen who makes room for another."""
ACCEPTED = 32
"""Connections that are accepted in a row: then those that were before are listened to."""
KEYLESS = "this node has no key; give both nodes the key of the group, or neither"
REST = 0.1
"""Seconds for which nobody is accepted after that failed: where no descriptor is free, the kernel
would ask at once.
"""
AGAIN = 0.005
"""Seconds after which what is due and could not be done, since the kernel took no more, is tried
again.
"""


@dataclass(kw_only=True, eq=False)
class Stranger:
    """Connection on which nobody has said yet who they are.

    Attributes:
        wire: the connection.
        host: where it comes from.
        until: when it is closed.
        introduction: its proof of the key; None where there is no key.
    """

    wire: StreamWire
    host: str
    until: float
    introduction: Introduction | None

    @property
    def session(self) -> Session | None:
        """Return what it has proved."""
        return None if self.introduction is None else self.introduction.session


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
        self._listeners: dict[int, tuple[socket.socket, Trust]] = {}
        self._strangers: dict[int, Stranger] = {}
        self._hosts: Counter[str] = Counter()  # strangers of each
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
            self._accept(*self._listeners[descriptor])
        elif descriptor in self._strangers:
            self._listen_to(descriptor)
        elif (line := self._watched.get(descriptor)) is not None:
            line.attend(ready=True)

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
            self._make_room()
            try:
                wire = trust.wire(connected, initiator=False, longest=UNPROVED)
            except OSError:  # it was gone before TLS began
                connected.close()
                continue
            key = trust.key
            self._strangers[wire.fileno()] = Stranger(
                wire=wire,
                host=address[0] if isinstance(address, tuple) else "",
                until=time.monotonic() + PATIENCE,
                introduction=None if key is None else Introduction(key, initiator=False),
            )
            self._hosts[self._strangers[wire.fileno()].host] += 1
            self._selector.register(wire.fileno(), selectors.EVENT_READ)

    def _make_room(self) -> None:
        """Turn a stranger away where there are too many: of the oldest, who has proved least, and of
        those, one of the host that has most. So neither silence nor one host keeps a peer out.
        """
        if len(self._strangers) < STRANGERS:
            return
        oldest = itertools.islice(self._strangers.items(), OLDEST)
        descriptor, _ = min(oldest, key=lambda item: (_proved(item[1]), -self._hosts[item[1].host]))
        self._dismiss(descriptor).wire.close()

    def _dismiss(self, descriptor: int) -> Stranger:
        self._selector.unregister(descriptor)
        stranger = self._strangers.pop(descriptor)
        self._hosts[stranger.host] -= 1
        if not self._hosts[stranger.host]:
            del self._hosts[stranger.host]
        return stranger

    def _listen_to(self, descriptor: int) -> None:
        stranger = self._strangers[descriptor]
        try:
            for header, payload in stranger.wire.receive():
                if stranger.introduction is None or stranger.session is not None:
                    self._dismiss(descriptor)
                    self._introduce(stranger, header, payload)
                    return
                stranger.introduction.came(header, payload)
                while (said := stranger.introduction.next_frame()) is not None:
                    stranger.wire.put(*said)
        except Unproved as unproved:
            self.refused = str(unproved)
            _refuse(stranger.wire, GreetingRefusal(unproved.answer), toward=0)
            self._dismiss(descriptor).wire.close()
        except Torn:
            self._dismiss(descriptor).wire.close()

    def _introduce(self, stranger: Stranger, header: frame.Header, payload: memoryview) -> None:
        """Its greeting says who it is, and who greets is told why he is refused.

        On whoever does not greet the connection is closed.
        """
        wire = stranger.wire
        session = stranger.session
        if header.kind is frame.Kind.NONCE:
            _refuse(wire, GreetingRefusal(KEYLESS), toward=0)
        elif header.kind is frame.Kind.HELLO and (words := opened(session, header, payload)):
            line, refusal = _line_for(
                greeting_of(words), header.epoch, node=self._node, lines=self._lines
            )
            if line is not None:
                line.take_wire(wire, header, payload, session=session)
                return
            if refusal is not None:
                self.refused = refusal.words
                _refuse(wire, refusal, toward=header.epoch)
        wire.close()


def _proved(stranger: Stranger) -> int:
    """Return how far a stranger has come."""
    if stranger.introduction is None:
        return 0
    return stranger.introduction.begun + (stranger.session is not None)


def _refuse(wire: StreamWire, refusal: GreetingRefusal, *, toward: int) -> None:
    """Say why a connection is about to be closed, where that may be said."""
    if refusal.words:
        with contextlib.suppress(Torn):
            wire.put(*refusal.packed(toward=toward))


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
