"""What a rank printed: its beginning and its end, bounded, however much it was."""

from __future__ import annotations

HEAD = TAIL = 128 * 1024


class Log:
    """Keeps the first and the last 128 KiB of a stream of bytes."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        if (room := HEAD - len(self._head)) > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Cut rarely: a cut moves the whole tail.
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]

    def dropped(self) -> int:
        """How many bytes in the middle are not kept."""
        return max(0, self.total - HEAD - TAIL)

    def content(self) -> bytes:
        """The kept bytes, with a line that says what is missing."""
        if not self.dropped():
            return bytes(self._head + self._tail)
        note = f"\n[rankproof: {self.dropped()} bytes not kept]\n".encode()
        return bytes(self._head) + note + bytes(self._tail[-TAIL:])
