"""What the tests of the subject `openai-client` share: a context that only collects, and a server
that gives one answer.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from harness.events import is_name
from harness.rank.emit import LINE_LIMIT
from harness.subjects.openai_client_inside import ask as client
from harness.subjects.openai_client_inside.exchange import Wanted
from tests.conformance.asking import odd_server

VARIABLE = "RANKPROOF_SERVICE_ENGINE"


class StubContext:
    """Keeps what a rank emits and keeps, within the limits of a rank's events."""

    def __init__(self, seed: int = 7) -> None:
        self.seed = seed
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[str, bytes] = {}
        self.size = 0

    def emit(self, name: str, **values: Any) -> None:
        line = json.dumps(values, allow_nan=False)
        assert is_name(name)
        assert len(line) < LINE_LIMIT
        self.size += len(line) + len(name) + 60
        self.events.append((name, values))

    def keep(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def named(self, name: str) -> list[dict[str, Any]]:
        return [values for event, values in self.events if event == name]

    @property
    def done(self) -> dict[str, Any]:
        (values,) = self.named("requests.done")
        return values


def asked(base: str, *, seed: int = 7, **arguments: Any) -> StubContext:
    """What the subject reports of a server at this address."""
    context = StubContext(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, base)
        client.run(context, **arguments)
    return context


def answering(body: bytes, *, kind: str = "application/json", more: str = "") -> Any:
    """A server that gives this answer to everything."""

    def answer(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{more}content-length: {len(body)}"
        handler.wfile.write(head.encode() + b"\r\n\r\n" + body)

    return odd_server(answer)


def wanted(base: str = "", api: str = "completions") -> Wanted:
    """What is asked, of a single exchange or of reading alone."""
    return Wanted(
        base=base,
        model=None,
        api=api,
        max_tokens=1,
        temperature=0.0,
        sampling_seed=0,
        logprobs=1,
        stop="none",
        timeout=1,
        cancel_after=1,
        pause=0.0,
        drops_last=False,
    )
