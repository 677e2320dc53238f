"""Half of a conversation that receives: frames put in order, each once, made into messages; and
when they are acknowledged.

No clock, no socket.

Over a stream nothing is lost without the connection, so that an acknowledgement only frees buffers:
it may take its time and wait for a frame to travel with, unless the peer asks. A frame of its own
for each message would wake both ends once more for each.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any, NamedTuple

from . import frame
from .frame import ANSWERS, ASKS, Header, Kind
from .link import RoundTrip, TransportLimits
from .records import NodeId

EVERY = 32
"""Datagrams after which an acknowledgement does not wait for company."""


class Acknowledgement:
    """One side's: what it owes its peer, and what it asks for.

    Args:
        limits: bounds.
        round_trip: told how long an answer took.
        ordered: whether the wire keeps what it is given, as a stream does.

    Attributes:
        at: when what is owed is due; None while nothing is.
        asks, answers: whether a frame is due that asks the peer, or answers it.
        asked_at: when the peer was asked last.
    """

    def __init__(self, *, limits: TransportLimits, round_trip: RoundTrip, ordered: bool) -> None:
        self._limits = limits
        self._round_trip = round_trip
        self._ordered = ordered
        self._delay = limits.unhurried if ordered else limits.delay
        self.asked_at = 0.0
        self.renew()

    def renew(self) -> None:
        """Begin another epoch of either side."""
        self.at: float | None = None
        self._frames = self._bytes = self._taken = 0
        self._wanted = 0  # frames that the peer waits for
        self.connect()

    def hasten(self) -> None:
        """This side is about to close: what comes now is acknowledged at once, or never."""
        self._delay = 0.0

    def connect(self) -> None:
        """Begin on a new connection: what was asked on the last may not have come."""
        self.asks = self.answers = False
        self._asked_upto = -1
        self._unanswered = 0

    # What is owed.

    def owe(self, at: float) -> None:
        """Acknowledge at this time, or before."""
        self.at = at if self.at is None else min(at, self.at)

    def arrived(self, size: int, *, frames: int, now: float, at_once: bool) -> None:
        """Note that the next frame came, of so many bytes; `frames` came so far."""
        self._frames += 1
        self._bytes += size
        enough = self._bytes >= self._limits.window // 4 or (
            self._frames >= EVERY and not self._ordered
        )
        self.owe(now if at_once or enough or frames <= self._wanted else now + self._delay)

    def took(self, size: int, *, frames: int, last: bool, now: float) -> None:
        """Note that a message was taken, of so many bytes, and with it `frames` so far; `last`: no
        other is there now.
        """
        self._taken += size
        wanted = frames <= self._wanted and (last or self._taken >= self._limits.window // 8)
        self.owe(now if wanted else now + self._delay)

    def passed(self, size: int, *, frames: int, now: float) -> bool:
        """Note that the next frame came, of so many bytes, and was taken as it came; with it
        `frames` did.

        Gives whether that is to be said at once.
        """
        self._frames += 1
        self._bytes += size
        self._taken += size
        if frames <= self._wanted or self._bytes >= self._limits.window // 4 or self._delay <= 0:
            self.at = now
        elif self.at is None:
            self.at = now + self._delay
        return self.at <= now

    def heard(self, *, flags: int, sequence: int, now: float) -> None:
        """Note that the peer asked, up to a frame, or answered."""
        if flags & ASKS:
            self._wanted = max(self._wanted, sequence)
            self.answers = True
        if flags & ANSWERS:
            # Of two questions nobody knows which is answered.
            if self._unanswered == 1:
                self._round_trip.sample(max(0.0, now - self.asked_at))
            self._unanswered = 0

    # What is asked for.

    def ask(self) -> None:
        """Ask with the next frame; of datagrams each is acknowledged soon, and a question may be
        lost like them.
        """
        self.asks = self._ordered

    def hurry(self, offered: int) -> None:
        """Ask, if that was not done on this connection since the last frame was offered."""
        if self._ordered and offered > self._asked_upto:
            self.asks = True

    # What is said.

    def flags(self, *, sequence: int, now: float) -> int:
        """Of a frame that is said for this alone, after `sequence` were offered."""
        flags = ASKS * self.asks | ANSWERS * self.answers
        self.answers = False
        if self.asks:
            self.asks = False
            self._asked_upto = sequence
            self.asked_at = now
            self._unanswered += 1
        return flags

    def said(self) -> None:
        """Note that a frame is said: each tells what came and what was taken."""
        self.at = None
        self._frames = self._bytes = self._taken = 0


class Message(NamedTuple):
    """Message as it was sent: once, in order, unchanged.

    Attributes:
        data: its bytes; nobody else holds this buffer.
        source: who sent it.
        sequence: its number among the messages of that epoch, from 0.
        epoch: of the sender.
    """

    data: memoryview
    source: NodeId
    sequence: int
    epoch: int


class Fate(Enum):
    """Fate of a frame that came."""

    NEXT = "next"
    EARLY = "early"
    DUPLICATE = "duplicate"
    BEYOND = "beyond"


class IncomingFrames:
    """Frames from one epoch of a peer.

    Attributes:
        arrived: how many frames came in order.
        taken: how many of them the application was given.
        messages: how many whole messages came in order.
        ended: the peer said goodbye, and nothing comes after.
        early: frames that came before one that is missing, by their number.
        waiting: messages that came whole and were not taken, each with its size and the frames up
            to its end.
    """

    def __init__(self, *, source: NodeId, epoch: int, limits: TransportLimits) -> None:
        self._source = source
        self._epoch = epoch
        self._bound = limits.window + limits.message
        self._longest = limits.message
        self.arrived = self.taken = self.messages = 0
        self.ended = False
        self.waiting: deque[tuple[Message, int, int]] = deque()
        self._parts: list[Any] = []
        self._partial = 0
        self.early: dict[int, tuple[Header, Any]] = {}
        self._held = 0

    def accept(self, header: Header, payload: Any) -> Fate:
        """Take a frame that came, and whose digests hold.

        Raises:
            ValueError: it does not fit what came before: a message that is too long, something
                after a goodbye; or there is no memory to make a message of its frames.
        """
        if header.sequence < self.arrived or header.sequence in self.early:
            return Fate.DUPLICATE
        size = len(payload) + frame.SIZE
        if header.sequence > self.arrived:
            # The one that is missing has to have room still.
            if self._held + size > self._bound:
                return Fate.BEYOND
            self.early[header.sequence] = header, payload
            self._held += size
            return Fate.EARLY
        self._held += size
        self._place(header, payload)
        while (waiting := self.early.pop(self.arrived, None)) is not None:
            self._place(*waiting)
        return Fate.NEXT

    def passed(self, payload: Any) -> Message | None:
        """Take the next frame, a message in itself, past the queue; None where it has to be
        accepted as others are.
        """
        if self.early or self.waiting or self._parts or self.ended or len(payload) > self._longest:
            return None
        # Not Message(…): see `frame.parsed`.
        message = tuple.__new__(Message, (payload, self._source, self.messages, self._epoch))
        self.arrived += 1
        self.messages += 1
        self.taken = self.arrived
        return message

    def _place(self, header: Header, payload: Any) -> None:
        if self.ended:
            raise ValueError(f"frame {header.sequence} arrived after the goodbye")
        self.arrived += 1
        if header.kind is Kind.BYE:
            self.ended = True
            self._held -= len(payload) + frame.SIZE
            if not self.waiting:
                self.taken = self.arrived  # nobody takes a goodbye
            return
        self._partial += len(payload)
        if self._partial > self._longest:
            raise ValueError(f"message {self.messages} is longer than {self._longest} bytes")
        self._parts.append(payload)
        if header.flags & frame.MORE:
            return
        try:
            whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        except MemoryError as error:
            raise ValueError(
                f"there is not enough memory for message {self.messages} of {self._partial} bytes"
            ) from error
        message = tuple.__new__(
            Message, (memoryview(whole), self._source, self.messages, self._epoch)
        )
        self.waiting.append((message, self._partial + len(self._parts) * frame.SIZE, self.arrived))
        self._parts = []
        self._partial = 0
        self.messages += 1

    def take(self) -> Message | None:
        """Return the next message, which then counts as taken; None where none is whole yet."""
        if not self.waiting:
            return None
        message, size, upto = self.waiting.popleft()
        self._held -= size
        self.taken = self.arrived if self.ended and not self.waiting else upto
        return message
