"""What a transport may keep, and how long it may try."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .problem import Misused


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one conversation. Sizes are in bytes, times in seconds.

    Attributes:
        message: the longest message.
        window: what may have been sent and not been taken by the peer's application: it bounds the
            buffers of both. One message longer than that passes alone.
        deadline: within this a message is acknowledged, or given up on.
        attempts: how often one frame is sent before it is given up on.
        shortest, longest: between these lies the time-out that is worked out from round trips.
        silence: a connection on which nothing is heard for so long is made anew.
        delay: how long an acknowledgement of a datagram waits for something to travel with.
    """

    message: int = 256 * 2**20
    window: int = 16 * 2**20
    deadline: float = 30.0
    attempts: int = 30
    shortest: float = 0.05
    longest: float = 5.0
    silence: float = 2.0
    delay: float = 0.002

    @property
    def unhurried(self) -> float:
        """How long what nobody waits for may wait: an acknowledgement over a stream, a look at the
        clock.
        """
        return min(self.silence, self.deadline) / 4

    def __post_init__(self) -> None:
        whole = (self.message, self.window, self.attempts)
        times = (self.deadline, self.shortest, self.longest, self.silence)
        positive = min(whole) >= 1 and all(0 < one < math.inf for one in times)
        if not positive or not 0 <= self.delay < math.inf or self.shortest > self.longest:
            raise Misused(
                f"limits must be positive and finite, and shortest at most longest: {self}"
            )
        if self.message >= 2**32:
            raise Misused(
                "a message has less than 4 GiB, for its length is a word of 32 bits:"
                f" {self.message}"
            )
