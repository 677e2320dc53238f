"""Wires carry frames: a connection that is a stream of bytes, or datagrams. Nothing here waits."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
import socket
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from . import frame
from .digest import Chunks, digest_of
from .frame import Header
from .problem import Misused

LOG = logging.getLogger("rankproof_integrity")
SCRATCH = 32 * 1024
CHUNK = 256 * 1024
"""Bytes that are read, and digested while they lie in the processor's cache, before the next are
read.
"""
DATAGRAM = 65507
STRETCH = 8 * 2**20
"""Bytes of one frame that are read in a row: then whoever reads looks at the clock, and says that
he is there.
"""

HOST_AND_PORT = re.compile(r"[^/\0]+:\d+")
Address = tuple[str, int] | str
"""Host and port, or the path of a socket in the file system (on Linux, after a NUL, any name in
none).
"""
Received = tuple[Header | None, Any]
"""Header and its payload; a payload of None has changed.

A header of None: nothing is known of the frame.
"""


class Torn(Exception):
    """Raised where a connection is of no more use."""


class Wire(Protocol):
    """Interface of a wire, as a line needs it.

    Attributes:
        pending: whether a part of what was taken over waits to be sent.
        stirred: whether any bytes came since whoever asks made it false.
    """

    ordered: bool
    largest: int
    pending: bool
    stirred: bool

    def fileno(self) -> int: ...

    def receive(self) -> Iterator[Received]:
        """Return what has come; raises Torn where nothing will come any more."""

    def single(self) -> tuple[Header, Any] | None:
        """Return what has come, where it is one whole frame alone; None: whatever it is, `receive`
        gives it; raises Torn.
        """

    def put(self, header: bytes, payload: Any) -> bool:
        """Take a frame over, where nothing is pending, and send it as far as it goes.

        Gives whether it all went.
        """

    def flush(self) -> bool:
        """Send what is pending as far as it goes; gives whether nothing is left."""

    @property
    def holds_more(self) -> bool:
        """Return whether something was read that `receive` has not given yet."""

    def close(self) -> None: ...


class StreamWire:
    """Connected stream socket.

    Header and payload are sent by one call, from where they lie. A payload is received into a
    buffer of its own; only what came along with a header, at most 32 KiB, is copied once, and after
    a long payload a header is read alone.

    Attributes:
        longest: payload bytes of a frame, at most: as many may be made room for before any of them
            came.
    """

    ordered = True
    largest = 2**31

    def __init__(self, connected: socket.socket, *, longest: int) -> None:
        connected.setblocking(False)
        with contextlib.suppress(OSError):  # a socket of the system's own family has none
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self.longest = longest
        self._scratch = memoryview(bytearray(SCRATCH))
        self._begin = self._end = 0
        self._header: Header | None = None
        self._payload = memoryview(b"")
        self._filled = 0
        self._chunks: Chunks | None = None
        self._ahead = SCRATCH
        self._rest: Sequence[Any] = ()
        self._left = 0
        self.stirred = self._drained = self.pending = False
        self.fileno = connected.fileno

    def receive(self) -> Iterator[Received]:
        self._drained = False
        while True:
            header = self._header
            if header is None:
                if self._end - self._begin < frame.SIZE and (self._drained or not self._more()):
                    return
                header = self._next_header()
            enough = self._filled + STRETCH
            while self._filled < header.length:
                if self._filled >= enough or not self._fill(header.length - self._filled):
                    return
            payload = self._payload
            chunks = self._chunks
            self._header = self._chunks = None
            self._ahead = SCRATCH if chunks is None else frame.SIZE
            came = digest_of(payload) if chunks is None else chunks.digest()
            yield header, payload if came == header.digest else None

    def single(self) -> tuple[Header, Any] | None:
        if self._header is not None or self._begin != self._end:
            return None
        scratch = self._scratch
        try:
            size = self._socket.recv_into(
                scratch if self._ahead == SCRATCH else scratch[: self._ahead]
            )
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise Torn(error.strerror or str(error)) from error
        if not size:
            raise Torn("the peer closed the connection")
        self._begin = self._end = size
        header = frame.parsed(scratch) if size >= frame.SIZE else None
        if header is None or header.length != size - frame.SIZE or header.length > self.longest:
            self._begin = 0
            self.stirred = True
            return None
        payload = memoryview(bytearray(scratch[frame.SIZE : size]))
        return header, payload if digest_of(payload) == header.digest else None

    def _more(self) -> bool:
        """Read what is there into the scratch; False where it is less than a header."""
        if self._begin:
            kept = self._end - self._begin
            self._scratch[:kept] = self._scratch[self._begin : self._end]
            self._begin = 0
            self._end = kept
        while self._end < frame.SIZE:
            size = self._read(self._scratch[self._end : max(self._ahead, self._end + 1)])
            if not size:
                return False
            self._end += size
        return True

    def _next_header(self) -> Header:
        header = frame.parsed(self._scratch[self._begin : self._begin + frame.SIZE])
        if header is None:
            raise Torn("a header arrived damaged, so the start of the next frame is unknown")
        if header.length > self.longest:
            raise Torn(
                f"a frame of {header.length} bytes was announced, but at most {self.longest} bytes"
                " are allowed"
            )
        try:
            return self._begun(header)
        # It is sent again on the next connection, when there may be some.
        except MemoryError as error:
            raise Torn(
                f"there is not enough memory for a frame of {header.length} bytes"
            ) from error

    def _begun(self, header: Header) -> Header:
        begin = self._begin + frame.SIZE
        self._filled = min(header.length, self._end - begin)
        self._begin = begin + self._filled
        here = self._scratch[begin : self._begin]
        if self._filled == header.length:
            self._payload = memoryview(bytearray(here))
        else:
            self._payload = memoryview(bytearray(header.length))
            self._payload[: self._filled] = here
        if header.length > CHUNK:
            self._chunks = Chunks(here)
        self._header = header
        return header

    def _fill(self, missing: int) -> bool:
        into = self._payload[self._filled : self._filled + min(missing, CHUNK)]
        size = self._read(into)
        self._filled += size
        if self._chunks is not None:
            self._chunks.add(into[:size])
        return bool(size)

    def _read(self, into: memoryview) -> int:
        """Return how many bytes were read; 0 where none are there, or where the last read took
        all.
        """
        if self._drained:
            return 0
        try:
            size = self._socket.recv_into(into)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise Torn(error.strerror or str(error)) from error
        if not size:
            raise Torn("the peer closed the connection")
        self.stirred = True
        self._drained = size < len(into)
        return size

    def put(self, header: bytes, payload: Any) -> bool:
        size = len(header) + len(payload)
        try:
            sent = self._socket.sendmsg((header, payload))
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            raise Torn(error.strerror or str(error)) from error
        if sent == size:
            return True
        self._rest = _after((header, payload), sent)
        self._left = size - sent
        self.pending = True
        return self.flush()

    def flush(self) -> bool:
        while self._left:
            try:
                sent = self._socket.sendmsg(self._rest)
            except (BlockingIOError, InterruptedError):
                self.pending = True
                return False
            except OSError as error:
                raise Torn(error.strerror or str(error)) from error
            self._left -= sent
            if self._left:
                self._rest = _after(self._rest, sent)
        self._rest = ()
        self.pending = False
        return True

    @property
    def holds_more(self) -> bool:
        return self._begin < self._end

    def close(self) -> None:
        self._socket.close()


class DatagramWire:
    """Datagram socket that is connected to the peer's. A frame is one datagram."""

    ordered = False

    def __init__(self, connected: socket.socket, *, largest: int = 1400) -> None:
        connected.setblocking(False)
        self._socket = connected
        self.largest = min(largest, DATAGRAM) - frame.SIZE
        self._scratch = memoryview(bytearray(DATAGRAM + 1))
        self._waiting: tuple[bytes, Any] | None = None
        self.pending = self.stirred = False
        self.fileno = connected.fileno

    def receive(self) -> Iterator[Received]:
        while True:
            try:
                size = self._socket.recv_into(self._scratch)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                # Nobody was there when something was sent before: whoever comes will be sent it
                # again.
                continue
            except OSError as error:
                raise Torn(error.strerror or str(error)) from error
            header = frame.parsed(self._scratch[: frame.SIZE]) if size >= frame.SIZE else None
            if header is None or size != frame.SIZE + header.length:
                yield None, None
                continue
            payload = memoryview(bytes(self._scratch[frame.SIZE : size]))
            yield header, payload if frame.holds(header, payload) else None

    def single(self) -> tuple[Header, Any] | None:
        return None

    def put(self, header: bytes, payload: Any) -> bool:
        assert self._waiting is None
        self._waiting = (header, payload)
        self.pending = True
        return self.flush()

    def flush(self) -> bool:
        if self._waiting is None:
            return True
        try:
            self._socket.sendmsg(self._waiting)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            pass  # as if it were lost on its way
        self._waiting = None
        self.pending = False
        return True

    @property
    def holds_more(self) -> bool:
        return False

    def close(self) -> None:
        self._socket.close()


def _after(parts: Sequence[Any], sent: int) -> list[memoryview]:
    """Return what is left of the parts when so many bytes are gone."""
    left = []
    for part in parts:
        if sent < len(part):
            left.append(memoryview(part)[sent:])
        sent = max(0, sent - len(part))
    return left


def address_of(given: Any) -> Address:
    """Return what a caller gives for an address, as one.

    Raises:
        Misused: it is none; or a text that would be a file of that name where a host and a port
            were meant.
    """
    if isinstance(given, str) and given and not HOST_AND_PORT.fullmatch(given):
        return given
    if isinstance(given, tuple | list) and len(given) >= 2:
        host, port = given[:2]
        if isinstance(host, str) and isinstance(port, int) and 0 <= port < 2**16:
            return host, port
    raise Misused(
        "an address must be a host and a port, such as ('127.0.0.1', 4000), or the path of a Unix"
        f" domain socket, not {given!r}"
    )


def family(address: Address) -> int:
    """Return the family of sockets that an address is of."""
    if isinstance(address, str):
        return socket.AF_UNIX
    return int(socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0])


def demand_local(bound: socket.socket, *, insecure: bool) -> None:
    """Refuse a bound socket that other machines can reach, unless the caller accepts strangers.

    What decides is the address that the socket is bound to, not the text it was given as: a host
    name, an empty one and 0.0.0.0 are all resolved by then. An accepted address of a network is
    logged.

    Raises:
        Misused: it is bound to an address that other machines may reach.
    """
    if bound.family == socket.AF_UNIX:
        return
    if bound.family not in (socket.AF_INET, socket.AF_INET6):
        raise Misused(
            "cannot determine which machines can reach a socket of address family"
            f" {socket.AddressFamily(bound.family).name}"
        )
    host, port = bound.getsockname()[:2]
    ip = ipaddress.ip_address(str(host).partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    if (mapped or ip).is_loopback:
        return
    if not insecure:
        raise Misused(
            f"{host} can be reached from other machines, and nodes are not authenticated: anyone"
            " who knows the names of two nodes can replace a message between them. Listen on"
            " 127.0.0.1, or pass insecure=True if only the nodes can reach each other"
        )
    LOG.warning(
        "%s port %s can be reached from other machines, and peers are not authenticated", host, port
    )


def listening(address: Address, *, insecure: bool = False) -> socket.socket:
    """Return a stream socket that listens.

    Raises:
        OSError: it cannot.
        Misused: other machines may reach it, and `insecure` does not accept that.
    """
    listener = socket.socket(family(address), socket.SOCK_STREAM)
    try:
        if listener.family != socket.AF_UNIX:
            # A node that begins again listens where it did, though connections of before linger.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        demand_local(listener, insecure=insecure)  # before anybody can connect
        listener.listen(128)
        listener.setblocking(False)
    except (OSError, Misused):
        listener.close()
        raise
    return listener


def dialled(address: Address) -> socket.socket:
    """Return a stream socket that is being connected.

    Raises:
        OSError: it cannot be, which is known at once.
    """
    connecting = socket.socket(family(address), socket.SOCK_STREAM)
    connecting.setblocking(False)
    try:
        connecting.connect(address)
    except BlockingIOError:
        pass  # it goes on by itself
    except OSError:
        connecting.close()
        raise
    return connecting
