"""The door of a test host: lets connections from outside in to a server that listens on the host's
loopback.

Outside, a listener takes each connection and hands its bytes to a socket in the file system. On the
host, a child of the server's own process takes them from there. So what clients say to the server
passes through no wire, and a fault of a link meets what the server's processes say to each other.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

CHUNK = 1 << 16
BACKLOG = 128
PR_SET_PDEATHSIG = 1


def through(program: Sequence[str], *, place: Path, port: int) -> list[str]:
    """Return a command line that opens a door in the host of its process, and becomes a program.

    Args:
        program: the command line of the server.
        place: socket of the file system, which is seen on the host too.
        port: on which the server listens on the loopback of its host.
    """
    return [sys.executable, "-I", "-S", str(Path(__file__)), str(place), str(port), *program]


class Door:
    """Outside of a door. Use as a context."""

    def __init__(self, place: Path, *, port: int) -> None:
        """Listen at a port of this machine.

        Raises:
            OSError: the port is taken.
        """
        self._place = place
        self._listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self._thread = threading.Thread(target=self._accept, name="door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        # Closing alone does not wake who waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            inside = socket.socket(socket.AF_UNIX)
            try:
                with short(self._place) as path:
                    inside.connect(path)
            except OSError:
                # The server has not begun, or has ended.
                client.close()
                inside.close()
                continue
            join(client, inside)


@contextlib.contextmanager
def short(place: Path) -> Iterator[str]:
    """Give another name of a file, because a socket's path has at most 107 bytes on Linux."""
    folder = os.open(place.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{place.name}"
    finally:
        os.close(folder)


def join(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes between two connections until both have ended, in threads of their own."""

    def close_both() -> None:
        one.close()
        other.close()

    closing = threading.Barrier(2, action=close_both)
    for source, target in ((one, other), (other, one)):
        arguments = (source, target, closing)
        threading.Thread(target=_carry, args=arguments, name="door", daemon=True).start()


def _carry(source: socket.socket, target: socket.socket, closing: threading.Barrier) -> None:
    try:
        while data := source.recv(CHUNK):
            target.sendall(data)
    except OSError:
        # A connection that was reset ends its other half too.
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
    closing.wait()


def _let_in(place: str, port: int) -> None:
    """Be the inside of a door, until the process that was forked from ends."""
    listener = socket.socket(socket.AF_UNIX)
    with short(Path(place)) as path:
        listener.bind(path)
    listener.listen(BACKLOG)
    while True:
        client, _ = listener.accept()
        server = socket.socket()
        try:
            server.connect(("127.0.0.1", port))
        except OSError:
            client.close()
            server.close()
            continue
        join(client, server)


def main(place: str, port: str, *program: str) -> None:
    """Fork the inside of the door, and become the program. Does not return."""
    if os.environ.get("RANKPROOF_RANK") == "0":
        parent = os.getpid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                _let_in(place, int(port))
            os._exit(0)
    found = shutil.which(program[0])
    if found is None:
        raise SystemExit(f"{program[0]} is not in PATH")
    os.execv(found, [found, *program[1:]])  # noqa: S606 - no shell


if __name__ == "__main__":
    main(*sys.argv[1:])
