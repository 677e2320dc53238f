"""Connections to a hub, or to the proxy in between, made within a time.

The standard library's own way bounds each address of a host alone, and the look-up of its name not at all.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple


class Way(NamedTuple):
    """How an address is reached: a connection that is still to be made, and what a request on it must say.

    Attributes:
        target: what stands in the request line: the path, or through a plain proxy the whole address.
        headers: for the proxy that the request goes to, if it asks who comes.
    """

    connection: http.client.HTTPConnection
    target: str
    headers: dict[str, str]


def way_to(address: str, *, timeout: float) -> Way:
    """The way to an address, by the proxy that the environment names; each wait on it takes at most `timeout` s."""
    parts = urllib.parse.urlsplit(address)
    proxy = None if urllib.request.proxy_bypass(parts.netloc) else urllib.request.getproxies().get(parts.scheme)
    through = urllib.parse.urlsplit(proxy if "//" in proxy else f"//{proxy}") if proxy else None
    near = through or parts
    made: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
    if parts.scheme == "https":
        made = partial(http.client.HTTPSConnection, context=ssl.create_default_context())
    connection = made(near.hostname or "", near.port, timeout=timeout)
    # The one place where the library connects, for all four kinds of connection; it is private.
    connection._create_connection = _reached  # type: ignore[attr-defined]  # noqa: SLF001
    if through is not None and parts.scheme != "https":
        return Way(connection, address, _credentials(through))
    if through is not None:
        connection.set_tunnel(parts.hostname or "", parts.port or 443, headers=_credentials(through))
    return Way(connection, urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")), {})


def cut(line: socket.socket) -> None:
    """End a connection from another thread: whoever reads from it finds its end."""
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _credentials(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    """The header that tells a proxy the name and password of its address, where they are percent-encoded."""
    if proxy.username is None:
        return {}
    known = b":".join(urllib.parse.unquote_to_bytes(part or "") for part in (proxy.username, proxy.password))
    return {"Proxy-Authorization": f"Basic {base64.b64encode(known).decode()}"}


def _reached(place: tuple[str, int], timeout: float, source: tuple[str, int] | None = None) -> socket.socket:
    """A connected socket.

    Raises:
        OSError: no address of the host answered; TimeoutError if that took too long, or to look up its name did.
    """
    end = time.monotonic() + timeout
    refused: OSError | None = None
    for number in _addresses(*place, seconds=timeout):
        left = end - time.monotonic()
        if left <= 0:
            break
        try:
            line = socket.create_connection(number, left, source)
        except OSError as error:
            refused = error
            continue
        line.settimeout(timeout)
        return line
    raise refused or TimeoutError(f"no address of {place[0]} answered within {timeout:.1f} s")


def _addresses(host: str, port: int, *, seconds: float) -> list[tuple[str, int]]:
    """The addresses of a host, looked up in a thread that is left to itself when the time is over."""
    with contextlib.suppress(socket.gaierror):
        return _plain(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    addresses: list[tuple[str, int]] = []
    failed: list[Exception] = []

    def ask() -> None:
        try:
            addresses.extend(_plain(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except Exception as error:  # noqa: BLE001 - raised below, in the thread that asked
            failed.append(error)

    asking = threading.Thread(target=ask, name=f"look up {host}", daemon=True)
    asking.start()
    asking.join(seconds)
    if failed:
        raise failed[0]
    if not addresses:
        raise TimeoutError(f"the name {host} was not looked up within {seconds:.1f} s")
    return addresses


def _plain(answers: list[Any]) -> list[tuple[str, int]]:
    """Address and port; an IPv6 address of a link keeps the link in its text."""
    return [(str(where[0]), int(where[1])) for *_, where in answers]
