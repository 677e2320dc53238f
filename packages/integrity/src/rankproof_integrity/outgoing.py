"""Half of a conversation that sends: what was offered and is not acknowledged, in order.

No clock, no socket.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from . import frame
from .digest import digest_of
from .frame import HEAD, LARGEST, MORE, Kind
from .link import Counters, TransportLimits
from .problem import Misused

PLAIN = frozenset("?BNQbcdefhilnqHIL")
"""Formats of elements that are nothing but their bytes, as most are: no other is looked into."""
_NAMES = re.compile(r":[^:]*:")
_ADDRESSES = re.compile(r"[OPXz&]|Z(?![fdg])")
"""Formats of addresses: Python's objects, and what C points to. (With f, d or g after it Z is a
complex number.)
"""


def unchanging(data: Any) -> Any:
    """Return a view of a buffer that nobody can write to, or its bytes, in the order of its
    indices.

    Raises:
        Misused: it is not a buffer; or its bytes are not all that it holds, and mean something
            else, or nothing, where they come.
    """
    try:
        view = memoryview(data)
    except Exception as error:
        raise Misused(_no_buffer(data, error)) from error
    if view.format not in PLAIN and _ADDRESSES.search(_NAMES.sub("", view.format)):
        raise Misused(
            f"{_kind(data)} contains addresses (its format is {view.format!r}), which mean nothing"
            " to another process; encode its elements, or pass an array of numbers"
        )
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(data, masked.MaskedArray):
        raise Misused(
            f"{_kind(data)} has a mask, which is not part of its bytes; send array.data and"
            " array.mask"
        )
    return view if view.readonly and view.c_contiguous else view.tobytes()


def _kind(data: Any) -> str:
    kind = type(data)
    dtype = getattr(data, "dtype", None)
    suffix = "" if dtype is None else f" of dtype {dtype}"
    return f"{kind.__module__}.{kind.__qualname__}{suffix}"


def _no_buffer(data: Any, error: Exception) -> str:
    dtype = getattr(data, "dtype", None)
    if type(data).__module__.partition(".")[0] == "torch" or str(dtype).startswith("torch."):
        return f"a message must be a buffer, but {_kind(data)} is not; pass torch_bytes(tensor)"
    if getattr(dtype, "kind", "") in ("M", "m"):
        return (
            f'{_kind(data)} has no buffer; send array.view("i8"), and view the received array as'
            f" {dtype}"
        )
    return (
        f"a message must be a buffer, but {_kind(data)} is not ({error}); pass its bytes, or"
        " encode it"
    )


@dataclass(slots=True, eq=False)
class Pending:
    """Frame that is not acknowledged."""

    kind: Kind
    sequence: int
    message: int
    flags: int
    payload: Any
    digest: int
    deadline: float
    sent_at: float = 0.0
    times: int = 0


class OutgoingFrames:
    """Frames to one epoch of a peer. What was on a connection that ended is sent again on the next.

    Args:
        limits: bounds.
        counters: of the link.

    Attributes:
        room: bytes that may be sent and not taken.
        acknowledged: how many frames the peer has.
        taken: how many of them its application was given.
        offered: how many frames there were.
        messages: how many messages there were.
        ended: a goodbye was offered, which is the last.
    """

    def __init__(self, *, limits: TransportLimits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self.room = limits.window
        self.acknowledged = self.taken = self.offered = self.messages = 0
        self._frames: deque[Pending] = deque()
        self._fresh = 0  # index of the first of them that was not sent on this connection
        self._reached = 0  # how many were sent on any
        self._untaken: deque[tuple[int, int, int]] = deque()  # sequence, size, message
        self._outstanding = 0
        self.ended = False

    def has_room(self, size: int) -> bool:
        """Return whether a message of so many bytes may be offered now: buffers are bounded, and a
        goodbye is the last.
        """
        if self.ended:
            return False
        frames = max(1, -(-size // LARGEST))
        return not self._outstanding or self._outstanding + size + frames * frame.COST <= self.room

    def offer(self, payload: Any, *, now: float, kind: Kind = Kind.DATA, head: bytes = b"") -> int:
        """Take a message over; gives its number.

        Args:
            payload: its bytes, which must stay as they are until they are acknowledged.
            now: the time.
            kind: DATA, or BYE for the goodbye.
            head: what the message is; empty for bytes alone.
        """
        view = memoryview(payload)
        # Without elements there is nothing to cast, and a cast refuses it.
        view = view.cast("B") if view.nbytes else memoryview(b"")
        # Nobody waits for a goodbye.
        until = now + self._limits.deadline if kind is Kind.DATA else math.inf
        self.ended = kind is Kind.BYE
        if head:
            self._append(kind, HEAD | MORE, head, until)
        for at in range(0, max(1, len(view)), LARGEST):
            flags = MORE if at + LARGEST < len(view) else 0
            self._append(kind, flags, view[at : at + LARGEST], until)
        self.messages += 1
        return self.messages - 1

    def _append(self, kind: Kind, flags: int, part: Any, until: float) -> None:
        self._frames.append(
            Pending(kind, self.offered, self.messages, flags, part, digest_of(part), until)
        )
        size = len(part) + frame.COST
        self._untaken.append((self.offered, size, self.messages))
        self._outstanding += size
        self.offered += 1

    def at_once(self, payload: bytes, *, now: float) -> Pending | None:
        """Take a message over that is sent now, as one frame; None where it is too long or
        something is before it.
        """
        size = len(payload) + frame.COST
        if (
            len(payload) > LARGEST
            or self.ended
            or self._fresh != len(self._frames)
            or (self._outstanding and self._outstanding + size > self.room)
        ):
            return None
        sequence = self.offered
        message = self.messages
        until = now + self._limits.deadline
        digest = digest_of(payload)
        # By position: names cost as much again for each message.
        pending = Pending(Kind.DATA, sequence, message, 0, payload, digest, until, now, 1)
        self._frames.append(pending)
        self._untaken.append((sequence, size, message))
        self._fresh += 1
        self._outstanding += size
        self.offered = self._reached = sequence + 1
        self.messages = message + 1
        self._counters.sent += 1
        self._counters.sent_bytes += len(payload)
        return pending

    def next(self, *, now: float) -> Pending | None:
        """Return what is to be sent now; it counts as sent."""
        if self._fresh == len(self._frames):
            return None
        pending = self._frames[self._fresh]
        self._fresh += 1
        self._reached = max(self._reached, pending.sequence + 1)
        counters = self._counters
        counters.sent_again += pending.times > 0
        counters.sent += 1
        counters.sent_bytes += len(pending.payload)
        pending.sent_at = now
        pending.times += 1
        return pending

    def heard(self, *, acknowledged: int, taken: int) -> None:
        """Learn what the peer said that it has. What it cannot have is not believed."""
        if acknowledged > self._reached or taken > acknowledged:
            return
        while self.acknowledged < acknowledged:
            self._frames.popleft()
            # What was sent on the connection before is not among those of this one.
            self._fresh = max(0, self._fresh - 1)
            self.acknowledged += 1
        self.taken = max(self.taken, taken)
        while self._untaken and self._untaken[0][0] < self.taken:
            self._outstanding -= self._untaken.popleft()[1]

    def rewind(self) -> None:
        """Send whatever is not acknowledged once more, in order, since a connection ended."""
        self._fresh = 0

    @property
    def oldest(self) -> Pending | None:
        """Return what has waited longest for its acknowledgement."""
        return self._frames[0] if self._frames else None

    @property
    def longest(self) -> tuple[int, int]:
        """Return the longest message that is not acknowledged, and its bytes.

        No bytes where there is none.
        """
        sizes: Counter[int] = Counter()
        for pending in self._frames:
            sizes[pending.message] += len(pending.payload)
        return max(sizes.items(), key=lambda item: item[1], default=(0, 0))

    @property
    def unacknowledged(self) -> tuple[int, int] | None:
        """Return the first and last message that the peer is not known to have."""
        messages = [pending.message for pending in self._frames if pending.kind is Kind.DATA]
        return (messages[0], messages[-1]) if messages else None

    @property
    def untaken(self) -> tuple[int, int] | None:
        """Return the first and last message that the peer's application is not known to have been
        given.
        """
        return (self._untaken[0][2], self._untaken[-1][2]) if self._untaken else None
