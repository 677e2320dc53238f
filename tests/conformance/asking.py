"""What the tests of conformance share: a row asked at an address, and a server that does one odd
thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from harness.conformance.client import Client
from harness.conformance.correct import MODEL, chat_prompt, serving
from harness.conformance.exchange import HTTPExchange, HTTPRequest
from harness.conformance.rows import ROWS
from harness.conformance.rows.row import RowFinding, Setting, drive, texts

TIMEOUT = 10.0


def known_to(name: str, seed: int = 1) -> Setting:
    """What a row knows of the correct server."""
    plain = Setting(model=MODEL, seed=seed, samples=True, tokens=None)
    prompts = texts(plain, 2)
    known = {
        "tokens": {text: [len(text)] for text in prompts},
        "chats": {text: [len(chat_prompt(text))] for text in prompts},
    }
    return plain.model_copy(update=known) if ROWS[name].needs else plain


def ask(
    name: str,
    base: str,
    *,
    seed: int = 1,
    timeout: float = TIMEOUT,
    kept: list[HTTPExchange] | None = None,
) -> RowFinding:
    """Ask one row once."""
    client = Client(base, timeout=timeout)

    def send(requests: list[HTTPRequest]) -> list[HTTPExchange]:
        exchanges = client.together(requests)
        if kept is not None:
            kept.extend(exchanges)
        return exchanges

    return drive(ROWS[name], known_to(name, seed), send)


@contextmanager
def odd_server(answer: Callable[[BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    """Serve whatever a function writes to the handler it is given, with the body of the request."""

    class OddHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.close_connection = True
            answer(self, b"")

        def do_POST(self) -> None:
            self.close_connection = True
            answer(self, self.rfile.read(int(self.headers["content-length"])))

    with serving(OddHandler) as base:
        yield base
