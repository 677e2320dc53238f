from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from harness.conformance import client as client_module
from harness.conformance.answer import read
from harness.conformance.client import Client
from harness.conformance.exchange import COMPLETIONS, post
from harness.conformance.rows import ROWS
from harness.conformance.rows.row import drive
from tests.conformance.asking import ask, known_to, odd_server

KEY = "sk-Zq7~tOpSeCrEt+v9/0xY"
TIMEOUT = 1.0


def endless(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    while True:
        handler.wfile.write(b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n' * 1000)


def long_header(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        handler.wfile.write(b"a" * 2**16)


def dripping(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        handler.wfile.write(b"x: a\r\n")
        handler.wfile.flush()
        time.sleep(0.05)


def for_ever(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    while True:
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.01)


def silent(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.connection.recv(1)


def bomb(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    body = gzip.compress(b" " * 2**24)
    head = (
        f"content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}"
    )
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + head.encode() + b"\r\n\r\n" + body)


def page(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    body = b"<html>it works</html>"
    head = f"content-type: text/html\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + head + body)


def not_text(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\n"
    handler.wfile.write(head + b"\xff\xfe\xfd\xfc")


def not_http(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"220 mail.example.org ESMTP\r\n\r\n")


def cut(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"id')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "word", "ended"),
    [
        (endless, "VIOLATES", "too large"),
        (long_header, "CANNOT TELL", "too large"),
        (dripping, "CANNOT TELL", "timed out"),
        (for_ever, "CANNOT TELL", "timed out"),
        (silent, "CANNOT TELL", "timed out"),
        (bomb, "VIOLATES", "complete"),
        (page, "VIOLATES", "complete"),
        (not_text, "VIOLATES", "complete"),
        (not_http, "CANNOT TELL", "not HTTP"),
        (cut, "VIOLATES", "cut short"),
    ],
)
def test_a_hostile_server_ends_in_a_word_within_bounds(
    answer: Callable[[BaseHTTPRequestHandler, bytes], None], word: str, ended: str
) -> None:
    """Endless, slow, huge and broken answers end in time, and little of them is kept."""
    with odd_server(answer) as base:
        begun = time.monotonic()
        exchange = Client(base, timeout=TIMEOUT).send(post("plain", COMPLETIONS, {"model": "m"}))
        assert exchange.ended == ended, exchange.detail
        assert len(exchange.body()) <= client_module.MOST_BYTES
        assert ask("completion", base, timeout=TIMEOUT).word == word
        assert time.monotonic() - begun < 10 * TIMEOUT


def test_a_redirect_is_not_followed() -> None:
    """Where a server sends us elsewhere, nothing is asked there, and the key stays here."""
    asked: list[str] = []

    def elsewhere(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        asked.append(handler.path)
        handler.wfile.write(b"HTTP/1.1 307 Go\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n")

    with odd_server(elsewhere) as base:
        assert ask("completion", base).word == "CANNOT TELL"
    assert asked == [COMPLETIONS]


def test_no_variable_of_the_environment_leads_a_request_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HTTP_PROXY is not asked."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with odd_server(page) as base:
        assert Client(base).send(post("plain", COMPLETIONS, {})).status == 200


ECHOES: dict[str, Callable[[str], list[str]]] = {
    "as it is": lambda key: [f'"{key}"'],
    "in capitals": lambda key: [key.upper()],
    "in base64": lambda key: [base64.b64encode(key.encode()).decode()],
    "in base64 with the word before it": lambda key: [
        base64.b64encode(f"Bearer {key}".encode()).decode()
    ],
    "in base64 with a name before it": lambda key: [
        base64.urlsafe_b64encode(f"me:{key}".encode()).decode()
    ],
    "as PHP writes JSON": lambda key: [key.replace("/", "\\/")],
    "in escapes of JSON": lambda key: ["".join(f"\\u{ord(one):04x}" for one in key)],
    "in hexadecimal": lambda key: [key.encode().hex()],
    "in an address": lambda key: ["".join(f"%{ord(one):02X}" for one in key)],
    "over two chunks": lambda key: [key[:7], key[7:]],
    "in base64 over two chunks": lambda key: [
        base64.b64encode(f"Bearer {key}".encode()).decode()[:20],
        base64.b64encode(f"Bearer {key}".encode()).decode()[20:],
    ],
}


@pytest.mark.parametrize("how", ECHOES)
def test_a_key_that_a_server_echoes_is_in_no_evidence(how: str) -> None:
    """It is masked, also where it is cut in two, and in headers."""
    sent: list[str] = []

    def echo(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        key = handler.headers["authorization"].removeprefix("Bearer ")
        sent.extend(ECHOES[how](key))
        handler.wfile.write(f"HTTP/1.1 401 No\r\nlocation: /{''.join(sent)}\r\n\r\n".encode())
        for part in sent:
            handler.wfile.write(part.encode())
            handler.wfile.flush()
            time.sleep(0.05)

    with odd_server(echo) as base:
        exchange = Client(base, key=KEY).send(post("plain", COMPLETIONS, {}))
    whole = "".join(sent)
    assert exchange.status == 401
    assert exchange.ended == "complete"
    assert len(exchange.body()) == len(whole)
    for kept in (exchange.body().decode(), exchange.headers["location"]):
        assert "*****" in kept
        # A base64 that begins before the key keeps what is before it, and no more.
        assert not [place for place in range(len(whole) - 11) if whole[place : place + 11] in kept]


SPELLED: dict[str, Callable[[str], list[dict[str, object]]]] = {
    "as text, a letter an event": lambda key: [{"text": letter} for letter in key],
    "as text, in base64": lambda key: [
        {"text": letter} for letter in base64.b64encode(f"Bearer {key}".encode()).decode()
    ],
    "in a field that nobody reads": lambda key: [{"text": "", "note": letter} for letter in key],
    "in a list": lambda key: [{"text": "", "notes": [key[:9], key[9:]]}],
}


@pytest.mark.parametrize("how", SPELLED)
def test_an_answer_that_spells_the_key_letter_by_letter_is_not_kept(how: str) -> None:
    """No bytes of the answer hold the key, but whoever joins the texts of a field would."""

    def spell(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for fields in SPELLED[how](KEY):
            choice = {"index": 0, "finish_reason": None, **fields}
            handler.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())

    with odd_server(spell) as base:
        client = Client(base, key=KEY)
        exchange = client.send(post("plain", COMPLETIONS, {"stream": True}))
        found = drive(ROWS["completion"], known_to("completion"), client.together)
    assert (exchange.ended, exchange.chunks) == ("withheld", [])
    assert read(exchange).error
    assert (found.word, found.about) == ("CANNOT TELL", "withheld")


def test_nobody_listening_is_told() -> None:
    """A port that nobody listens on is refused, and no exception leaves the client."""
    exchange = Client("http://127.0.0.1:9").send(post("plain", COMPLETIONS, {}))
    assert (exchange.ended, exchange.status) == ("refused", None)
