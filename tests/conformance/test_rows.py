from __future__ import annotations

import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from harness.conformance import proxy
from harness.conformance.client import Client
from harness.conformance.correct import MODEL, serving
from harness.conformance.defects import has_text, in_chats, in_events, in_whole, removes
from harness.conformance.exchange import HTTPExchange, HTTPRequest
from harness.conformance.proxy import ProxyDefect, proxied
from harness.conformance.rows import ROWS
from harness.conformance.rows.parameters import stop_of
from harness.conformance.rows.row import drive, texts
from tests.conformance.asking import ask, known_to, odd_server

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
    """A server that keeps every promise is accused of nothing, with our proxy or without."""
    assert ask(name, correct).word == "CONFORMS"
    with proxied(correct) as through:
        assert ask(name, through).word == "CONFORMS"


@pytest.mark.parametrize("name", HERE)
def test_a_row_sees_the_defect_of_its_control(name: str, correct: str) -> None:
    """Behind the proxy with its defect every row violates, for the difference that it states."""
    row = ROWS[name]
    for _ in range(3):
        with proxied(correct, row.defect) as broken:
            found = ask(name, broken)
        assert (found.word, found.about) == ("VIOLATES", row.about), found.fact


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


def _twice(events: Iterator[bytes]) -> Iterator[bytes]:
    told = False
    for event in events:
        yield event
        if has_text(event) and not told:
            told = True
            yield event


def _ascii_only(value: Any) -> None:
    for choice in value["choices"]:
        choice["text"] = choice["text"].encode("ascii", "ignore").decode()


def _always_stop(value: Any) -> None:
    value["choices"][0]["finish_reason"] = "stop"


def _no_usage(value: Any) -> None:
    value.pop("usage", None)


def _one_logprob_less(value: Any) -> None:
    stated = value["choices"][0]["logprobs"]
    for name in stated or ():
        stated[name] = stated[name][1:]


def _all_first(value: Any) -> None:
    for choice in value["choices"]:
        choice["index"] = 0


def _renamed(value: Any) -> None:
    for model in value.get("data", ()):
        model["id"] = "another"


def _upper(value: Any) -> None:
    for choice in value["choices"]:
        if (choice.get("delta") or {}).get("content"):
            choice["delta"]["content"] = choice["delta"]["content"].upper()


def _no_finish(value: Any) -> None:
    for choice in value["choices"]:
        choice["finish_reason"] = None


def _when_streamed(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    without = removes(*names)
    return lambda fields: without(fields) if fields.get("stream") else fields


def _sometimes(every: int, change: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    count = itertools.count(1)
    changed = in_whole(change)
    return lambda body: body if next(count) % every else changed(body)


def _louder(value: Any) -> None:
    value["choices"][0]["text"] += "!"


def _in_streamed_chats(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return in_chats(_when_streamed(*names))


def _cold(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"temperature": 0}


def _parsed_arguments(value: Any) -> None:
    for choice in value["choices"]:
        for call in (choice.get("message") or {}).get("tool_calls") or ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])


def _reversed(value: Any) -> None:
    choices = value["choices"]
    for choice in choices:
        choice["index"] = len(choices) - 1 - choice["index"]


def _no_tool_name(value: Any) -> None:
    for choice in value["choices"]:
        for call in (choice.get("delta") or {}).get("tool_calls") or ():
            call["function"].pop("name", None)


def _other_color(value: Any) -> None:
    for choice in value["choices"]:
        if (text := choice.get("message", {}).get("content")) is not None:
            choice["message"]["content"] = re.sub(r"red|green|blue", "pink", text)


def _other_object(value: Any) -> None:
    value["object"] = "chat.completion"


def _short_streams_are_empty(events: Iterator[bytes]) -> Iterator[bytes]:
    kept = list(events)
    if sum(map(has_text, kept)) > 1:
        yield from kept
        return
    for event in kept:
        yield next(in_events(_no_text)(iter([event]))) if has_text(event) else event


def _no_text(value: Any) -> None:
    for choice in value["choices"]:
        choice["text"] = ""


def _other_tops(value: Any) -> None:
    for choice in value["choices"]:
        stated = choice.get("logprobs") or {}
        for tops in stated.get("top_logprobs") or ():
            for name in list(tops)[1:]:
                tops[f"{name}?"] = tops.pop(name) - 0.5
        for token in stated.get("content") or ():
            token["top_logprobs"] = token["top_logprobs"][:1]


def _no_tops(value: Any) -> None:
    for choice in value["choices"]:
        if choice.get("logprobs"):
            choice["logprobs"]["top_logprobs"] = None
            for token in choice["logprobs"].get("content") or ():
                token["top_logprobs"] = []


def _seed_zero_is_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "seed" or value}


def _copied_choices(value: Any) -> None:
    for choice in value["choices"][1:]:
        choice |= {**value["choices"][0], "index": choice["index"]}


def _copied_streams(events: Iterator[bytes]) -> Iterator[bytes]:
    """Give the events of the first choice to the second too."""
    for event in events:
        value = json.loads(event.removeprefix(b"data: ")) if has_choices(event) else None
        if value is None or value["choices"][0]["index"] == 0:
            yield event
        if value is not None and value["choices"][0]["index"] == 0:
            value["choices"][0]["index"] = 1
            yield b"data: " + json.dumps(value).encode()


def has_choices(event: bytes) -> bool:
    return event.startswith(b"data: {") and bool(json.loads(event[6:])["choices"])


def _ended_calls(value: Any) -> None:
    """Give calls that were cut as calls that ended."""
    for choice in value["choices"]:
        inner = choice.get("message") or choice.get("delta") or {}
        if inner.get("tool_calls") and choice["finish_reason"] == "length":
            choice["finish_reason"] = "tool_calls"


def _mended_calls(value: Any) -> None:
    """Write the end of calls that were cut: the arguments are JSON then, and under the schema."""
    for choice in value["choices"]:
        for call in (choice.get("message") or {}).get("tool_calls") or ():
            if choice["finish_reason"] == "length":
                call["function"]["arguments"] = '{"color": "red", "bright": null}'
                choice["finish_reason"] = "stop"


def _late_shorts() -> ProxyDefect:
    """Spoil the text of whoever comes while a longer prompt is answered."""
    inside: list[int] = []
    spoiled: set[int] = set()
    ids = threading.local()

    def ask(fields: dict[str, Any]) -> dict[str, Any]:
        size = len(str(fields.get("prompt")))
        ids.spoil = bool(inside) and max(inside) > 2 * size
        inside.append(size)
        ids.size = size
        spoiled.add(size)
        # Whoever is answered at once is beside nobody.
        time.sleep(0.3 if size > 100 else 0)
        return fields

    def change(body: bytes) -> bytes:
        inside.remove(ids.size)
        return in_whole(_louder)(body) if ids.spoil else body

    return ProxyDefect(does="", ask=ask, whole=change)


def _forgets_beyond(size: int) -> Callable[[], ProxyDefect]:
    """Answer only the beginning of a long prompt, if that beginning was asked just before."""

    def fresh() -> ProxyDefect:
        last = ""

        def ask(fields: dict[str, Any]) -> dict[str, Any]:
            nonlocal last
            prompt = fields.get("prompt")
            if not isinstance(prompt, str):
                return fields
            is_cut = len(last) > size and prompt.startswith(last) and prompt != last
            known, last = last, prompt
            return fields | {"prompt": known} if is_cut else fields

        return ProxyDefect(does="", ask=ask)

    return fresh


def _last_300(fields: dict[str, Any]) -> dict[str, Any]:
    prompt = fields.get("prompt")
    return fields | {"prompt": prompt[-300:]} if isinstance(prompt, str) else fields


def _in_streamed_chats_last_message(fields: dict[str, Any]) -> dict[str, Any]:
    is_chat = fields.get("stream") and "messages" in fields
    return fields | {"messages": fields["messages"][-1:]} if is_chat else fields


def _without_system(fields: dict[str, Any]) -> dict[str, Any]:
    messages = [
        message | ({"content": ""} if message["role"] == "system" else {})
        for message in fields["messages"]
    ]
    return fields | {"messages": messages}


def _by_twos(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"seed": fields["seed"] // 2 * 2} if "seed" in fields else fields


def _no_role(value: Any) -> None:
    for choice in value["choices"]:
        choice.get("message", {}).pop("role", None)


def _swapped_streams() -> ProxyDefect:
    """Give the events of two streams that are there at the same time to each other."""
    swap = proxy.Swap()

    def change(events: Iterator[bytes]) -> Iterator[bytes]:
        swap.running += 1
        # Whoever is answered at once is beside nobody.
        time.sleep(0.3)
        body = b"\n\n".join(events)
        yield from swap(body, "").split(b"\n\n")
        swap.running -= 1

    return ProxyDefect(does="", stream=change)


def _fewer_when_seen() -> ProxyDefect:
    """Count a prompt as one token less, once it was asked."""
    seen: set[str] = set()
    is_seen = False

    def ask(fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal is_seen
        prompt = str(fields.get("prompt"))
        is_seen = prompt in seen
        seen.add(prompt)
        return fields

    def change(value: Any) -> None:
        if is_seen and value.get("usage"):
            value["usage"]["prompt_tokens"] -= 1
            value["usage"]["total_tokens"] -= 1

    return ProxyDefect(does="", ask=ask, whole=in_whole(change))


UNLISTED = {
    "a chat stream has the object of a whole answer": (
        ProxyDefect(does="", stream=in_events(_other_object)),
        "chat",
    ),
    "chat streams have no usage": (ProxyDefect(does="", stream=in_events(_no_usage)), "chat"),
    "a stream of one token is empty": (
        ProxyDefect(does="", stream=_short_streams_are_empty),
        "stream-is-whole",
    ),
    "a prompt that was seen counts less": (_fewer_when_seen(), "prefix-cache"),
    "a stream repeats its first text": (ProxyDefect(does="", stream=_twice), "stream-is-whole"),
    "a stream loses what is not ASCII": (
        ProxyDefect(does="", stream=in_events(_ascii_only)),
        "stop-string",
    ),
    "every answer says stop": (
        ProxyDefect(does="", whole=in_whole(_always_stop)),
        "stream-is-whole",
    ),
    "streams have no usage": (ProxyDefect(does="", stream=in_events(_no_usage)), "usage"),
    "streams ignore the seed": (ProxyDefect(does="", ask=_when_streamed("seed")), "seed"),
    "streams ignore stop": (ProxyDefect(does="", ask=_when_streamed("stop")), "stop-string"),
    "a logprob is missing": (ProxyDefect(does="", whole=in_whole(_one_logprob_less)), "logprobs"),
    "both choices have index 0": (ProxyDefect(does="", whole=in_whole(_all_first)), "n"),
    "another model is listed": (ProxyDefect(does="", whole=in_whole(_renamed)), "models"),
    "chats are streamed in capitals": (ProxyDefect(does="", stream=in_events(_upper)), "chat"),
    "streams have no finish reason": (
        ProxyDefect(does="", stream=in_events(_no_finish)),
        "stream-schema",
    ),
    "a stream stays open": (ProxyDefect(does="", holds_open=True), "stream-schema"),
    "every fifth text is another": (
        ProxyDefect(does="", whole=_sometimes(5, _louder)),
        "greedy-repeat",
    ),
    "streams ignore echo": (ProxyDefect(does="", ask=_when_streamed("echo")), "echo"),
    "max_tokens is ignored": (ProxyDefect(does="", ask=removes("max_tokens")), "max-tokens"),
    "streamed chats ignore stop": (
        ProxyDefect(does="", ask=_in_streamed_chats("stop")),
        "chat-stop",
    ),
    "streamed chats ignore n": (ProxyDefect(does="", ask=_in_streamed_chats("n")), "chat-n"),
    "streamed chats ignore the seed": (
        ProxyDefect(does="", ask=_in_streamed_chats("seed")),
        "chat-seed",
    ),
    "chats ignore max_tokens": (
        ProxyDefect(does="", ask=in_chats(removes("max_tokens"))),
        "chat-max-tokens",
    ),
    "temperature is always 0": (ProxyDefect(does="", ask=_cold), "temperature"),
    "temperature is always 0 in chats": (ProxyDefect(does="", ask=in_chats(_cold)), "temperature"),
    "a streamed chat ignores temperature": (
        ProxyDefect(does="", ask=_in_streamed_chats("temperature")),
        "temperature",
    ),
    "streams ignore response_format": (
        ProxyDefect(does="", ask=_when_streamed("response_format")),
        "json-object",
    ),
    "a color that the schema does not list": (
        ProxyDefect(does="", whole=in_whole(_other_color)),
        "json-schema",
    ),
    "arguments are no text": (ProxyDefect(does="", whole=in_whole(_parsed_arguments)), "tools"),
    "a streamed call has no name": (ProxyDefect(does="", stream=in_events(_no_tool_name)), "tools"),
    "streams ignore tools": (ProxyDefect(does="", ask=_when_streamed("tools")), "tools"),
    "prompts of one request change places": (
        ProxyDefect(does="", whole=in_whole(_reversed)),
        "batched-prompts",
    ),
    "seeds are ignored where clients are many": (
        ProxyDefect(does="", crowded=removes("seed")),
        "parameters-together",
    ),
    "streams have other top_logprobs": (
        ProxyDefect(does="", stream=in_events(_other_tops)),
        "logprobs",
    ),
    "streamed chats have other top_logprobs": (
        ProxyDefect(does="", stream=in_events(_other_tops)),
        "chat-logprobs",
    ),
    "streams have no top_logprobs": (
        ProxyDefect(does="", stream=in_events(_no_tops)),
        "logprobs",
    ),
    "nothing has top_logprobs": (
        ProxyDefect(does="", stream=in_events(_no_tops), whole=in_whole(_no_tops)),
        "chat-logprobs",
    ),
    "seed 0 is no seed": (ProxyDefect(does="", ask=_seed_zero_is_none), "seed"),
    "seed 0 is no seed in chats": (
        ProxyDefect(does="", ask=in_chats(_seed_zero_is_none)),
        "chat-seed",
    ),
    "both choices are copies": (ProxyDefect(does="", whole=in_whole(_copied_choices)), "n"),
    "both choices of streams are copies": (ProxyDefect(does="", stream=_copied_streams), "n"),
    "both choices of a chat are copies": (
        ProxyDefect(does="", whole=in_whole(_copied_choices)),
        "chat-n",
    ),
    "a call that was cut says that it ended": (
        ProxyDefect(does="", whole=in_whole(_ended_calls)),
        "tools",
    ),
    "a streamed call that was cut says that it ended": (
        ProxyDefect(does="", stream=in_events(_ended_calls)),
        "tools",
    ),
    "a call that was cut is mended": (
        ProxyDefect(does="", whole=in_whole(_mended_calls)),
        "tools",
    ),
    "short prompts after a long one are wrong": (
        ProxyDefect(does="", fresh=_late_shorts),
        "long-beside-short",
    ),
    "a cached beginning of 500 tokens loses what follows": (
        ProxyDefect(does="", fresh=_forgets_beyond(500)),
        "lengths",
    ),
    "a cached beginning of 250 tokens loses what follows": (
        ProxyDefect(does="", fresh=_forgets_beyond(250)),
        "lengths",
    ),
    "long prompts lose their beginning": (
        ProxyDefect(does="", ask=_last_300),
        "lengths",
    ),
    "streamed chats lose their earlier messages": (
        ProxyDefect(does="", ask=_in_streamed_chats_last_message),
        "chat-messages",
    ),
    "streams of two clients change places": (
        ProxyDefect(does="", fresh=_swapped_streams),
        "no-cross-talk",
    ),
    "the system message is emptied": (
        ProxyDefect(does="", ask=in_chats(_without_system)),
        "chat-messages",
    ),
    "seeds are taken by twos": (ProxyDefect(does="", ask=_by_twos), "seed"),
    "seeds of chats are taken by twos": (ProxyDefect(does="", ask=in_chats(_by_twos)), "chat-seed"),
    "messages have no role": (ProxyDefect(does="", whole=in_whole(_no_role)), "chat"),
    "n is ignored where clients are many": (
        ProxyDefect(does="", crowded=removes("n")),
        "parameters-together",
    ),
}


@pytest.mark.slow
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
        return in_whole(_louder)(body) if next(count) == later else body

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
    with proxied(correct, ProxyDefect(does="", whole=in_whole(_no_usage))) as base:
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
