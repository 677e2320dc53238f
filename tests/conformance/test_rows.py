from __future__ import annotations

import itertools
import json
import re
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from harness.conformance import proxy
from harness.conformance.client import Client
from harness.conformance.correct import MODEL, serving
from harness.conformance.defects import has_text, in_whole, removes
from harness.conformance.exchange import HTTPExchange, HTTPRequest
from harness.conformance.proxy import ProxyDefect, proxied
from harness.conformance.rows import ROWS
from harness.conformance.rows.parameters import stop_of
from harness.conformance.rows.row import drive, texts
from tests.conformance.asking import ask, known_to, odd_server
from tests.conformance.unlisted import UNLISTED, louder, no_usage

SLOW = ("health", "lengths", "long-beside-short", "parameters-together")
"""Rows that wait for a long answer, or whose proxy waits for other clients."""
HERE = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
    for name, row in ROWS.items()
    if row.needs != "process"
]


@pytest.fixture(scope="module")
def correct() -> Iterator[str]:
    with serving() as base:
        yield base


@pytest.mark.parametrize("name", HERE)
def test_a_row_conforms_on_the_correct_server_and_behind_a_proxy_that_changes_nothing(
    name: str, correct: str
) -> None:
    """A server that keeps every promise is accused of nothing, with our proxy or without, in as
    many requests as the row states.
    """
    assert ask(name, correct).word == "CONFORMS"
    kept: list[HTTPExchange] = []
    with proxied(correct) as through:
        assert ask(name, through, kept=kept).word == "CONFORMS"
    assert len(kept) == ROWS[name].requests


@pytest.mark.parametrize("name", HERE)
def test_a_row_sees_the_defect_of_its_control(name: str, correct: str) -> None:
    """Behind the proxy with its defect every row violates, for the difference that it states, in
    no more requests than where it conforms.
    """
    row = ROWS[name]
    for _ in range(3):
        kept: list[HTTPExchange] = []
        with proxied(correct, row.defect) as broken:
            found = ask(name, broken, kept=kept)
        assert (found.word, found.about) == ("VIOLATES", row.about), found.fact
        assert len(kept) <= row.requests


@pytest.mark.parametrize("name", HERE)
def test_a_row_judges_kept_exchanges_as_it_judged_the_server(name: str, correct: str) -> None:
    """Over the exchanges that were kept a row asks the same and finds the same."""
    kept: list[HTTPExchange] = []
    found = ask(name, correct, kept=kept)
    assert len(kept) == ROWS[name].requests
    left = iter(kept)

    def send(requests: list[Any]) -> list[HTTPExchange]:
        exchanges = [next(left) for _ in requests]
        assert [exchange.request for exchange in exchanges] == requests
        return exchanges

    assert drive(ROWS[name], known_to(name), send) == found


def test_the_page_lists_every_row_with_its_requests() -> None:
    """In the same order, and with the count that a repetition sends."""
    page = (Path(__file__).parents[2] / "docs/conformance.md").read_text()
    listed = re.findall(r"^\| `([\w-]+)`(?: \*)? \| .* \| (\d+) \|$", page, re.MULTILINE)
    assert listed == [(row.name, str(row.requests)) for row in ROWS.values()]


@pytest.mark.long
@pytest.mark.parametrize("what", UNLISTED)
def test_a_defect_that_no_row_names_is_seen(
    what: str, correct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defects that no control states are seen all the same, on three prompts of three where the
    prompt matters.
    """
    # On a busy machine the threads of clients begin later than this defect waits for them.
    monkeypatch.setattr(proxy, "CROWD_WITHIN", 0.5)
    defect, name = UNLISTED[what]
    # Each request alone waits for others first, or each stream for its end: the row is slow.
    is_slow = defect.crowded is not None or defect.holds_open
    for seed in (1,) if is_slow else (1, 2, 3):
        with proxied(correct, defect) as broken:
            found = ask(name, broken, seed=seed)
        assert found.word == "VIOLATES", found.fact


def _in_another_style(events: Iterator[bytes]) -> Iterator[bytes]:
    for event in events:
        yield b": ping\nevent: message\n" + event.replace(b"data: ", b"data:", 1)


@pytest.mark.parametrize("name", ["stream-is-whole", "chat", "logprobs", "stream-schema"])
def test_another_style_of_events_is_right_and_its_control_works(name: str, correct: str) -> None:
    """Comments, other fields and a missing blank are allowed, and the row's defect is still seen."""
    row = ROWS[name]
    with proxied(correct, ProxyDefect(does="", stream=_in_another_style)) as base:
        assert ask(name, base).word == "CONFORMS"
        with proxied(base) as through:
            assert ask(name, through).word == "CONFORMS"
        with proxied(base, row.defect) as broken:
            found = ask(name, broken)
    assert (found.word, found.about) == ("VIOLATES", row.about), found.fact


def _plain(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _text(text: str) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": "length"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    whole = {"id": "1", "object": "text_completion", "created": 1, "model": MODEL}
    return json.dumps(whole | {"choices": [choice], "usage": usage}).encode()


def test_a_parameter_that_is_refused_clearly_is_no_violation() -> None:
    """A server that answers `n` with 400 REFUSES, and one that answers 500 VIOLATES."""
    for status, word in (
        (400, "REFUSES"),
        (501, "REFUSES"),
        (500, "VIOLATES"),
        (503, "CANNOT TELL"),
    ):

        def answer(handler: BaseHTTPRequestHandler, body: bytes, status: int = status) -> None:
            has_n = b'"n": 2' in body
            _plain(
                handler,
                status if has_n else 200,
                b'{"error": {"message": "no"}}' if has_n else _text("a"),
            )

        with odd_server(answer) as base:
            assert ask("n", base).word == word


@pytest.mark.parametrize("name", ["n", "chat-n"])
def test_a_server_that_refuses_two_choices_at_temperature_0_alone_conforms(
    name: str, correct: str
) -> None:
    """As vLLM does: two greedy choices would be the same."""

    def refused_when_greedy(fields: dict[str, Any]) -> dict[str, Any]:
        is_refused = fields.get("n", 1) > 1 and fields["temperature"] == 0
        return fields | {"n": 0} if is_refused else fields

    with proxied(correct, ProxyDefect(does="", ask=refused_when_greedy)) as base:
        assert ask(name, base).word == "CONFORMS"


def test_a_long_answer_that_comes_at_its_end_tells_that_nobody_waited_for_it() -> None:
    """A server may hold a stream back. Whoever was answered long before did not wait for it."""

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.command == "GET" or b'"stream"' not in body:
            _plain(handler, 200, _text("a"))
            return
        time.sleep(0.6)
        value = json.loads(_text("a"))
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(f"data: {json.dumps(value)}\n\ndata: [DONE]\n\n".encode())

    with odd_server(answer) as base:
        assert ask("health", base).word == "CONFORMS"


def test_a_server_that_does_not_repeat_itself_is_not_accused_of_more_than_that() -> None:
    """Where texts change from request to request, rows that compare texts cannot tell."""
    count = itertools.count()

    def answer(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        _plain(handler, 200, _text(f"answer {next(count)}"))

    with odd_server(answer) as base:
        assert ask("greedy-repeat", base).about == "repeat"
        for name in ("stop-string", "no-cross-talk"):
            assert ask(name, base).word == "CANNOT TELL"


@pytest.mark.parametrize("name", HERE)
def test_no_row_accuses_a_server_that_nobody_can_reach(name: str) -> None:
    """Without a server every row cannot tell."""
    assert ask(name, "http://127.0.0.1:9", timeout=2).word == "CANNOT TELL"


def test_a_stop_string_is_cut_from_the_middle_without_a_space_first() -> None:
    """It is part of the text, not at its beginning, prints, and begins with no space."""
    assert stop_of("abcdefgh") == "ef"
    assert stop_of("ab  \ufffd  cd") == "cd"
    assert stop_of("aaaa") is None
    assert stop_of("") is None


@pytest.mark.parametrize("name", ["prefix-cache", "lengths", "long-beside-short"])
def test_one_text_that_differs_accuses_nobody_without_log_probabilities(
    name: str, correct: str
) -> None:
    """A close decision may fall otherwise in another batch: one text of several is no proof."""
    count = itertools.count()
    later = {"prefix-cache": 16, "lengths": 93, "long-beside-short": 24}[name]

    def change(body: bytes) -> bytes:
        return in_whole(louder)(body) if next(count) == later else body

    defect = ProxyDefect(does="", ask=removes("logprobs"), whole=change)
    with proxied(correct, defect) as once:
        found = ask(name, once)
    assert (found.word, found.about) == ("CANNOT TELL", "close"), found.fact


def test_a_server_that_takes_no_long_prompt_is_asked_short_ones(correct: str) -> None:
    """What it refuses is left out, and the fact names the borders that were reached."""

    def short_only(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"max_tokens": -1} if len(fields.get("prompt", "")) > 300 else fields

    with proxied(correct, ProxyDefect(does="", ask=short_only)) as base:
        found = ask("lengths", base)
    assert found.word == "CONFORMS"
    assert "and around 256 tokens" in found.fact
    with proxied(correct, ProxyDefect(does="", whole=in_whole(no_usage))) as base:
        found = ask("lengths", base)
    assert (found.word, found.fact[:11]) == ("CONFORMS", "16 lengths:")


def test_a_server_that_trims_its_texts_is_not_accused(correct: str) -> None:
    """Servers may leave out the space before a stop string, or at the end of every answer."""

    def trim(value: Any) -> None:
        choice = value["choices"][0]
        inner, name = (choice["message"], "content") if "message" in choice else (choice, "text")
        inner[name] = inner[name].rstrip()

    with proxied(correct, ProxyDefect(does="", whole=in_whole(trim))) as trimming:
        for seed in (1, 2, 3):
            for name in ("stop-string", "chat-stop"):
                assert ask(name, trimming, seed=seed).word == "CONFORMS"


def test_the_control_sees_who_leaves_a_short_answer(correct: str) -> None:
    """The answer may be written to its end before the client that leaves it is gone."""

    def short(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"max_tokens": 4} if fields.get("stream") else fields

    with proxied(correct, ProxyDefect(does="", ask=short)) as base:
        for _ in range(5):
            with proxied(base, ROWS["disconnect"].defect) as broken:
                assert ask("disconnect", broken).about == "dead"


def test_the_control_of_health_does_not_depend_on_how_fast_a_client_reads(correct: str) -> None:
    """Nobody else is answered before the client of the long answer has read it and left."""
    body = json.dumps({"model": MODEL, "prompt": "a", "max_tokens": 4}).encode()
    with proxied(correct, ROWS["health"].defect) as base:
        address = base.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1]))) as slow:
            head = f"POST /v1/completions HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n"
            slow.sendall(head.encode() + body)
            assert slow.recv(1, socket.MSG_PEEK)
            models = HTTPRequest(label="models", method="GET", path="/v1/models")
            assert Client(base, timeout=0.3).send(models).ended == "timed out"
        assert Client(base, timeout=5).send(models).status == 200


def test_streams_of_a_chat_that_lose_more_and_less_violate(correct: str) -> None:
    """A server may send more than a token in an event, so a lost event is not always as long."""
    dropped = itertools.count(1)

    def drops(events: Iterator[bytes]) -> Iterator[bytes]:
        listed = list(events)
        texts = [place for place, event in enumerate(listed) if has_text(event)]
        lost = set(texts[-next(dropped) :])
        yield from (event for place, event in enumerate(listed) if place not in lost)

    with proxied(correct, ProxyDefect(does="", stream=drops)) as losing:
        found = ask("chat", losing)
    assert (found.word, found.about) == ("VIOLATES", "text")


def test_cancel_leaves_an_answer_that_lasts(correct: str) -> None:
    """Where an answer ends by itself, that of another prompt is left."""
    short = known_to("cancel")
    first = texts(short)[0]
    kept: list[HTTPRequest] = []

    def ends_early(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"stop": [" ", "e", "a"]} if fields["prompt"] == first else fields

    with proxied(correct, ProxyDefect(does="", ask=ends_early)) as base:
        client = Client(base, timeout=20)

        def send(requests: list[HTTPRequest]) -> list[HTTPExchange]:
            kept.extend(requests)
            return client.together(requests)

        drive(ROWS["cancel"], short, send)
    assert [request.label for request in kept] == ["before", "leaves", "leaves"]
    assert kept[-1].fields()["prompt"] != kept[-2].fields()["prompt"] == first


def test_json_that_did_not_end_in_time_accuses_nobody(correct: str) -> None:
    """A grammar may allow endless space: an answer cut at its length is not one without JSON."""

    def cut(value: Any) -> None:
        for choice in value["choices"]:
            text = choice.get("message", {}).get("content") or ""
            if text.startswith("{"):
                choice["message"]["content"] = text[:5]
                choice["finish_reason"] = "length"

    with proxied(correct, ProxyDefect(does="", whole=in_whole(cut))) as slow:
        for name in ("json-object", "json-schema"):
            found = ask(name, slow)
            assert (found.word, found.about) == ("CANNOT TELL", "unended")


def test_a_call_that_did_not_end_in_time_accuses_nobody(correct: str) -> None:
    """A server that cannot read a call that was cut gives its text as the content."""

    def cut(value: Any) -> None:
        for choice in value["choices"]:
            if choice.get("message", {}).pop("tool_calls", None):
                choice["message"]["content"] = '<tool_call>{"name": "paint", "argu'
                choice["finish_reason"] = "length"

    with proxied(correct, ProxyDefect(does="", whole=in_whole(cut))) as slow:
        found = ask("tools", slow)
    assert (found.word, found.about) == ("CANNOT TELL", "unended")


def test_arguments_are_judged_where_the_client_asked_for_strict_ones(correct: str) -> None:
    """Without `strict` a server may fill in any arguments, and vLLM does."""

    def any_answer_without_strict(fields: dict[str, Any]) -> dict[str, Any]:
        tools = fields.get("tools") or ()
        is_strict = all(tool["function"].get("strict") is True for tool in tools)
        return fields if is_strict else removes("tools", "tool_choice")(fields)

    with proxied(correct, ProxyDefect(does="", ask=any_answer_without_strict)) as base:
        assert ask("tools", base).word == "CONFORMS"


def test_a_server_without_chats_refuses_what_is_asked_in_chats() -> None:
    """Where chats are refused, rows about chats say so, and temperature is asked elsewhere."""

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if b'"messages"' in body:
            _plain(handler, 404, b'{"error": {"message": "no chats"}}')
        else:
            _plain(handler, 200, _text("a"))

    with odd_server(answer) as base:
        for name in ("chat-stop", "chat-n", "chat-seed", "chat-max-tokens", "tools", "json-object"):
            assert ask(name, base).word == "REFUSES"


def test_a_refusal_that_ends_the_server_is_a_violation() -> None:
    """A list of prompts may be refused, but whoever asks next has to be answered."""
    dead = False

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        nonlocal dead
        dead = dead or b'"prompt": [' in body
        if dead:
            _plain(handler, 404, b'{"error": "generation thread died"}')
        else:
            _plain(handler, 200, _text("a"))

    with odd_server(answer) as base:
        found = ask("batched-prompts", base)
    assert (found.word, found.about) == ("VIOLATES", "dead")


@pytest.mark.parametrize("name", ["max-tokens", "chat-max-tokens"])
def test_a_text_that_ends_at_its_limit_may_say_so(name: str, correct: str) -> None:
    """A finish reason `stop` is true where a longer answer has no more text."""

    def ends(value: Any) -> None:
        for choice in value["choices"]:
            inner, field = (
                (choice["message"], "content") if "message" in choice else (choice, "text")
            )
            if len(inner[field]) >= 3:
                inner[field] = inner[field][:3]
                choice["finish_reason"] = "stop"

    def at_five(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"max_tokens": min(fields["max_tokens"], 5)}

    defect = ProxyDefect(does="", ask=at_five, whole=in_whole(ends))
    with proxied(correct, defect) as base:
        assert ask(name, base).word == "CONFORMS"
