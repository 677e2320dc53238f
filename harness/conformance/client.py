"""The client: one request, one exchange. It never retries, repairs, decodes or follows anything.

Bounded in bytes, chunks and time, because a server may be broken, or hostile.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from harness.conformance.answer import spelled
from harness.conformance.exchange import Chunk, Ended, HTTPExchange, HTTPRequest, pack
from harness.conformance.secret import KeyMask

if TYPE_CHECKING:
    import httpx2

    from harness.conformance.strike import EngineStrike

MOST_BYTES = 4 * 2**20
MOST_CHUNKS = 20_000
KEPT_HEADERS = (
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "location",
    "server",
)
HEADER_LIMIT = 200
SECRET_FROM = 8
"""Characters from which a key is a secret. `none` and `EMPTY` are what servers without keys
take.
"""
DONE_LINE = b"data: [DONE]"
DONE_WITHIN = 3.0
"""Seconds after its last event in which a stream has to end."""
STRIKES_AFTER = 2
"""Chunks of an answer that have come when its server is struck."""
CPU_WINDOW = 0.5
CPU_SETTLES = 0.7
"""Seconds between a client's leaving and the window: a server may finish the token it is at."""


class Client:
    """Sends requests to one server.

    Args:
        base: its address without /v1.
        timeout: seconds for one whole exchange.
        until: when the last exchange has to end, as `time.monotonic` says; None: never.
        key: sent as a bearer token; None: nothing is.
        cpu_seconds: processor time that the server used so far, where we started it.
        strike: what can be done to its processes, likewise.
    """

    def __init__(
        self,
        base: str,
        *,
        timeout: float = 60.0,
        until: float | None = None,
        key: str | None = None,
        cpu_seconds: Callable[[], float] | None = None,
        strike: EngineStrike | None = None,
    ) -> None:
        # Imported here, as below: only whoever asks a server needs it.
        import httpx2

        self.base = base
        self.timeout = timeout
        self._until = until
        self._key = key
        self._cpu_seconds = cpu_seconds
        self._strike = strike
        # Made once: reading the certificates takes longer than most answers. Plain HTTP needs none.
        self._verify = (
            httpx2.create_ssl_context()
            if base.startswith("https:")
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        self._mask = KeyMask(key) if key is not None and len(key) >= SECRET_FROM else None

    def together(self, requests: Sequence[HTTPRequest]) -> list[HTTPExchange]:
        """Send requests at the same time; returns the exchanges in the order of the requests."""
        if len(requests) == 1:
            return [self.send(requests[0])]
        begun = time.monotonic()
        with ThreadPoolExecutor(max_workers=len(requests)) as threads:
            # One clock for all: on a busy machine some threads begin late.
            return list(threads.map(lambda request: self.send(request, begun=begun), requests))

    def send(self, request: HTTPRequest, *, begun: float | None = None) -> HTTPExchange:
        """Send one request and take what comes; times count from `begun`, or from here."""
        import httpx2

        if request.after_ms:
            time.sleep(request.after_ms / 1000)
        begun = time.monotonic() if begun is None else begun
        if request.after_strike and self._strike is not None:
            # Where nothing is struck it is sent all the same, and the row finds that out.
            self._strike.struck.wait(self.timeout)
        chunks: list[tuple[int, bytes]] = []
        answer: list[httpx2.Response] = []
        detail = ""
        meter = Meter(self._cpu_seconds if request.leave_after_ms is not None else None)
        seconds = self.timeout
        if self._until is not None:
            seconds = max(0.0, min(seconds, self._until - time.monotonic()))
        with _deadline(seconds) as deadline:
            try:
                ended = self._take(request, begun, chunks, answer, deadline, meter)
            except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
                ended = "timed out" if deadline.passed else _ended(error, began=bool(answer))
                detail = f"{type(error).__name__}: {error}"
        ms = round((time.monotonic() - begun) * 1000)
        meter.stop()
        after = self._after() if ended == "left" and meter.rate is not None else None
        response = answer[0] if answer else None
        headers: dict[str, str] = {}
        for name in KEPT_HEADERS:
            if response is not None and name in response.headers:
                headers[name] = self._masked(
                    response.headers[name].encode("latin-1", "replace")
                ).decode("latin-1")[:HEADER_LIMIT]
        exchange = HTTPExchange(
            request=request,
            status=response.status_code
            if response is not None and 100 <= response.status_code <= 999
            else None,
            headers=headers,
            chunks=self._kept(chunks),
            ended=ended,
            detail=self._masked(detail.encode("utf-8", "replace")).decode("utf-8", "replace")[
                :HEADER_LIMIT
            ],
            ms=ms,
            busy=meter.rate,
            after=after,
            struck=self._strike.facts() if request.strike and self._strike is not None else None,
        )
        # A server may say the key letter by letter, so that no bytes of the answer spell it.
        if self._mask is not None and self._mask.is_in(spelled(exchange)):
            return exchange.model_copy(update={"chunks": [], "ended": "withheld"})
        return exchange

    def _take(
        self,
        request: HTTPRequest,
        begun: float,
        chunks: list[tuple[int, bytes]],
        answer: list[httpx2.Response],
        deadline: ConnectionDeadline,
        meter: Meter,
    ) -> Ended:
        import httpx2

        headers = {"accept-encoding": "identity", "user-agent": "rankproof"}
        if request.method == "POST":
            headers["content-type"] = "application/json"
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        content = request.content() if request.method == "POST" else None
        # No variable of the environment and no .netrc has a say: what is sent is in the evidence.
        with (
            httpx2.Client(
                trust_env=False, follow_redirects=False, timeout=self.timeout, verify=self._verify
            ) as client,
            client.stream(
                request.method,
                f"{self.base}{request.path}",
                content=content,
                headers=headers,
                extensions={"trace": deadline.watch},
            ) as response,
        ):
            answer.append(response)
            size = 0
            for data in response.iter_raw():
                size += len(data)
                if size > MOST_BYTES or len(chunks) == MOST_CHUNKS:
                    return "too large"
                chunks.append((round((time.monotonic() - begun) * 1000), data))
                if request.strike and self._strike is not None and len(chunks) == STRIKES_AFTER:
                    self._strike.strike(
                        request.strike, lambda: round((time.monotonic() - begun) * 1000)
                    )
                if request.leave_after is not None and len(chunks) >= request.leave_after:
                    return "left"
                if request.leave_after_ms is not None:
                    meter.start()
                    if chunks[-1][0] - chunks[0][0] >= request.leave_after_ms:
                        return "left"
                if DONE_LINE in data:
                    deadline.tighten(DONE_WITHIN)
                if deadline.passed:
                    return "timed out"
        return "complete"

    def _after(self) -> float | None:
        """Measure what the server uses in a window after we left."""
        time.sleep(CPU_SETTLES)
        meter = Meter(self._cpu_seconds)
        meter.start()
        time.sleep(CPU_WINDOW)
        meter.stop()
        return meter.rate

    def _kept(self, chunks: Sequence[tuple[int, bytes]]) -> list[Chunk]:
        """Return chunks without the key. Masking keeps lengths, so an echo over two chunks is
        found.
        """
        whole = self._masked(b"".join(data for _, data in chunks))
        kept: list[Chunk] = []
        place = 0
        for ms, data in chunks:
            kept.append(Chunk(ms=ms, data=pack(whole[place : place + len(data)])))
            place += len(data)
        return kept

    def _masked(self, data: bytes) -> bytes:
        return data if self._mask is None else self._mask.masked(data)


class Meter:
    """Processor time a second between two moments."""

    def __init__(self, seconds: Callable[[], float] | None) -> None:
        self.rate: float | None = None
        self._seconds = seconds
        self._begun: tuple[float, float] | None = None

    def start(self) -> None:
        """Begin, where that was not done before."""
        if self._seconds is not None and self._begun is None:
            self._begun = (time.monotonic(), self._seconds())

    def stop(self) -> None:
        """End; without a beginning there is no rate."""
        if self._seconds is not None and self._begun is not None:
            began, used = self._begun
            self.rate = round((self._seconds() - used) / max(time.monotonic() - began, 1e-3), 3)


class ConnectionDeadline:
    """Ends a connection when its time is over, also one that drips its headers byte by byte."""

    def __init__(self) -> None:
        self.passed = False
        self._socket: socket.socket | None = None
        self._timers: list[threading.Timer] = []

    def watch(self, event: str, info: dict[str, Any]) -> None:
        """Hear from the client's library which socket it opened."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")

    def tighten(self, seconds: float) -> None:
        """End the connection after so many seconds from now at the latest."""
        timer = threading.Timer(seconds, self.strike)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def cancel(self) -> None:
        """End nothing any more."""
        for timer in self._timers:
            timer.cancel()

    def strike(self) -> None:
        """End the connection, in whatever thread waits for it."""
        self.passed = True
        if self._socket is not None:
            # It may have ended by itself at this very moment.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


@contextmanager
def _deadline(seconds: float) -> Iterator[ConnectionDeadline]:
    deadline = ConnectionDeadline()
    deadline.tighten(seconds)
    try:
        yield deadline
    finally:
        deadline.cancel()


def _ended(error: Exception, *, began: bool) -> Ended:
    """Say how an exchange ended, from the exception of the client's library."""
    import httpx2

    if isinstance(error, httpx2.TimeoutException):
        return "timed out"
    if isinstance(error, httpx2.ConnectError):
        return "refused"
    if isinstance(error, httpx2.RemoteProtocolError):
        if "too large" in str(error) or "too long" in str(error):
            return "too large"
        closed = "closed" in str(error) or "disconnected" in str(error)
        return "cut short" if closed or began else "not HTTP"
    if isinstance(error, httpx2.NetworkError | OSError):
        return "reset"
    return "not HTTP"
