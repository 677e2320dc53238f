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

from .conversation import Conversation
from .line import Line
from .problem import MessageLost, TransferFailed


def interrupts(held: Iterable[object]) -> bool:
    """Return whether this thread is in the midst of a call of one: then a signal's handler asks,
    and that call cannot end.
    """
    known = set(map(id, held))
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


class Goodbye:
    """Goodbye to one peer: it acknowledges all that was sent, and is told that nothing comes after.

    Ask `over` whenever something came, and at least each `limits.unhurried` seconds.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._said = False
        self._apart: float | None = None  # since when they do not know each other

    def over(self, now: float) -> bool | None:
        """Return whether there is nothing more to wait for; None while there is."""
        conversation = self._conversation
        if conversation.joined:
            self._apart = None
        elif self._apart is None:
            self._apart = now
        # A peer whose messages came and that said no goodbye may not know that they came: it
        # connects again.
        owes = conversation.incoming.arrived and not conversation.incoming.ended
        patience = conversation.limits.silence if owes else 0.0
        gone = self._apart is not None and now >= self._apart + patience
        if conversation.problem is not None or (conversation.delivered and gone):
            return True
        if not self._said:
            conversation.goodbye(now=now)
            self._said = True
        # Who has said goodbye too may be gone, and then nobody acknowledges ours.
        alone = gone or conversation.incoming.ended
        return (
            conversation.delivered
            or (conversation.outgoing.unacknowledged is None and alone)
            or None
        )

    def failure(self) -> TransferFailed | None:
        """Return what is not known to have come; None where all has."""
        conversation = self._conversation
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


def goodbye(line: Line, deadline: float) -> TransferFailed | None:
    """Say goodbye to a peer.

    Args:
        line: to the peer.
        deadline: of the monotonic clock.

    Returns:
        What is not known to have come; None where all has.
    """
    saying = Goodbye(line.conversation)
    while True:
        # In short waits: `over` looks at the clock too, and not only at what comes.
        look = time.monotonic() + line.conversation.limits.unhurried
        ended = line.until(saying.over, deadline=min(deadline, look))
        if ended or time.monotonic() >= deadline:
            return saying.failure()


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
