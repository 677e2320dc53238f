"""`rankproof lab hub`, as a user runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from harness.hub import read_log

CLIENT = """
import http.client, sys
from urllib.parse import urlsplit
where = urlsplit(sys.argv[1])
connection = http.client.HTTPConnection(where.hostname, where.port)
for _ in range(10):
    connection.request("GET", "/api/models/acme/tiny")
    assert connection.getresponse().read()
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "harness.cli", "lab", "hub", *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def endpoint_of(hub: subprocess.Popen[str]) -> str:
    assert hub.stdout is not None
    for line in hub.stdout:
        if found := re.fullmatch(r"export HF_ENDPOINT=(\S+)\n", line):
            return found[1]
    raise AssertionError(hub.communicate()[1])


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_serve_until_asked_to_stop(folder: Path, tmp_path: Path, how: signal.Signals) -> None:
    """The command prints the endpoint, answers 8 processes, tells them apart in the log, and ends
    cleanly.
    """
    log = tmp_path / "log"
    with start("serve", str(folder), "--log", str(log)) as hub:
        endpoint = endpoint_of(hub)
        clients = [subprocess.Popen([sys.executable, "-c", CLIENT, endpoint]) for _ in range(8)]
        assert [client.wait() for client in clients] == [0] * 8
        hub.send_signal(how)
        _, errors = hub.communicate()
    assert hub.returncode == 0
    assert json.loads(errors) == {"GET model_info": 80, "total": 80}
    lines = read_log(log)
    assert {line.client for line in lines} == {f"process-{number}" for number in range(1, 9)}
    if sys.platform == "linux":
        counted = {
            pid: sum(line.pid == pid for line in lines) for pid in {line.pid for line in lines}
        }
        assert counted == {client.pid: 10 for client in clients}


@pytest.mark.whole
def test_rules_of_a_command(folder: Path, tmp_path: Path) -> None:
    """Rules are read from their file.

    A mistake in it is exit code 64 with its place, before anything is served.
    """
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "schema: 1\nrules:\n  - {id: no, answer: {kind: wrong-bytes, text: changed}}\n"
    )
    with start("serve", str(folder), "--rules", str(rules)) as hub:
        url = f"{endpoint_of(hub)}/acme/tiny/resolve/main/config.json"
        assert urllib.request.urlopen(url).read() == b"changed"  # noqa: S310 - our own address
        hub.send_signal(signal.SIGINT)
        hub.communicate()
    rules.write_text("schema: 1\nrulez: []\n")
    with start("serve", str(folder), "--rules", str(rules)) as hub:
        _, errors = hub.communicate()
    assert hub.returncode == 64
    assert f"{rules}:2:1: rulez" in errors


@pytest.mark.slow
def test_layouts_of_a_command(tmp_path: Path) -> None:
    """`rankproof lab hub layouts` writes what it is asked for and says where."""
    with start("layouts", "--out", str(tmp_path), "templates", "gpt2-files") as command:
        out, _ = command.communicate()
    assert command.returncode == 0
    assert out.split() == [
        str(tmp_path / "rankproof" / name) for name in ("templates", "gpt2-files")
    ]
    assert (tmp_path / "rankproof" / "gpt2-files" / "merges.txt").is_file()
