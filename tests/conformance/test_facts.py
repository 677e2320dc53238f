"""What a row says that it found is what the exchanges hold: counts, lengths, and what was not told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from harness.conformance.answer import events
from harness.conformance.correct import serving
from harness.conformance.defects import in_events, in_whole
from harness.conformance.exchange import HTTPExchange
from harness.conformance.proxy import ProxyDefect, proxied
from harness.conformance.rows import ROWS
from tests.conformance.asking import ask, odd_server


@pytest.fixture(scope="module")
def correct() -> Iterator[str]:
    with serving() as base:
        yield base


def no_usage(value: Any) -> None:
    value.pop("usage", None)


def found_of(name: str, base: str, **defect: Any) -> tuple[str, str]:
    """What a row says of a server behind a proxy."""
    with proxied(base, ProxyDefect(does="", **defect)) as address:
        finding = ask(name, address)
    return finding.word, finding.fact


def at_once(stream: Iterator[bytes]) -> Iterator[bytes]:
    yield b"\n\n".join(stream)


def test_events_of_a_stream_are_counted_however_they_arrive(correct: str) -> None:
    """A stream that comes in one read has as many events as one that comes piece by piece."""
    facts: list[str] = []
    counts: list[int] = []
    for stream in (lambda events: events, at_once):
        kept: list[HTTPExchange] = []
        with proxied(correct, ProxyDefect(does="", stream=stream)) as base:
            facts.append(ask("stream-schema", base, kept=kept).fact)
        counts.append(len(events(kept[-1].body())[0]))
    assert facts == [f"{count - 1} events in OpenAI's schema, then [DONE]" for count in counts]
    assert counts[0] == counts[1] > 20


def test_lengths_are_counted_as_they_were_asked(correct: str) -> None:
    """Five limits are five lengths, and an answer that was asked twice is one."""
    kept: list[HTTPExchange] = []
    fact = ask("stream-is-whole", correct, kept=kept).fact
    limits = {exchange.request.fields()["max_tokens"] for exchange in kept}
    assert limits == {1, 13, 14, 15, 16}
    assert fact.startswith("limits of 1, 13, 14, 15 and 16 tokens; ")
    broad = {
        exchange.request.fields()["max_tokens"]
        for exchange in kept
        if not exchange.request.fields().get("stream")
        and json.loads(exchange.body())["choices"][0]["text"][-1] > "\x7f"
    }
    assert f"{len(broad)} of 5 texts" in fact


@pytest.mark.parametrize("name", ["max-tokens", "chat-max-tokens"])
def test_a_stream_without_usage_is_not_said_to_be_counted(name: str, correct: str) -> None:
    """Only its finish reason is known then."""
    word, fact = found_of(name, correct, stream=in_events(no_usage))
    assert word == "CONFORMS"
    assert "not counted, because the stream has no usage" in fact
    assert "not counted" not in ask(name, correct).fact


def test_usage_of_another_text_is_not_said_to_be_the_same(correct: str) -> None:
    """Where the stream has another text its usage may be another: both are stated."""

    def warmer(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"prompt": f"{fields['prompt']}!"} if fields.get("stream") else fields

    word, fact = found_of("usage", correct, ask=warmer)
    assert word == "CONFORMS"
    assert "the same when streamed" not in fact
    assert "not compared" in fact
    assert "the same when streamed" in ask("usage", correct).fact


def test_usage_of_a_stream_has_to_add_up(correct: str) -> None:
    """Also where its text differs from that of the whole answer, so that the two are not compared."""

    def warmer(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"prompt": f"{fields['prompt']}!"} if fields.get("stream") else fields

    def more(value: Any) -> None:
        if value.get("usage"):
            value["usage"]["total_tokens"] += 1

    word, fact = found_of("usage", correct, ask=warmer, stream=in_events(more))
    assert (word, fact[:23]) == ("VIOLATES", "usage does not add up: ")


def test_messages_that_nobody_counts_are_not_said_to_be_counted(correct: str) -> None:
    """A server without usage is judged by its texts alone, and the fact says so."""
    word, fact = found_of(
        "chat-messages", correct, whole=in_whole(no_usage), stream=in_events(no_usage)
    )
    assert word == "CONFORMS"
    assert fact.startswith("the server does not count prompt tokens; the text changed in ")
    assert "prompt tokens grew in 8 of 8 chats" in ask("chat-messages", correct).fact


def refusing(part: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Have the correct server refuse the requests that contain a text."""

    def change(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"max_tokens": -1} if part in json.dumps(fields) else fields

    return change


def test_a_chat_that_was_refused_is_not_said_to_have_come_before(correct: str) -> None:
    """`order` needs no chat, but it does not claim one either."""
    word, fact = found_of("order", correct, ask=refusing('"messages"'))
    assert word == "CONFORMS"
    assert fact.endswith("(not answered: a chat)")
    assert "not answered" not in ask("order", correct).fact


def test_a_call_that_was_not_cut_is_not_said_to_be(correct: str) -> None:
    """A server may refuse what it knows to be too short for a call."""
    assert ask("tools", correct).fact.endswith("tokens, whole and streamed")
    kept: list[HTTPExchange] = []
    ask("tools", correct, kept=kept)
    limit = kept[-1].request.fields()["max_tokens"]
    word, fact = found_of("tools", correct, ask=refusing(f'"max_tokens": {limit}'))
    assert word == "CONFORMS"
    assert fact.endswith("refused")


def test_chats_that_were_refused_are_not_said_to_be_of_one_text(correct: str) -> None:
    """The modes in which temperature 0 was seen are counted."""
    assert "temperature 0: one text in each of 4 modes" in ask("temperature", correct).fact
    word, fact = found_of("temperature", correct, ask=refusing('"messages"'))
    assert word == "CONFORMS"
    assert "temperature 0: one text in each of 2 modes" in fact


def test_a_stream_that_is_refused_at_temperature_0_has_no_text(correct: str) -> None:
    """Two refusals are not one text."""

    def cold(fields: dict[str, Any]) -> dict[str, Any]:
        is_cold = fields.get("stream") and fields["temperature"] == 0
        return fields | {"max_tokens": -1} if is_cold else fields

    assert found_of("temperature", correct, ask=cold)[0] == "REFUSES"


def test_others_that_were_turned_away_are_not_counted(correct: str) -> None:
    """`prefix-cache` says how many other prompts were answered before it asked again."""

    def busy(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"max_tokens": -1} if fields["max_tokens"] == 1 else fields

    word, fact = found_of("prefix-cache", correct, ask=busy)
    assert (word, fact[-27:]) == ("CONFORMS", "after 0 of 12 other prompts")
    assert ask("prefix-cache", correct).fact.endswith("after 12 other prompts")


def test_the_model_that_is_listed_is_named(correct: str) -> None:
    """A server may list the folder of a model that a request names by its last part."""

    def in_a_folder(value: Any) -> None:
        for model in value.get("data", ()):
            model["id"] = f"/models/{model['id']}"

    word, fact = found_of("models", correct, whole=in_whole(in_a_folder))
    assert (word, fact) == ("CONFORMS", "/models/rankproof-correct is listed (1 model)")


def test_a_client_that_could_not_leave_is_not_said_to_have_left(correct: str) -> None:
    """An answer that ended before anybody left it tells nothing of those who leave."""

    def brief(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"max_tokens": 8}

    def late(stream: Iterator[bytes]) -> Iterator[bytes]:
        time.sleep(0.3)
        yield from at_once(stream)

    word, fact = found_of("disconnect", correct, ask=brief, stream=late)
    assert word == "CANNOT TELL"
    assert "before its client could leave" in fact


def test_a_server_with_a_short_context_is_left_in_a_shorter_answer(correct: str) -> None:
    """vLLM refuses more tokens than its context has."""

    def short(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"max_tokens": -1} if fields["max_tokens"] > 500 else fields

    word, fact = found_of("disconnect", correct, ask=short)
    assert (word, fact[:14]) == ("CONFORMS", "2 clients left")
    word, fact = found_of("disconnect", correct, ask=refusing('"stream"'))
    assert (word, fact[:9]) == ("REFUSES", "request '")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["health", "disconnect"])
def test_an_answer_that_takes_no_time_is_not_asked_about(name: str) -> None:
    """Nobody can wait for it or leave it, so the row is NOT ASKED, with the reason."""
    asked: list[int] = []

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        fields = json.loads(body or b"{}")
        asked.append(fields.get("max_tokens", 0))
        text = "a" * fields.get("max_tokens", 0)
        choice = {"index": 0, "text": text, "finish_reason": "length"}
        value = {"id": "1", "object": "text_completion", "created": 1, "model": "m"}
        data = json.dumps(value | {"choices": [choice]})
        kind = "application/json"
        if fields.get("stream"):
            data = f"data: {data}\n\ndata: [DONE]\n\n"
            kind = "text/event-stream"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"
        handler.wfile.write((head + data).encode())

    with odd_server(answer) as base:
        finding = ask(name, base)
    assert finding.word == "NOT ASKED", finding.fact
    assert "ms" in finding.fact
    assert max(asked) >= 2000


@pytest.mark.slow
def test_who_waits_for_an_answer_that_comes_at_its_end_is_seen(correct: str) -> None:
    """A server that computes all of an answer before it sends the first event blocks others too."""

    def held_back(stream: Iterator[bytes]) -> Iterator[bytes]:
        yield from list(stream)

    with proxied(correct, ProxyDefect(does="", stream=held_back)) as base:
        assert ask("health", base).word == "CONFORMS"
        with proxied(base, ROWS["health"].defect) as broken:
            found = ask("health", broken)
    assert (found.word, found.about) == ("VIOLATES", "blocked"), found.fact


@pytest.mark.slow
def test_a_fast_server_is_asked_for_an_answer_that_takes_time(correct: str) -> None:
    """`health` makes the answer longer until somebody could wait for it."""

    def quick(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"max_tokens": 8} if fields.get("max_tokens") == 250 else fields

    word, fact = found_of("health", correct, ask=quick)
    assert word == "CONFORMS", fact
    assert "1500 tokens" in fact
    assert ask("health", correct).word == "CONFORMS"
