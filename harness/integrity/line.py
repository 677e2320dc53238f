"""A line to one peer: its conversation, the wire that carries it now, and the threads that wait for it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from harness.integrity.conversation import Conversation
from harness.integrity.frame import Header
from harness.integrity.wire import StreamWire, Torn, Wire

Found = TypeVar("Found")
REDIAL = 0.02
"""Seconds before the first new try to connect; doubled up to a second."""
BETWEEN = 0.001
"""Seconds in which a call that finds what it wants at once does not look at the wire again."""
ENOUGH = 256 * 1024
"""Bytes of whole messages after which reading pauses for whoever waits for them."""


class Line:
    """One peer. Every method may be called from any thread.

    Whoever waits does the work meanwhile: the bytes go from the kernel to the thread that asks for them, and no other
    is woken. The transport's attendant does it where nobody waits.

    Args:
        conversation: with the peer.
        dial: makes a socket that is being connected, without waiting; None where the peer connects to us.
        wire: what carries frames from the start, for datagrams.

    Attributes:
        callers: threads that wait for this line.
        attended: until when the attendant may not look again, of the monotonic clock, but for what it polls.
        turn: seconds that it is then late.
    """

    def __init__(
        self, conversation: Conversation, *, dial: Callable[[], socket.socket] | None = None, wire: Wire | None = None
    ) -> None:
        self.conversation = conversation
        self._dial, self.wire = dial, wire
        self._dialling: socket.socket | None = None
        self._dial_at = self._dial_until = 0.0
        self._dialled = 0
        self._changed = threading.Condition()
        self.callers = 0
        self._polling = False
        self._closed = False
        self._unread = False
        self.attended, self.turn = 0.0, 0.0
        self._stepped = 0.0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        if wire is not None:
            conversation.begin(now=time.monotonic())

    # What callers do.

    def until(self, found: Callable[[float], Found | None], *, deadline: float) -> Found | None:
        """Work until something is found, or the time is up.

        Args:
            found: asked after each step, with the time, under the line's lock; may raise.
            deadline: of the monotonic clock.
        """
        with self._changed:
            self.callers += 1
            first = True
            try:
                while True:
                    now = time.monotonic()
                    if now >= self._stepped + BETWEEN or not first:
                        self._step(now)
                    result = found(now)
                    self._send(now)  # what was found may be something to say
                    if result is not None:
                        return result
                    if first:
                        first = False
                        continue
                    if now >= deadline:
                        return None
                    self._wait(now, deadline)
            finally:
                self.callers -= 1
                if self.callers:
                    self._changed.notify_all()
                if self._polling if self.callers else self._neglected():
                    self.wake()

    def _wait(self, now: float, deadline: float) -> None:
        if self._polling:
            # Another thread reads; it is woken, for what it waits for may have to be sent first.
            self.wake()
            self._changed.wait(deadline - now)
            return
        due = self.due()
        until = deadline if due is None else min(deadline, due)
        poll = select.poll()
        for descriptor, events in self.descriptors():
            poll.register(descriptor, events)
        self._polling = True
        self._changed.release()
        try:
            ready = poll.poll(max(0.0, until - now) * 1000 + 0.5 if until < float("inf") else None)
        finally:
            self._changed.acquire()
            self._polling = False
        if any(descriptor == self._wake_read for descriptor, _ in ready):
            self._awake()
        if self.callers > 1:
            self._changed.notify_all()

    def _neglected(self) -> bool:
        """Whether the attendant would look too late at what this thread leaves behind."""
        if self.attended <= time.monotonic() + self.turn:
            return False
        if self.wire is not None and self.wire.pending:
            return True
        due = self.due()
        return due is not None and self.attended > due + self.turn

    def watched(self) -> tuple[list[tuple[int, int]], float | None] | None:
        """What the attendant is to poll, and until when at most; None while callers do the work."""
        with self._changed:
            return None if self.callers or self._closed else (self.descriptors(), self.due())

    def attend(self) -> None:
        """One step by the attendant, where no caller is at it."""
        with self._changed:
            self._awake()
            if not self.callers and not self._closed:
                now = time.monotonic()
                self._step(now)
                self._send(now)

    def wake(self) -> None:
        """Have whoever polls look again."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_write, b"\0")

    def _awake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while os.read(self._wake_read, 4096):
                pass

    def is_for(self, names: list[str], epoch: int) -> bool:
        """Whether a greeting is one that this line waits for: its peer's, to us, and not of an earlier epoch."""
        conversation = self.conversation
        waits = self._dial is None and not (self.wire is not None and not self.wire.ordered)
        return waits and names == [conversation.peer, conversation.node] and epoch >= conversation.peer_epoch

    def take_wire(self, wire: Wire, first: Header, payload: Any) -> None:
        """The peer connected to us, and its first frame has come."""
        with self._changed:
            now = time.monotonic()
            if self._closed:
                wire.close()
                return
            self._drop("the peer connected anew")
            self.wire = wire
            self.conversation.begin(now=now)
            self.conversation.came(first, payload, now=now)
            self._step(now)
            self._send(now)
            self._changed.notify_all()
        self.wake()

    # What is done while somebody waits.

    def descriptors(self) -> list[tuple[int, int]]:
        """What to poll, and for what."""
        found = [(self._wake_read, select.POLLIN)]
        wire = self.wire
        if wire is not None:
            found.append((wire.fileno(), select.POLLIN | (select.POLLOUT if wire.pending else 0)))
        if self._dialling is not None:
            found.append((self._dialling.fileno(), select.POLLOUT))
        return found

    def due(self) -> float | None:
        """When a step has something to do by the clock."""
        if self._unread and self.wire is not None:
            return 0.0
        times = [self.conversation.due]
        if self.wire is None and self._dial is not None and self._may_connect():
            times.append(self._dial_at if self._dialling is None else self._dial_until)
        return min((one for one in times if one is not None), default=None)

    def _step(self, now: float) -> None:
        self._stepped = now
        self._connect(now)
        self._receive(now)
        self.conversation.tick(now=now)
        if self.conversation.wanted and self.wire is not None:
            self._drop(self.conversation.trouble)

    def _may_connect(self) -> bool:
        return not self._closed and not (self.conversation.incoming.ended and self.conversation.delivered)

    def _connect(self, now: float) -> None:
        if self._dial is None or self.wire is not None or not self._may_connect():
            return
        if self._dialling is None:
            if now < self._dial_at:
                return
            self._dial_at = now + min(1.0, REDIAL * 2**self._dialled)
            self._dial_until = now + self.conversation.limits.silence
            self._dialled = min(self._dialled + 1, 10)
            try:
                self._dialling = self._dial()
            except OSError as error:
                self.conversation.trouble = error.strerror or str(error)
                return
        poll = select.poll()
        poll.register(self._dialling, select.POLLOUT)
        if not poll.poll(0):
            if now >= self._dial_until:
                self._dialling.close()
                self._dialling, self.conversation.trouble = None, "connecting: nobody answered"
            return
        connected, self._dialling = self._dialling, None
        code = connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            connected.close()
            self.conversation.trouble = f"connecting: {os.strerror(code)}"
            return
        self.wire = StreamWire(connected, longest=self.conversation.limits.message)
        self.conversation.begin(now=now)

    def _receive(self, now: float) -> None:
        wire = self.wire
        if wire is None:
            return
        try:
            size, self._unread = 0, False
            for header, payload in wire.receive():
                if header is None or payload is None:
                    self.conversation.damaged(header, now=now)
                    continue
                self.conversation.came(header, payload, now=now)
                size += len(payload)
                if size >= ENOUGH and self.conversation.incoming.ready:
                    # What has come is handed on while it lies in the processor's cache.
                    self._unread = True
                    break
        except Torn as torn:
            self._drop(str(torn))
            return
        if wire.stirred():
            self.conversation.alive(now=now)
        if self.conversation.joined:
            self._dialled = 0

    def _send(self, now: float) -> None:
        wire = self.wire
        if wire is None:
            return
        try:
            while True:
                while not (full := wire.full) and (out := self.conversation.next_frame(now=now)) is not None:
                    wire.put(*out)
                if not wire.flush() or not full:
                    return
        except Torn as torn:
            self._drop(str(torn))

    def _drop(self, why: str) -> None:
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.close()
            self.conversation.end(why=why)
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of everything."""
        with self._changed:
            self._closed = True
            self._drop("closed")
            if self._dialling is not None:
                self._dialling.close()
                self._dialling = None
            self._changed.notify_all()
        self.wake()

    def release(self) -> None:
        """Close the pipe, once nobody polls."""
        os.close(self._wake_read)
        os.close(self._wake_write)
