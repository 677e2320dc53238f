"""A way for streams that a test can break."""

from __future__ import annotations

import contextlib
import socket
import threading

from rankproof_integrity import TransportLimits

QUICK = TransportLimits(deadline=20, silence=0.5, shortest=0.02)


class Crossing:
    """A way for streams that a test can break: it hands bytes on, and changes, cuts or holds them
    when told.
    """

    def __init__(self, to: tuple[str, int]) -> None:
        self._to, self._listener = to, socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.flip_at: list[int] = []
        self.cut_after: list[int] = []
        self.held = threading.Event()
        self.held.set()
        self.connections = self.flipped = 0
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            try:
                other = socket.create_connection(self._to)
            except OSError:
                one.close()  # who listened there has closed
                continue
            self.connections += 1
            self._ends += [one, other]
            for ends in ((one, other), (other, one)):
                self._threads.append(threading.Thread(target=self._carry, args=ends, daemon=True))
                self._threads[-1].start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        passed = 0
        try:
            while data := one.recv(65536):
                self.held.wait()
                for at in [at for at in self.flip_at if passed <= at < passed + len(data)]:
                    self.flip_at.remove(at)
                    changed = bytearray(data)
                    changed[at - passed] ^= 1 << at % 8
                    data = bytes(changed)
                    self.flipped += 1
                passed += len(data)
                other.sendall(data)
                if self.cut_after and passed >= self.cut_after[0]:
                    self.cut_after.pop(0)
                    break
        except OSError:
            pass
        for end in (one, other):
            with contextlib.suppress(OSError):  # the other thread was first
                # As a reset: whatever lies in either's buffers is lost.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            let_go(end)

    def cut(self) -> None:
        """End every connection there is."""
        for end in list(self._ends):
            let_go(end)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()  # what it is about to start is closed too
        self.held.set()
        for end in self._ends:
            let_go(end)
        for thread in self._threads:
            thread.join()


def let_go(end: socket.socket) -> None:
    """Close a socket that another thread may read: until that is woken, the kernel keeps the
    connection.
    """
    with contextlib.suppress(OSError):  # it is closed
        end.shutdown(socket.SHUT_RD)
    end.close()
