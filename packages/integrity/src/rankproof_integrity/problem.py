"""Errors that this library raises.

IntegrityError              what happened; `failure` says of which class it is
├── TransferFailed          a message was not delivered, or not unchanged: which, to whom, how
│   ├── MessageCorrupt      its digest is not that of its bytes, and nothing is sent again
│   ├── MessageLate         the caller's time was up first; it is tried further
│   ├── MessageLost         given up on: the deadline passed, or the peer is gone for good
│   └── PeerRestarted       the peer began again, without what it had been sent before
├── OutOfStep               positions or epochs of a stream do not follow each other
├── BarrierBroken           not all arrived: it names who is missing
├── LeftOut                 the other ranks fell back without this one
└── Misused                 the caller's own slip: a message too long, a rank that is not of it
"""

from __future__ import annotations

import copy
from typing import Any, Self

from .records import FailureClass


class IntegrityError(Exception):
    """Error of this library, in words that say what, where, and what was tried.

    Attributes:
        failure: its class, from which follows what can be done about it.
    """

    failure: FailureClass = FailureClass.PERSISTENT

    def again(self) -> Self:
        """Return the same, to be raised to one more caller.

        One object that is raised to each would keep the frames of all, and whatever they hold, for
        as long as it lives.
        """
        return copy.copy(self)

    def __reduce__(self) -> Any:
        # Python would make an exception anew of its words alone, and most of these take more.
        return _rebuilt, (type(self), self.args, dict(self.__dict__))


def _rebuilt(
    kind: type[IntegrityError], words: tuple[Any, ...], attributes: dict[str, Any]
) -> IntegrityError:
    error = kind.__new__(kind, *words)
    error.__dict__.update(attributes)
    return error


class TransferFailed(IntegrityError):
    """Raised where a message was not delivered, or not unchanged.

    Attributes:
        peer: who it came from or went to, as it was named to the transport.
        sequence: number of the first message in that direction that is concerned, from 0; None
            where it is not known.
        epoch: of the sender.
    """

    def __init__(
        self, words: str, *, peer: str, sequence: int | None = None, epoch: int | None = None
    ) -> None:
        super().__init__(words)
        self.peer = peer
        self.sequence = sequence
        self.epoch = epoch


class MessageCorrupt(TransferFailed):
    """Raised where a digest is not that of the bytes, and nothing can be sent again."""

    failure = FailureClass.TRANSIENT


class MessageLate(TransferFailed):
    """Raised where the caller's time was up first.

    Nothing is given up on: the same call again goes on where this one stopped.
    """

    failure = FailureClass.TRANSIENT


class MessageLost(TransferFailed):
    """Raised where a message is given up on: the deadline passed, or the peer is gone."""


class PeerRestarted(TransferFailed):
    """Raised where the peer began again under another epoch; it names what was not given to it."""


class OutOfStep(IntegrityError):
    """Raised where positions or epochs of a stream do not follow each other."""

    failure = FailureClass.TRANSIENT


class BarrierBroken(IntegrityError):
    """Raised where not all ranks arrived.

    Attributes:
        missing: the ranks that did not.
    """

    def __init__(self, words: str, *, missing: tuple[int, ...]) -> None:
        super().__init__(words)
        self.missing = missing


class Misused(IntegrityError):
    """Raised for the caller's own slip; nothing was sent, and nothing is lost."""
