"""Requests under one deadline, against a hub that fails, lies and stalls."""

from __future__ import annotations

import http.client
import http.server
import json
import socket
import threading
import time
from pathlib import Path

import pytest

from harness.tokenizer.loading import (
    BytesDiffer,
    DeadlineExceeded,
    HubFailed,
    SourceLimits,
    SourceRefused,
    load,
    wire,
)
from tests.tokenizer.loading.hubs import COMMIT, FakeHub, hang_up, send, send_json

pytestmark = pytest.mark.slow  # each is short; together they take longer than the inner loop has


def ask(fake: FakeHub, cache: Path, **more: object) -> object:
    return load("org/name", endpoint=fake.endpoint, cache=cache, **{"deadline": 5.0, **more})  # type: ignore[arg-type]


def test_a_quota_beyond_the_deadline_fails_at_once(fake: FakeHub, tmp_path: Path) -> None:
    """Where the hub asks to wait longer than the deadline allows, the error says so instead of
    stalling.
    """
    fake.replace["/main"] = lambda handler: send(
        handler, b"", status=429, RateLimit='"api";r=0;t=300'
    )
    with pytest.raises(DeadlineExceeded, match=r"429.*asks to wait 300 s") as caught:
        ask(fake, tmp_path, deadline=30.0)
    assert caught.value.status == 429
    assert [request.status for request in caught.value.requests] == [429]
    assert len(fake.paths) == 1


def test_a_short_quota_is_waited_for(fake: FakeHub, tmp_path: Path) -> None:
    """A window that ends before the deadline costs a wait and an attempt, and nothing else."""

    def full(handler: http.server.BaseHTTPRequestHandler) -> None:
        del fake.replace["/main"]
        send(handler, b"", status=429, Retry_After="0")

    fake.replace["/main"] = full
    fake.replace["/tokenizer.json"] = lambda handler: send(handler, b"", status=500)
    with pytest.raises(DeadlineExceeded) as caught:
        ask(fake, tmp_path, deadline=1.0)
    assert [request.status for request in caught.value.requests][:2] == [429, 200]


def test_retries_are_bounded_by_the_deadline_and_reported(fake: FakeHub, tmp_path: Path) -> None:
    """Resets are asked again until the deadline.

    The error counts the attempts and carries the lowest cause.
    """
    fake.replace["/tokenizer.json"] = hang_up
    with pytest.raises(
        DeadlineExceeded, match=r"tokenizer\.json.*deadline of 1 s, requested \d times"
    ) as caught:
        ask(fake, tmp_path, deadline=1.0)
    assert caught.value.attempts >= 2
    assert isinstance(caught.value.__cause__, OSError | http.client.HTTPException)
    tried = [
        request for request in caught.value.requests if request.path.endswith("/tokenizer.json")
    ]
    assert [request.attempt for request in tried] == list(range(1, caught.value.attempts + 1))
    assert all(request.problem for request in tried)
    assert not list(tmp_path.rglob("manifest.json"))


def test_a_body_that_drips_is_cut_at_the_deadline(fake: FakeHub, tmp_path: Path) -> None:
    """A server that sends a byte now and then never runs into a socket's timeout, and yet ends at
    the deadline.
    """
    left = threading.Event()

    def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(fake.files["tokenizer.json"])))
        handler.end_headers()
        try:
            while not left.wait(0.02):
                handler.wfile.write(b" ")
        except OSError:
            left.set()

    fake.replace["/tokenizer.json"] = drip
    with pytest.raises(DeadlineExceeded):
        ask(fake, tmp_path, deadline=0.7)
    assert left.wait(10)


def test_a_404_for_a_listed_file_is_an_error(fake: FakeHub, tmp_path: Path) -> None:
    """A file that the listing has does not become absent because one answer says so, not even on
    the next load.
    """
    fake.replace["/chat_template.jinja"] = lambda handler: send(
        handler, b"", status=404, X_Repo_Commit=COMMIT
    )
    with pytest.raises(HubFailed, match=r"chat_template\.jinja.*404.*requested 3 times") as caught:
        ask(fake, tmp_path)
    assert caught.value.status == 404
    fake.replace.clear()
    loaded = ask(fake, tmp_path)
    assert loaded.tokenizer.chat_template  # type: ignore[attr-defined]


def test_headers_decide_nothing(fake: FakeHub, tmp_path: Path) -> None:
    """An ETag, a commit or a file name with `../` in an answer leads nowhere: bytes and listing
    alone decide.
    """

    def misled(handler: http.server.BaseHTTPRequestHandler) -> None:
        body = fake.files[handler.path.partition(f"/resolve/{COMMIT}/")[2]]
        up = "../../../escaped"
        disposition = f'attachment; filename="{up}"'
        send(
            handler,
            body,
            ETag=f'"{up}"',
            X_Repo_Commit=up,
            X_Linked_Etag=up,
            Content_Disposition=disposition,
        )

    for name in fake.files:
        fake.replace[f"/{name}"] = misled
    loaded = ask(fake, tmp_path / "a" / "b" / "c" / "cache")
    assert loaded.identity == load(loaded.snapshot).identity  # type: ignore[attr-defined]
    assert not list(tmp_path.rglob("*escaped*"))


def test_wrong_bytes_are_an_error(fake: FakeHub, tmp_path: Path) -> None:
    """Bytes of the right length and another digest are refused, and named."""
    changed = fake.files["tokenizer.json"].replace(b"hello", b"hollo", 1)
    assert changed != fake.files["tokenizer.json"]
    fake.replace["/tokenizer.json"] = lambda handler: send(handler, changed)
    with pytest.raises(BytesDiffer, match=r"tokenizer\.json: its bytes have git id"):
        ask(fake, tmp_path)


def test_an_endless_body_is_cut_at_the_promised_size(fake: FakeHub, tmp_path: Path) -> None:
    """More bytes than the listing promises are neither kept in memory nor on disk."""

    def endless(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b" " * 65536)
        except OSError:
            handler.close_connection = True

    fake.replace["/config.json"] = endless
    with pytest.raises(BytesDiffer, match="more than the"):
        ask(fake, tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 100_000


@pytest.mark.parametrize(
    "name",
    ["../../escaped", "/escaped", "a\\..\\b", "a\0b", "additional_chat_templates/../../x.jinja"],
)
def test_a_listing_with_a_name_that_leaves_is_refused(
    fake: FakeHub, tmp_path: Path, name: str
) -> None:
    """Nothing of a repository that lists such a name is fetched or written."""
    fake.files[name] = b"{}"
    with pytest.raises(SourceRefused, match="lists a file"):
        ask(fake, tmp_path / "cache")
    assert not any("/resolve/" in path for path in fake.paths)
    assert not list(tmp_path.rglob("*escaped*"))


def test_a_file_beyond_the_limit_is_refused_before_it_is_asked_for(
    fake: FakeHub, tmp_path: Path
) -> None:
    """A tokenizer.json of a gigabyte is refused by its listing."""
    tree = fake.tree()
    next(entry for entry in tree if entry["path"] == "tokenizer.json")["size"] = 2**30
    fake.replace[f"/tree/{COMMIT}"] = lambda handler: send_json(handler, tree)
    with pytest.raises(SourceRefused, match=r"tokenizer\.json has 1,073,741,824 bytes"):
        ask(fake, tmp_path)
    assert not any("/resolve/" in path for path in fake.paths)


def test_two_listings_that_disagree_are_an_error(fake: FakeHub, tmp_path: Path) -> None:
    """A tree that leaves a file out is found out by the revision's summary, and the other way
    round.
    """
    short = [entry for entry in fake.tree() if entry["path"] != "chat_template.jinja"]
    fake.replace[f"/tree/{COMMIT}"] = lambda handler: send_json(handler, short)
    with pytest.raises(BytesDiffer, match=r"disagree about chat_template\.jinja"):
        ask(fake, tmp_path)
    fake.replace.clear()
    fake.replace["/main"] = lambda handler: send_json(
        handler, {"sha": COMMIT, "siblings": [{"rfilename": entry["path"]} for entry in short]}
    )
    with pytest.raises(BytesDiffer, match=r"disagree about chat_template\.jinja"):
        ask(fake, tmp_path)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        {"sha": "main", "siblings": []},
        {"sha": "../" + "c" * 37, "siblings": []},
        {"sha": COMMIT},
        {"sha": COMMIT, "siblings": [{}]},
        {"sha": COMMIT, "siblings": [{"rfilename": 1}]},
        "text",
    ],
)
def test_a_summary_that_is_none_is_an_error(fake: FakeHub, tmp_path: Path, answer: object) -> None:
    """Whatever JSON the hub gives for a revision, it is a commit with names or an error."""
    fake.replace["/main"] = lambda handler: send_json(handler, answer)
    with pytest.raises(BytesDiffer):
        ask(fake, tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {"type": "file"},
        {"type": "submodule", "path": "x"},
        {"type": "file", "path": "x.json", "size": -1, "oid": "0" * 40},
        {"type": "file", "path": "x.json", "size": True, "oid": "0" * 40},
        {"type": "file", "path": "x.json", "size": 1, "oid": "zz"},
        {
            "type": "file",
            "path": "x.json",
            "size": 1,
            "oid": "0" * 40,
            "lfs": {"oid": "0" * 40, "size": 1},
        },
    ],
)
def test_a_tree_entry_that_is_none_is_an_error(
    fake: FakeHub, tmp_path: Path, entry: object
) -> None:
    """A listing that does not say what a file is cannot verify it."""
    fake.replace[f"/tree/{COMMIT}"] = lambda handler: send_json(handler, [*fake.tree(), entry])
    with pytest.raises(BytesDiffer):
        ask(fake, tmp_path)


def test_a_next_page_on_another_host_is_refused(fake: FakeHub, tmp_path: Path) -> None:
    """Pages of the listing come from the hub itself."""
    fake.replace[f"/tree/{COMMIT}"] = lambda handler: send(
        handler,
        json.dumps(fake.tree()).encode(),
        Link='<http://elsewhere.invalid/api/x>; rel="next"',
    )
    with pytest.raises(HubFailed, match="another host"):
        ask(fake, tmp_path)


def test_pages_of_a_listing_are_followed(fake: FakeHub, tmp_path: Path) -> None:
    """A listing in two pages is one listing."""
    tree = fake.tree()
    fake.replace["/page2"] = lambda handler: send_json(handler, tree[3:])
    fake.replace[f"/tree/{COMMIT}"] = lambda handler: send(
        handler, json.dumps(tree[:3]).encode(), Link=f'<{fake.endpoint}/api/page2>; rel="next"'
    )
    with pytest.raises(SourceRefused, match="entries"):
        ask(fake, tmp_path, limits=SourceLimits(entries=4))
    assert f"{fake.endpoint}/api/page2".endswith(fake.paths[-1])


def test_the_token_goes_to_the_hub_only(fake: FakeHub, tmp_path: Path) -> None:
    """A redirect to a storage host is followed without the token."""
    storage = FakeHub({})
    config = fake.files["config.json"]
    storage.replace["/blob"] = lambda handler: send(handler, config)
    fake.replace["/config.json"] = lambda handler: send(
        handler, b"", status=302, Location=f"{storage.endpoint}/blob?signature=secret"
    )
    fake.replace["/tokenizer.json"] = lambda handler: send(
        handler, b"", status=403, X_Error_Code="GatedRepo"
    )
    try:
        with pytest.raises(HubFailed, match=r"GatedRepo.*token") as caught:
            ask(fake, tmp_path, token="hf_mine")  # noqa: S106 - no password
    finally:
        storage.close()
    assert {headers.get("Authorization") for headers in fake.headers} == {"Bearer hf_mine"}
    assert [headers.get("Authorization") for headers in storage.headers] == [None]
    assert "secret" not in repr(caught.value.requests)


def test_a_stored_token_is_used_and_false_is_none(
    fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HF_TOKEN is sent where nothing is said, and nothing where token is False."""
    monkeypatch.setenv("HF_TOKEN", "hf_env")
    fake.replace["/main"] = lambda handler: send(handler, b"", status=403)
    for token in (None, False):
        with pytest.raises(HubFailed):
            ask(fake, tmp_path, token=token)
    assert [headers.get("Authorization") for headers in fake.headers] == ["Bearer hf_env", None]


def test_a_circle_of_redirects_ends(fake: FakeHub, tmp_path: Path) -> None:
    """A redirect to itself is an error, not a loop."""
    fake.replace["/main"] = lambda handler: send(handler, b"", status=307, Location=handler.path)
    with pytest.raises(HubFailed, match="too many redirects"):
        ask(fake, tmp_path)


def test_a_redirect_to_a_file_is_refused(fake: FakeHub, tmp_path: Path) -> None:
    """Only http and https are followed."""
    fake.replace["/main"] = lambda handler: send(
        handler, b"", status=302, Location="file:///etc/passwd"
    )
    with pytest.raises(HubFailed, match="such redirects are not followed"):
        ask(fake, tmp_path)


def test_nobody_listening_is_an_error_with_its_cause(tmp_path: Path) -> None:
    """A refused connection is reported as what it is."""
    hub = FakeHub({})
    hub.close()
    with pytest.raises(DeadlineExceeded, match="refused") as caught:
        ask(hub, tmp_path, deadline=0.4)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_a_name_that_nobody_looks_up_ends_at_the_deadline(
    fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver that does not answer is left behind when the time is over, and the error names the
    host.
    """
    answered = threading.Event()
    plain = socket.getaddrinfo

    def slow(host: str, *arguments: object, **options: int) -> object:
        if host == "hub.example" and not options.get("flags"):
            answered.wait(60)
        return plain(host, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    begun = time.monotonic()
    try:
        with pytest.raises(
            DeadlineExceeded, match=r"hub\.example was not resolved within"
        ) as caught:
            load("org/name", endpoint="http://hub.example", cache=tmp_path, deadline=0.5)
        assert time.monotonic() - begun < 20
        assert caught.value.requests[0].status is None
    finally:
        answered.set()
    assert fake.paths == []


def test_all_addresses_of_a_host_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that refuses is passed over.

    Addresses that say nothing use up one timeout together, not one each.
    """
    timeouts: list[float] = []
    refused = OSError(111, "refused")

    def connect(place: tuple[str, int], timeout: float, source: object) -> socket.socket:
        del source
        timeouts.append(timeout)
        if place[0] == "127.0.0.1":
            raise refused
        now.append(now[-1] + timeout)
        raise TimeoutError("timed out")

    now = [100.0]
    monkeypatch.setattr(wire.time, "monotonic", lambda: now[-1])
    monkeypatch.setattr(socket, "create_connection", connect)
    found = [("127.0.0.1", 9), *[("192.0.2.1", 9)] * 5]
    monkeypatch.setattr(wire, "_addresses", lambda *_, **_seconds: found)
    with pytest.raises(TimeoutError):
        wire._reached(("hub.example", 9), 3.0)
    assert timeouts == [3.0, 3.0]


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), float("inf")])
def test_a_deadline_is_a_time(tmp_path: Path, deadline: float) -> None:
    """A deadline that never comes, or came before, is refused."""
    with pytest.raises(SourceRefused, match="deadline"):
        load("org/name", endpoint="http://hub.invalid", cache=tmp_path, deadline=deadline)
