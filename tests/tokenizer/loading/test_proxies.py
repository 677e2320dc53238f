"""A proxy between this machine and the hub: when it is used, and what it is told."""

from __future__ import annotations

import base64
import http.client
import http.server
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.tokenizer.loading import HubFailed, load, wire
from tests.tokenizer.loading.hubs import FakeHub, send
from tests.tokenizer.loading.test_wire import ask

pytestmark = pytest.mark.slow  # each is short; together they take longer than the inner loop has


def test_a_proxy_is_used(fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where http_proxy is set, requests go there with the whole address.

    Where no_proxy names the hub, they do not.
    """
    monkeypatch.setenv("http_proxy", fake.endpoint)
    fake.replace["/main"] = lambda handler: send(handler, b"", status=403)
    with pytest.raises(HubFailed, match="403"):
        load("org/name", endpoint="http://hub.invalid", cache=tmp_path, deadline=5)
    assert fake.paths == ["http://hub.invalid/api/models/org/name/revision/main"]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(HubFailed, match="403"):
        ask(fake, tmp_path)
    assert fake.paths[1:] == ["/api/models/org/name/revision/main"]


class Proxy:
    """A proxy that asks for a name and a password, forwards plain requests, and opens no tunnel."""

    def __init__(self, known: bytes) -> None:
        self.url = ""
        self.received: list[tuple[str, str | None]] = []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                said = self.headers["Proxy-Authorization"]
                proxy.received.append((self.command, said))
                if said != f"Basic {base64.b64encode(known).decode()}" or self.command == "CONNECT":
                    send(self, b"", status=407, Proxy_Authenticate="Basic realm=here")
                    return
                parts = urllib.parse.urlsplit(self.path)
                line = http.client.HTTPConnection(parts.netloc)
                line.request(
                    "GET", f"{parts.path}?{parts.query}", headers={"Accept-Encoding": "identity"}
                )
                with line.getresponse() as answer:
                    send(self, answer.read(), status=answer.status)
                line.close()

            do_CONNECT = do_GET  # noqa: N815 - the library's names

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.place = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy("me:a:b/cé".encode())
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_proxy_is_told_who_asks(
    fake: FakeHub, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name and password of http_proxy reach the proxy and not the hub.

    Without them the proxy's 407 is the error.
    """
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", f"http://{proxy.place}")
    with pytest.raises(HubFailed, match="407"):
        ask(fake, tmp_path)
    monkeypatch.setenv("http_proxy", f"http://me:a%3Ab%2Fc%C3%A9@{proxy.place}")
    ask(fake, tmp_path)
    assert fake.paths
    assert not any("Proxy-Authorization" in headers for headers in fake.headers)


def test_a_proxy_is_told_who_asks_for_a_tunnel(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an address of https CONNECT says it to the proxy, and the request inside the tunnel says
    nothing of it.
    """
    monkeypatch.setenv("https_proxy", f"http://me@{proxy.place}")
    way = wire.route_to("https://hub.invalid/a?b", timeout=5)
    with pytest.raises(OSError, match="407"):
        way.connection.connect()
    way.connection.close()
    assert proxy.received == [("CONNECT", f"Basic {base64.b64encode(b'me:').decode()}")]
    assert (way.target, way.headers) == ("/a?b", {})
