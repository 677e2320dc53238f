"""One request to a server and everything that came back: the evidence of every row.

Bytes are kept as they came, chunk by chunk. What they mean is read from them again by whoever
verifies.
"""

from __future__ import annotations

import base64
import binascii
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from harness.forms.model import Model
from harness.forms.strict_json import strict_json

COMPLETIONS: Final = "/v1/completions"
CHAT: Final = "/v1/chat/completions"
MODELS: Final = "/v1/models"
Mode = Literal["completion", "streamed completion", "chat", "streamed chat"]
"""How a request asks for a text: servers have code of their own for each."""
FILL: Final = b"<FILL>"
"""Where a body that is too long to be kept is filled up."""
ENCODED: Final = "base64:"

Ended = Literal[
    "complete",  # as HTTP says where an answer ends
    "cut short",  # the server closed the connection before that
    "reset",  # the connection was reset
    "timed out",  # the answer did not end in the time allowed
    "too large",  # more bytes, chunks or headers than a client of ours takes
    "left",  # we closed the connection on purpose
    "refused",  # nobody listens
    "not HTTP",  # what came is not HTTP/1.1
    "withheld",  # the answer spells out the API key, so nothing of it is kept
]


def pack(data: bytes) -> str:
    """Return bytes as text: as they are where they are UTF-8, else in base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ENCODED
    return ENCODED + base64.b64encode(data).decode() if text.startswith(ENCODED) else text


def unpack(text: str) -> bytes:
    """Return the bytes that `pack` was given.

    Raises:
        ValueError: it did not write this.
    """
    if not text.startswith(ENCODED):
        return text.encode()
    try:
        data = base64.b64decode(text.removeprefix(ENCODED), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None
    if pack(data) != text:
        raise ValueError("the base64 of a body is not in canonical form")
    return data


StrikeKind = Literal["freeze", "kill"]


class StrikeFacts(Model):
    """What was done to an engine in the middle of an answer.

    Attributes:
        kind: its busiest process was stopped, or killed.
        ms: of the exchange, when it had been done.
        until_ms: when a process that was stopped was let go on.
        processes: that the engine had.
        state: what the kernel said of the process then.
        exit_code: of the engine; None where it did not end.
    """

    kind: StrikeKind
    ms: Annotated[int, Field(ge=0)]
    until_ms: int | None = None
    processes: Annotated[int, Field(ge=1)]
    state: str
    exit_code: int | None = None


class HTTPRequest(Model):
    """One request.

    Attributes:
        label: what the row calls it.
        body: packed.
        fill: bytes that take the place of FILL in the body; 0 where it has none.
        after_ms: milliseconds to wait before it is sent, beside others that are not told to.
        leave_after: chunks after which we close the connection; None: never.
        leave_after_ms: milliseconds after the first chunk, likewise.
        strike: what is done to the engine when the first chunks of the answer have come.
        after_strike: whether it is sent when that has been done, beside the request that states it.
    """

    label: str
    method: Literal["GET", "POST"] = "POST"
    path: str
    body: str = ""
    fill: Annotated[int, Field(ge=0, le=2**24)] = 0
    after_ms: Annotated[int, Field(ge=0, le=10_000)] = 0
    leave_after: Annotated[int, Field(ge=1)] | None = None
    leave_after_ms: Annotated[int, Field(ge=1)] | None = None
    strike: StrikeKind | None = None
    after_strike: bool = False

    def content(self) -> bytes:
        """Return the body as it is sent."""
        return unpack(self.body).replace(FILL, b"a" * self.fill) if self.fill else unpack(self.body)

    def fields(self) -> dict[str, Any]:
        """Return the body as a mapping; empty where it is not one."""
        try:
            value = strict_json(unpack(self.body))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def mode(self) -> Mode:
        """Return how it asks for a text."""
        is_streamed = self.fields().get("stream") is True
        if self.path == CHAT:
            return "streamed chat" if is_streamed else "chat"
        return "streamed completion" if is_streamed else "completion"

    def curl(self, base: str, *, authorized: bool) -> str:
        """Return a line for a shell that sends the same request."""
        # In double quotes, because the address and the key are variables of the reader's shell.
        line = f'curl -sN "{base}{self.path}"'
        if authorized:
            line += ' -H "Authorization: Bearer $KEY"'
        if self.method == "GET":
            return line
        line += " -H 'content-type: application/json'"
        body = self.content() if not self.fill else unpack(self.body)
        if self.fill:
            before, _, after = body.partition(FILL)
            parts = f"printf %s {shlex.quote(before.decode())}; head -c {self.fill} /dev/zero | tr '\\0' a"
            return f"({parts}; printf %s {shlex.quote(after.decode())}) | {line} --data-binary @-"
        if self.body.startswith(ENCODED):
            coded = self.body.removeprefix(ENCODED)
            return f"echo {coded} | base64 -d | {line} --data-binary @-"
        line += f" -d {shlex.quote(body.decode())}"
        # A client that leaves: in a stream each event has a line and a blank one.
        return f"{line} | head -n {2 * self.leave_after}" if self.leave_after else line


def curl_line(requests: Sequence[HTTPRequest], base: str, *, authorized: bool) -> str:
    """Return a line for a shell that sends requests as they were sent: several at the same time."""
    if len(requests) == 1:
        return requests[0].curl(base, authorized=authorized)
    parts = []
    for request in requests:
        line = request.curl(base, authorized=authorized)
        wait = f"sleep {request.after_ms / 1000:g}; " if request.after_ms else ""
        # Each answer is written at once when it ended, or the shell would mix them.
        parts.append(f"({wait}printf '%s\\n' \"$({line})\") &")
    return " ".join([*parts, "wait"])


def post(label: str, path: str, fields: Mapping[str, Any], **more: Any) -> HTTPRequest:
    """Return a request with a JSON body."""
    body = json.dumps(fields, ensure_ascii=False)
    return HTTPRequest(label=label, path=path, body=body, **more)


class Chunk(Model):
    """Bytes of an answer's body that arrived together.

    Attributes:
        ms: milliseconds since the request was begun.
        data: packed.
    """

    ms: Annotated[int, Field(ge=0)]
    data: str


class HTTPExchange(Model):
    """One request and what came back.

    Attributes:
        status: None where no answer began.
        headers: those that say what the body is, in lower case.
        detail: what the client's library says of an end that is not complete.
        ms: milliseconds from the request to the end.
        busy: processor seconds a second that the server used between the first chunk and the end;
            None where it was not measured.
        after: likewise in a window after we left.
        struck: what was done to the engine meanwhile.
    """

    request: HTTPRequest
    status: Annotated[int, Field(ge=100, le=999)] | None
    headers: dict[str, str]
    chunks: list[Chunk]
    ended: Ended
    detail: str = ""
    ms: Annotated[int, Field(ge=0)]
    busy: float | None = None
    after: float | None = None
    struck: StrikeFacts | None = None

    def body(self) -> bytes:
        """Return the body of the answer, as it came."""
        return b"".join(unpack(chunk.data) for chunk in self.chunks)


def write_lines(exchanges: Sequence[HTTPExchange]) -> bytes:
    """Return exchanges as the lines of a file of evidence."""
    return b"".join(exchange.model_dump_json().encode() + b"\n" for exchange in exchanges)


def read_lines(data: bytes) -> list[HTTPExchange]:
    """Read what `write_lines` wrote.

    Raises:
        ValueError: it did not write this.
    """
    exchanges = [HTTPExchange.model_validate(strict_json(line)) for line in data.splitlines()]
    if write_lines(exchanges) != data:
        raise ValueError("the recorded exchanges are not in canonical form")
    for exchange in exchanges:
        exchange.body()
    return exchanges
