"""Wire: a connected stream socket that carries frames. Nothing here waits.

And the sockets of it: which address may be listened at, and by whom.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import ssl
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .problem import Misused
from .reader import FrameReader, Received, Torn
from .tls import TlsSocket

HOST_AND_PORT = re.compile(r"[^/\0]+:\d+")
Address = tuple[str, int] | str
"""Host and port, or the path of a socket in the file system (on Linux, after a NUL, any name in
none).
"""
BACKLOG = 2048
"""Connections that the kernel keeps until they are accepted: among so many strangers a peer that
connects is not turned away.
"""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What makes a connection safe.

    Attributes:
        key: of the group; None where nobody proves one.
        tls: context of this side; None for plain bytes.
        server_name: what the listener's certificate has to name, for who connects.
    """

    key: bytes | None = None
    tls: ssl.SSLContext | None = None
    server_name: str | None = None

    @property
    def proves(self) -> bool:
        """Return whether whoever connects to this side has to prove something."""
        tls = self.tls
        return self.key is not None or (tls is not None and tls.verify_mode is ssl.CERT_REQUIRED)

    def wire(self, connected: socket.socket, *, initiator: bool, longest: int) -> StreamWire:
        """Return the wire over a connected socket.

        Args:
            connected: the socket; the wire's from now on.
            initiator: whether this side connected.
            longest: payload bytes of a frame, at most.
        """
        if self.tls is None:
            return StreamWire(connected, longest=longest)
        secured = TlsSocket(connected, self.tls, initiator=initiator, server_name=self.server_name)
        return StreamWire(secured, longest=longest)


class StreamWire:
    """Connected stream socket.

    Header and payload are sent by one call, from where they lie.

    Args:
        connected: the socket; the wire's from now on.
        longest: payload bytes of a frame, at most.

    Attributes:
        reader: takes frames from the bytes that come.
        pending: whether a part of what was taken over waits to be sent.
        stirred: whether any bytes came since whoever asks made it false.
    """

    def __init__(self, connected: socket.socket | TlsSocket, *, longest: int) -> None:
        connected.setblocking(False)
        with contextlib.suppress(OSError):  # a socket of the system's own family has none
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self.reader = FrameReader(longest=longest)
        self._rest: Sequence[Any] = ()
        self._left = 0
        self.stirred = self._drained = self.pending = False
        self.fileno = connected.fileno

    def receive(self) -> Iterator[Received]:
        """Return what has come; raises Torn where nothing will come any more."""
        self._drained = False
        reader = self.reader
        while True:
            received = reader.next_frame()
            if received is not None:
                yield received
            elif not self._read():
                return

    def single(self) -> Received | None:
        """Return the next frame, where one read brings it whole; raises Torn.

        What else that read brought is kept for `receive`.
        """
        self._drained = False
        self._read()
        return self.reader.next_frame()

    def _read(self) -> bool:
        """Read once; False where nothing is there, or where the last read took all."""
        if self._drained:
            return False
        into = self.reader.room()
        try:
            size = self._socket.recv_into(into)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise Torn(error.strerror or str(error)) from error
        if not size:
            raise Torn("the peer closed the connection")
        self.stirred = True
        self._drained = size < len(into)
        self.reader.came(size)
        return True

    def put(self, header: bytes, payload: Any) -> bool:
        """Take a frame over, where nothing is pending, and send it as far as it goes.

        Gives whether it all went.
        """
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
        """Send what is pending as far as it goes; gives whether nothing is left."""
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
    def stuck(self) -> bool:
        """Return whether what is pending waits until the socket can be written to.

        Where it is not, TLS has to read first.
        """
        return self.pending and not getattr(self._socket, "reads_first", False)

    @property
    def holds_more(self) -> bool:
        """Return whether something was read that `receive` has not given yet."""
        return self.reader.holds_more or getattr(self._socket, "unread", False)

    def close(self) -> None:
        """Close the socket."""
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


def demand_trusted(bound: socket.socket, *, proves: bool) -> None:
    """Refuse a bound socket that other machines can reach, unless who connects has to prove
    something.

    What decides is the address that the socket is bound to, not the text it was given as: a host
    name, an empty one and 0.0.0.0 are all resolved by then.

    Args:
        bound: the socket.
        proves: whether whoever connects must have the group's key, or a certificate.

    Raises:
        Misused: it is bound to an address that other machines may reach, and nobody has to prove
            anything.
    """
    if proves or bound.family == socket.AF_UNIX:
        return
    if bound.family not in (socket.AF_INET, socket.AF_INET6):
        raise Misused(
            "cannot determine which machines can reach a socket of address family"
            f" {socket.AddressFamily(bound.family).name}"
        )
    host = bound.getsockname()[0]
    ip = ipaddress.ip_address(str(host).partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    if (mapped or ip).is_loopback:
        return
    raise Misused(
        f"{host} can be reached from other machines, so nodes must prove who they are: pass the"
        " same key=key_from_file(PATH) to all nodes, or a TLS context that requires certificates."
        " Without either, listen on 127.0.0.1 or at the path of a Unix domain socket"
    )


def listening(address: Address, *, proves: bool) -> socket.socket:
    """Return a stream socket that listens. A socket in the file system is its owner's alone.

    Args:
        address: where.
        proves: see `demand_trusted`.

    Raises:
        OSError: it cannot.
        Misused: other machines may reach it, and nobody has to prove anything.
    """
    listener = socket.socket(family(address), socket.SOCK_STREAM)
    try:
        if listener.family == socket.AF_UNIX:
            # Before it is bound, so that it is never there for others: Linux gives the file the
            # mode of the socket.
            os.fchmod(listener.fileno(), stat.S_IRUSR | stat.S_IWUSR)
            _remove_abandoned(str(address))
        else:
            # A node that begins again listens where it did, though connections of before linger.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        demand_trusted(listener, proves=proves)  # before anybody can connect
        if isinstance(address, str) and not address.startswith("\0"):
            Path(address).chmod(stat.S_IRUSR | stat.S_IWUSR)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except (OSError, Misused):
        listener.close()
        raise
    return listener


def _remove_abandoned(path: str) -> None:
    """Remove a socket's file at which nobody listens any more: a node that begins again listens
    where it did.
    """
    if path.startswith("\0"):
        return
    with contextlib.suppress(OSError):
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            try:
                asking.connect(path)
            except ConnectionRefusedError:
                Path(path).unlink()


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
