"""Half of a conversation that receives: frames, each once and in order, made into messages; and
when they are acknowledged.

No clock, no socket.

Over a stream nothing is lost without the connection, so that an acknowledgement only frees buffers:
it may take its time and wait for a frame to travel with, unless the peer asks. A frame of its own
for each message would wake both ends once more for each.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from . import frame
from .envelope import Envelope, array_of, envelope_of
from .frame import ANSWERS, ASKS, LARGEST, Header, Kind
from .link import RoundTrip, TransportLimits
from .records import NodeId

EVERY = 32
"""Frames after which an acknowledgement does not wait for company: so many may be named, after a
peer began again, whose fate is not known.
"""


class Acknowledgement:
    """One side's: what it owes its peer, and what it asks for.

    Args:
        limits: bounds.
        round_trip: told how long an answer took.

    Attributes:
        at: when what is owed is due; None while nothing is.
        asks, answers: whether a frame is due that asks the peer, or answers it.
        asked_at: when the peer was asked last.
    """

    def __init__(self, *, limits: TransportLimits, round_trip: RoundTrip) -> None:
        self._limits = limits
        self._round_trip = round_trip
        self._delay = limits.unhurried
        self.asked_at = 0.0
        self.renew()

    def renew(self) -> None:
        """Begin another epoch of either side."""
        self.at: float | None = None
        self._frames = self._bytes = self._taken = self._takes = 0
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
        enough = self._bytes >= self._limits.window // 4 or self._frames >= EVERY
        self.owe(now if at_once or enough or frames <= self._wanted else now + self._delay)

    def took(self, size: int, *, frames: int, last: bool, now: float) -> None:
        """Note that a message was taken, of so many bytes, and with it `frames` so far; `last`: no
        other is there now.
        """
        self._taken += size
        self._takes += 1
        wanted = frames <= self._wanted and (last or self._taken >= self._limits.window // 8)
        self.owe(now if wanted or self._takes >= EVERY else now + self._delay)

    def passed(self, size: int, *, frames: int, now: float) -> bool:
        """Note that the next frame came, of so many bytes, and was taken as it came; with it
        `frames` did.

        Gives whether that is to be said at once.
        """
        self._frames += 1
        self._bytes += size
        self._taken += size
        self._takes += 1
        enough = self._bytes >= self._limits.window // 4 or self._frames >= EVERY
        if frames <= self._wanted or enough or self._delay <= 0:
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
        """Ask with the next frame."""
        self.asks = True

    def hurry(self, offered: int) -> None:
        """Ask, if that was not done on this connection since the last frame was offered."""
        if offered > self._asked_upto:
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
        self._frames = self._bytes = self._taken = self._takes = 0


class Message(NamedTuple):
    """Message as it was sent: once, in order, unchanged.

    Attributes:
        data: its bytes; nobody else holds this buffer.
        source: who sent it.
        sequence: its number among the messages of that epoch, from 0.
        epoch: of the sender.
        envelope: what it was sent as; None for bytes alone.
    """

    data: memoryview
    source: NodeId
    sequence: int
    epoch: int
    envelope: Envelope | None = None

    @property
    def stream(self) -> str:
        """Return the name of its stream; empty where it has none."""
        return "" if self.envelope is None else self.envelope.stream

    @property
    def position(self) -> int | None:
        """Return its position in its stream, as the sender gave it."""
        return None if self.envelope is None else self.envelope.position

    def array(self) -> Any:
        """Return what was sent as an array, as one of numpy of its dtype and shape, which may be
        written to.

        Raises:
            Misused: it was sent as bytes.
            ModuleNotFoundError: numpy, or what brings its dtype (ml_dtypes), is not installed.
        """
        return array_of(self.envelope, self.data)


class Waiting(NamedTuple):
    """Message that came whole and was not taken.

    Attributes:
        parts: payloads of its frames, but for its head.
        envelope: what its head says; None without one.
        number: among the messages of its epoch.
        size: bytes of its frames, with their headers.
        after: how many frames had come before it.
    """

    parts: list[Any]
    envelope: Envelope | None
    number: int
    size: int
    after: int


class FrameMissing(Exception):
    """Raised where a frame came before one that did not: the connection lost it."""


class IncomingFrames:
    """Frames from one epoch of a peer.

    Attributes:
        arrived: how many frames came.
        taken: how many of them the application was given.
        messages: how many whole messages came.
        ended: the peer said goodbye, and nothing comes after.
        waiting: messages that came whole and were not taken.
    """

    def __init__(self, *, source: NodeId, epoch: int, limits: TransportLimits) -> None:
        self._source = source
        self._epoch = epoch
        self._window = limits.window
        self._longest = limits.message
        self.arrived = self.taken = self.messages = 0
        self.ended = False
        self.waiting: deque[Waiting] = deque()
        self._parts: list[Any] = []
        self._headed = False  # whether the first of them is a head
        self._partial = 0
        self._held = 0  # bytes of `waiting` and `_parts`, with their headers

    def accept(self, header: Header, payload: Any) -> bool:
        """Take a frame that came, and whose digests hold; False where it is a copy of one that
        had come.

        Raises:
            FrameMissing: one before it did not come.
            ValueError: it does not fit what came before: a message is too long or its head is none,
                the peer sent more than the window, or something after its goodbye.
        """
        if header.sequence < self.arrived:
            return False
        if header.sequence > self.arrived:
            raise FrameMissing(
                f"frame {header.sequence} arrived, but frame {self.arrived} before it did not"
            )
        if self.ended:
            raise ValueError(f"frame {header.sequence} arrived after the goodbye")
        self.arrived += 1
        if header.kind is Kind.BYE:
            self.ended = True
            if not self.waiting:
                self.taken = self.arrived  # nobody takes a goodbye
            return True
        more = header.flags & frame.MORE and not header.flags & frame.HEAD
        if (header.flags & frame.HEAD and self._parts) or (more and len(payload) != LARGEST):
            raise ValueError(f"message {self.messages} came in parts that no sender makes")
        self._hold(payload)
        if not self._parts:
            self._headed = bool(header.flags & frame.HEAD)
        self._parts.append(payload)
        if not header.flags & frame.MORE:
            self._complete()
        return True

    def _complete(self) -> None:
        """Have the message of the parts that came wait to be taken."""
        frames = len(self._parts)
        size = self._partial + frames * frame.COST
        envelope = None
        if self._headed:
            envelope = envelope_of(self._parts.pop(0))
        after = self.arrived - frames
        self.waiting.append(Waiting(self._parts, envelope, self.messages, size, after))
        self._parts = []
        self._partial = 0
        self.messages += 1

    def _hold(self, payload: Any) -> None:
        """Count a part of a message against its bounds."""
        self._partial += len(payload)
        self._held += len(payload) + frame.COST
        if self._partial > self._longest:
            raise ValueError(f"message {self.messages} is longer than {self._longest} bytes")
        # A message that is longer than the window passes alone.
        if self._held > self._window and self.waiting:
            raise ValueError(
                f"the peer sent more than the window of {self._window} bytes that may wait to be"
                " taken"
            )

    def passed(self, payload: Any) -> Message | None:
        """Take the next frame, a message in itself, past the queue; None where it has to be
        accepted as others are.
        """
        if self.waiting or self._parts or self.ended or len(payload) > self._longest:
            return None
        # Not Message(…): see `frame.parsed`.
        message = tuple.__new__(Message, (payload, self._source, self.messages, self._epoch, None))
        self.arrived += 1
        self.messages += 1
        self.taken = self.arrived
        return message

    def take(self, stream: str | None = None) -> Message | None:
        """Return the next message, which then counts as taken; None where none is whole yet.

        Args:
            stream: whose next message; None for any. Messages of other streams wait on, and count
                against the window, as does what came after them.

        Raises:
            MemoryError: there is none to make a message of its parts, which are kept.
        """
        at = 0 if stream is None else self._first_of(stream)
        if at is None or not self.waiting:
            return None
        found = self.waiting[at]
        parts = found.parts
        whole = parts[0] if len(parts) == 1 else _joined(parts)
        del self.waiting[at]
        self._held -= found.size
        if self.waiting:
            self.taken = self.waiting[0].after
        else:
            self.taken = self.arrived - len(self._parts)
        fields = memoryview(whole), self._source, found.number, self._epoch, found.envelope
        return tuple.__new__(Message, fields)

    def _first_of(self, stream: str) -> int | None:
        for at, waiting in enumerate(self.waiting):
            name = "" if waiting.envelope is None else waiting.envelope.stream
            if name == stream:
                return at
        return None


def _joined(parts: list[Any]) -> bytearray:
    whole = bytearray(sum(map(len, parts)))
    at = 0
    for part in parts:
        whole[at : at + len(part)] = part
        at += len(part)
    return whole
