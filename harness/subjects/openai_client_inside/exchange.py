"""One request, and everything that came back, within bounds: a server may be broken, or hostile."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

MOST_BYTES = 4 * 2**20
MOST_CHUNKS = 20_000
MESSAGE = 100
SLOW_BUFFER = 4096
"""Bytes that the system receives ahead of a slow reader, so that the server comes to wait for it.
"""
KEPT_HEADERS = ("content-type", "content-length", "content-encoding", "transfer-encoding")
CHAT = "chat"
NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What every request of a rank has in common."""

    base: str
    model: str | None
    api: str
    max_tokens: int
    temperature: float
    sampling_seed: int
    logprobs: int
    stop: str
    timeout: int
    cancel_after: int
    pause: float
    drops_last: bool

    def body(self, prompt: str | list[int], *, streamed: bool) -> bytes:
        """Write the body of a request. What has no effect is left out, for servers that refuse
        whatever they do not know.
        """
        fields: dict[str, Any] = {} if self.model is None else {"model": self.model}
        if self.api == CHAT:
            fields["messages"] = [{"role": "user", "content": prompt}]
        else:
            fields["prompt"] = prompt
        fields |= {"max_tokens": self.max_tokens, "temperature": self.temperature}
        if self.temperature:
            fields["seed"] = self.sampling_seed
        if self.logprobs and self.api == CHAT:
            fields |= {"logprobs": True, "top_logprobs": self.logprobs}
        elif self.logprobs:
            fields["logprobs"] = self.logprobs
        if self.stop != NONE:
            fields["stop"] = self.stop
        if streamed:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


@dataclass
class Exchange:
    """What came back for one request, byte by byte."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    ended: str = "left"
    error: str = ""
    ms: int = 0

    def data(self) -> bytes:
        """Return the body, as it came."""
        return b"".join(data for _, data in self.chunks)


class WatchedSocket:
    """The connection of one request, which can be ended from outside the HTTP library."""

    def __init__(self) -> None:
        self.passed = False
        self._socket: socket.socket | None = None

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Hear from the library which socket it opened."""
        if event == "connection.connect_tcp.complete":
            self._socket = info["return_value"].get_extra_info("socket")

    def strike(self) -> None:
        """End the connection because its time is over, whichever thread is waiting for it."""
        self.passed = True
        if self._socket is not None:
            # The connection may have ended by itself at this very moment.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def reset_on_close(self) -> None:
        """Have closing send a reset, which drops what was not sent yet, instead of a FIN."""
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def shortened(text: str, most: int = MESSAGE) -> str:
    """Return the beginning of a text, with escapes for all but printable ASCII.

    The server wrote it, and in an event it must not be longer than that.
    """
    return text[:most].encode("unicode_escape").decode()[:most]


def pieces(
    wanted: Wanted, path: str, body: bytes, exchange: Exchange, link: WatchedSocket, *, slow: bool
) -> Generator[bytes]:
    """Send a request and give its answer chunk by chunk; how it ended is written to `exchange`.

    A generator, so that what the caller does between two chunks raises outside its `try`.
    """
    import httpx2

    options = [(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER)] if slow else []
    # Plain HTTP needs no certificates, and reading them takes longer than most answers.
    transport = httpx2.HTTPTransport(
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        trust_env=False,
        retries=0,
        socket_options=options,
    )
    headers = {"accept-encoding": "identity", "user-agent": "rankproof"}
    if body:
        headers["content-type"] = "application/json"
    try:
        with (
            httpx2.Client(
                transport=transport,
                timeout=wanted.timeout,
                follow_redirects=False,
                trust_env=False,
            ) as client,
            client.stream(
                "POST" if body else "GET",
                wanted.base + path,
                content=body or None,
                headers=headers,
                extensions={"trace": link.watch},
            ) as response,
        ):
            exchange.status = response.status_code
            exchange.headers = {
                name: shortened(response.headers[name])
                for name in KEPT_HEADERS
                if name in response.headers
            }
            yield from response.iter_raw()
        exchange.ended = "timed out" if link.passed else "complete"
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
        exchange.ended = "timed out" if link.passed else how_it_ended(error, exchange.status)
        exchange.error = shortened(f"{type(error).__name__}: {error}")


def how_it_ended(error: Exception, status: int | None) -> str:
    """Say how an exchange ended, from the exception of the HTTP library."""
    import httpx2

    if isinstance(error, httpx2.TimeoutException):
        return "timed out"
    if isinstance(error, httpx2.ConnectError):
        return "refused"
    if isinstance(error, httpx2.RemoteProtocolError):
        if "too large" in str(error) or "too long" in str(error):
            return "too large"
        closed = "closed" in str(error) or "disconnected" in str(error)
        return "cut short" if closed or status is not None else "not HTTP"
    if isinstance(error, httpx2.NetworkError | OSError):
        return "reset"
    return "not HTTP"


def exchanged(
    wanted: Wanted,
    path: str,
    body: bytes = b"",
    *,
    client: str = "patient",
    first: Callable[[], None] | None = None,
) -> Exchange:
    """Send one request and take what comes, as long as this client does.

    Args:
        wanted: what all requests have in common.
        path: after the address of the server.
        body: what is posted; empty: nothing, and it is a GET.
        client: how it reads.
        first: called when the first chunk came.
    """
    begun = time.monotonic()
    exchange = Exchange()
    link = WatchedSocket()
    # The library's own timeout begins anew with every byte that comes.
    deadline = threading.Timer(wanted.timeout, link.strike)
    deadline.daemon = True
    deadline.start()
    size = 0
    arriving = pieces(wanted, path, body, exchange, link, slow=client == "slow")
    try:
        with closing(arriving):
            for data in arriving:
                size += len(data)
                if size > MOST_BYTES or len(exchange.chunks) == MOST_CHUNKS:
                    exchange.ended = "too large"
                    break
                exchange.chunks.append((round((time.monotonic() - begun) * 1000), data))
                if first is not None and len(exchange.chunks) == 1:
                    first()
                if link.passed:
                    exchange.ended = "timed out"
                    break
                if client == "slow":
                    time.sleep(wanted.pause)
                elif client != "patient" and len(exchange.chunks) >= wanted.cancel_after:
                    if client == "resets":
                        link.reset_on_close()
                    break
    finally:
        deadline.cancel()
    exchange.ms = round((time.monotonic() - begun) * 1000)
    return exchange
