"""Line to one peer: its conversation, the wire that carries it now, and the threads that wait for
it.

One file of more than 500 lines, because one lock holds all of it: who reads the wire now (a caller,
or the attendant) follows from the same few fields that every method changes.
"""

from __future__ import annotations

import math
import os
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from .conversation import Conversation
from .dial import Dial
from .frame import LARGEST, Header
from .incoming import Message
from .problem import Misused
from .proof import PATIENCE, UNPROVED, Introduction, Session, Unproved
from .reader import Damaged, Torn
from .wire import StreamWire, Trust

Result = TypeVar("Result")
PACE = 0.002
"""Seconds that who sent a long message waits for the kernel to take more of it, before it leaves
that to others.
"""
EXPECTED = 0.1
"""Seconds for which a caller that has read is expected to read again.

Until then the attendant does not.
"""
ENOUGH = 256 * 1024
"""Bytes of whole messages after which reading pauses for whoever waits for them."""
STRETCH = 8 * 2**20
"""Bytes that are read in a row: then whoever reads looks at the clock, and says that he is
there.
"""
LONG = 3600.0
"""Seconds that one wait of the kernel's has at most: it takes no more than some weeks.

Who waits longer asks again.
"""
IN = select.POLLIN
OUT = select.POLLIN | select.POLLOUT


class Watcher(Protocol):
    """Interface of whoever attends to a line while no caller does.

    Attributes:
        until: when it looks at the clock next; infinity while it is about to work that out.
    """

    until: float

    def watch(self, line: Line, descriptor: int, events: int) -> None:
        """Call `attend` of the line at these events, until `unwatch`.

        Whatever was said of this descriptor before.
        """

    def unwatch(self, descriptor: int) -> None:
        """Call it no more for this descriptor, which is about to be closed or used by a caller."""

    def wake(self) -> None:
        """Ask every line anew when something is due."""

    def arrived(self) -> None:
        """Tell whoever waits for any line that this one has messages."""


class Line:
    """One peer. Every method may be called from any thread.

    Whoever waits for a message reads the wire meanwhile: the bytes go from the kernel to the thread
    that asks for them, and no other is woken. The attendant reads where nobody waits; it alone
    looks at the clock, and connects.

    Args:
        conversation: with the peer.
        attendant: of the transport.
        dial: makes a socket that is being connected, without waiting; None where the peer connects
            to us.
        trust: how a connection that was dialled is made safe.
    """

    def __init__(
        self,
        conversation: Conversation,
        *,
        attendant: Watcher,
        dial: Callable[[], socket.socket] | None = None,
        trust: Trust | None = None,
    ) -> None:
        self.conversation = conversation
        self._attendant = attendant
        self._dial = None if dial is None else Dial(dial, patience=conversation.limits.silence)
        self._trust = Trust() if trust is None else trust
        self.wire: StreamWire | None = None
        # Of a connection that we made, until both ends have proved the key; and until when.
        self._introduction: Introduction | None = None
        self._introduced_by = 0.0
        # Held by whoever changes the line, and by nobody who waits: `_ready` lets go of it, so that
        # others send while one reads. One thread may enter twice, since a signal's handler may send
        # while its thread does. Entered by itself: a Condition's way in is two functions of Python
        # more.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._callers = 0
        # Whether this thread changes the conversation now: the lock lets its signal's handler in.
        self._inside = False
        # When a caller did last: one that only sends does not hear what its peer says.
        self._read_at = -math.inf
        # Until when another is expected, and the attendant does not watch.
        self._expected = math.inf
        self._closed = False
        # Descriptor and events that the attendant waits for.
        self._watched: tuple[int, int] | None = None
        self._poll = select.poll()  # of whoever polls
        self._polled: tuple[StreamWire | None, int] = (None, 0)
        self._polling = self._woken = False
        # Whoever polls waits in the kernel, where no condition reaches it: a byte in this pipe
        # does. It is read when `_woken` says that it is there, so that the pipe never holds two.
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poll.register(self._wake_read, select.POLLIN)

    # What callers do.

    def until(
        self, find: Callable[[float], Result | None], *, deadline: float, sends: bool = False
    ) -> Result | None:
        """Work until something is found, or the time is up.

        Args:
            find: asked at first and whenever something came or changed, with the time, under the
                line's lock; may raise.
            deadline: of the monotonic clock.
            sends: what was found is a message that is sent: stay with it while the peer takes it.

        Raises:
            Misused: the transport was closed during this call.
        """
        with self._lock:
            now = time.monotonic()
            looked = False
            self._callers += 1
            try:
                while True:
                    if self._closed:
                        raise Misused(
                            f"the transport of {self.conversation.node} was closed during this call"
                        )
                    self._demand_outside()
                    self._inside = True
                    try:
                        result = find(now)
                    finally:
                        self._send(now)  # what was found, or raised, may be something to say
                        self._inside = False
                    if result is not None:
                        if sends:
                            self._stay()
                        return result
                    if looked and now >= deadline:
                        return None
                    looked = True
                    self._wait(max(0.0, deadline - now))
                    now = time.monotonic()
            finally:
                self._callers -= 1
                self._leave(now)

    def send(self, payload: bytes) -> int | None:
        """Send a message at once, where nothing has to go before it.

        `send` and `receive` do what `until` does in few functions: after a decode step the
        interpreter reads each function and each object anew from memory, which takes longer than
        what they do.

        Returns:
            Its number; None where nothing was done, and `until` has to see to it.
        """
        with self._lock:
            wire = self.wire
            if (
                wire is None
                or wire.pending
                or self._closed
                or (self._callers and not self._polling)
            ):
                return None
            now = time.monotonic()
            self._demand_outside()
            self._inside = True
            try:
                sent = self.conversation.at_once(payload, now=now)
            finally:
                self._inside = False
            if sent is None:
                return None
            header, number = sent
            self._callers += 1
            try:
                if not wire.put(header, payload):
                    self._stay()
            except Torn as torn:
                self._cut_off(wire, str(torn), now)  # it is sent again over the next connection
            finally:
                self._callers -= 1
                self._leave(now)
            return number

    def receive(self, *, now: float, seconds: float) -> Message | None:
        """Return the next message, where it is there, or comes by itself within so many seconds.

        Returns:
            The message; None where there was something else to do, and `until` has to see to it.
        """
        conversation = self.conversation
        with self._lock:
            if self._callers or self._closed:
                return None
            if conversation.incoming.waiting:
                message = conversation.take(now=now)
                if conversation.owes(now):
                    self._send(now)
                self._leave(now)
                return message
            wire = self.wire
            if (
                wire is not self._polled[0]
                or self._polled[1] != IN
                or self._watched is not None
                or wire is None
            ):
                return None
            if not 0 <= seconds <= LONG or not conversation.quiet(now):
                return None
            self._callers = 1
            try:
                if not self._ready(seconds) or self._woken or self.wire is not wire:
                    return None
                self._read_at = now = time.monotonic()
                single = wire.single()
                message = None
                owes = False
                if single is not None:
                    message, owes = conversation.passed(*single, now=now)
                if single is None or wire.holds_more:
                    self._receive(now)  # what came with it is seen by no poll
                if owes:
                    self._send(now)
            except Torn as torn:
                self._torn(torn)
                return None
            else:
                return message
            finally:
                self._callers -= 1
                self._leave(now)

    def _demand_outside(self) -> None:
        if self._inside:
            raise Misused(
                "a signal handler interrupted a call of the same thread for the same peer; send"
                " from another thread, or set a flag"
            )

    def take(self, stream: str | None) -> Message | None:
        """Return the next message of a stream, or of any, if it is there; the attendant reads from
        now on, whoever was expected.
        """
        with self._lock:
            if self._closed:
                return None
            now = time.monotonic()
            message = self.conversation.take(now=now, stream=stream)
            self._expected = math.inf
            self._read_at = -math.inf
            if message is not None and self.conversation.owes(now):
                self._send(now)
            self._hand_on()
            return message

    def _stay(self) -> None:
        """Send on what is pending, while the kernel takes some of it each few milliseconds."""
        wire = self.wire
        while (
            wire is not None
            and wire.pending
            and wire is self.wire
            and not self._polling
            and self._wait(PACE)
        ):
            self._send(time.monotonic())

    def _ready(self, seconds: float) -> bool:
        """Return whether something can be read or sent, or the line was woken, within so many
        seconds.
        """
        # Under the lock: who sees it true writes into the pipe, and the poll ends at once even
        # where it begins only after that.
        self._polling = True
        try:  # a signal's handler may raise after each of these
            # So that others send meanwhile, and the attendant looks at the clock.
            self._lock.release()
            # Rounded up: a poll that ends before its time finds nothing due, and is made again.
            return bool(self._poll.poll(seconds * 1000 + 0.5))
        finally:
            # Taken again whatever happened, because the callers leave it; and only who has it says
            # that nobody polls.
            try:
                self._lock.acquire()
            finally:
                self._polling = False

    def _wait(self, seconds: float) -> bool:
        """Wait until something came or changed, and read what came.

        Gives whether it did, within so many seconds.
        """
        if self._polling:  # another thread reads
            return self._changed.wait(min(seconds, threading.TIMEOUT_MAX))
        wire = self._prepare()
        ready = self._ready(min(seconds, LONG))
        self._read_at = time.monotonic()
        if self._woken:
            self._woken = False
            os.read(self._wake_read, 1)
        if ready and wire is not None and self.wire is wire:
            self._receive(time.monotonic())
        if self._callers > 1:
            self._changed.notify_all()
        if self.conversation.incoming.waiting:
            self._attendant.arrived()
        return ready

    def _prepare(self) -> StreamWire | None:
        """Have the caller's poll wait for what the wire needs now, and the attendant not."""
        wire = self.wire
        before, events = self._polled
        if wire is not None:
            self._unwatch()  # without one it watches what is dialled
        needs = OUT if wire is not None and wire.stuck else IN
        if wire is not before or events != needs:
            # A descriptor that was closed may be another's by now.
            if before is not None and before is not wire:
                self._poll = select.poll()
                self._poll.register(self._wake_read, select.POLLIN)
            if wire is not None:
                self._poll.register(wire.fileno(), needs)
            self._polled = wire, needs
        return wire

    def _leave(self, now: float) -> None:
        """Hand on what a caller did that is done. Where one that reads is expected, nobody watches:
        the attendant would read before it.
        """
        wire = self.wire
        expected = self._read_at + EXPECTED
        free = not self._callers and not self._closed and wire is not None and not wire.pending
        if not free or now >= expected:
            self._expected = math.inf
            self._hand_on()
            return
        self._expected = expected
        if expected < self._attendant.until:
            self._attendant.wake()

    def _hand_on(self) -> None:
        """Have somebody go on: who polls, another caller, or the attendant."""
        if self._closed:
            self._changed.notify_all()  # close() waits for the last
        elif self._polling:
            wire = self.wire
            stale = self._polled[0] is not wire or (
                wire is not None and wire.stuck and self._polled[1] != OUT
            )
            if stale:
                self._wake()  # to poll for something else
        elif self._callers:
            self._changed.notify_all()
        elif self._expected == math.inf or self.wire is None or self.wire.pending:
            self._watch()  # and looks often enough for whatever can become due

    def _wake(self) -> None:
        if self._polling and not self._woken:
            self._woken = True
            os.write(self._wake_write, b"\0")
        if self._callers:
            self._changed.notify_all()

    # What the attendant does.

    def _watch(self) -> None:
        wire = self.wire
        if wire is not None:
            needs = wire.fileno(), selectors.EVENT_READ | selectors.EVENT_WRITE * wire.stuck
        elif self._dial is not None and (dialled := self._dial.descriptor) is not None:
            needs = dialled, selectors.EVENT_WRITE
        else:
            return
        if needs != self._watched:
            self._unwatch()
            self._attendant.watch(self, *needs)
            self._watched = needs

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._attendant.unwatch(self._watched[0])
            self._watched = None

    def attend_due(self, now: float) -> float | None:
        """Take a step if one is due; gives when the next is, None for never."""
        with self._lock:
            due = None if self._closed else self.due(now)
        return due if due is None or due > now else self.attend(ready=False)

    def attend(self, *, ready: bool) -> float | None:
        """Take a step; gives when the next is due by the clock, None for never.

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
                # Where it was silent: what lies here since this process stood still came in time.
                self._receive(now)
            conversation.tick(now=now)
            if conversation.wanted and self.wire is not None:
                self._drop(conversation.trouble)
            if self._introduction is not None and now >= self._introduced_by:
                self._drop("the peer did not prove the group's key in time")
            self._send(now)
            if silent or (self.wire, conversation.problem, conversation.joined) != before:
                self._wake()
            if not self._callers and now >= self._expected:
                self._expected = math.inf  # nobody came
            self._hand_on()
            return self.due(now)

    @property
    def waits(self) -> bool:
        """Return whether its peer is to connect to us."""
        return self._dial is None

    def take_wire(
        self, wire: StreamWire, first: Header, payload: Any, *, session: Session | None = None
    ) -> None:
        """Take the connection of a peer that connected to us, with its greeting.

        Args:
            wire: the connection.
            first: header of the greeting.
            payload: of the greeting.
            session: what both proved on it; None where there is no key.
        """
        with self._lock:
            now = time.monotonic()
            if self._closed:
                wire.close()
                return
            self._drop("the peer reconnected")
            wire.reader.allow(LARGEST)
            self.wire = wire
            self.conversation.begin(now=now, session=session)
            self.conversation.came(first, payload, now=now)
            self._receive(now)  # it may have been read along with the first
            self._send(now)
            self._wake()
            self._hand_on()

    # What both do.

    def due(self, now: float) -> float | None:
        """When a step has something to do by the clock."""
        due = self.conversation.due
        if self._introduction is not None:
            due = self._introduced_by if due is None else min(due, self._introduced_by)
        if self._expected < math.inf:
            # While a caller is there too, so that none has to wake the attendant when it leaves.
            expected = now + EXPECTED if self._callers else self._expected
            due = expected if due is None else min(due, expected)
        if self.wire is None and self._dial is not None and self._may_connect():
            due = self._dial.due if due is None else min(self._dial.due, due)
        return due

    def _may_connect(self) -> bool:
        return not self._closed and not (
            self.conversation.incoming.ended and self.conversation.delivered
        )

    def _connect(self, now: float) -> None:
        if self._dial is None or self.wire is not None or not self._may_connect():
            return
        self._unwatch()
        connected = self._dial.step(now)
        if connected is None:
            self.conversation.trouble = self._dial.trouble or self.conversation.trouble
            self._watch()
            return
        key = self._trust.key
        longest = LARGEST if key is None else UNPROVED
        try:
            self.wire = self._trust.wire(connected, initiator=True, longest=longest)
        except OSError as error:  # it was gone before TLS began
            connected.close()
            self.conversation.trouble = error.strerror or str(error)
            return
        if key is None:
            self.conversation.begin(now=now)
            return
        self._introduction = Introduction(key, initiator=True)
        self._introduced_by = now + max(PATIENCE, self.conversation.limits.silence)

    def _introduce(self, wire: StreamWire, header: Header, payload: Any, now: float) -> None:
        """Take a frame of the proof; with the last of it the conversation begins."""
        introduction = self._introduction
        assert introduction is not None
        introduction.came(header, payload)
        if introduction.session is not None:
            self._introduction = None
            wire.reader.allow(LARGEST)
            self.conversation.begin(now=now, session=introduction.session)

    def _receive(self, now: float) -> None:
        wire = self.wire
        conversation = self.conversation
        if wire is None:
            return
        try:
            size = 0
            whole = False
            for header, payload in wire.receive():
                if self._introduction is not None:
                    self._introduce(wire, header, payload, now)
                    continue
                conversation.came(header, payload, now=now)
                if conversation.wanted:
                    self._drop(conversation.trouble)
                    return
                size += len(payload)
                whole = True
                enough = size >= STRETCH or (size >= ENOUGH and conversation.incoming.waiting)
                if enough and not wire.holds_more:
                    break  # what has come is handed on while it lies in the processor's cache
        except Unproved as unproved:
            self._drop(str(unproved))
            return
        except Torn as torn:
            self._torn(torn)
            return
        if wire.stirred and not whole:
            conversation.alive(now=now)
        wire.stirred = False
        if self._dial is not None and conversation.joined:
            self._dial.joined(
                conversation.outgoing.acknowledged + conversation.incoming.arrived, now=now
            )

    def _send(self, now: float) -> None:
        wire = self.wire
        conversation = self.conversation
        if wire is None:
            return
        try:
            if wire.pending and not wire.flush():
                return
            if self._introduction is not None:
                while (said := self._introduction.next_frame()) is not None and wire.put(*said):
                    pass
                return
            while (out := conversation.next_frame(now=now)) is not None and wire.put(*out):
                pass
        except Torn as torn:
            self._cut_off(wire, str(torn), now)

    def _torn(self, torn: Torn) -> None:
        """Let go of a connection that is of no more use; what was lost on it comes on the next."""
        if isinstance(torn, Damaged):
            self.conversation.damaged()
        self._drop(str(torn))

    def _cut_off(self, wire: StreamWire, why: str, now: float) -> None:
        """Nothing goes any more; what the peer said before it closed, that it has all and is gone,
        lies here still.
        """
        self._receive(now)
        if self.wire is wire:
            self._drop(why)

    def _drop(self, why: str) -> None:
        wire = self.wire
        if wire is not None:
            # Unwatched before it is closed: its number may be another's as soon as it is free.
            self._unwatch()
            self.wire = None
            self._introduction = None
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
            # What they use may only be closed once they are gone; `_hand_on` says so.
            while self._callers:
                self._changed.wait()
            self._drop("closed")
            self._unwatch()  # what is dialled
            self.let_go()

    def let_go(self) -> None:
        """Close what is left: at the end, or in a forked process."""
        if self.wire is not None:
            self.wire.close()
        if self._dial is not None:
            self._dial.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
