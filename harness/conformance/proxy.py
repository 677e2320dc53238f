"""Proxies between a row and a server: one that passes everything through, and one with a defect.

A defect changes parsed requests, whole answers or the events of streams. Without one not a byte of
a body is changed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from harness.conformance.correct import serving

Fields = dict[str, Any]
PASSED_ON = ("content-type", "authorization", "accept-encoding", "user-agent")
PASSED_BACK = ("content-type", "content-encoding", "location")
LARGEST_BODY = 2**26
LINE_LIMIT = 2**20
SWAP_WITHIN = 1.0
LEAVES_WITHIN = 0.5
"""Seconds in which a client that leaves in the middle of an answer has left."""
READ_WITHIN = 10.0
CROWD_WITHIN = 0.15
SETTLED = 0.05
HELD_OPEN = 3600.0


@dataclass(frozen=True, kw_only=True)
class ProxyDefect:
    """What a proxy does wrong.

    Attributes:
        does: in words.
        ask: changes the body of a request.
        whole: changes the body of an answer that is not streamed.
        stream: changes the events of a stream, each without its blank line.
        crowded: changes the body of a request that is there at the same time as another.
        serial: forwards one request at a time.
        swaps: gives the answers of two requests that are there at the same time to each other.
        hides_leaving: goes on reading from the server although the client left.
        breaks_after: answers nothing any more after a request that the server refused, or after a
            client left.
        holds_open: does not end a stream after its last event.
        healthy: answers GET by itself, with 200.
        fresh: makes the defect of one proxy, where it remembers what passed through.
    """

    does: str
    ask: Callable[[Fields], Fields] | None = None
    whole: Callable[[bytes], bytes] | None = None
    stream: Callable[[Iterator[bytes]], Iterator[bytes]] | None = None
    crowded: Callable[[Fields], Fields] | None = None
    serial: bool = False
    swaps: bool = False
    hides_leaving: bool = False
    breaks_after: Literal["", "refusal", "leaving"] = ""
    holds_open: bool = False
    healthy: bool = False
    fresh: Callable[[], ProxyDefect] | None = None


PASS_THROUGH = ProxyDefect(does="passes everything through")


class Swap:
    """Where the answers of two requests that are there at the same time change places."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, list[bytes]] = {}
        self._given: dict[int, bytes] = {}
        self.running = 0

    def __call__(self, body: bytes, kind: str) -> bytes:
        """Leave an answer here, and return that of another request where there is one of the same
        kind.
        """
        with self._changed:
            waiting = self._waiting.setdefault(kind, [])
            if waiting:
                other = waiting.pop()
                self._given[id(other)] = body
                self._changed.notify_all()
                return other
            if self.running < 2:
                return body
            waiting.append(body)
            self._changed.wait_for(lambda: id(body) in self._given, SWAP_WITHIN)
            if id(body) not in self._given:
                waiting.remove(body)
                return body
            return self._given.pop(id(body))


class Crowd:
    """Tells a request that is alone from one that is there at the same time as another."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0

    @contextmanager
    def joined(self) -> Iterator[bool]:
        """Be there as long as this lasts; gives whether another request is there too."""
        with self._changed:
            self._inside += 1
            self._changed.notify_all()
            # Whoever was answered last may not have left yet: a client asks again at once.
            self._changed.wait(SETTLED)
            is_crowded = self._changed.wait_for(lambda: self._inside > 1, CROWD_WITHIN)
        try:
            yield is_crowded
        finally:
            with self._changed:
                self._inside -= 1


class ProxyHandler(BaseHTTPRequestHandler):
    """Forwards each request on a connection of its own."""

    protocol_version = "HTTP/1.1"
    upstream: ClassVar[str]
    defect: ClassVar[ProxyDefect]
    timeout_s: ClassVar[float]
    swap: ClassVar[Swap]
    crowd: ClassVar[Crowd]
    turn: ClassVar[threading.Lock]
    broken: ClassVar[threading.Event]

    def log_message(self, *_: Any) -> None:
        """Keep silent."""

    def do_GET(self) -> None:
        if self.defect.healthy:
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        with self._in_turn():
            self._forward(b"")

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            self.close_connection = True
            return
        body = self.rfile.read(int(length))
        if self.defect.ask is not None:
            body = _changed_body(body, self.defect.ask)
        if self.defect.crowded is not None:
            with self.crowd.joined() as is_crowded:
                self._forward(_changed_body(body, self.defect.crowded) if is_crowded else body)
            return
        with self._in_turn():
            self._forward(body)

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Let no other request in until the client has read the answer, however late it reads."""
        if not self.defect.serial:
            yield
            return
        with self.turn:
            yield
            # Some answers end where the connection does.
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_WR)
            self._is_left(READ_WITHIN)

    def _forward(self, body: bytes) -> None:
        self.close_connection = True
        if self.broken.is_set():
            return
        parts = urlsplit(self.upstream)
        assert parts.hostname is not None
        connection = (
            http.client.HTTPSConnection(
                parts.hostname,
                parts.port,
                timeout=self.timeout_s,
                context=ssl.create_default_context(),
            )
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname, parts.port, timeout=self.timeout_s)
        )
        headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
        self.swap.running += 1
        try:
            connection.request(self.command, f"{parts.path}{self.path}", body or None, headers)
            response = connection.getresponse()
            if self.defect.breaks_after == "refusal" and response.status >= 400:
                # Before the client has its answer: it asks again at once.
                self.broken.set()
            self._answer(response)
        except (OSError, http.client.HTTPException):
            # What the server does to us is what the client has to see: an answer that ends early.
            self._reset()
        finally:
            self.swap.running -= 1
            connection.close()

    def _answer(self, response: http.client.HTTPResponse) -> None:
        kind = response.getheader("content-type", "")
        streamed = "event-stream" in kind
        chunked = response.chunked
        length = response.getheader("content-length")
        changes = (
            self.defect.swaps
            or (self.defect.whole and not streamed)
            or (self.defect.stream and streamed)
        )
        body: Iterator[bytes] = _parts(response)
        if changes:
            body = (
                iter([self._changed(response)])
                if not streamed or self.defect.swaps
                else self._events(response)
            )
            if length is not None:
                whole = b"".join(body)
                length = str(len(whole))
                body = iter([whole])
        self.send_response(response.status)
        for name in PASSED_BACK:
            if (value := response.getheader(name)) is not None:
                self.send_header(name, value)
        if length is not None:
            self.send_header("content-length", length)
        elif chunked:
            self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        for data in body:
            self._write(data, chunked=chunked, response=response)
        if streamed and self.defect.holds_open:
            self._hold()
        if streamed and self.defect.breaks_after == "leaving":
            self._await_leaving()
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _write(self, data: bytes, *, chunked: bool, response: http.client.HTTPResponse) -> None:
        try:
            if self._is_gone():
                raise ConnectionResetError("the client left")
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n" if chunked else data)
            self.wfile.flush()
        except OSError:
            if self.defect.hides_leaving:
                for _ in _parts(response):
                    pass
            if self.defect.breaks_after == "leaving":
                self.broken.set()
            raise

    def _is_gone(self) -> bool:
        """Whether the client closed its end: what is written then vanishes without an error."""
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False

    def _changed(self, response: http.client.HTTPResponse) -> bytes:
        body = response.read()
        if self.defect.whole is not None and response.status == 200:
            body = self.defect.whole(body)
        if not self.defect.swaps or response.status != 200:
            return body
        return self.swap(body, response.getheader("content-type", ""))

    def _events(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        assert self.defect.stream is not None
        for event in self.defect.stream(_split(response)):
            yield event + b"\n\n"

    def _hold(self) -> None:
        """Wait until the client leaves."""
        self.connection.settimeout(HELD_OPEN)
        self.connection.recv(1)

    def _await_leaving(self) -> None:
        """Hold the end back for a moment: a short answer is written before its reader can leave."""
        if self._is_left(LEAVES_WITHIN):
            self.broken.set()
            raise ConnectionResetError("the client left")

    def _is_left(self, seconds: float) -> bool:
        """Wait for the client to close its end; returns whether it did."""
        self.connection.settimeout(seconds)
        try:
            return not self.connection.recv(1)
        except TimeoutError:
            return False
        except OSError:
            return True

    def _reset(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RDWR)


def _changed_body(body: bytes, change: Callable[[Fields], Fields]) -> bytes:
    """Change the body of a request; what is not an object of JSON stays as it is."""
    with contextlib.suppress(ValueError):
        fields = json.loads(body)
        if isinstance(fields, dict):
            return json.dumps(change(fields)).encode()
    return body


def _parts(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """What arrives, as it arrives."""
    while data := response.read1(2**16):
        yield data
    # http.client says nothing of an answer that is shorter than announced where it is read so.
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)


def _split(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Events of a stream, each without its blank line."""
    lines: list[bytes] = []
    while line := response.readline(LINE_LIMIT):
        stripped = line.rstrip(b"\r\n")
        # As a client reads it: other fields and comments say nothing, and the blank is optional.
        name, _, value = stripped.partition(b":")
        if stripped and name != b"data":
            continue
        if stripped:
            lines.append(b"data: " + value.removeprefix(b" "))
        elif lines:
            yield b"\n".join(lines)
            lines = []
    if lines:
        yield b"\n".join(lines)


@contextmanager
def proxied(
    base: str, defect: ProxyDefect = PASS_THROUGH, *, timeout: float = 60.0
) -> Iterator[str]:
    """Serve a proxy in front of a server as long as this lasts; gives its address."""
    if defect.fresh is not None:
        defect = defect.fresh()
    state = {
        "upstream": base,
        "defect": defect,
        "timeout_s": timeout,
        "swap": Swap(),
        "crowd": Crowd(),
        "turn": threading.Lock(),
        "broken": threading.Event(),
    }
    with serving(type("BoundProxyHandler", (ProxyHandler,), state)) as address:
        yield address
