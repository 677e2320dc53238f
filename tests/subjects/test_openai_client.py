"""The ready subject `openai-client`: what it asks, what it reports, and that servers of any kind
end it in words.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.conformance.correct import MODEL, serving
from harness.events import is_name
from harness.rank.emit import LINE_LIMIT
from harness.scenario import ScenarioError, parse_scenario
from harness.subjects import READY
from harness.subjects.openai_client_inside import ask as client
from harness.subjects.openai_client_inside import exchange as sending
from harness.subjects.openai_client_inside.exchange import Exchange, Wanted
from harness.subjects.openai_client_inside.reply import read
from harness.world.control.pool import ServerPool
from harness.world.control.ranks import BYTES_LIMIT
from tests.conformance.asking import odd_server
from tests.subjects import test_ready

SUBJECT = READY["openai-client"]
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
        self.size += len(line) + 60
        self.events.append((name, values))

    def keep(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def named(self, name: str) -> list[dict[str, Any]]:
        return [values for event, values in self.events if event == name]

    @property
    def done(self) -> dict[str, Any]:
        (values,) = self.named("requests.done")
        return values


@pytest.fixture(scope="module")
def correct() -> Iterator[str]:
    with serving() as base:
        yield base


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


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_whole_and_streamed_answers_are_equal(correct: str, api: str) -> None:
    """On a server that keeps its promises every comparison is made, and holds."""
    context = asked(
        correct, api=api, mode="both", repeat=2, concurrency=4, alone="first", logprobs=2
    )
    done = context.done
    assert done["count"] == done["answered"] == 15
    assert (done["refused"], done["failed"], done["left"], done["malformed"]) == (0, 0, 0, 0)
    assert (done["same"], done["streamed_equal"], done["alone_equal"]) == (True, True, True)
    assert len(set(done["answers"])) == 3
    for one in context.named("request"):
        assert one["text"] == done["answers"][one["prompt"]]
        assert one["finish"] == "length"
        assert len(one["logprobs"]) == one["usage"]["completion_tokens"] == 16
    assert context.named("requests.begin") == [{"count": 15, "model": MODEL}]
    # Of each prompt the one that was sent alone, and each repetition whole and then streamed.
    assert [one["alone"] for one in context.named("request")] == [True, *[False] * 4] * 3
    assert [one["mode"] for one in context.named("request")][:3] == ["whole", "whole", "streamed"]


def test_the_order_follows_from_the_seed_and_the_report_does_not(correct: str) -> None:
    """Ranks that ask in other orders report the same, in the same order."""
    one, other = (asked(correct, seed=seed, repeat=4) for seed in (1, 2))
    orders = [
        [event["prompt"] for event in context.named("request.begin")] for context in (one, other)
    ]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    assert [(r["prompt"], r["repetition"], r["text"]) for r in one.named("request")] == [
        (r["prompt"], r["repetition"], r["text"]) for r in other.named("request")
    ]
    assert one.done == other.done
    given_order = asked(correct, order="as-given", repeat=2)
    assert [event["prompt"] for event in given_order.named("request.begin")] == [0, 1, 2, 0, 1, 2]


def test_sampling_repeats_with_its_seed(correct: str) -> None:
    """The temperature is sent in hundredths, and the seed where it has an effect."""
    drawn = asked(correct, temperature_percent=100, sampling_seed=3, repeat=2).done
    again = asked(correct, temperature_percent=100, sampling_seed=4).done
    assert drawn["same"] is True
    assert drawn["answers"] != again["answers"]


def test_nothing_that_was_not_compared_is_reported_as_equal(correct: str) -> None:
    """With one request for each prompt there is nothing to compare, and it says null."""
    done = asked(correct).done
    assert (done["same"], done["streamed_equal"], done["alone_equal"]) == (None, None, None)


@pytest.mark.parametrize(
    ("defect", "values"),
    [
        ("drops-last-chunk", {"streamed_equal": False, "same": False, "alone_equal": False}),
        ("swaps-answers", {"streamed_equal": False, "same": False, "alone_equal": False}),
    ],
)
def test_every_defect_is_seen(correct: str, defect: str, values: Mapping[str, bool]) -> None:
    """Each control fails on a server that is whole, and every request is still answered."""
    done = asked(correct, mode="both", alone="first", defect=defect).done
    assert done["answered"] == done["count"]
    assert {key: done[key] for key in values} == values
    for mode in ("streamed",) if defect == "drops-last-chunk" else ("whole", "streamed"):
        whole = asked(correct, mode=mode).done
        broken = asked(correct, mode=mode, defect=defect).done
        assert whole["answers"] != broken["answers"]


@pytest.mark.parametrize("who", ["cancels", "resets", "slow"])
def test_neighbours_of_a_client_that_misbehaves_are_answered(correct: str, who: str) -> None:
    """Every second request is of that client, and the others get the answers that they get
    without it.
    """
    context = asked(correct, client=who, cancel_after=2, pause_ms=1, concurrency=3)
    done = context.done
    assert done["count"] == 6
    assert done["left"] == (0 if who == "slow" else 3)
    assert done["answered"] == 6 - done["left"]
    assert done["answers"] == asked(correct).done["answers"]
    ends = {(one["client"], one["outcome"], one["mode"]) for one in context.named("request")}
    assert ends == {
        ("patient", "answered", "whole"),
        (who, "answered" if who == "slow" else "left", "streamed"),
    }
    cancelled = [one for one in context.named("request") if one["outcome"] == "left"]
    assert all(done["answers"][one["prompt"]].startswith(one["text"]) for one in cancelled)


def test_the_server_sees_a_reset_and_a_close() -> None:
    """What a client did to its connection is what the server's socket reports."""
    seen: list[str] = []

    def answer(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: hello\n")
        try:
            seen.append("closed" if not handler.connection.recv(1) else "more")
        except ConnectionResetError:
            seen.append("reset")

    for who, word in (("cancels", "closed"), ("resets", "reset")):
        with odd_server(answer) as base:
            exchange = sending.exchanged(wanted(base), "/v1/completions", b"{}", client=who)
            assert (exchange.ended, exchange.status) == ("left", 200)
            # The server's thread hears of it after the client has gone on.
            for _ in range(200):
                if word in seen:
                    break
                time.sleep(0.01)
        assert word in seen


def test_a_server_has_to_wait_for_a_slow_reader() -> None:
    """What a slow client has not read yet is not taken by the system in its place."""
    sent: list[int] = []

    def answer(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        handler.connection.settimeout(0.1)
        # It stops when it had to wait; before that, a client with usual buffers takes all.
        with suppress(TimeoutError):
            sent.extend(handler.connection.send(b"a" * 1024) for _ in range(64))

    with odd_server(answer) as base:
        slowly = dataclasses.replace(wanted(base), pause=0.3)
        exchange = sending.exchanged(slowly, "/", b"{}", client="slow")
    assert 0 < len(exchange.data()) < 2**16
    assert sum(sent) < 2**16


def test_every_byte_is_kept(correct: str) -> None:
    """The file of evidence has what was sent and every chunk, from which the digests follow."""
    context = asked(correct, mode="streamed")
    lines = [json.loads(line) for line in context.files["exchanges"].splitlines()]
    digests = {one["n"]: one["sha256"] for one in context.named("request")}
    for line in lines:
        body = "".join(chunk["text"] for chunk in line["chunks"])
        assert hashlib.sha256(body.encode()).hexdigest() == digests[line["n"]]
        assert json.loads(line["sent"])["stream"] is True
        assert line["chunks_left_out"] == 0
    assert len(lines) == 3


def test_what_is_kept_is_bounded(correct: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks beyond the bound are left out, and counted."""
    monkeypatch.setattr(client, "MOST_KEPT", 100)
    context = asked(correct)
    lines = [json.loads(line) for line in context.files["exchanges"].splitlines()]
    assert [line["chunks_left_out"] for line in lines] == [1, 1, 1]


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
        (LAST + b"data: \xff\n\n" + DONE, "not UTF-8 at byte"),
        (LAST + b"datum: 1\n\n" + DONE, "is not a field of an event"),
        (LAST + DONE[:-1], "does not end with a blank line"),
        (LAST.replace(b"0", b'"zero"') + DONE, "no whole number as its index"),
        (LAST.replace(b"0", b"1") + DONE, "choice 1 was not asked for"),
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
        (gzip.compress(b"{}"), "content-encoding: gzip\r\n", "content-encoding"),
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
    ):
        with answering(body) as base:
            context = asked(base, prompts=["a"])
        assert context.named("requests.begin")[0]["model"] is None
        (line,) = context.files["exchanges"].splitlines()
        assert "model" not in json.loads(json.loads(line)["sent"])


def test_an_address_that_is_missing_is_named() -> None:
    """The error names the variable and the argument."""
    with pytest.raises(ValueError, match=r"RANKPROOF_SERVICE_MY_ENGINE is ''.*with\.service"):
        client.run(StubContext(), service="my-engine")


def test_a_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without httpx2 the error is one line that says what to install."""
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ImportError, match=r"pip install 'rankproof\[serve\]'"):
        client.run(StubContext())


@pytest.mark.parametrize("concurrency", [1, 3])
def test_what_a_fault_raises_at_an_event_ends_the_rank(correct: str, concurrency: int) -> None:
    """Errors of the rank's own are not taken for errors of the connection."""

    class StruckContext(StubContext):
        def emit(self, name: str, **values: Any) -> None:
            if name == "request.first":
                raise ConnectionResetError("struck")
            super().emit(name, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, correct)
        with pytest.raises(ConnectionResetError, match="struck"):
            client.run(StruckContext(), concurrency=concurrency)


@pytest.mark.slow
def test_the_most_requests_stay_within_the_events_of_a_rank() -> None:
    """As many requests as lint lets through, each with as much in it as an event takes."""
    text = "\U0001f642" * 500
    choice = {"index": 0, "text": text, "token_ids": [2**52] * 500}
    body = json.dumps({"choices": [{**choice, "finish_reason": "\0" * 500}] * 9}).encode()
    with answering(body) as base:
        context = asked(base, model="m", prompts=["a"] * 40, repeat=10, concurrency=4)
    assert len(context.named("request")) == 400
    assert context.size < BYTES_LIMIT


def test_values_that_do_not_fit_stay_different() -> None:
    """A long text is shown by its beginning and its digest."""
    one, other = ("a" * 5000 + end for end in "bc")
    room = client.VALUE_ROOM
    assert client.fitted(one, room) != client.fitted(other, room)
    assert len(json.dumps(client.fitted("\U0001f642" * 5000, room))) <= room
    assert client.fitted([1] * 5000, room).startswith("sha256:")
    assert client.fitted("short", room) == "short"


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


@pytest.mark.parametrize(
    ("given_arguments", "name"),
    [
        ({"api": "chat", "prompts": [[1, 2]]}, "prompts"),
        ({"defect": "swaps-answers", "prompts": ["a"]}, "defect"),
        ({"defect": "drops-last-chunk"}, "defect"),
        ({"repeat": 200}, "repeat"),
        ({"repeat": 70, "mode": "both"}, "repeat"),
        ({"repeat": 67, "client": "slow"}, "repeat"),
        ({"repeat": 133, "alone": "first"}, "repeat"),
        ({"repeat": 133}, None),
        ({"defect": "drops-last-chunk", "mode": "both"}, None),
        ({"prompts": [[1, 2]]}, None),
    ],
)
def test_arguments_that_do_not_go_together_are_named(
    given_arguments: dict[str, Any], name: str | None
) -> None:
    """A control that cannot show its defect is found before a run."""
    arguments = {key: argument.default for key, argument in SUBJECT.arguments.items()}
    found = SUBJECT.misfit({**arguments, **given_arguments}, 2)
    assert (found and found[0]) == name


SCENARIO = """\
schema: 1
id: streams
title: Streamed answers are those that come whole
question: Are they, with other clients beside them?
subject:
  use: openai-client
  candidate: {with: {mode: both, client: cancels}}
  control:
    with: {mode: both, client: cancels, defect: drops-last-chunk}
    must_fail: {check: streamed, ranks: every}
  reference: {with: {max_tokens: 16}}
matrix: {ranks: [1], backend: [none], concurrency: [1, 4]}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
faults: [{id: late, kind: pause, ranks: [0], at: request.first, for: 50ms}]
measure: [{id: seconds, event: requests, against: control}]
checks:
  - {id: streamed, kind: equal, ranks: every, value: requests.done.streamed_equal, to: true}
  - {id: as-alone, kind: equal, ranks: every, value: requests.done.answers, against: reference}
"""


def test_a_scenario_needs_no_python() -> None:
    """It loads, and a reference that is asked something else is a mistake."""
    parse_scenario(SCENARIO.encode(), name="s.yaml")
    with pytest.raises(ScenarioError, match="max_tokens"):
        parse_scenario(SCENARIO.replace("tokens: 16", "tokens: 17").encode(), name="s.yaml")


@pytest.mark.slow
def test_ranks_ask_a_server(correct: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ranks, with the files that an arm gets, agree on the answers."""
    launch_of = test_ready.launch_of
    monkeypatch.setattr(
        test_ready, "launch_of", lambda **given: launch_of(**given, env={VARIABLE: correct})
    )
    with ServerPool() as pool:
        history = test_ready.run(pool, "openai-client", size=2, mode="both", concurrency=3)
    answers = test_ready.told(history, "requests.done", "answers")
    assert answers[0] == answers[1]
    assert len(answers[0][0]) == 3
    assert test_ready.told(history, "requests.done", "streamed_equal") == [[True], [True]]
    for event in SUBJECT.emits:
        assert all(history.said(rank, event) for rank in range(2)), event
    assert [history.exit(rank).event.values["code"] for rank in range(2)] == [0, 0]  # type: ignore[union-attr]
