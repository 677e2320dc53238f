"""Where a hub listens: at an address of its own machine, or at a socket that somebody else has bound elsewhere."""

from __future__ import annotations

import socket
from typing import Protocol


class Place(Protocol):
    """A place that a hub can leave for a while, to refuse connections, without losing it."""

    @property
    def address(self) -> tuple[str, int]:
        """Address and port."""

    @property
    def kernel(self) -> socket.socket | None:
        """A netlink socket (sock_diag(7)) in the network of the place; None for the network of this process."""

    def open(self) -> socket.socket:
        """A new descriptor of a bound socket; whoever listens at it closes it.

        Raises:
            OSError: the address was lost.
        """

    def refuse(self) -> None:
        """Refuse connections until the next `open`. To be called before what `open` gave is closed."""

    def close(self) -> None:
        """Leave it for good."""


class OwnAddress:
    """An address of this machine, held by a second socket that is bound and does not listen."""

    kernel = None

    def __init__(self, host: str, port: int) -> None:
        """Take it; port 0 takes a free one.

        Raises:
            OSError: it cannot be taken.
        """
        if port:
            # Bound alone first: with SO_REUSEPORT a second hub on the same port would share it in silence.
            with _socket(host) as alone:
                alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                alone.bind((host, port))
                alone.listen()
        self._holder = _bound(host, port)
        self.address: tuple[str, int] = (host, self._holder.getsockname()[1])

    def open(self) -> socket.socket:
        """A second socket at the address."""
        return _bound(*self.address)

    def refuse(self) -> None:
        """Closing the socket that listens is all."""

    def close(self) -> None:
        """Give the address back."""
        self._holder.close()


class GivenSocket:
    """A TCP socket that is bound already, in whatever network namespace, and one there that tells who is connected.

    Linux alone lets a socket that has listened listen again.
    """

    def __init__(self, bound: socket.socket, kernel: socket.socket) -> None:
        self.kernel = kernel
        self._bound = bound
        self.address: tuple[str, int] = bound.getsockname()[:2]

    def open(self) -> socket.socket:
        """The socket itself, by another descriptor."""
        return self._bound.dup()

    def refuse(self) -> None:
        """End its listening, for every descriptor of it; it stays bound."""
        self._bound.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close both: no network namespace lives on by them."""
        self._bound.close()
        self.kernel.close()


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)


def _bound(host: str, port: int) -> socket.socket:
    bound = _socket(host)
    try:
        # A connection of the hub before this one may still be in TIME_WAIT on this port.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
