"""TLS over a connected socket, with the calls of a plain one. Nothing here waits."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import Any

RECORD = 16 * 1024
"""Bytes that TLS carries at once, at most."""


class TlsSocket:
    """Connected socket whose bytes are encrypted.

    The handshake is made by the first calls, as they can.

    Args:
        connected: a stream socket; this one's from now on.
        context: of this side, with its certificates.
        initiator: whether this side connected.
        server_name: the listener's name in its certificate; None where the context checks none.

    Attributes:
        reads_first: whether what is to be sent waits for something that has to come first.
    """

    def __init__(
        self,
        connected: socket.socket,
        context: ssl.SSLContext,
        *,
        initiator: bool,
        server_name: str | None = None,
    ) -> None:
        connected.setblocking(False)
        self._socket = context.wrap_socket(
            connected,
            server_side=not initiator,
            do_handshake_on_connect=False,
            # Without it a peer that was cut off would seem to have closed.
            suppress_ragged_eofs=False,
            server_hostname=server_name if initiator else None,
        )
        self.reads_first = False
        self._failed: OSError | None = None
        self.fileno = self._socket.fileno
        self.setsockopt = self._socket.setsockopt
        self.close = self._socket.close

    @property
    def unread(self) -> bool:
        """Return whether bytes were decrypted that no read has given yet: no poll sees them."""
        return self._socket.pending() > 0

    def setblocking(self, flag: bool) -> None:
        """See `socket.socket.setblocking`."""
        self._socket.setblocking(flag)

    def recv_into(self, into: memoryview) -> int:
        """Read as much as is there, up to the room: fewer bytes than that mean that no more are.

        Raises:
            BlockingIOError: none are.
            OSError: the connection is of no more use.
        """
        size = 0
        # TLS gives one record at a time and keeps the rest where no poll sees it.
        while size < len(into):
            try:
                got = self._socket.recv_into(into[size:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                if self._failed is not None:
                    raise self._failed from None  # which says more than that the peer closed then
                return size
            if not got and self._failed is not None:
                raise self._failed
            if not got:
                return size
            size += got
            self.reads_first = False
        if not size:
            raise BlockingIOError
        return size

    def sendmsg(self, parts: Sequence[Any]) -> int:
        """Send the parts as far as they go; gives how many bytes went.

        Raises:
            BlockingIOError: none did.
            OSError: the connection is of no more use.
        """
        sent = 0
        self.reads_first = False
        try:
            for piece in _records(parts):
                left = piece
                while left:
                    went = self._socket.send(left)
                    sent += went
                    left = left[went:]
        except ssl.SSLWantReadError:
            self.reads_first = True
        except ssl.SSLWantWriteError:
            pass
        except OSError as error:
            self._failed = error
            raise
        if not sent:
            raise BlockingIOError
        return sent


def _records(parts: Sequence[Any]) -> Iterator[memoryview]:
    """Return the bytes of the parts in pieces for one call each.

    The same parts give the same pieces: where TLS could not send one, it wants it again.
    """
    first, *rest = (memoryview(part) for part in parts)
    if rest and len(first) < RECORD:
        # A header and the begin of its payload in one record.
        upto = RECORD - len(first)
        yield memoryview(bytes(first) + bytes(rest[0][:upto]))
        rest[0] = rest[0][upto:]
    else:
        rest.insert(0, first)
    for part in rest:
        if len(part):
            yield part
