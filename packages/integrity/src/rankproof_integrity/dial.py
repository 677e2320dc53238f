"""A connection to a peer that listens, while it is being made: tried again and again, at growing
distances.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable

REDIAL = 0.02
"""Seconds before the first new try to connect.

Doubled up to a second, until one brought something or lived as long.
"""
LIVED = 1.0


class Dial:
    """The tries to connect to one peer. Nothing here waits.

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

        Gives what is connected, its caller's from now on.
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
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        if not poll.poll(0):
            if now >= self._until:
                self.trouble = "connecting: nobody answered"
                self.close()
            return None
        if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.trouble = f"connecting: {os.strerror(code)}"
            self.close()
            return None
        made = self._socket
        self._socket = None
        return made

    def joined(self, reached: int, *, now: float) -> None:
        """The peer was heard: where its connection brought something, or lived a while, the next
        try need not wait.

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
