"""Requests that no client of the hub sends, and clients that behave badly."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hub import Hub, HubError, Limits, LogLost, parse_rules, read_log
from harness.hub.request import BadTarget, parse
from tests.kit.hub_client import Ask

CONFIG = "/acme/tiny/resolve/main/config.json"


def raw(hub: Hub, data: bytes, *, finish: bool = False) -> bytes:
    """Send bytes as they are and read until the hub closes."""
    with socket.create_connection(
        ("127.0.0.1", int(urlsplit(hub.endpoint).port or 0)), timeout=20
    ) as peer:
        peer.sendall(data)
        if finish:
            peer.shutdown(socket.SHUT_WR)
        out = b""
        while chunk := peer.recv(65536):
            out += chunk
        return out


@pytest.mark.parametrize(
    "path",
    [
        "/acme/tiny/resolve/main/../../secret",
        "/acme/tiny/resolve/main/%2e%2e/%2e%2e/secret",
        "/acme/tiny/resolve/main/nested%2Fdeep%2Ffile.txt",
        "/acme/tiny/resolve/main/..%2f..%2fsecret",
        "/acme/tiny/resolve/..%2f..%2fsecret/config.json",
        "/acme/tiny/resolve/main/..%5csecret",
        "/acme/tiny/resolve/main/config.json%00.txt",
        "/acme/tiny/resolve/main//etc/passwd",
        "/acme/tiny/resolve/main/%zz",
        "/acme/tiny/resolve/main/%ff%fe",
        "/api/models/..%2F..%2Fsecret/tiny",
        "/api/models/acme/tiny/tree/main/../..",
        "/client/%2e%2e/acme/tiny/resolve/main/config.json",
        "/client/a%20b/api/models/acme/tiny",
        "http://elsewhere/acme/tiny",
    ],
)
def test_bad_addresses_are_refused_and_logged(folder: Path, path: str) -> None:
    """Dots, encoded slashes, NUL, backslashes, bad UTF-8: 400, a line in the log, and no byte of
    any file.
    """
    (folder.parent / "secret").write_text("SECRET")
    with Hub(folder) as hub:
        answer = raw(hub, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        (line,) = hub.requests()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"SECRET" not in answer
    assert (line.status, line.role) == (400, None)
    assert line.note


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: a\x00b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"x: a\r\n" * 500 + b"\r\n", 431),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nConnection: close\r\n\r\n", 414),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"DELETE /api/models/acme/tiny HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: x", 400),
    ],
)
def test_bad_requests_are_refused_and_logged(folder: Path, data: bytes, status: int) -> None:
    """What is not a request, or too large a one, gets the status that says so and one line.

    The hub goes on.
    """
    with Hub(folder) as hub:
        answer = raw(hub, data, finish=True)
        lines = hub.requests()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert [line.status for line in lines] == [status]


@pytest.mark.slow
def test_slow_clients_are_dropped(folder: Path) -> None:
    """A head that never ends, an idle connection and a client that does not read cost a bounded
    time each.
    """
    (folder / "acme" / "tiny" / "large.bin").write_bytes(b"x" * (32 << 20))
    limits = Limits(idle=0.3, head=0.3, send=0.3)
    with Hub(folder, limits=limits) as hub:
        port = int(hub.endpoint.rpartition(":")[2])
        assert raw(hub, b"GET / HT").startswith(b"HTTP/1.1 408 ")
        assert raw(hub, b"") == b""
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", port))
            deaf.sendall(b"GET /acme/tiny/resolve/main/large.bin HTTP/1.1\r\n\r\n")
            while not any(line.end == "timed-out" for line in hub.requests()):
                hub.wait(0.05)
        assert [line.end for line in hub.requests()] == ["whole", "timed-out"]
        assert 0 < hub.requests()[1].bytes < 32 << 20


def test_too_many_connections_get_503(folder: Path) -> None:
    """Above the limit a client is refused with the reason, and the log has the line."""
    with Hub(folder, limits=Limits(connections=2)) as hub:
        address = ("127.0.0.1", int(hub.endpoint.rpartition(":")[2]))
        request = f"HEAD {CONFIG} HTTP/1.1\r\n\r\n".encode()
        held = []
        for _ in range(2):
            held.append(socket.create_connection(address))
            held[-1].sendall(request)
            assert held[-1].recv(4096).startswith(b"HTTP/1.1 200")
        assert raw(hub, request).startswith(b"HTTP/1.1 503 ")
        assert [line.status for line in hub.requests()] == [200, 200, 503]
        for one in held:
            one.close()


def test_a_client_that_leaves_is_logged(folder: Path) -> None:
    """A request whose client went away while it waited has its line all the same."""
    rules = parse_rules("schema: 1\nrules:\n  - {id: slow, answer: {kind: latency, for: 1h}}\n")
    with Hub(folder, rules=rules) as hub:
        with socket.create_connection(("127.0.0.1", int(hub.endpoint.rpartition(":")[2]))) as peer:
            peer.sendall(f"GET {CONFIG} HTTP/1.1\r\n\r\n".encode())
        while not hub.requests():
            hub.wait(0.05)
        (line,) = hub.requests()
    assert (line.end, line.status, line.rules) == ("peer-left", None, ("slow",))


def test_stopping_logs_what_was_under_way(folder: Path, tmp_path: Path) -> None:
    """A hub that stops ends its connections at once and writes a line for the request it did not
    answer.
    """
    rules = parse_rules("schema: 1\nrules:\n  - {id: slow, answer: {kind: latency, for: 1h}}\n")
    hub = Hub(folder, rules=rules, log=tmp_path / "log").start()
    with socket.create_connection(("127.0.0.1", int(hub.endpoint.rpartition(":")[2]))) as peer:
        peer.sendall(f"GET {CONFIG} HTTP/1.1\r\n\r\n".encode())
        while hub.busy() == 0:
            hub.wait(0.02)
        hub.stop()
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    assert [line.end for line in read_log(tmp_path / "log")] == ["stopped"]


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full"
)
def test_a_full_disk_stops_the_hub(folder: Path, ask: Ask) -> None:
    """A line that cannot be written ends the hub: no answer without evidence, and the error says
    what to do.
    """
    hub = Hub(folder, log=Path("/dev/full")).start()
    with pytest.raises(ConnectionError):
        ask(hub, CONFIG)
    assert hub.wait(20)
    with pytest.raises(LogLost, match="No space left"):
        hub.requests()
    with pytest.raises(ConnectionError):
        ask(hub, CONFIG)
    with pytest.raises(HubError, match="free some space"):
        hub.stop()


@pytest.mark.whole
def test_64_clients_leak_nothing(folder: Path, ask: Ask, tmp_path: Path) -> None:
    """64 clients at once, some of them rude: a line for every request, whole, and no connection
    left open.
    """
    log = tmp_path / "log"
    with Hub(folder, log=log) as hub:
        address = ("127.0.0.1", int(hub.endpoint.rpartition(":")[2]))

        def client(number: int) -> None:
            for turn in range(8):
                assert (
                    ask(hub, "/acme/tiny/resolve/main/tokenizer.json", client=f"c{number}").status
                    == 200
                )
                if (number + turn) % 4 == 0:
                    with socket.create_connection(address) as rude:
                        rude.sendall(b"GET /acme/tin")

        threads = [threading.Thread(target=client, args=(number,)) for number in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        deadline = time.monotonic() + 30
        while hub.open_connections() and time.monotonic() < deadline:
            hub.wait(0.02)
        assert hub.open_connections() == 0
        lines = hub.requests()
    served = [line for line in lines if line.status == 200]
    rude = [line for line in lines if line.status == 400]
    assert (len(served), len(rude)) == (64 * 8, 64 * 2)
    assert len(lines) == len(served) + len(rude)
    assert sorted(line.n for line in lines) == list(range(1, len(lines) + 1))
    assert log.read_text().count("\n") == len(lines)


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=60))
def test_any_address_is_parsed_or_refused(text: str) -> None:
    """Whatever an address holds, parsing it gives a target without dots or empty parts, or a
    refusal.
    """
    for address in ("/" + text, "/a/b/resolve/main/" + text, "/api/models/a/b/tree/main/" + text):
        try:
            target = parse(address)
        except BadTarget:
            continue
        parts = target.path.split("/") if target.path else []
        assert not {"", ".", ".."} & set(parts)
