"""Link to a peer: the bounds it is held to, how it does (round trips, loss, what was sent again),
and how long to wait for a peer that does so.
"""

from __future__ import annotations

import math
import threading
from dataclasses import asdict, dataclass

from .problem import Misused
from .records import NodeId


class RoundTrip:
    """How long an answer takes, smoothed, and the timeout that follows: RFC 6298, with bounds.

    Attributes:
        smoothed, deviation: in seconds; None before the first sample.
    """

    def __init__(self, *, shortest: float = 0.05, longest: float = 5.0) -> None:
        self._shortest = shortest
        self._longest = longest
        self.smoothed: float | None = None
        self.deviation = 0.0

    def sample(self, seconds: float) -> None:
        """Learn that one answer took so long. Never of something that was sent twice: nobody knows
        which is answered (Karn).
        """
        if self.smoothed is None:
            self.smoothed = seconds
            self.deviation = seconds / 2
        else:
            self.deviation += (abs(self.smoothed - seconds) - self.deviation) / 4
            self.smoothed += (seconds - self.smoothed) / 8

    def timeout(self, *, doubled: int = 0) -> float:
        """How long to wait, in seconds.

        Args:
            doubled: how often it passed in vain since the last answer.
        """
        # Of a link that nothing is known of, RFC 6298 takes one second.
        first = 1.0 if self.smoothed is None else self.smoothed + 4 * self.deviation
        within = min(max(first, self._shortest), self._longest)
        return float(min(within * 2 ** min(doubled, 16), self._longest))


@dataclass(kw_only=True)
class Counters:
    """Counts of one link, since its conversation began.

    Numbers of frames, and bytes of their payloads.
    """

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    sent_again: int = 0
    damaged: int = 0
    duplicates: int = 0
    early: int = 0
    stale: int = 0
    connections: int = 0


@dataclass(frozen=True, kw_only=True)
class LinkHealth:
    """How a link did when it was looked at.

    Attributes:
        peer: to whom.
        round_trip, deviation: in seconds; None before the first answer.
        timeout: seconds after which an answer counts as missing.
        loss: share of the frames sent that had to be sent again; 0 where nothing was.
        counted: the numbers, by name.
    """

    peer: NodeId
    round_trip: float | None
    deviation: float
    timeout: float
    loss: float
    counted: dict[str, int]


class NetworkHealthMonitor:
    """Links of one node. Safe to ask from any thread."""

    def __init__(self, *, shortest: float = 0.05, longest: float = 5.0) -> None:
        self._shortest = shortest
        self._longest = longest
        self._links: dict[NodeId, tuple[RoundTrip, Counters]] = {}
        # Held while links are added or listed, not while one counts: a conversation is the only
        # writer of its counters, and a number that is read while it grows is one of two true ones.
        self._lock = threading.Lock()

    def link(self, peer: NodeId) -> tuple[RoundTrip, Counters]:
        """Return what a conversation writes into."""
        with self._lock:
            if peer not in self._links:
                self._links[peer] = (
                    RoundTrip(shortest=self._shortest, longest=self._longest),
                    Counters(),
                )
            return self._links[peer]

    def health(self, peer: NodeId) -> LinkHealth:
        """Return how the link to a peer does."""
        round_trip, counters = self.link(peer)
        return LinkHealth(
            peer=peer,
            round_trip=round_trip.smoothed,
            deviation=round_trip.deviation,
            timeout=round_trip.timeout(),
            loss=counters.sent_again / counters.sent if counters.sent else 0.0,
            counted=asdict(counters),
        )

    def mended(self) -> dict[str, int]:
        """Return what all links together met and made good, by name: frames, and connections made
        anew.

        All 0 on clean ones.

        Damaged and early frames and doubled ones are of what came, those sent again of what went.
        """
        with self._lock:
            counted = [counters for _, counters in self._links.values()]
        names = ("damaged", "sent_again", "duplicates", "early")
        totals = {name: sum(getattr(counters, name) for counters in counted) for name in names}
        again = sum(max(0, counters.connections - 1) for counters in counted)
        return {**totals, "made_anew": again}

    def all(self) -> list[LinkHealth]:
        """Every link, by the peer's name."""
        with self._lock:
            peers = sorted(self._links)
        return [self.health(peer) for peer in peers]


class Pace:
    """How long one step of a peer takes, and so how long to wait for its next: a slow device is not
    a dead one.

    Wait `timeout()`; it follows what `took` was told, between bounds.
    """

    def __init__(self, *, shortest: float, longest: float) -> None:
        self._steps = RoundTrip(shortest=shortest, longest=longest)
        self._longest = longest
        self._known = False

    def took(self, seconds: float) -> None:
        """Learn that a step came after so many seconds."""
        self._known = True
        self._steps.sample(seconds)

    def timeout(self) -> float:
        """Seconds; the longest that is allowed until a step was seen."""
        return self._steps.timeout() if self._known else self._longest


@dataclass(frozen=True, kw_only=True)
class TransportLimits:
    """Bounds of one conversation. Sizes are in bytes, times in seconds.

    Attributes:
        message: the longest message.
        window: what may have been sent and not been taken by the peer's application: it bounds the
            buffers of both. One message longer than that passes alone.
        deadline: within this a message is acknowledged, or given up on.
        attempts: how many connections in a row may deliver nothing before what they carry is given
            up on.
        shortest, longest: between these lies the timeout that is worked out from round trips.
        silence: a connection on which nothing is heard for so long is made anew.
    """

    message: int = 256 * 2**20
    window: int = 16 * 2**20
    deadline: float = 30.0
    attempts: int = 30
    shortest: float = 0.05
    longest: float = 5.0
    silence: float = 2.0

    @property
    def unhurried(self) -> float:
        """How long what nobody waits for may wait: an acknowledgement over a stream, a look at the
        clock.
        """
        return min(self.silence, self.deadline) / 4

    def __post_init__(self) -> None:
        whole = (self.message, self.window, self.attempts)
        times = (self.deadline, self.shortest, self.longest, self.silence)
        positive = min(whole) >= 1 and all(0 < time < math.inf for time in times)
        if not positive or self.shortest > self.longest:
            raise Misused(
                f"limits must be positive and finite, and shortest must not exceed longest: {self}"
            )
        if self.message >= 2**32:
            raise Misused(
                f"the limit for a message must be below 4 GiB, not {self.message}, because its"
                " length field has 32 bits"
            )
