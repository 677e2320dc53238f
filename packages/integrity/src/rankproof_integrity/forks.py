"""What a forked process does with its parent's transports: it lets go of them, and says nothing in
their name.

A child has copies of the parent's sockets and none of its threads. What it sent would lie between
the parent's frames; what it held would keep a connection alive whose owner is dead.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Held(Protocol):
    """What holds descriptors that are its process's alone."""

    def let_go(self) -> None:
        """Close them in a child, where no lock may be waited for: the thread that has it is not
        there.
        """
        ...


_held: weakref.WeakSet[Held] = weakref.WeakSet()


def held(one: Held) -> None:
    """From now on each child lets go of it."""
    _held.add(one)


def _in_child() -> None:
    for one in list(_held):
        one.let_go()
    _held.clear()


os.register_at_fork(after_in_child=_in_child)
