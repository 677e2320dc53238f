"""The ready subject `openai-client`: what it asks, and what it reports of a server that is whole."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from harness.conformance.correct import MODEL, serving
from harness.scenario import ScenarioError, parse_scenario
from harness.subjects import READY
from harness.subjects.openai_client_inside import ask as client
from harness.subjects.openai_client_inside import exchange as sending
from harness.world.control.pool import ServerPool
from harness.world.control.ranks import BYTES_LIMIT
from tests.conformance.asking import odd_server
from tests.subjects import test_ready
from tests.subjects.asking import VARIABLE, StubContext, answering, asked, wanted

SUBJECT = READY["openai-client"]


@pytest.fixture(scope="module")
def correct() -> Iterator[str]:
    with serving() as base:
        yield base


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


@pytest.mark.whole
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


@pytest.mark.whole
def test_the_most_requests_stay_within_the_events_of_a_rank() -> None:
    """As many requests as lint lets through, each with as much in it as an event takes."""
    fields = {
        "text": "\U0001f642" * 500,
        "token_ids": [2**52] * 40,
        "logprobs": {"token_logprobs": [-0.12345678901234567] * 32},
        "finish_reason": "\0" * 500,
    }
    event = b"data: " + json.dumps({"choices": [{"index": 0, **fields}]}).encode() + b"\n\n"
    stream = event + (b"\\" * 200 + b"\n") * 9 + b'data: {"error": "' + b"\\u0000" * 99 + b'"}\n\n'
    with answering(stream, kind="text/event-stream") as base:
        context = asked(
            base,
            model="m",
            mode="streamed",
            prompts=["a"] * 40,
            repeat=10,
            concurrency=4,
            logprobs=1,
        )
    values = context.named("request")[0]
    assert len(values["problems"]) == 5
    assert values["error"]
    assert len(values["ids"]) == 40
    assert len(values["logprobs"]) == 32
    assert len(context.named("request")) == 400
    # Beside these events come the answers, if there are any.
    assert context.size + client.ANSWERS_ROOM < BYTES_LIMIT


def test_values_that_do_not_fit_stay_different() -> None:
    """A long text is shown by its beginning and its digest."""
    one, other = ("a" * 5000 + end for end in "bc")
    room = client.VALUE_ROOM
    assert client.fitted(one, room) != client.fitted(other, room)
    assert len(json.dumps(client.fitted("\U0001f642" * 5000, room))) <= room
    assert client.fitted([1] * 5000, room).startswith("sha256:")
    assert client.fitted("short", room) == "short"


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


@pytest.mark.whole
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
