"""Requests to a hub under one deadline, each accounted for.

The standard library's client, and not huggingface_hub's: that one retries on its own clock, waits
out a rate-limit window of minutes without being asked, shares one client between threads and forks,
and several of its errors are swallowed above it. Here nothing is retried beyond the deadline and
every attempt is written down.

Connections to the hub, or to the proxy in between, are made within a time: the standard library's
own way bounds each address of a host alone, and the look-up of its name not at all.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import random
import re
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from harness.forms.strict_json import strict_json
from harness.tokenizer.problem import (
    BytesDiffer,
    DeadlineExceeded,
    HubFailed,
    LoadRequest,
    SourceRefused,
)


class Route(NamedTuple):
    """The route to an address: a connection that is still to be made, and what a request on it must
    contain.

    Attributes:
        target: what stands in the request line: the path, or through a plain proxy the whole
            address.
        headers: for the proxy that the request goes to, if it asks who comes.
    """

    connection: http.client.HTTPConnection
    target: str
    headers: dict[str, str]


def route_to(address: str, *, timeout: float) -> Route:
    """Return the way to an address, by the proxy that the environment names.

    Each wait on it takes at most `timeout` s.
    """
    parts = urllib.parse.urlsplit(address)
    proxy = (
        None
        if urllib.request.proxy_bypass(parts.netloc)
        else urllib.request.getproxies().get(parts.scheme)
    )
    through = None
    if proxy:
        through = urllib.parse.urlsplit(proxy if "//" in proxy else f"//{proxy}")
    near = through or parts
    connect: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
    if parts.scheme == "https":
        connect = partial(http.client.HTTPSConnection, context=ssl.create_default_context())
    connection = connect(near.hostname or "", near.port, timeout=timeout)
    # The one place where the library connects, for all four kinds of connection; it is private.
    connection._create_connection = _reached  # type: ignore[attr-defined]  # noqa: SLF001
    if through is not None and parts.scheme != "https":
        return Route(connection, address, _credentials(through))
    if through is not None:
        connection.set_tunnel(
            parts.hostname or "", parts.port or 443, headers=_credentials(through)
        )
    return Route(
        connection, urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")), {}
    )


def cut_connection(line: socket.socket) -> None:
    """End a connection from another thread: whoever reads from it finds its end."""
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _credentials(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    """Return the header that tells a proxy the name and password of its address, where they are
    percent-encoded.
    """
    if proxy.username is None:
        return {}
    known = b":".join(
        urllib.parse.unquote_to_bytes(part or "") for part in (proxy.username, proxy.password)
    )
    return {"Proxy-Authorization": f"Basic {base64.b64encode(known).decode()}"}


def _reached(
    place: tuple[str, int], timeout: float, source: tuple[str, int] | None = None
) -> socket.socket:
    """Return a connected socket.

    Raises:
        OSError: no address of the host answered; TimeoutError if that took too long, or to look up
            its name did.
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
    """Return the addresses of a host, looked up in a thread that is left to itself when the time is
    over.
    """
    with contextlib.suppress(socket.gaierror):
        return _plain(
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        )
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
        raise TimeoutError(f"the host name {host} was not resolved within {seconds:.1f} s")
    return addresses


def _plain(answers: list[Any]) -> list[tuple[str, int]]:
    """Address and port; an IPv6 address of a link keeps the link in its text."""
    return [(str(where[0]), int(where[1])) for *_, where in answers]


ATTEMPTS = 8
# For answers that a second request seldom changes: 404 for a listed file, wrong bytes.
LYING_ATTEMPTS = 3
STALL = 10.0  # seconds without a byte after which an attempt is given up
BACKOFF = 0.2
BACKOFF_MOST = 5.0
JSON_BYTES = 32 * 2**20
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_T = TypeVar("_T")


class Deadline:
    """A point in time that everything of one load shares."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until it is over, never negative."""
        return max(0.0, self._end - time.monotonic())


class Passing(Exception):
    """One attempt failed in a way that another may not.

    Attributes:
        wait: seconds the hub asks to wait; None if it does not.
        status: of the answer, if there was one.
        most: attempts that are worth making.
        differs: the answer came whole, and was not what it should be.
    """

    def __init__(
        self,
        message: str,
        *,
        wait: float | None = None,
        status: int | None = None,
        most: int = ATTEMPTS,
        differs: bool = False,
    ) -> None:
        super().__init__(message)
        self.wait = wait
        self.status = status
        self.most = most
        self.differs = differs


class PartialBody(Protocol):
    """The part of a body that is here already."""

    @property
    def position(self) -> int:
        """Bytes of it; more than before an attempt that failed is a reason for another."""

    def rest(self) -> dict[str, str]:
        """Return the headers that ask for what is missing: Range and If-Range.

        Empty to ask for all.
        """


class Body:
    """The body of an answer, read in pieces, with its status and the length it announced."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.received = 0
        announced = response.headers.get("Content-Length", "")
        self.announced = int(announced) if announced.isdecimal() else None

    def pieces(self, size: int = 2**18) -> Iterator[bytes]:
        """Pieces of at most `size` bytes until the end.

        Raises:
            Passing: the connection ended before the announced length.
        """
        while piece := self._response.read1(size):
            self.received += len(piece)
            yield piece
        if self.announced is not None and self.received < self.announced:
            raise Passing(
                f"the connection ended after {self.received:,} of {self.announced:,} bytes"
            )


class HubClient:
    """GETs from one hub for one load.

    Args:
        endpoint: the hub's address.
        token: bearer token, sent to the hub's own host only; None for none.
        deadline: shared by everything of the load.
        forbidden: who forbids requests: then each is an error, and none is made.
    """

    def __init__(
        self, *, endpoint: str, token: str | None, deadline: Deadline, forbidden: str | None = None
    ) -> None:
        self.endpoint = endpoint
        self.forbidden = forbidden
        self.deadline = deadline
        self.account: list[LoadRequest] = []
        self._token = token

    def json(self, path: str, read: Callable[[object], _T]) -> tuple[_T, str | None]:
        """GET a JSON document; one that cannot be read is asked for again.

        Returns it and the next page's path.

        Args:
            path: path and query below the endpoint.
            read: makes of the document what is wanted; raises ValueError, in words, if it is
                something else.

        Raises:
            HubFailed, DeadlineExceeded: no whole answer came.
            BytesDiffer: the answers were not what they should be.
        """

        def take(body: Body, headers: http.client.HTTPMessage) -> tuple[_T, str | None]:
            kept = bytearray()
            for piece in body.pieces():
                kept += piece
                if len(kept) > JSON_BYTES:
                    raise Passing(f"its response is larger than {JSON_BYTES:,} bytes", most=1)
            try:
                return read(strict_json(bytes(kept))), self._next(headers)
            except SourceRefused:
                raise
            except ValueError as error:
                raise Passing(
                    f"its response cannot be used: {error}", most=LYING_ATTEMPTS, differs=True
                ) from error

        return self.get(path, take)

    def get(
        self,
        path: str,
        take: Callable[[Body, http.client.HTTPMessage], _T],
        *,
        part: PartialBody | None = None,
    ) -> _T:
        """GET a path and hand its body to `take`, again after failures that may pass, until the
        deadline.

        Args:
            path: path and query below the endpoint.
            take: reads the body; raises `Passing` if it is not what it should be.
            part: what is here already: only the rest is asked for, and `take` also gets the answers
                206 and 416. An attempt that brought bytes does not count as one in vain.

        Raises:
            HubFailed: the hub refused, or went on failing.
            BytesDiffer: what it sent was not what it should be, again and again.
            DeadlineExceeded: the deadline is over, or the hub asks to wait beyond it.
        """
        if self.forbidden is not None:
            raise HubFailed(
                f"{self.endpoint}{path}: {self.forbidden} forbids requests, and the response is not"
                " in the cache",
                attempts=0,
            )
        attempt = vain = 0
        while True:
            attempt += 1
            before = part.position if part is not None else 0
            try:
                return self._once(path, take, attempt, part)
            except Passing as problem:
                vain = 1 if part is not None and part.position > before else vain + 1
                # Full jitter: ranks that failed together do not come back together.
                pause = random.uniform(0.5, 1) * min(BACKOFF_MOST, BACKOFF * 2 ** (vain - 1))  # noqa: S311
                if vain >= problem.most:
                    kind = BytesDiffer if problem.differs else HubFailed
                    raise kind(
                        f"{self.endpoint}{path}: {problem} (requested {_times(attempt)})",
                        status=problem.status,
                        attempts=attempt,
                    ) from (problem.__cause__ or problem)
                wait = pause if problem.wait is None else problem.wait + pause
                left = self.deadline.left()
                if wait >= left:
                    raise self._late(path, problem, attempt=attempt, left=left) from (
                        problem.__cause__ or problem
                    )
            time.sleep(wait)

    def _late(self, path: str, problem: Passing, *, attempt: int, left: float) -> DeadlineExceeded:
        asks = (
            f"; the hub asks to wait {problem.wait:.0f} s, but only {left:.1f} s are left"
            if problem.wait
            else ""
        )
        return DeadlineExceeded(
            f"{self.endpoint}{path}: {problem}{asks} (deadline of {self.deadline.seconds:g} s,"
            f" requested {_times(attempt)}); try later, or set a longer deadline",
            status=problem.status,
            attempts=attempt,
        )

    def _once(
        self,
        path: str,
        take: Callable[[Body, http.client.HTTPMessage], _T],
        attempt: int,
        part: PartialBody | None,
    ) -> _T:
        address = self.endpoint + path
        hub_origin = _origin(address)
        rest = part.rest() if part is not None else {}
        for _ in range(6):
            headers = {
                "Accept-Encoding": "identity",
                "User-Agent": f"rankproof-tokenizer; pid/{os.getpid()}",
                **rest,
            }
            if self._token and _origin(address) == hub_origin:
                headers["Authorization"] = f"Bearer {self._token}"
            with self._exchange(address, headers, attempt) as (response, body):
                if response.status not in _REDIRECTS:
                    self._judge(path, response, attempt, ranged=bool(rest))
                    return take(body, response.headers)
                target = urllib.parse.urljoin(address, response.headers.get("Location", ""))
                if _origin(target)[0] not in {"http", "https"} or (
                    hub_origin[0],
                    _origin(target)[0],
                ) == (
                    "https",
                    "http",
                ):
                    raise HubFailed(
                        f"{self.endpoint}{path}: it redirects from {hub_origin[0]} to"
                        f" {target[:200]!r}, and such redirects are not followed; set the endpoint"
                        " to the final address",
                        status=response.status,
                    )
            address = target
        raise HubFailed(f"{self.endpoint}{path}: too many redirects")

    @contextlib.contextmanager
    def _exchange(
        self, address: str, headers: dict[str, str], attempt: int
    ) -> Iterator[tuple[http.client.HTTPResponse, Body]]:
        begun = time.monotonic()
        status: int | None = None
        body: Body | None = None
        problem: str | None = None
        way = route_to(address, timeout=max(0.001, min(STALL, self.deadline.left())))
        connection = way.connection
        cutter: threading.Timer | None = None
        response: http.client.HTTPResponse | None = None
        try:
            try:
                connection.connect()
                # A server that sends a byte every few seconds never runs into a socket's timeout:
                # the deadline cuts the line. The socket is kept here because the connection forgets
                # it once the body begins.
                cutter = threading.Timer(self.deadline.left(), cut_connection, [connection.sock])
                cutter.daemon = True
                cutter.start()
                connection.request("GET", way.target, headers={**headers, **way.headers})
                response = connection.getresponse()
                status = response.status
                body = Body(response)
                yield response, body
            except (OSError, http.client.HTTPException) as error:
                raise Passing(_in_words(error), status=status) from error
        except (Passing, HubFailed) as error:
            problem = str(error)
            raise
        finally:
            if cutter is not None:
                cutter.cancel()
            if response is not None:
                response.close()
            connection.close()
            # Another host's query may hold a signature that lets anybody fetch the file: it is not
            # written down.
            at_hub = address.startswith(self.endpoint + "/")
            self.account.append(
                LoadRequest(
                    method="GET",
                    path=(
                        address.removeprefix(self.endpoint) if at_hub else address.partition("?")[0]
                    ),
                    attempt=attempt,
                    status=status,
                    received=body.received if body is not None else 0,
                    seconds=time.monotonic() - begun,
                    problem=problem,
                )
            )

    def _judge(
        self, path: str, response: http.client.HTTPResponse, attempt: int, *, ranged: bool
    ) -> None:
        status = response.status
        if ranged and status == 416:
            return
        if status == 200 or (ranged and status == 206):
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise Passing(
                    "it sent a compressed body, although compression was not requested",
                    status=status,
                    most=LYING_ATTEMPTS,
                )
            return
        code = response.headers.get("X-Error-Code", "")
        said = (
            "it answered"
            f" {status}{f' ({code})' if re.fullmatch('[A-Za-z0-9_-]{1,60}', code) else ''}"
        )
        if status in {401, 403}:
            raise HubFailed(
                f"{self.endpoint}{path}: {said}; the repository is private, gated or misnamed;"
                " check its name, or pass a token that can read it",
                status=status,
                attempts=attempt,
            )
        if status == 404:
            raise Passing(
                f"{said}, so this path does not exist", status=status, most=LYING_ATTEMPTS
            )
        if status in {408, 425, 429} or status >= 500:
            raise Passing(said, status=status, wait=_wanted_wait(response.headers))
        raise HubFailed(f"{self.endpoint}{path}: {said}", status=status, attempts=attempt)

    def _next(self, headers: http.client.HTTPMessage) -> str | None:
        for link in headers.get_all("Link", []):
            for address in re.findall(r'<([^<>]*)>[^,]*;\s*rel="?next"?', link):
                target = urllib.parse.urljoin(self.endpoint + "/", str(address))
                if not target.startswith(self.endpoint + "/"):
                    raise HubFailed(
                        f"{self.endpoint}: the next page of its listing is on another host:"
                        f" {target!r}"
                    )
                return target.removeprefix(self.endpoint)
        return None


def _wanted_wait(headers: http.client.HTTPMessage) -> float | None:
    """Seconds until the hub's quota is fresh: `RateLimit: "api";r=0;t=123`, or `Retry-After:
    123`.
    """
    match = re.search(r"\br=0\b.*\bt=(\d{1,9})\b", headers.get("RateLimit", ""))
    after = headers.get("Retry-After", "")
    if match:
        return float(match.group(1))
    return float(after) if re.fullmatch(r"\d{1,9}", after) else None


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _origin(address: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(address)
    return parts.scheme, parts.netloc
