"""How a line ends: what was sent has arrived, both have said so, and nobody waits for who is
gone.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable

from .line import Line
from .problem import MessageLost, TransferFailed


def interrupts(lines: Iterable[Line]) -> bool:
    """Return whether this thread is in the midst of a call of one: then a signal's handler asks,
    and that call cannot end.
    """
    known = set(map(id, lines))
    frame = inspect.currentframe()
    while frame is not None:
        if (
            frame.f_globals.get("__package__") == __package__
            and id(frame.f_locals.get("self")) in known
        ):
            return True
        frame = frame.f_back
    return False


def goodbye(line: Line, deadline: float) -> TransferFailed | None:
    """Have a peer acknowledge all that was sent, and say that nothing comes after.

    What is not known to have come.

    Args:
        line: to the peer.
        deadline: of the monotonic clock.
    """
    conversation = line.conversation
    said: float | None = None
    apart: float | None = None  # since when they do not know each other on any connection
    # A datagram that acknowledged the peer's last message may be lost, and the peer ask again:
    # somebody answers.
    stays = 0.0 if conversation.ordered else conversation.limits.silence

    def found(now: float) -> bool | None:
        nonlocal said, apart
        apart = None if conversation.joined else now if apart is None else apart
        # A peer whose messages came and that said no goodbye may not know that they came: it
        # connects again.
        owes = conversation.incoming.arrived and not conversation.incoming.ended
        gone = apart is not None and now >= apart + (conversation.limits.silence if owes else 0.0)
        if conversation.problem is not None or (conversation.delivered and gone):
            return True
        if said is None:
            conversation.goodbye(now=now)
            said = now
        # Who has said goodbye too may be gone, and then nobody acknowledges ours.
        alone = gone or (conversation.incoming.ended and now >= said + stays)
        return (
            conversation.delivered
            or (conversation.outgoing.unacknowledged is None and alone)
            or None
        )

    while (
        line.until(found, deadline=min(deadline, time.monotonic() + conversation.limits.unhurried))
        is None
    ):
        if time.monotonic() >= deadline:
            break
    undelivered = conversation.outgoing.unacknowledged
    if undelivered is None:
        return None
    return conversation.problem or MessageLost(
        f"messages {undelivered[0]} to {undelivered[1]} to {conversation.peer} were not"
        f" acknowledged before the transport of {conversation.node} was closed",
        peer=conversation.peer,
        sequence=undelivered[0],
        epoch=conversation.epoch,
    )
