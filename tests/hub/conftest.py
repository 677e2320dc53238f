"""A small folder of repositories, and plain HTTP without a client library's retries."""

from __future__ import annotations

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.hub import Hub
from tests.kit.hub_client import BIG, Ask, Reply


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "repositories"
    main, tag = root / "acme" / "tiny", root / "acme" / "tiny@v1.0"
    (main / "nested" / "deep").mkdir(parents=True)
    tag.mkdir()
    (main / "README.md").write_text("---\nbase_model: mistralai/Some\ntags: [x]\n---\n# tiny\n")
    (main / ".gitattributes").write_text("*.model filter=lfs diff=lfs merge=lfs -text\n")
    (main / "config.json").write_text('{"model_type": "llama"}')
    (main / "tokenizer.json").write_bytes(BIG)
    (main / "tokenizer.model").write_bytes(b"pieces")
    (main / "empty.txt").write_bytes(b"")
    (main / "nested" / "deep" / "file.txt").write_text("deep")
    (tag / "config.json").write_text('{"model_type": "gpt2"}')
    return root


@pytest.fixture
def ask() -> Ask:
    def go(
        hub: Hub, path: str, method: str = "GET", client: str | None = None, **headers: str
    ) -> Reply:
        where = urlsplit(hub.endpoint)
        connection = http.client.HTTPConnection(
            str(where.hostname), int(where.port or 0), timeout=20
        )
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(
                method, (f"/client/{client}" if client else "") + path, headers=named
            )
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    return go
