from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.conformance.answer import events, read, spelled
from harness.conformance.exchange import (
    CHAT,
    COMPLETIONS,
    Chunk,
    HTTPExchange,
    HTTPRequest,
    curl_line,
    pack,
    post,
    read_lines,
    unpack,
    write_lines,
)
from tests.conformance.asking import odd_server

HEAD = {"id": "1", "object": "text_completion", "created": 1, "model": "m"}
KIND = {True: "text/event-stream", False: "application/json"}


def exchange(
    chunks: list[bytes], *, stream: bool, path: str = COMPLETIONS, **more: Any
) -> HTTPExchange:
    """An exchange with this body."""
    return HTTPExchange(
        **{
            "request": post("asked", path, {"stream": stream}),
            "status": 200,
            "headers": {"content-type": KIND[stream]},
            "chunks": [Chunk(ms=0, data=pack(chunk)) for chunk in chunks],
            "ended": "complete",
            "ms": 1,
            **more,
        }
    )


def stream_of(texts: list[str], finish: str = "length") -> bytes:
    """A stream as OpenAI writes it."""
    parts = [
        {**HEAD, "choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in texts
    ]
    parts.append({**HEAD, "choices": [{"index": 0, "text": "", "finish_reason": finish}]})
    lines = [b"data: " + json.dumps(part, ensure_ascii=False).encode() for part in parts]
    return b"\n\n".join([*lines, b"data: [DONE]", b""])


TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1, max_size=5
)


@given(TEXTS, st.lists(st.integers(0, 400), max_size=8))
def test_a_stream_says_the_same_however_it_is_cut(texts: list[str], cuts: list[int]) -> None:
    """Chunks of the network may end anywhere, also within a character or a line end."""
    whole = stream_of(texts)
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    chunks = [whole[one:other] for one, other in pairwise(places)]
    answer = read(exchange(chunks, stream=True))
    assert (answer.text, answer.finish, answer.problems) == ("".join(texts), "length", [])


@given(
    st.lists(st.binary(max_size=60), max_size=4),
    st.booleans(),
    st.sampled_from([COMPLETIONS, CHAT]),
)
def test_no_bytes_make_the_reader_raise(chunks: list[bytes], stream: bool, path: str) -> None:
    """Whatever a server sends is told as a problem or an error."""
    one = exchange(chunks, stream=stream, path=path)
    answer = read(one)
    assert answer.error or answer.problems
    assert isinstance(spelled(one), str)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "index",
                    "text",
                    "delta",
                    "content",
                    "logprobs",
                    "tool_calls",
                    "function",
                    "tokens",
                    "usage",
                    "error",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(JSONS, st.booleans(), st.sampled_from([COMPLETIONS, CHAT]))
def test_no_json_makes_the_reader_raise(value: object, stream: bool, path: str) -> None:
    """JSON with the right names and the wrong things behind them is told, and not repaired."""
    body = json.dumps(value).encode()
    data = b"data: " + body + b"\n\ndata: [DONE]\n\n" if stream else body
    answer = read(exchange([data], stream=stream, path=path))
    assert answer.error or answer.problems


@given(st.binary(max_size=80))
def test_bytes_are_kept_in_one_way_and_come_back(data: bytes) -> None:
    """What is packed is unpacked to the same bytes, also where it looks like our own form."""
    for one in (data, b"base64:" + data):
        assert unpack(pack(one)) == one


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_lines_of_evidence_come_back(chunks: list[bytes]) -> None:
    """Exchanges are read as they were written, and nothing else is accepted for them."""
    kept = [exchange(chunks, stream=True)]
    data = write_lines(kept)
    assert read_lines(data) == kept
    with pytest.raises(ValueError, match="canonical form"):
        read_lines(data.replace(b'"status":200', b'"status": 200'))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"data: {}\n\n", "does not end with [DONE]"),
        (stream_of(["a"]) + b"data: {}\n\n", "something follows"),
        (stream_of(["a"]).replace(b"\n\n", b"\n"), "blank line"),
        (stream_of(["a"])[:-1], "blank line"),
        (stream_of(["a"]).replace(b'"id": "1"', b'"id": "2"', 1), "id changes"),
        (stream_of(["a"]).replace(b'"created": 1', b'"created": "1"', 1), "created"),
        (stream_of(["a"], finish="because"), "finish_reason"),
        (stream_of(["a"]).replace(b'"text": "a"', b'"text": "\xff"', 1), "UTF-8"),
        (stream_of(["a"]).replace(b'"text": "a"', b'"text": "a", "text": "b"', 1), "twice"),
        (b"hello\n\n" + stream_of(["a"]), "not a field"),
    ],
)
def test_what_is_not_in_the_schema_is_told(body: bytes, problem: str) -> None:
    """Each departure of a stream from OpenAI's schema is a problem of its own."""
    answer = read(exchange([body], stream=True))
    assert problem in "; ".join(answer.problems)


def test_all_line_ends_of_the_standard_end_events_and_no_others() -> None:
    """CR, LF and CRLF end lines; U+2028 within a text does not."""
    for end in ("\n", "\r\n", "\r"):
        found, problems = events(
            f"data: a\u2028b{end}{end}: note{end}{end}data: c{end}{end}".encode()
        )
        assert (found, problems) == (["a\u2028b", "c"], [])


def called(calls: list[Any], *, stream: bool) -> bytes:
    """A chat that calls tools: whole, or one event for each entry."""
    kind = "chat.completion.chunk" if stream else "chat.completion"
    head = HEAD | {"object": kind}
    inner = "delta" if stream else "message"
    entries = calls if stream else [calls]
    parts = [
        {**head, "choices": [{"index": 0, inner: {"tool_calls": entry}, "finish_reason": None}]}
        for entry in entries
    ]
    parts[-1]["choices"][0]["finish_reason"] = "tool_calls"  # type: ignore[index]
    if not stream:
        parts[0]["choices"][0]["message"]["role"] = "assistant"  # type: ignore[index]
        return json.dumps(parts[0]).encode()
    lines = [b"data: " + json.dumps(part).encode() for part in parts]
    return b"\n\n".join([*lines, b"data: [DONE]", b""])


def test_calls_of_tools_are_read_whole_and_streamed() -> None:
    """A stream begins a call with its id and name, and adds to its arguments."""
    whole = [{"id": "1", "type": "function", "function": {"name": "a", "arguments": '{"b": 1}'}}]
    begun = {"index": 0, "id": "1", "function": {"name": "a", "arguments": '{"b"'}}
    added = {"index": 0, "function": {"arguments": ": 1}"}}
    for body, stream in (
        (called(whole, stream=False), False),
        (called([[begun], [added]], stream=True), True),
    ):
        answer = read(exchange([body], stream=stream, path=CHAT))
        assert [(call.name, call.arguments) for call in answer.tools] == [("a", '{"b": 1}')]
        assert answer.problems == []


@pytest.mark.parametrize(
    "entry",
    [
        [{"index": 1, "id": "1", "function": {"name": "a", "arguments": ""}}],
        [{"id": "1", "function": {"name": "a", "arguments": ""}}],
        [{"index": 0, "function": {"name": "a", "arguments": ""}}],
        [{"index": 0, "id": "1", "function": {"name": "a", "arguments": {"b": 1}}}],
        [{"index": 0, "id": "1", "function": "a"}],
        "a",
    ],
)
def test_a_call_that_is_not_in_the_schema_is_told(entry: Any) -> None:
    """Without an index or an id, counted from 1, or with arguments that are no text."""
    answer = read(exchange([called([entry], stream=True)], stream=True, path=CHAT))
    assert "tool_calls" in "; ".join(answer.problems)


def test_an_error_of_a_server_is_told_with_its_message() -> None:
    """Errors are read in OpenAI's form, in others', and as plain text."""
    for body in (b'{"error": {"message": "no"}}', b'{"error": "no"}', b'{"detail": "no"}', b"no"):
        answer = read(exchange([body], stream=False, status=400))
        assert (answer.error, answer.is_refusal) == ("status 400: no", True)


def test_a_problem_names_the_event_that_has_it() -> None:
    """By its number, or by what only one event has; what all events have is noted once."""
    body = stream_of(["a", "b"])
    usage = {**HEAD, "object": "chat.completion", "choices": [], "usage": {}}
    odd = body.replace(
        b"data: [DONE]", b"data: " + json.dumps(usage).encode() + b"\n\ndata: [DONE]"
    )
    answer = read(exchange([odd], stream=True))
    place = "the event with the usage"
    assert answer.problems == [
        f"{place}: object is 'chat.completion', not 'text_completion'",
        f"{place}: usage does not contain three integers",
    ]
    second = body.replace(b'"id": "1"', b'"id": 1').replace(b'"text": "b"', b'"text": 2')
    assert read(exchange([second], stream=True)).problems == [
        "event 1: id is not of type str",
        "event 2: the text of a choice is not a string",
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_lines_of_concurrent_requests_are_sent_at_the_same_time() -> None:
    """Pasted into a shell: no request is answered before all of them are there."""
    together = threading.Barrier(3)
    bodies = []

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        bodies.append(json.loads(body)["prompt"])
        together.wait(20)
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    requests = [
        post("asked", COMPLETIONS, {"prompt": prompt}, after_ms=wait)
        for prompt, wait in (("it's", 0), ("$b", 20), ("c", 0))
    ]
    line = curl_line(requests, "$URL", authorized=True)
    assert "\n" not in line
    with odd_server(answer) as base:
        environment = {"URL": base, "KEY": "k", "PATH": os.environ["PATH"]}
        done = subprocess.run(
            ["sh", "-c", line], env=environment, capture_output=True, timeout=60, check=True
        )
    assert sorted(bodies) == sorted(["it's", "$b", "c"])
    assert done.stdout.split() == [b"ok"] * 3


def test_a_curl_line_sends_the_same_bytes_and_no_key() -> None:
    """Quotes and bytes that are not UTF-8 survive; the key is a variable of the reader's shell."""
    import shlex

    plain = post("asked", COMPLETIONS, {"prompt": "it's $HOME\n"})
    line = plain.curl("$URL", authorized=True)
    assert shlex.split(line)[-1].encode() == plain.content()
    assert '"Authorization: Bearer $KEY"' in line
    odd = HTTPRequest(label="bytes", path=COMPLETIONS, body=pack(b"\xff"))
    assert "base64 -d" in odd.curl("$URL", authorized=False)
