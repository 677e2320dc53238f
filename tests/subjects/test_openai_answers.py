"""Answers to the ready subject `openai-client`: servers of any kind end it in words, and nothing
that is broken is taken for an answer.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import struct
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.subjects.openai_client_inside import exchange as sending
from harness.subjects.openai_client_inside.exchange import Exchange
from harness.subjects.openai_client_inside.reply import read
from tests.conformance.asking import odd_server
from tests.subjects.asking import answering, asked, wanted


def reset(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{")
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def endless(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    while True:
        handler.wfile.write(b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n')
        time.sleep(0.01)


def huge(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(10):
        handler.wfile.write(b"a" * 2**20)


def cut(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"choices": [{"ind')


def redirect(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 307 Go\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n")


def not_http(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"220 mail.example.org ESMTP\r\n\r\n")


def unwilling(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 429 Later\r\ncontent-length: 5\r\n\r\nlater")


def silent(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.connection.recv(1)


def dripping(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        handler.wfile.write(b"x: a\r\n")
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["whole", "streamed"])
@pytest.mark.parametrize(
    ("answer", "ended", "outcome"),
    [
        (reset, "reset", "failed"),
        (endless, "timed out", "failed"),
        (huge, "too large", "failed"),
        (cut, "cut short", "failed"),
        (redirect, "complete", "failed"),
        (not_http, "not HTTP", "failed"),
        (unwilling, "complete", "refused"),
        (silent, "timed out", "failed"),
        (dripping, "timed out", "failed"),
    ],
)
def test_a_hostile_server_ends_in_a_word_within_bounds(
    answer: Callable[[BaseHTTPRequestHandler, bytes], None], ended: str, outcome: str, mode: str
) -> None:
    """The rank ends normally and in time, and nothing is taken for an answer."""
    with odd_server(answer) as base:
        begun = time.monotonic()
        context = asked(base, prompts=["a"], model="m", mode=mode, timeout=1)
        assert time.monotonic() - begun < 10
    (one,) = context.named("request")
    assert (one["ended"], one["outcome"]) == (ended, outcome), one
    assert context.done["answered"] == 0
    assert context.done["answers"] is None
    assert len(context.files["exchanges"]) < 2 * sending.MOST_BYTES


EVENT = b'data: {"choices": [{"index": 0, "text": "a", "finish_reason": %s}]}\n\n'
DONE = b"data: [DONE]\n\n"
LAST = EVENT % b'"stop"'


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (LAST, "does not end with [DONE]"),
        (DONE, "no finish reason"),
        (LAST + DONE + LAST, "does not end with [DONE]"),
        (LAST + LAST + DONE, "text follows the finish reason"),
        (LAST + b"data: {oops}\n\n" + DONE, "not JSON"),
        (LAST + b"data: \xff\n\n" + DONE, "invalid UTF-8 at byte"),
        (LAST + b"datum: 1\n\n" + DONE, "is not a field of an event"),
        (LAST + DONE[:-1], "does not end with a blank line"),
        (LAST.replace(b"0", b'"zero"') + DONE, "the index of a choice is not an integer"),
        (LAST.replace(b"0", b"1") + DONE, "choice 1 was not requested"),
        (LAST.replace(b'"a"', b"7") + DONE, "a choice has no text"),
        (LAST.replace(b'"a"', b'"\\ud800"') + DONE, "half a surrogate pair"),
        (LAST + b'data: {"choices": [], "usage": {"prompt_tokens": -1}}\n\n' + DONE, "usage"),
        (LAST + b"data: " + b"[" * 10**6 + b"\n\n" + DONE, "not JSON"),
        (LAST + b'data: {"choices": [], "choices": []}\n\n' + DONE, "appears twice"),
    ],
)
def test_a_broken_stream_is_reported_and_not_an_answer(stream: bytes, problem: str) -> None:
    """Its text may be the right one: it is shown, and does not count."""
    with answering(stream, kind="text/event-stream") as base:
        context = asked(base, prompts=["a"], model="m", mode="streamed")
    (one,) = context.named("request")
    assert one["outcome"] == "failed"
    assert any(problem in told_of for told_of in one["problems"]), one["problems"]
    assert context.done["malformed"] == 1
    assert context.done["answers"] is None


@pytest.mark.parametrize(
    ("body", "more", "problem"),
    [
        (b'{"choices": [{"index": "zero", "text": "a", "finish_reason": "stop"}]}', "", "index"),
        (b'{"choices": [{"index": 0, "text": "a"}]}', "", "no finish reason"),
        (b"<html>it works</html>", "", "not JSON"),
        (b"\xff\xfe", "", "not JSON"),
        (b"[]", "", "list of choices"),
        (gzip.compress(b"{}", mtime=0), "content-encoding: gzip\r\n", "content-encoding"),
        (b'{"choices": [{"index": 0, "text": NaN}]}', "", "NaN is not JSON"),
    ],
)
def test_a_broken_answer_is_reported(body: bytes, more: str, problem: str) -> None:
    """The same for an answer that comes whole; its bytes are kept as they came."""
    with answering(body, more=more) as base:
        context = asked(base, prompts=["a"], model="m")
    (one,) = context.named("request")
    assert one["sha256"] == hashlib.sha256(body).hexdigest()
    assert one["outcome"] == "failed"
    assert any(problem in told_of for told_of in one["problems"]), one["problems"]


@pytest.mark.parametrize(
    ("logprobs", "ids", "values"),
    [
        ({"tokens": [5, 6], "token_logprobs": [-1, -0.5]}, [5, 6], [-1.0, -0.5]),
        ({"tokens": ["token_id:7"], "token_logprobs": [-1.5]}, [7], [-1.5]),
        ({"tokens": ["a"], "token_logprobs": [-1.5]}, None, [-1.5]),
        ({"tokens": ["token_id:x"], "token_logprobs": [1e999]}, None, None),
        ({"tokens": [2**99], "token_logprobs": "no"}, None, None),
        ({"tokens": ["token_id:" + "9" * 30], "token_logprobs": [-1]}, None, [-1.0]),
        ([], None, None),
    ],
)
def test_ids_and_log_probabilities_are_those_of_the_server(
    logprobs: Any, ids: list[int] | None, values: list[float] | None
) -> None:
    """Ids are read in the ways that engines write them, and a number that is none is a problem."""
    choice = {"index": 0, "text": "a", "finish_reason": "stop", "logprobs": logprobs}
    with answering(json.dumps({"choices": [choice]}).encode()) as base:
        context = asked(base, prompts=["a"], model="m", logprobs=1)
    (one,) = context.named("request")
    assert (one["ids"], one["logprobs"]) == (ids, values)
    assert bool(one["problems"]) == (values is None)


def test_a_server_that_is_not_there_is_a_fact_and_not_an_error() -> None:
    """The rank ends normally; that nobody answered is for a check to judge."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        context = asked(f"http://127.0.0.1:{free.getsockname()[1]}", repeat=2)
    done = context.done
    assert (done["answered"], done["refused"], done["same"]) == (0, 6, False)
    assert done["answers"] is None
    assert done["texts"] is None
    assert {(one["status"], one["ended"]) for one in context.named("request")} == {
        (None, "refused")
    }


def test_where_not_one_model_is_listed_none_is_named() -> None:
    """Most engines then take the one they have."""
    for body in (
        b'{"data": [{"id": "a"}, {"id": "b"}]}',
        b'{"data": 7}',
        b"oops",
        b'{"data": [{"id": 7}]}',
        b'{"data": [{"id": "\\ud800"}]}',
        b'{"data": [{"id": "%s"}]}' % (b"a" * 2**20),
    ):
        with answering(body) as base:
            context = asked(base, prompts=["a"])
        assert context.named("requests.begin")[0]["model"] is None
        (line,) = context.files["exchanges"].splitlines()
        assert "model" not in json.loads(json.loads(line)["sent"])


KEYS = (
    "choices index text message delta content logprobs usage finish_reason tokens token_logprobs"
    " token_ids error logprob"
)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5)
    ),
    max_leaves=20,
)
ANSWERS = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {"index": st.just(0)},
                optional={
                    "text": st.text(max_size=5) | JSONS,
                    "message": JSONS,
                    "delta": JSONS,
                    "finish_reason": JSONS,
                    "logprobs": JSONS,
                    "token_ids": JSONS,
                },
            ),
            max_size=3,
        )
    }
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    body=st.binary(max_size=200)
    | (JSONS | ANSWERS).map(lambda value: json.dumps(value).encode())
    | st.lists(JSONS | ANSWERS, max_size=4).map(
        lambda values: (
            b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in values) + DONE
        )
    ),
    api=st.sampled_from(["completions", "chat"]),
    streamed=st.booleans(),
    ended=st.sampled_from(["complete", "left", "cut short"]),
)
def test_reading_never_raises_and_gives_what_an_event_can_hold(
    body: bytes, api: str, streamed: bool, ended: str
) -> None:
    """Whatever the bytes are, what was read can be emitted."""
    exchange = Exchange(status=200, chunks=[(1, body)], ended=ended)
    reply = read(exchange, wanted(api=api), streamed=streamed)
    json.dumps(vars(reply), allow_nan=False)
    assert (reply.text or "").encode() is not None
    assert all(len(problem) <= sending.MESSAGE for problem in reply.problems)


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"])), min_size=1),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    ascii_only=st.booleans(),
    cuts=st.integers(0, 50),
)
def test_a_stream_says_what_was_written(
    texts: list[str], end: str, ascii_only: bool, cuts: int
) -> None:
    """In all three line ends of the standard, and of a stream that was cut its beginning."""
    lines = []
    for number, text in enumerate(texts):
        finish = "stop" if number == len(texts) - 1 else None
        value = {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}
        lines.append(f"data: {json.dumps(value, ensure_ascii=ascii_only)}{end}{end}")
    body = "".join([": hello", end, *lines, f"data: [DONE]{end}{end}"]).encode()
    exchange = Exchange(status=200, chunks=[(1, body)], ended="complete")
    reply = read(exchange, wanted(), streamed=True)
    assert reply.problems == []
    assert reply.text == "".join(texts)
    begun = Exchange(status=200, chunks=[(1, body[: len(body) - cuts])], ended="left")
    beginning = read(begun, wanted(), streamed=True)
    assert beginning.problems == []
    assert "".join(texts).startswith(beginning.text or "")
