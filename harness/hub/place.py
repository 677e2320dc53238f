"""Where a hub listens: at an address of its own machine, or at a socket that somebody else has
bound elsewhere.

And which process is at the other end of a connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Protocol


class ListeningPlace(Protocol):
    """Place that a hub can leave for a while, to refuse connections, without losing it."""

    @property
    def address(self) -> tuple[str, int]:
        """Address and port."""

    @property
    def kernel(self) -> socket.socket | None:
        """Netlink socket (sock_diag(7)) in the network of the place; None for the network of this
        process.
        """

    def open(self) -> socket.socket:
        """Return a new descriptor of a bound socket; whoever listens at it closes it.

        Raises:
            OSError: the address was lost.
        """

    def refuse(self) -> None:
        """Refuse connections until the next `open`.

        To be called before what `open` gave is closed.
        """

    def close(self) -> None:
        """Leave it for good."""


class OwnAddress:
    """Address of this machine, held by a second socket that is bound and does not listen."""

    kernel = None

    def __init__(self, host: str, port: int) -> None:
        """Take it; port 0 takes a free one.

        Raises:
            OSError: it cannot be taken.
        """
        if port:
            # Bound alone first: with SO_REUSEPORT a second hub on the same port would share it in
            # silence.
            with _socket(host) as alone:
                alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                alone.bind((host, port))
                alone.listen()
        self._holder = _bound(host, port)
        self.address: tuple[str, int] = (host, self._holder.getsockname()[1])

    def open(self) -> socket.socket:
        """Return a second socket at the address."""
        return _bound(*self.address)

    def refuse(self) -> None:
        """Closing the socket that listens is all."""

    def close(self) -> None:
        """Give the address back."""
        self._holder.close()


class GivenSocket:
    """TCP socket that is bound already, in whatever network namespace, and one there that tells
    who is connected.

    Linux alone lets a socket that has listened listen again.
    """

    def __init__(self, bound: socket.socket, kernel: socket.socket) -> None:
        self.kernel = kernel
        self._bound = bound
        self.address: tuple[str, int] = bound.getsockname()[:2]

    def open(self) -> socket.socket:
        """Return the socket itself, by another descriptor: the listener closes what it is given."""
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
        # The address is bound twice: by who holds it, and by who listens.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


# -- which process is at the other end of a connection (Linux only): addresses → inode → pid -------

# The kernel is asked about the one socket (sock_diag(7)). /proc/net/tcp, which says the same, lists
# every connection that waits for its end, and reading it for each new connection was most of the
# hub's work. Processes are found by /proc.

KNOWN_LIMIT = 4096
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
NONE = 0xFFFFFFFF
INODE_AT = 16 + 4 + 48 + 16
"""Offset in the kernel's message: its head, four bytes, the socket's identity, four numbers."""


class Peers:
    """Finds clients' processes; remembers those it has met, so that a busy client is found at once.

    Where a socket is held by several processes (after a fork), one of them is found: prefer
    ``/client/NAME`` there.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, None] = OrderedDict()
        self._asked = 0

    def find(
        self,
        *,
        client: tuple[str, int],
        server: tuple[str, int],
        kernel: socket.socket | None = None,
    ) -> tuple[int | None, int | None]:
        """Return (pid, start time in clock ticks) of the process that connected from ``client`` to
        ``server``.

        Both are (address, port), in the network that the socket ``kernel`` asks about; by default
        this process's. (None, None) where it cannot be seen: another user's process, another
        machine, no /proc, or already gone.
        """
        if sys.platform != "linux":
            return None, None
        inode = self._inode(client, server, kernel)
        if inode is None:
            return None, None
        wanted = f"socket:[{inode}]"
        for pid in list(reversed(self._known)):
            if _holds(pid, wanted):
                return self._met(pid)
        with os.scandir("/proc") as entries:
            pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
        for pid in pids:
            if pid not in self._known and _holds(pid, wanted):
                return self._met(pid)
        return None, None

    def _inode(
        self, client: tuple[str, int], server: tuple[str, int], kernel: socket.socket | None
    ) -> int | None:
        """Return the inode of the socket bound to ``client``, connected to ``server``, or None."""
        self._asked += 1
        question = _question(client, server, number=self._asked)
        with contextlib.ExitStack() as closing:
            try:
                if kernel is None:
                    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG)
                    closing.enter_context(kernel)
                kernel.settimeout(1.0)
                kernel.sendto(question, (0, 0))
                answer = kernel.recv(4096)
                # To an earlier question, and too late to be taken for one.
                while answer[8:12] != question[8:12]:
                    answer = kernel.recv(4096)
            except OSError:
                return None
        if (
            len(answer) < INODE_AT + 4
            or struct.unpack_from("=H", answer, 4)[0] != SOCK_DIAG_BY_FAMILY
        ):
            return None
        return int(struct.unpack_from("=I", answer, INODE_AT)[0]) or None

    def _met(self, pid: int) -> tuple[int | None, int | None]:
        self._known[pid] = None
        self._known.move_to_end(pid)
        while len(self._known) > KNOWN_LIMIT:
            self._known.popitem(last=False)
        return pid, _started(pid)


def _question(client: tuple[str, int], server: tuple[str, int], *, number: int) -> bytes:
    """Return what the kernel is asked about one socket."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    identity = struct.pack(
        "!HH16s16s",
        client[1],
        server[1],
        socket.inet_pton(family, client[0]),
        socket.inet_pton(family, server[0]),
    )
    # inet_diag_req_v2: family, protocol, nothing, every state, the socket, any interface, no
    # cookie.
    body = (
        struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
        + identity
        + struct.pack("=III", 0, NONE, NONE)
    )
    return (
        struct.pack("=IHHII", 16 + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, number, 0) + body
    )


def _holds(pid: int, wanted: str) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            paths = [entry.path for entry in entries]
    except OSError:
        return False
    for path in paths:
        # os.readlink, not pathlib: this runs for every descriptor of every process that can be
        # seen.
        with contextlib.suppress(OSError):
            if os.readlink(path) == wanted:  # noqa: PTH115
                return True
    return False


def _started(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The command's name stands in parentheses and may hold spaces and parentheses of its own.
    return int(text.rpartition(")")[2].split()[19])
