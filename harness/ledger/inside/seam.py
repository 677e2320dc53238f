"""Where faults strike calls: between a subject's collective call and its library, where the ledger
stands.

What the ledger notes of a struck call depends on the fault: one that changes which calls are made,
or what they state, acts before the ledger writes; one that changes the payload acts behind it, as a
library would that sends something else than it was given. A process is one rank, so this is one for
all of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

Change = Callable[[Any], Any]
"""Makes another array of one.

The shape and type are the same unless the call is to state another.
"""


class Unfit(Exception):
    """A call to which what was ordered cannot be done; the message says why, as a clause."""


class StruckCall(Protocol):
    """A call that a subject makes, before anything was done about it."""

    @property
    def operation(self) -> str:
        """As the ledger names it."""

    @property
    def reduction(self) -> str:
        """Such as `sum`; empty where it reduces nothing."""

    @property
    def site(self) -> str:
        """`file:line in function` of the caller."""

    @property
    def library(self) -> Any:
        """The module whose arrays these are: `torch` or `mlx.core`."""

    def payload(self) -> list[Any]:
        """Return the arrays whose elements it gives to others; none where it only takes.

        Raises:
            Unfit: they are none that can be changed.
        """

    def copy(self, array: Any) -> Any:
        """Return the array as it is now, whatever becomes of it."""

    def bytes_of(self, arrays: list[Any]) -> bytes:
        """Their elements in the order of their indices, one array after the other."""

    def make(self) -> Any:
        """Make it as it is; returns what the library gives."""

    def pretend(self) -> Any:
        """Return what the library would give, with nothing done."""

    def give(self, changed: list[Any]) -> Any:
        """Make it with another payload, of which the ledger knows nothing."""

    def state(self, change: Change, *, tell: Callable[[], None]) -> Any:
        """Make it with all its arrays changed, for the ledger too.

        Before that, once it is known that it can be, tell.

        Raises:
            Unfit: one of them cannot be.
        """

    def after(self, first: Any) -> Any:
        """Make it once more behind what the first time gave."""


class WaitingStrike(Protocol):
    """A fault that waits for its call."""

    def takes(self, call: StruckCall) -> bool:
        """Return whether this is its call; asked once for each, in the order in which they come."""

    def act(self, call: StruckCall) -> Any:
        """Make the call otherwise; returns what the subject gets."""


waiting: list[WaitingStrike] = []
"""Faults that were ordered; asked before each call of the rank."""
_lock = threading.Lock()


def expect(strike: WaitingStrike) -> None:
    """Ask a fault before each call from now on."""
    waiting.append(strike)


def made(call: StruckCall) -> Any:
    """Make a call, or have the fault make it that takes it."""
    with _lock:
        # Each of them counts the calls, also those that another one takes.
        takers = [strike for strike in list(waiting) if strike.takes(call)]
    return takers[0].act(call) if takers else call.make()
