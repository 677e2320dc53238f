"""One request and its answer on a connection; exactly one line of the access log comes out of it."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from http import HTTPStatus

from harness.hub.access import Access, End
from harness.hub.answer import Answer
from harness.hub.place import Place
from harness.hub.target import Target
from harness.hub.wire import Request
from harness.hub.wrong_answer import Outgoing

CHUNK = 256 * 1024
ADDRESS_SHOWN = 512


@dataclass(slots=True)
class Connection:
    """A client's connection, with who holds its other end."""

    number: int
    peer: tuple[str, int]
    here: tuple[str, int]
    place: Place
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pid: int | None = None
    started: int | None = None


@dataclass(slots=True)
class Exchange:
    """What is known of a request so far."""

    n: int
    connection: Connection
    method: str | None
    address: str
    client: str
    target: Target | None = None
    range: str | None = None
    ns: int = field(default_factory=time.monotonic_ns)
    status: int | None = None
    rules: tuple[str, ...] = ()
    commit: str | None = None
    sent: int = 0
    note: str = ""
    logged: bool = False

    def access(self, end: End) -> Access:
        """The line for the log."""
        self.logged = True
        target = self.target
        return Access(
            n=self.n,
            ns=self.ns,
            duration_ns=time.monotonic_ns() - self.ns,
            client=self.client,
            pid=self.connection.pid,
            started=self.connection.started,
            connection=self.connection.number,
            port=self.connection.peer[1],
            method=self.method,
            path=self.address[:ADDRESS_SHOWN],
            role=target.role if target else None,
            repository=target.repository if target else "",
            revision=target.revision if target else "",
            file=target.path if target else "",
            status=self.status,
            rules=self.rules,
            bytes=self.sent,
            range=self.range,
            commit=self.commit,
            end=end,
            note=self.note,
        )


class Changed(Exception):
    """A file has changed since the hub read it at its start."""


def body_chunks(outgoing: Outgoing) -> list[tuple[int, int]]:
    """The pieces of the body as (from, to), the last of them last; one empty piece for an answer without a body."""
    ends = [*range(CHUNK, outgoing.sent, CHUNK), outgoing.sent]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def read_piece(answer: Answer, first: int, end: int, *, flipped: int | None) -> bytes:
    """Read bytes of the body.

    Raises:
        Changed: the file changed since the hub started.
    """
    if answer.body is not None:
        data = answer.body[first:end]
    elif answer.file is None or first == end:
        data = b""
    else:
        file = answer.file
        try:
            with file.source.open("rb") as stream:
                status = os.fstat(stream.fileno())
                if (status.st_size, status.st_mtime_ns) != (file.size, file.stamp):
                    raise Changed(f"{file.path} changed since the hub started; start the hub again")
                stream.seek(answer.first + first)
                data = stream.read(end - first)
        except OSError as error:
            raise Changed(f"{file.path} cannot be read any more: {error.strerror}") from error
        if len(data) != end - first:
            raise Changed(f"{file.path} became shorter since the hub started; start the hub again")
    if flipped is not None and first <= flipped < end:
        at = flipped - first
        data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    return data


def head_of(outgoing: Outgoing, answer: Answer, request: Request | None) -> bytes:
    """Head of the answer. After it the connection stays open only if both sides wish it.

    Header values are our own or checked before; none holds a line break.
    """
    keep = outgoing.then == "keep" and request is not None and request.keep_alive
    headers = answer.headers | {
        "Content-Length": str(outgoing.announced),
        "Connection": "keep-alive" if keep else "close",
    }
    reason = HTTPStatus(answer.status).phrase if answer.status in HTTPStatus._value2member_map_ else "Fault"
    lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
