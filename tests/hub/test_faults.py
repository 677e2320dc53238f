"""Every kind of fault, seen by a client and proved in the access log."""

from __future__ import annotations

import http.client
import socket
import threading
from pathlib import Path

import pytest
from huggingface_hub.utils import parse_ratelimit_headers

from harness.hub import Access, Hub, Rules, parse_rules, read_log
from tests.kit.hub_client import BIG, Ask, Reply

CONFIG = "/acme/tiny/resolve/main/config.json"
LARGE = "/acme/tiny/resolve/main/tokenizer.json"
INFO = "/api/models/acme/tiny"


def one_rule(text: str) -> Rules:
    return parse_rules(f"schema: 1\nseed: s\nrules:\n  - {{id: it, {text}}}\n")


def struck(
    folder: Path, ask: Ask, rule: str, path: str, method: str = "GET"
) -> tuple[Reply, Access]:
    with Hub(folder, rules=one_rule(rule)) as hub:
        reply = ask(hub, path, method)
        (line,) = hub.requests()
    assert line.rules == ("it",)
    assert line.status == reply.status
    return reply, line


@pytest.mark.parametrize(("commit", "there"), [("true", True), ("false", False)])
def test_missing(folder: Path, ask: Ask, commit: str, there: bool) -> None:
    """`missing` is a 404 with the client's error code, with or without the commit that makes it
    stick.
    """
    reply, line = struck(
        folder,
        ask,
        f"role: config.json, answer: {{kind: missing, commit: {commit}}}",
        CONFIG,
        "HEAD",
    )
    assert (reply.status, reply.headers["X-Error-Code"]) == (404, "EntryNotFound")
    assert ("X-Repo-Commit" in reply.headers, line.commit is not None) == (there, there)


@pytest.mark.parametrize(
    ("headers", "limit", "retry"),
    [
        ("both", True, True),
        ("ratelimit", True, False),
        ("retry-after", False, True),
        ("none", False, False),
    ],
)
def test_rate_limit(folder: Path, ask: Ask, headers: str, limit: bool, retry: bool) -> None:
    """`rate-limit` is a 429 with the headers asked for, which the real client can read."""
    rule = f"role: model_info, answer: {{kind: rate-limit, headers: {headers}, reset: 7s}}"
    reply, _ = struck(folder, ask, rule, INFO)
    limits = parse_ratelimit_headers(reply.headers)
    assert reply.status == 429
    assert (limits is not None, "Retry-After" in reply.headers) == (limit, retry)
    if limits is not None:
        assert (limits.resource_type, limits.remaining, limits.reset_in_seconds) == ("api", 0, 7)


def test_server_error(folder: Path, ask: Ask) -> None:
    """`error` is the status asked for."""
    reply, _ = struck(
        folder,
        ask,
        "role: tree, answer: {kind: error, status: 502, retry_after: 2s}",
        INFO + "/tree/main",
    )
    assert (reply.status, reply.headers["Retry-After"]) == (502, "2")


@pytest.mark.parametrize(
    ("kind", "error", "end"),
    [("reset", ConnectionResetError, "reset"), ("close", http.client.RemoteDisconnected, "closed")],
)
def test_no_answer_at_all(
    folder: Path, ask: Ask, kind: str, error: type[Exception], end: str
) -> None:
    """`reset` and `close` end the connection without a byte of an answer, each in its own way."""
    with Hub(folder, rules=one_rule(f"answer: {{kind: {kind}}}")) as hub:
        with pytest.raises(error) as caught:
            ask(hub, CONFIG)
        (line,) = hub.requests()
    # RemoteDisconnected is a ConnectionResetError too, so the exact type tells RST from FIN.
    assert type(caught.value) is error
    assert (line.status, line.bytes, line.end, line.rules) == (None, 0, end, ("it",))


def test_truncate(folder: Path, ask: Ask) -> None:
    """`truncate` announces all, sends a part and closes; HEAD, which it cannot change, is left
    alone.
    """
    with Hub(
        folder, rules=one_rule("role: tokenizer.json, answer: {kind: truncate, after: 300000}")
    ) as hub:
        head = ask(hub, LARGE, "HEAD")
        with pytest.raises(http.client.IncompleteRead) as caught:
            ask(hub, LARGE)
        first, second = hub.requests()
    assert head.headers["Content-Length"] == str(len(BIG))
    assert caught.value.partial == BIG[:300000]
    assert (first.rules, second.rules, second.bytes, second.end) == (
        (),
        ("it",),
        300000,
        "truncated",
    )


def test_short(folder: Path, ask: Ask) -> None:
    """`short` is a well-formed answer with too few bytes."""
    reply, line = struck(folder, ask, "method: GET, answer: {kind: short, share: 0.25}", LARGE)
    assert (reply.status, reply.body, line.end) == (200, BIG[: len(BIG) // 4], "whole")


def test_wrong_bytes_and_wrong_etag(folder: Path, ask: Ask) -> None:
    """`wrong-bytes` changes one byte and nothing else; `wrong-etag` changes the ETag and no
    byte.
    """
    bytes_changed, _ = struck(
        folder, ask, "role: tokenizer.json, answer: {kind: wrong-bytes}", LARGE
    )
    text_changed, _ = struck(folder, ask, "answer: {kind: wrong-bytes, text: other}", CONFIG)
    etag_changed, _ = struck(folder, ask, "answer: {kind: wrong-etag}", LARGE)
    with Hub(folder) as hub:
        true = ask(hub, LARGE)
    assert sum(a != b for a, b in zip(bytes_changed.body, BIG, strict=True)) == 1
    assert bytes_changed.headers["ETag"] == true.headers["ETag"]
    assert text_changed.body == b"other"
    assert etag_changed.body == BIG
    assert etag_changed.headers["ETag"] != true.headers["ETag"]
    assert len(etag_changed.headers["ETag"]) == len(true.headers["ETag"])


def test_latency_waits_and_the_next_rule_answers(folder: Path, ask: Ask) -> None:
    """`latency` delays what the rules after it, or nobody, make of the answer.

    Both are in the log.
    """
    rules = parse_rules(
        "schema: 1\nrules:\n"
        "  - {id: slow, answer: {kind: latency, for: 80ms}}\n"
        "  - {id: no, role: config.json, answer: {kind: error}}\n"
    )
    with Hub(folder, rules=rules) as hub:
        replies = [ask(hub, CONFIG), ask(hub, INFO)]
        lines = hub.requests()
    assert [reply.status for reply in replies] == [503, 200]
    assert [line.rules for line in lines] == [("slow", "no"), ("slow",)]
    assert all(line.duration_ns >= 80_000_000 for line in lines)


def test_refuse_closes_the_port_for_a_time(folder: Path, ask: Ask) -> None:
    """`refuse` resets the request and other connections, refuses new ones, and the hub returns on
    the same port.
    """
    with Hub(
        folder,
        rules=one_rule("role: model_info, answer: {kind: refuse, for: 400ms}, when: {times: 1}"),
    ) as hub:
        port = int(hub.endpoint.rpartition(":")[2])
        idle = socket.create_connection(("127.0.0.1", port))
        idle.sendall(f"HEAD {CONFIG} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        with pytest.raises(ConnectionResetError):
            ask(hub, INFO)
        with pytest.raises(ConnectionRefusedError):
            ask(hub, INFO)
        with pytest.raises(ConnectionResetError):
            idle.recv(65536)
        idle.close()
        while True:
            try:
                reply = ask(hub, INFO)
                break
            except ConnectionRefusedError:
                hub.wait(0.05)
        ends = [(line.end, line.rules) for line in hub.requests()]
    assert reply.status == 200
    assert ends == [("whole", ()), ("refused", ("it",)), ("whole", ())]


def statuses(
    folder: Path, ask: Ask, when: str, clients: list[str], role: str = "config.json"
) -> list[int]:
    rule = f"role: {role}, method: GET, answer: {{kind: error}}, when: {{{when}}}"
    with Hub(folder, rules=one_rule(rule)) as hub:
        return [ask(hub, CONFIG, client=client).status for client in clients]


def test_when(folder: Path, ask: Ask) -> None:
    """times, requests and quota count for each client or for all, as the rule says."""
    clients = ["a", "a", "b", "a", "b", "b"]
    ok, no = 200, 503
    assert statuses(folder, ask, "times: 1", clients) == [no, ok, no, ok, ok, ok]
    assert statuses(folder, ask, "times: 1, per: all", clients) == [no, ok, ok, ok, ok, ok]
    assert statuses(folder, ask, "requests: [2, 2]", clients) == [ok, no, ok, ok, no, ok]
    assert statuses(folder, ask, "quota: 4, window: 1h", clients) == [ok, ok, ok, ok, no, no]
    assert statuses(folder, ask, "quota: 2, window: 1h, per: client", clients) == [
        ok,
        ok,
        ok,
        no,
        ok,
        no,
    ]
    assert statuses(folder, ask, "seconds: [0s, 1h], times: 2, per: all", clients) == [
        no,
        no,
        ok,
        ok,
        ok,
        ok,
    ]
    assert statuses(folder, ask, "seconds: [1h, 2h]", clients) == [ok] * 6
    assert statuses(folder, ask, "times: 9", ["a"], role="tokenizer.json") == [ok]


def test_a_quota_tells_its_window(folder: Path, ask: Ask) -> None:
    """A 429 of a quota carries the policy and the seconds left of the window, as the public hub's
    does.
    """
    rule = "role: model_info, answer: {kind: rate-limit}, when: {quota: 1, window: 5min}"
    with Hub(folder, rules=one_rule(rule)) as hub:
        first, second = ask(hub, INFO), ask(hub, INFO)
    limits = parse_ratelimit_headers(second.headers)
    assert (first.status, second.status) == (200, 429)
    assert limits is not None
    assert (limits.limit, limits.window_seconds) == (1, 300)
    assert 0 < limits.reset_in_seconds <= 300


def test_a_strike_that_changes_nothing_is_no_strike(folder: Path, ask: Ask) -> None:
    """A rule whose fault cannot change the answer is neither counted nor logged."""
    with Hub(
        folder, rules=one_rule("answer: {kind: wrong-etag, etag: x}, when: {times: 1}")
    ) as hub:
        ask(hub, INFO)
        ask(hub, "/acme/tiny/resolve/main/empty.txt")
        lines = hub.requests()
    assert [line.rules for line in lines] == [(), ("it",)]


def pattern(folder: Path, ask: Ask, seed: str, order: list[str]) -> dict[str, list[int]]:
    """What each of 64 clients gets, all at once, each in a thread of its own, started in this
    order.
    """
    rules = parse_rules(
        f"schema: 1\nseed: {seed}\nrules:\n  - {{id: some, answer: {{kind: error}}, when:"
        " {probability: 0.3}}\n"
    )
    out: dict[str, list[int]] = {}
    paths = [
        CONFIG,
        INFO,
        CONFIG,
        INFO + "/tree/main",
        CONFIG,
        "/acme/tiny/resolve/main/tokenizer.model",
    ] * 2
    with Hub(folder, rules=rules) as hub:

        def client(name: str) -> None:
            out[name] = [ask(hub, path, client=name).status for path in paths]

        threads = [threading.Thread(target=client, args=(name,)) for name in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(hub.requests()) == 64 * len(paths)
        assert sum(bool(line.rules) for line in hub.requests()) == sum(
            row.count(503) for row in out.values()
        )
    return out


@pytest.mark.whole
def test_the_seed_decides(folder: Path, ask: Ask) -> None:
    """64 clients at once meet the same faults for the same seed in whatever order they come, others
    for another.
    """
    names = [f"c{number}" for number in range(64)]
    first, again = pattern(folder, ask, "one", names), pattern(folder, ask, "one", names[::-1])
    other = pattern(folder, ask, "two", names)
    assert first == again
    assert first != other
    rate = sum(row.count(503) for row in first.values()) / sum(map(len, first.values()))
    assert 0.2 < rate < 0.4


def test_the_log_is_a_file_of_whole_lines(folder: Path, ask: Ask, tmp_path: Path) -> None:
    """The file holds, the moment an answer has arrived, exactly what the hub tells about it."""
    log = tmp_path / "access.jsonl"
    with Hub(folder, log=log, rules=one_rule("role: model_info, answer: {kind: error}")) as hub:
        for path in (CONFIG, INFO, LARGE):
            ask(hub, path, client="me")
            assert read_log(log) == hub.requests()
        assert hub.counts() == {"GET model_info": 1, "GET resolve": 2, "total": 3}
        assert [line.bytes for line in hub.requests() if line.file] == [23, len(BIG)]
