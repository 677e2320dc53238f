"""HTTP/1.1 as far as a hub needs it: a request's head, read within limits, and its Range header."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field

HEAD_LIMIT = 32 * 1024
HEADER_LIMIT = 100
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class BadRequest(Exception):
    """What came is not a request that the hub answers; ``status`` is the answer."""

    def __init__(
        self, status: int, message: str, *, method: str | None = None, address: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.method = method
        self.address = address


class Silent(Exception):
    """The client went away, or stayed idle, without a request: there is nothing to answer or to
    log.
    """


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may cost.

    Attributes:
        connections: open at the same time; more are answered with 503.
        idle: seconds an open connection may wait for its next request.
        head: seconds for the head of a request, from its first byte.
        send: seconds in which a client must take the next part of an answer (256 KiB).
    """

    connections: int = 512
    idle: float = 120.0
    head: float = 10.0
    send: float = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request. Header names are lower-case.

    A repeated header keeps its first value.
    """

    method: str
    address: str
    headers: dict[str, str] = field(default_factory=dict)
    keep_alive: bool = True


async def read_request(reader: asyncio.StreamReader, limits: Limits) -> Request:
    """Read one head; the body, which none of our requests has, is refused.

    Raises:
        Silent: nothing came.
        BadRequest: something came that is not a request, or came too slowly, or is too large.
    """
    try:
        first = await asyncio.wait_for(reader.read(1), limits.idle)
    except (TimeoutError, ConnectionError) as error:
        raise Silent from error
    if not first:
        raise Silent
    try:
        rest = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), limits.head)
    except asyncio.LimitOverrunError as error:
        raise BadRequest(431, f"the head is larger than {HEAD_LIMIT} bytes") from error
    except asyncio.IncompleteReadError as error:
        raise BadRequest(400, "the connection ended inside the head") from error
    except TimeoutError as error:
        raise BadRequest(408, f"the head took longer than {limits.head:g} s") from error
    except ConnectionError as error:
        raise BadRequest(400, "the connection was reset inside the head") from error
    return _head(first + rest)


def _head(data: bytes) -> Request:
    lines = data[:-4].decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if (
        len(words) != 3
        or not TOKEN.fullmatch(words[0])
        or not re.fullmatch(r"HTTP/1\.[01]", words[2])
    ):
        raise BadRequest(400, "the first line is not an HTTP/1.1 request")
    method = words[0]
    address = words[1]
    if len(lines) - 1 > HEADER_LIMIT:
        raise BadRequest(
            431, f"there are more than {HEADER_LIMIT} headers", method=method, address=address
        )
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if (
            not colon
            or not TOKEN.fullmatch(name)
            or not all(char.isprintable() or char == "\t" for char in value)
        ):
            raise BadRequest(400, "a header cannot be read", method=method, address=address)
        headers.setdefault(name.lower(), value.strip())
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(
            413, "a request with a body; the hub only reads", method=method, address=address
        )
    if method not in {"GET", "HEAD"}:
        raise BadRequest(405, "the hub answers GET and HEAD only", method=method, address=address)
    wish = headers.get("connection", "").lower()
    keep = "close" not in wish if words[2] == "HTTP/1.1" else "keep-alive" in wish
    return Request(method, address, headers, keep)


def read_range(text: str | None, size: int) -> tuple[int, int] | None:
    """Read a Range header as (first byte, byte after the last); None: serve the whole.

    Several ranges, and units other than bytes, are ignored, as HTTP allows.

    Raises:
        ValueError: the range begins after the end (416).
    """
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", (text or "").replace(" ", ""))
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        last = int(match[2])
        if last == 0:
            raise ValueError("an empty range")
        return max(0, size - last), size
    first = int(match[1])
    end = min(size, int(match[2]) + 1) if match[2] else size
    if first >= size:
        raise ValueError("the range begins after the end")
    if match[2] and int(match[2]) < first:
        return None
    return first, end
