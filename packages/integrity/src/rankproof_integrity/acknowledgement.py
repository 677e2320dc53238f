"""When a side acknowledges, and when it asks the peer to.

What nobody waits for waits for a frame to travel with.

Over a stream nothing is lost without the connection, so that an acknowledgement only frees buffers:
it may take its time, unless the peer asks. A frame of its own for each message would wake both ends
once more for each.
"""

from __future__ import annotations

from .frame import ANSWERS, ASKS
from .health import RoundTrip
from .limits import Limits

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

    def __init__(self, *, limits: Limits, round_trip: RoundTrip, ordered: bool) -> None:
        self._limits = limits
        self._round_trip = round_trip
        self._ordered = ordered
        self._delay = limits.unhurried if ordered else limits.delay
        self.asked_at = 0.0
        self.renew()

    def renew(self) -> None:
        """Another epoch of either side begins."""
        self.at: float | None = None
        self._frames = self._bytes = self._taken = 0
        self._wanted = 0  # frames that the peer waits for
        self.connect()

    def hasten(self) -> None:
        """This side is about to close: what comes now is acknowledged at once, or never."""
        self._delay = 0.0

    def connect(self) -> None:
        """A connection begins: what was asked on the last may not have come."""
        self.asks = self.answers = False
        self._asked_upto = -1
        self._unanswered = 0

    # What is owed.

    def owe(self, at: float) -> None:
        """Acknowledge at this time, or before."""
        self.at = at if self.at is None else min(at, self.at)

    def arrived(self, size: int, *, frames: int, now: float, at_once: bool) -> None:
        """The next frame came, of so many bytes; `frames` came so far."""
        self._frames += 1
        self._bytes += size
        enough = self._bytes >= self._limits.window // 4 or (
            self._frames >= EVERY and not self._ordered
        )
        self.owe(now if at_once or enough or frames <= self._wanted else now + self._delay)

    def took(self, size: int, *, frames: int, last: bool, now: float) -> None:
        """A message was taken, of so many bytes, and with it `frames` so far; `last`: no other is
        there now.
        """
        self._taken += size
        wanted = frames <= self._wanted and (last or self._taken >= self._limits.window // 8)
        self.owe(now if wanted else now + self._delay)

    def passed(self, size: int, *, frames: int, now: float) -> bool:
        """The next frame came, of so many bytes, and was taken as it came; with it `frames` did.

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
        """The peer asked, up to a frame, or answered."""
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
        """A frame is said: each tells what came and what was taken."""
        self.at = None
        self._frames = self._bytes = self._taken = 0
