"""Connection to a peer that listens, while it is being made: tried again and again, at growing
distances, each time where the peer listens then.

An address is asked for in a thread of its own, for a store or a name server may take long, or never
answer. The thread that attends to all lines must not wait for either: meanwhile no line would be
acknowledged or kept alive.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable

from .wire import Address, address_of

THREAD = "integrity-lookup"
PATIENCE = 0.01
"""Seconds that are waited for an answer: most come in less.

A later one is taken at the next try to connect.
"""


class Lookup:
    """One peer's address.

    Args:
        address: what it is, or what is asked at each try. Whatever that raises is said, and it is
            asked again.
    """

    def __init__(self, address: Address | Callable[[], Address]) -> None:
        self._asked = address
        self._thread: threading.Thread | None = None
        self._answer: Address | None = None
        self._trouble = ""
        self._turn = 0

    @property
    def pending(self) -> bool:
        """Return whether the answer to the last question is still to come."""
        return self._thread is not None

    def address(self, *, patience: float = PATIENCE) -> Address:
        """Return where it listens; a host is a number then.

        Args:
            patience: seconds that are waited for an answer.

        Raises:
            ConnectionError: nobody knows, or nobody has said so yet.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._ask, name=THREAD, daemon=True)
            self._thread.start()
        # What the thread found is read after it ended, and by nobody else: no lock.
        self._thread.join(patience)
        if self._thread.is_alive():
            raise ConnectionError("the peer's address was requested, but has not arrived yet")
        self._thread = None
        if self._answer is None:
            raise ConnectionError(self._trouble)
        return self._answer

    def _ask(self) -> None:
        self._answer = None
        try:
            address = address_of(self._asked() if callable(self._asked) else self._asked)
            if not isinstance(address, str):
                # A host may have several, of which the peer listens at one: each has its turn.
                several = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
                address = several[self._turn % len(several)][4][:2]  # type: ignore[assignment]
                self._turn += 1
            self._answer = address
        except OSError as error:
            self._trouble = error.strerror or str(error)
        # A store of somebody else's raises what it likes; it is said and asked again.
        except Exception as error:  # noqa: BLE001
            self._trouble = f"the peer's address is not known: {type(error).__name__}: {error}"


REDIAL = 0.02
"""Seconds before the first new try to connect.

Doubled up to a second, until a connection brought something or lived for `LIVED` seconds.
"""
LIVED = 1.0


class Dial:
    """Tries to connect to one peer. Nothing here waits.

    Args:
        make: makes a socket that is being connected, or raises OSError.
        patience: seconds after which a try that nobody answers is given up.

    Attributes:
        trouble: why the last step ended a try; empty where it ended none.
    """

    def __init__(self, make: Callable[[], socket.socket], *, patience: float) -> None:
        self._make = make
        self._patience = patience
        self._socket: socket.socket | None = None
        self._at = self._until = 0.0
        self._tries = self._reached = 0
        self.trouble = ""

    @property
    def descriptor(self) -> int | None:
        """Of the socket that is being connected, and that can be written to once it is; None
        between two tries.
        """
        return None if self._socket is None else self._socket.fileno()

    @property
    def due(self) -> float:
        """When the next step is due by the clock."""
        return self._at if self._socket is None else self._until

    def step(self, now: float) -> socket.socket | None:
        """Begin a try if one is due, and look what became of it.

        Returns:
            The connected socket, its caller's from now on; None while there is none.
        """
        self.trouble = ""
        if self._socket is None:
            if now < self._at:
                return None
            self._at = now + min(1.0, REDIAL * 2**self._tries)
            self._until = now + self._patience
            self._tries = min(self._tries + 1, 10)
            try:
                self._socket = self._make()
            except OSError as error:
                self.trouble = error.strerror or str(error)
                return None
        # A socket that is being connected can be written to once it is, or once it failed.
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        if not poll.poll(0):
            if now >= self._until:
                self.trouble = "connecting: no answer"
                self.close()
            return None
        if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.trouble = f"connecting: {os.strerror(code)}"
            self.close()
            return None
        connected = self._socket
        self._socket = None
        return connected

    def joined(self, reached: int, *, now: float) -> None:
        """Note that the peer was heard: where its connection brought something, or lived a while,
        the next try need not wait.

        Args:
            reached: how many frames have come and were acknowledged so far.
            now: of the monotonic clock.
        """
        if self._tries and (reached != self._reached or now >= self._at + LIVED):
            self._tries = 0
            self._reached = reached

    def close(self) -> None:
        """Give up the try that was begun."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
