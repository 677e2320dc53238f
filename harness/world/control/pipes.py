"""The pipes between the harness and the ranks of one world: events and log of each rank, and
answers to its gates.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import socket
import termios
import time
from collections.abc import Callable, Sequence
from typing import Literal

from harness.world.below.requests import Requests

# The keeper of an interrupted world SIGKILLs its ranks; this is how long the harness stays to see
# it.
ABANDON_WITHIN = 5.0
CHUNK = 256 * 1024
Kind = Literal["events", "log", "control", "cancel"]


class Pipes(contextlib.AbstractContextManager["Pipes"]):
    """Descriptors of one world. Leaving the `with` block closes the harness' ends, whatever
    happened.

    Attributes:
        control: socket to the keeper.
        told: what the keeper says there, with the descriptors that it hands over.
    """

    def __init__(self, *, size: int, cancel: int | None) -> None:
        """Open everything or nothing.

        Raises:
            OSError: too many open files.
        """
        self._ours = contextlib.ExitStack()
        self._theirs = contextlib.ExitStack()
        self._handed: list[int] = []
        self._gates: list[int] = []
        with contextlib.ExitStack() as half_done:
            half_done.callback(self.close)
            self._selector = self._ours.enter_context(selectors.DefaultSelector())
            control, theirs = socket.socketpair()
            self.control = self._ours.enter_context(control)
            self.told = Requests(control)
            self._hand(theirs.detach())
            self._watch(control.fileno(), "control", 0)
            for rank in range(size):
                for kind in ("events", "gates", "log"):
                    read, write = os.pipe()
                    mine, other = (write, read) if kind == "gates" else (read, write)
                    self._ours.callback(os.close, mine)
                    self._hand(other)
                    os.set_blocking(mine, False)
                    if kind == "gates":
                        self._gates.append(mine)
                    else:
                        self._watch(mine, "events" if kind == "events" else "log", rank)
            if cancel is not None:
                self._watch(cancel, "cancel", 0)
            half_done.pop_all()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every end that is still open here."""
        self._theirs.close()
        self._ours.close()

    def hand(self, descriptors: Sequence[int]) -> list[int]:
        """Take over further descriptors for the ranks.

        Return all that are handed, in the keeper's order.
        """
        for descriptor in descriptors:
            self._hand(descriptor)
        return list(self._handed)

    def handed(self) -> None:
        """Close the ranks' ends here: what a rank closes must be seen closed."""
        self._theirs.close()

    def ready(self, seconds: float) -> list[tuple[Kind, int, int]]:
        """Wait until something can be read: (what, rank, descriptor)."""
        return [(*key.data, key.fd) for key, _ in self._selector.select(seconds)]

    def open(self, *, rank: int | None = None, kind: Kind) -> list[tuple[int, int]]:
        """Pipes of a kind, of one rank or all, that have not ended: (rank, descriptor)."""
        return [
            (key.data[1], key.fd)
            for key in self._selector.get_map().values()
            if key.data[0] == kind and rank in (None, key.data[1])
        ]

    def read(self, descriptor: int) -> bytes | None:
        """Read what is there, at most 256 KiB: None when it has ended, nothing where nothing is
        there.
        """
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return b""
        if data:
            return data
        self._selector.unregister(descriptor)
        return None

    def waiting(self, descriptor: int) -> int:
        """How many bytes wait to be read right now.

        A child of a rank may write on for ever: this much is enough.
        """
        return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4), "little")

    def drain(self, rank: int, descriptor: int, read: Callable[[int, int], int]) -> None:
        """Read what was written so far, and no more: a child of the rank may hold the pipe and
        write on for ever.
        """
        waiting = self.waiting(descriptor)
        while waiting > 0 and (taken := read(rank, descriptor)):
            waiting -= taken
        if waiting <= 0 and not self.waiting(descriptor):
            read(rank, descriptor)

    def answer(self, rank: int, order: bytes = b"") -> None:
        """Open the gate a rank waits at.

        One that is gone, or does not read its answers, needs none.

        Args:
            rank: who waits.
            order: what the rank is to do before it goes on, one line without its newline; nothing
                for nothing.
        """
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._gates[rank], order + b"\n")

    def hang_up(self) -> None:
        """Leave a world that is not done: tell its keeper, and stay until it has ended everybody,
        or some seconds.
        """
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_WR)
            end = time.monotonic() + ABANDON_WITHIN
            while (left := end - time.monotonic()) > 0:
                self.control.settimeout(left)
                if not self.control.recv(CHUNK):
                    return

    def _hand(self, descriptor: int) -> None:
        self._theirs.callback(os.close, descriptor)
        self._handed.append(descriptor)

    def _watch(self, descriptor: int, kind: Kind, rank: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, (kind, rank))
