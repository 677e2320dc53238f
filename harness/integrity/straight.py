"""The straight path of a message: by few functions, where nothing else is to be done on the way.

After a decode step the interpreter reads each function and each object anew from memory, which takes longer than what
they do. So a message that goes at once, or comes alone and is the next, passes here; whatever is not as common is left
to `Line` and `Conversation`, and each step here leaves both as theirs would.
"""

from __future__ import annotations

import time
from typing import Any

from harness.integrity import frame
from harness.integrity.conversation import Conversation
from harness.integrity.frame import Header, Kind
from harness.integrity.incoming import Message
from harness.integrity.line import IN, LONG, Line
from harness.integrity.wire import Torn


class StraightConversation(Conversation):
    """A conversation that lets messages pass at once, over a stream."""

    def at_once(self, payload: bytes, *, now: float) -> tuple[bytes, int] | None:
        """Send a message now, where there is a way and nothing has to be said before it.

        Returns:
            Its header, which is to be sent with it, and its number; None where nothing was done: `offer` it.
        """
        acks, incoming = self._acks, self.incoming
        # What is to be asked or answered too would wait for another step: the general way says both.
        if (
            not self._heard
            or self._hello
            or self._asks
            or acks.asks
            or acks.answers
            or self.problem is not None
            or incoming.ended
            or not self.ordered
            or len(payload) > self.longest
        ):
            return None
        pending = self.outgoing.at_once(payload, now=now)
        if pending is None:
            return None
        self._said_at = now
        acks.said()
        header = frame.packed(
            kind=Kind.DATA,
            length=len(payload),
            sequence=pending.sequence,
            epoch=self.epoch,
            toward=self.peer_epoch,
            acknowledged=incoming.arrived,
            taken=incoming.taken,
            payload_digest=pending.digest,
        )
        return header, pending.message

    def passed(self, header: Header, payload: Any, *, now: float) -> tuple[Message | None, bool]:
        """A frame came by itself, as `came` or `damaged`.

        Returns:
            Its message, where that is the next, and so taken; and whether something is to be said now.
        """
        incoming, message = self.incoming, None
        kind, flags, length, sequence, epoch, toward, acknowledged, taken, _ = header
        if payload is None:
            self.damaged(header, now=now)
        elif (
            kind is not Kind.DATA
            or flags
            or sequence != incoming.arrived
            or toward != self.epoch
            or epoch != self.peer_epoch
            or self.problem is not None
            or (message := incoming.passed(payload)) is None
        ):
            self.came(header, payload, now=now)
        if message is None:
            return None, False  # who waits says what there is to say
        self._heard_at, self._met = now, True
        self.counters.received += 1
        self.counters.received_bytes += length
        self.outgoing.heard_in_order(acknowledged, taken)
        return message, self._acks.passed(length, frames=incoming.arrived, now=now)

    def quiet(self, now: float) -> bool:
        """Whether there is a way, nothing is to be said, and no end is known."""
        acks = self._acks
        return not (
            not self._heard
            or self._hello
            or self._asks
            or self.incoming.ended
            or acks.asks
            or acks.answers
            or self.problem is not None
            or (acks.at is not None and now >= acks.at)
        )

    def owes(self, now: float) -> bool:
        """Whether an acknowledgement is to be sent, or a question, or an answer."""
        acks = self._acks
        return acks.asks or acks.answers or (acks.at is not None and now >= acks.at)


class StraightLine(Line):
    """A line whose callers take the straight path where there is one; where there is none, `until` does the same.

    Args:
        conversation: with the peer.
        given: as `Line`.
    """

    conversation: StraightConversation

    def __init__(self, conversation: StraightConversation, **given: Any) -> None:
        super().__init__(conversation, **given)

    def send(self, payload: bytes) -> int | None:
        """Send a message at once, where nothing has to go before it.

        Returns:
            Its number; None where nothing was done, and `until` has to see to it.
        """
        with self._lock:
            wire = self.wire
            if wire is None or wire.pending or self._closed or (self._callers and not self._polling):
                return None
            now = time.monotonic()
            sent = self.conversation.at_once(payload, now=now)
            if sent is None:
                return None
            header, number = sent
            self._come(now)
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

    def receive(  # noqa: PLR0912 - each branch as a function of its own would be read from memory for each message
        self, *, now: float, seconds: float
    ) -> Message | None:
        """The next message, where it is there, or comes by itself within so many seconds.

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
                self._come(now)
                self._leave(now)
                return message
            wire = self.wire
            if wire is not self._polled[0] or self._polled[1] != IN or self._watched is not None or wire is None:
                return None
            if not 0 <= seconds <= LONG or not conversation.quiet(now):
                return None
            self._come(now)
            self._callers, self._polling = 1, True
            try:
                try:  # a signal's handler may raise after each of these
                    self._lock.release()
                    ready = self._poll.poll(seconds * 1000 + 0.5)
                finally:
                    try:
                        self._lock.acquire()
                    finally:
                        self._polling = False
                if not ready or self._woken or self.wire is not wire:
                    return None
                self._read_at = now = time.monotonic()
                found = wire.single()
                if found is None:
                    self._receive(now)
                    return None
                message, owes = conversation.passed(*found, now=now)
                if owes:
                    self._send(now)
            except Torn as torn:
                self._drop(str(torn))
                return None
            else:
                return message
            finally:
                self._callers -= 1
                self._leave(now)
