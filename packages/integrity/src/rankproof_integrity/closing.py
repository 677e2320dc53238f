"""How a transport ends: by a goodbye to each peer, or, in a forked child, without a word.

What was sent has arrived, both have said so, and nobody waits for who is gone. A child has copies
of its parent's sockets and none of its threads. What it sent would lie between the parent's frames;
what it held would keep a connection alive whose owner is dead.
"""

from __future__ import annotations

import inspect
import os
import time
import weakref
from collections.abc import Iterable
from typing import Protocol

from .line import Line
from .problem import MessageLost, TransferFailed


def interrupts(lines: Iterable[Line]) -> bool:
    """Return whether this thread is in the midst of a call of one: then a signal's handler asks,
    and that call cannot end.
    """
    known = set(map(id, lines))
    # The stack says it. A mark that calls set and take away again would cost each of them, and a
    # handler may come between the call and its mark.
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

    Args:
        line: to the peer.
        deadline: of the monotonic clock.

    Returns:
        What is not known to have come; None where all has.
    """
    conversation = line.conversation
    said: float | None = None
    apart: float | None = None  # since when they do not know each other on any connection

    def over(now: float) -> bool | None:
        nonlocal said, apart
        if conversation.joined:
            apart = None
        elif apart is None:
            apart = now
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
        alone = gone or conversation.incoming.ended
        return (
            conversation.delivered
            or (conversation.outgoing.unacknowledged is None and alone)
            or None
        )

    while True:
        # In short waits: `over` looks at the clock too, and not only at what comes.
        look = time.monotonic() + conversation.limits.unhurried
        ended = line.until(over, deadline=min(deadline, look))
        if ended or time.monotonic() >= deadline:
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


class Held(Protocol):
    """Holder of descriptors that are its process's alone."""

    def let_go(self) -> None:
        """Close them in a child, where no lock may be waited for: the thread that has it is not
        there.
        """


# Weak: who drops a transport without closing it is not kept alive by this.
_holders: weakref.WeakSet[Held] = weakref.WeakSet()


def let_go_in_children(holder: Held) -> None:
    """Have each child that is forked from now on let go of it."""
    _holders.add(holder)


def _in_child() -> None:
    # No lock is taken here. Python registers no thread of the parent in a child, and whoever held a
    # lock when this process was forked will never release it.
    for holder in list(_holders):
        holder.let_go()
    _holders.clear()


os.register_at_fork(after_in_child=_in_child)
