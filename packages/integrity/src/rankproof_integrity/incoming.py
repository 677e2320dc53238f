"""The half of a conversation that receives: frames put in order, each once, made into messages.

No clock, no socket.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any, NamedTuple

from . import frame
from .frame import Header, Kind
from .limits import Limits
from .records import NodeId


class Message(NamedTuple):
    """A message as it was sent: once, in order, unchanged.

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
    """What became of a frame that came."""

    NEXT = "next"
    EARLY = "early"
    DUPLICATE = "duplicate"
    BEYOND = "beyond"


class Incoming:
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

    def __init__(self, *, source: NodeId, epoch: int, limits: Limits) -> None:
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
        """A frame came whose digests hold.

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
        """The next frame came, a message in itself, and is taken; None where it has to be accepted
        as others are.
        """
        if self.early or self.waiting or self._parts or self.ended or len(payload) > self._longest:
            return None
        message = tuple.__new__(Message, (payload, self._source, self.messages, self._epoch))
        self.arrived += 1
        self.messages += 1
        self.taken = self.arrived
        return message

    def _place(self, header: Header, payload: Any) -> None:
        if self.ended:
            raise ValueError(f"frame {header.sequence} came after the goodbye")
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
                f"there is no memory for message {self.messages} of {self._partial} bytes"
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
