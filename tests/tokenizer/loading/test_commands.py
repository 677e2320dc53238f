"""`rankproof tokenizer lock` and `verify`, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE, main
from tests.tokenizer.loading.hubs import COMMIT, FakeHub, send, write


@pytest.mark.slow
def test_lock_then_verify(
    fake: FakeHub, small_files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lock of a repository verifies that repository and a folder with its files, and tells
    another folder apart.
    """
    lock = tmp_path / "tokenizer.lock.json"
    hub = ["--endpoint", fake.endpoint, "--cache", str(tmp_path / "cache"), "--deadline", "10s"]
    assert main(["tokenizer", "lock", "org/name", "-o", str(lock), *hub]) == PASS
    assert COMMIT in capsys.readouterr().out
    assert json.loads(lock.read_text())["commit"] == COMMIT
    assert main(["tokenizer", "verify", "org/name", "--lock", str(lock), *hub]) == PASS
    assert capsys.readouterr().out == "the same\n"
    same = write(tmp_path / "same", small_files)
    assert main(["tokenizer", "verify", str(same), "--lock", str(lock)]) == PASS
    capsys.readouterr()
    other = write(tmp_path / "other", small_files | {"chat_template.jinja": b"{{ other }}"})
    assert main(["tokenizer", "verify", str(other), "--lock", str(lock)]) == FAIL
    said = capsys.readouterr().out
    assert "chat_template.jinja" in said
    assert said.endswith("different\n")


def test_what_cannot_be_found_out_is_no_verdict(
    fake: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failing hub exits 2 with the cause and every failed attempt.

    A source that may not be used exits 64.
    """
    fake.replace["/main"] = lambda handler: send(handler, b"", status=503)
    lock = tmp_path / "tokenizer.lock.json"
    hub = ["--endpoint", fake.endpoint, "--cache", str(tmp_path / "cache"), "--deadline", "500ms"]
    assert main(["tokenizer", "lock", "org/name", "-o", str(lock), *hub]) == INCONCLUSIVE
    said = capsys.readouterr().err
    assert "because of Passing: it answered 503" in said
    assert "attempt 2" in said
    assert not lock.exists()
    assert main(["tokenizer", "lock", "../nothing", "-o", str(lock), *hub]) == USAGE
    lock.write_text("{}")
    assert main(["tokenizer", "verify", "org/name", "--lock", str(lock), *hub]) == USAGE
    assert "not a lock file" in capsys.readouterr().err
