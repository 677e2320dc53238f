"""A line to one peer: its conversation, the wire that carries it now, and the threads that wait for it."""

from __future__ import annotations

import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from harness.integrity.conversation import Conversation
from harness.integrity.frame import Header
from harness.integrity.problem import Misused
from harness.integrity.watcher import Watcher
from harness.integrity.wire import StreamWire, Torn, Wire

Found = TypeVar("Found")
REDIAL = 0.02
"""Seconds before the first new try to connect; doubled up to a second, until one brought something or lived as long."""
PACE = 0.002
"""Seconds that who sent a long message waits for the kernel to take more of it, before it leaves that to others."""
SOON, IN_A_ROW = 0.02, 3
"""Seconds within which a caller comes again and is served; after so many such calls in a row another is expected."""
ENOUGH = 256 * 1024
"""Bytes of whole messages after which reading pauses for whoever waits for them."""
IN, OUT = select.POLLIN, select.POLLIN | select.POLLOUT


class Line:
    """One peer. Every method may be called from any thread.

    Whoever waits for a message reads the wire meanwhile: the bytes go from the kernel to the thread that asks for them,
    and no other is woken. The attendant reads where nobody waits; it alone looks at the clock, and connects.

    Args:
        conversation: with the peer.
        attendant: of the transport.
        dial: makes a socket that is being connected, without waiting; None where the peer connects to us.
        wire: what carries frames from the start, for datagrams.
    """

    def __init__(
        self,
        conversation: Conversation,
        *,
        attendant: Watcher,
        dial: Callable[[], socket.socket] | None = None,
        wire: Wire | None = None,
    ) -> None:
        self.conversation = conversation
        self._attendant = attendant
        self._dial, self.wire = dial, wire
        self._dialling: socket.socket | None = None
        self._dial_at = self._dial_until = 0.0
        self._lock = threading.RLock()  # entered by itself: a Condition's way in is two functions of Python more
        self._changed = threading.Condition(self._lock)
        self._callers = self._dialled = self._reached = self._at_once = 0  # the last: calls in a row within SOON
        self._came = self._left = 0.0  # when a caller did last
        self._expected = math.inf  # until when another is expected, and the attendant does not watch
        self._closed = False
        self._watched: tuple[int, int] | None = None  # descriptor and events that the attendant waits for
        self._poll = select.poll()  # of whoever polls
        self._polled: tuple[Wire | None, int] = (None, 0)
        self._polling = self._woken = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poll.register(self._wake_read, select.POLLIN)
        if wire is not None:
            conversation.begin(now=time.monotonic())

    # What callers do.

    def until(self, found: Callable[[float], Found | None], *, deadline: float, sends: bool = False) -> Found | None:
        """Work until something is found, or the time is up.

        Args:
            found: asked at first and whenever something came or changed, with the time, under the line's lock; may
                raise.
            deadline: of the monotonic clock.
            sends: what was found is a message that is sent: stay with it while the peer takes it.

        Raises:
            Misused: the transport was closed meanwhile.
        """
        with self._lock:
            self._callers += 1
            now, looked = time.monotonic(), False
            self._came = now
            try:
                while True:
                    if self._closed:
                        raise Misused(f"the transport of {self.conversation.node} was closed meanwhile")
                    try:
                        result = found(now)
                    finally:
                        self._send(now)  # what was found, or raised, may be something to say
                    if result is not None:
                        if sends and self.wire is not None and self.wire.pending:
                            self._stay()
                        return result
                    if looked and now >= deadline:
                        return None
                    looked = True
                    self._wait(max(0.0, deadline - now))
                    now = time.monotonic()
            finally:
                self._callers -= 1
                self._leave()

    def _stay(self) -> None:
        wire = self.wire
        while wire is not None and wire.pending and wire is self.wire and not self._polling and self._wait(PACE):
            self._send(time.monotonic())

    def _wait(self, seconds: float) -> bool:
        """Wait until something came or changed, and read what came; gives whether it did, within so many seconds."""
        if self._polling:  # another thread reads
            return self._changed.wait(min(seconds, threading.TIMEOUT_MAX))
        wire, conversation = self._prepare(), self.conversation
        if not conversation.ordered and (due := conversation.due) is not None:
            seconds = min(seconds, max(0.0, due - time.monotonic()))
        self._polling = True
        self._lock.release()
        try:
            ready = self._poll.poll(seconds * 1000 + 0.5 if seconds < math.inf else None)
        finally:
            self._lock.acquire()
            self._polling = False
        if self._woken:
            self._woken = False
            os.read(self._wake_read, 1)
        if ready and wire is not None and self.wire is wire:
            self._receive(time.monotonic())
        if not conversation.ordered:
            conversation.tick(now=time.monotonic())
        if self._callers > 1:
            self._changed.notify_all()
        return bool(ready)

    def _prepare(self) -> Wire | None:
        """Have the caller's poll wait for what the wire needs now, and the attendant not."""
        self._unwatch()
        wire, (before, events) = self.wire, self._polled
        needs = OUT if wire is not None and wire.pending else IN
        if wire is not before or events != needs:
            if before is not None and before is not wire:  # a descriptor that was closed may be another's by now
                self._poll = select.poll()
                self._poll.register(self._wake_read, select.POLLIN)
            if wire is not None:
                self._poll.register(wire.fileno(), needs)
            self._polled = wire, needs
        return wire

    def _leave(self) -> None:
        """A caller is done, or the attendant: somebody has to go on."""
        if self._closed:
            self._changed.notify_all()  # close() waits for the last
        elif self._polling:
            wire = self.wire
            stale = self._polled[0] is not wire or (wire is not None and wire.pending and self._polled[1] != OUT)
            if stale or not self.conversation.ordered:
                self._wake()  # to poll for something else
        elif self._callers:
            self._changed.notify_all()
        elif self._expects():
            if self._expected < self._attendant.until:
                self._attendant.wake()
        else:
            self._watch()
            if not self.conversation.ordered and (due := self.due()) is not None and due < self._attendant.until:
                # Over a stream the attendant looks often enough for whatever can become due.
                self._attendant.wake()

    def _expects(self) -> bool:
        """Whether another call follows at once: to have the attendant watch meanwhile would have it read instead."""
        now, left = time.monotonic(), self._left
        self._left = now
        self._at_once = self._at_once + 1 if self._came < left + SOON and now < self._came + SOON else 0
        hot = self._at_once >= IN_A_ROW and self.conversation.ordered
        self._expected = now + SOON if hot and self.wire is not None and not self.wire.pending else math.inf
        return self._expected < math.inf

    def _wake(self) -> None:
        if self._polling and not self._woken:
            self._woken = True
            os.write(self._wake_write, b"\0")
        if self._callers:
            self._changed.notify_all()

    # What the attendant does.

    def _watch(self) -> None:
        wire, dialling = self.wire, self._dialling
        if wire is not None:
            needs = wire.fileno(), OUT if wire.pending else IN
        elif dialling is not None:
            needs = dialling.fileno(), select.POLLOUT
        else:
            return
        if needs != self._watched:
            self._unwatch()
            self._attendant.watch(self, *needs)
            self._watched = needs

    def _unwatch(self) -> None:
        if self._watched is not None and self._dialling is None:
            self._attendant.unwatch(self._watched[0])
            self._watched = None

    def attend_due(self, now: float) -> float | None:
        """One step if one is due; gives when the next is, None for never."""
        with self._lock:
            due = None if self._closed else self.due()
        return due if due is None or due > now else self.attend(ready=False)

    def attend(self, *, ready: bool) -> float | None:
        """One step; gives when the next is due by the clock, None for never.

        Args:
            ready: what was watched for happened.
        """
        with self._lock:
            if self._closed:
                return None
            now = time.monotonic()
            conversation = self.conversation
            before = self.wire, conversation.problem, conversation.joined
            self._connect(now)
            if (silent := conversation.silent(now=now)) or (ready and not self._polling):
                self._receive(now)  # where it was silent: what lies here since this process stood still came in time
            conversation.tick(now=now)
            if conversation.wanted and self.wire is not None:
                self._drop(conversation.trouble)
            self._send(now)
            if silent or (self.wire, conversation.problem, conversation.joined) != before:
                self._wake()
            if not self._callers and now >= self._expected:
                self._came = -math.inf  # nobody came
            self._leave()
            return self.due()

    def is_for(self, names: list[str], epoch: int) -> bool:
        """Whether a greeting is one that this line waits for: its peer's, to us, and not of an earlier epoch."""
        conversation = self.conversation
        waits = self._dial is None and conversation.ordered
        return waits and names == [conversation.peer, conversation.node] and epoch >= conversation.peer_epoch

    def take_wire(self, wire: Wire, first: Header, payload: Any) -> None:
        """The peer connected to us, and its first frame has come."""
        with self._lock:
            now = time.monotonic()
            if self._closed:
                wire.close()
                return
            self._drop("the peer connected anew")
            self.wire = wire
            self.conversation.begin(now=now)
            self.conversation.came(first, payload, now=now)
            self._receive(now)  # it may have been read along with the first
            self._send(now)
            self._wake()
            self._leave()

    # What both do.

    def due(self) -> float | None:
        """When a step has something to do by the clock."""
        due = self.conversation.due
        if not self._callers and self._expected < (math.inf if due is None else due):
            due = self._expected
        if self.wire is None and self._dial is not None and self._may_connect():
            at = self._dial_at if self._dialling is None else self._dial_until
            return at if due is None else min(at, due)
        return due

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
                self._hang_up()
                self.conversation.trouble = "connecting: nobody answered"
            else:
                self._watch()
            return
        if code := self._dialling.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._hang_up()
            self.conversation.trouble = f"connecting: {os.strerror(code)}"
            return
        self.wire = StreamWire(self._hang_up(keep=True), longest=self.conversation.limits.message)
        self.conversation.begin(now=now)

    def _hang_up(self, *, keep: bool = False) -> socket.socket:
        """Dial no longer."""
        dialling, self._dialling = self._dialling, None
        assert dialling is not None
        self._unwatch()
        if not keep:
            dialling.close()
        return dialling

    def _receive(self, now: float) -> None:
        wire, conversation = self.wire, self.conversation
        if wire is None:
            return
        try:
            size, whole = 0, False
            for header, payload in wire.receive():
                if header is None or payload is None:
                    conversation.damaged(header, now=now)
                    continue
                conversation.came(header, payload, now=now)
                size, whole = size + len(payload), True
                if size >= ENOUGH and conversation.incoming.waiting and not wire.holds_more:
                    break  # what has come is handed on while it lies in the processor's cache
        except Torn as torn:
            self._drop(str(torn))
            return
        if wire.stirred and not whole:
            conversation.alive(now=now)
        wire.stirred = False
        if self._dialled and conversation.joined:
            reached = conversation.outgoing.acknowledged + conversation.incoming.arrived
            if reached != self._reached or now >= self._dial_at + 1.0:
                self._dialled, self._reached = 0, reached

    def _send(self, now: float) -> None:
        wire, conversation = self.wire, self.conversation
        if wire is None:
            return
        try:
            if wire.pending and not wire.flush():
                return
            while (out := conversation.next_frame(now=now)) is not None and wire.put(*out):
                pass
        except Torn as torn:
            self._drop(str(torn))

    def _drop(self, why: str) -> None:
        wire = self.wire
        if wire is not None:
            self._unwatch()
            self.wire = None
            wire.close()
            self.conversation.end(why=why)
            self._wake()
            if not self._closed:
                self._attendant.wake()  # to connect anew

    def close(self) -> None:
        """Let go of everything, once no caller is left: each is told."""
        with self._lock:
            self._closed = True
            self._wake()
            while self._callers:
                self._changed.wait()
            self._drop("closed")
            if self._dialling is not None:
                self._hang_up()
            self.let_go()

    def let_go(self) -> None:
        """Close what is left: at the end, or in a forked process."""
        for one in (self.wire, self._dialling):
            if one is not None:
                one.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
