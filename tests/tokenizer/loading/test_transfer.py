"""Fetching the rest of a file: after a kill, a cut line, a changed file, and from servers that know
no ranges.
"""

from __future__ import annotations

import http.server
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.tokenizer.loading import BytesDiffer, CacheFailed, DeadlineExceeded, HubFailed, fetch
from tests.tokenizer.loading.hubs import COMMIT, FakeHub, send

NAME = "tokenizer.json"
Answer = Callable[[http.server.BaseHTTPRequestHandler], None]

FETCH = """
import sys
from harness.tokenizer.loading import fetch
fetch("org/name", revision=sys.argv[2], endpoint=sys.argv[1], cache=sys.argv[3], deadline=60)
"""


def get(fake: FakeHub, cache: Path, *, seconds: float = 5.0) -> bytes:
    """Fetch; what came."""
    made = fetch("org/name", revision=COMMIT, endpoint=fake.endpoint, cache=cache, deadline=seconds)
    return (made.folder / NAME).read_bytes()


def asked(fake: FakeHub) -> list[str]:
    """The ranges that were asked for of the file, in order; empty for a request of the whole."""
    told = zip(fake.paths, fake.headers, strict=True)
    return [headers.get("Range", "") for path, headers in told if path.endswith(f"/{NAME}")]


def ranged(content: bytes, *, etag: str = '"one"', most: int | None = None) -> Answer:
    """A server that knows ranges and If-Range; `most` bytes at a time, then it hangs up."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        told = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        first = int(told[1]) if told and handler.headers.get("If-Range", etag) == etag else 0
        rest = content[first:]
        extra = (
            {"Content_Range": f"bytes {first}-{len(content) - 1}/{len(content)}"} if first else {}
        )
        body = rest if most is None else rest[:most]
        send(handler, body, status=206 if first else 200, length=len(rest), ETag=etag, **extra)

    return answer


@pytest.mark.slow
def test_a_killed_fetch_costs_only_the_rest(fake: FakeHub, tmp_path: Path) -> None:
    """After SIGKILL in the middle of a file the next process asks for the bytes that are missing,
    and for no more.
    """
    content = fake.files[NAME]
    there, go = threading.Event(), threading.Event()

    def half(handler: http.server.BaseHTTPRequestHandler) -> None:
        fake.replace[f"/{NAME}"] = ranged(content)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.send_header("ETag", '"one"')
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        handler.wfile.flush()
        there.set()
        go.wait(60)

    fake.replace[f"/{NAME}"] = half
    child = subprocess.Popen([sys.executable, "-c", FETCH, fake.endpoint, COMMIT, str(tmp_path)])
    try:
        assert there.wait(60)
        kept = 0
        while kept < len(content) // 2:  # the bytes are on their way: wait until they are written
            time.sleep(0.005)
            parts = [path for path in tmp_path.rglob(NAME) if ".partial-" in str(path)]
            kept = parts[0].stat().st_size if parts else 0
    finally:
        child.kill()
        child.wait()
        go.set()
    before = len(fake.paths)
    assert get(fake, tmp_path) == content
    after = [path.rpartition("/")[2] for path in fake.paths[before:] if "/resolve/" in path]
    assert asked(fake) == ["", f"bytes={len(content) // 2}-"]
    assert after == [NAME, "tokenizer_config.json"]
    assert not list(tmp_path.glob(".partial-*"))


@pytest.mark.whole
def test_a_line_that_is_cut_again_and_again(fake: FakeHub, tmp_path: Path) -> None:
    """A server that hangs up after each few bytes is asked for the rest as often as that takes, not
    eight times.
    """
    content = fake.files[NAME]
    fake.replace[f"/{NAME}"] = ranged(content, most=-(-len(content) // 12))
    assert get(fake, tmp_path, seconds=30) == content
    assert len(asked(fake)) == 12
    assert asked(fake)[-1] == f"bytes={11 * -(-len(content) // 12)}-"


def test_a_file_that_changed_meanwhile_is_fetched_anew(fake: FakeHub, tmp_path: Path) -> None:
    """Another ETag for the rest means another file: the part is thrown away, and what comes is the
    promised file.
    """
    content = fake.files[NAME]
    other = content.replace(b"h", b"j")

    def first(handler: http.server.BaseHTTPRequestHandler) -> None:
        fake.replace[f"/{NAME}"] = ranged(content, etag='"two"')
        send(handler, other[: len(other) // 2], length=len(other), ETag='"one"')

    fake.replace[f"/{NAME}"] = first
    assert get(fake, tmp_path) == content


def test_a_spliced_file_is_never_kept(fake: FakeHub, tmp_path: Path) -> None:
    """Where nothing told that the file changed, the digest over the whole does, and it is fetched
    from its start.
    """
    content = fake.files[NAME]
    other = content.replace(b"h", b"j")

    def first(handler: http.server.BaseHTTPRequestHandler) -> None:
        fake.replace[f"/{NAME}"] = ranged(content)
        send(handler, other[: len(other) // 2], length=len(other), ETag='"one"')

    fake.replace[f"/{NAME}"] = first
    assert get(fake, tmp_path) == content
    assert asked(fake) == ["", f"bytes={len(content) // 2}-", ""]


def status(code: int, **headers: str) -> Answer:
    return lambda handler: send(handler, b"", status=code, **headers)


def shifted(content: bytes) -> Answer:
    """Says that it sends the rest, and sends what begins a byte earlier."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        if not handler.headers.get("Range"):
            send(handler, content)
            return
        at = int(handler.headers["Range"][6:-1]) - 1
        send(
            handler,
            content[at:],
            status=206,
            Content_Range=f"bytes {at}-{len(content) - 1}/{len(content)}",
        )

    return answer


def longer(content: bytes) -> Answer:
    """The right bytes of a file that has become longer."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        if not handler.headers.get("Range"):
            send(handler, content)
            return
        at = int(handler.headers["Range"][6:-1])
        send(
            handler,
            content[at:],
            status=206,
            Content_Range=f"bytes {at}-{len(content) - 1}/{len(content) + 9}",
        )

    return answer


def refusing(content: bytes) -> Answer:
    """416 for every range."""
    return lambda handler: (
        send(handler, b"", status=416, Content_Range="bytes */1")
        if handler.headers.get("Range")
        else send(handler, content)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "server",
    [lambda content: lambda handler: send(handler, content), shifted, longer, refusing],
    ids=["answers 200", "shifted 206", "another total", "416"],
)
def test_a_server_that_cannot_do_ranges(
    fake: FakeHub, tmp_path: Path, server: Callable[[bytes], Answer]
) -> None:
    """A part is worth nothing to such a server: the file is fetched whole, and is the right one."""
    content = fake.files[NAME]

    def first(handler: http.server.BaseHTTPRequestHandler) -> None:
        fake.replace[f"/{NAME}"] = server(content)
        send(handler, content[: len(content) // 3], length=len(content), ETag='"one"')

    fake.replace[f"/{NAME}"] = first
    assert get(fake, tmp_path) == content


@pytest.mark.slow
def test_a_stalled_body_ends_at_the_deadline_and_is_kept(fake: FakeHub, tmp_path: Path) -> None:
    """One deadline ends a fetch that stands still.

    What came is on disk, and the next one asks for the rest.
    """
    content, over = fake.files[NAME], threading.Event()

    def stall(handler: http.server.BaseHTTPRequestHandler) -> None:
        fake.replace[f"/{NAME}"] = ranged(content)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:1000])
        handler.wfile.flush()
        over.wait(60)

    fake.replace[f"/{NAME}"] = stall
    with pytest.raises(DeadlineExceeded):
        get(fake, tmp_path, seconds=0.5)
    over.set()
    assert get(fake, tmp_path) == content
    assert asked(fake)[-1] == "bytes=1000-"


@pytest.mark.slow
def test_a_server_that_lies_each_time_is_given_up(fake: FakeHub, tmp_path: Path) -> None:
    """Wrong bytes behind good ranges end after three attempts, with no file and no part of it
    left.
    """
    wrong = fake.files[NAME].replace(b"hello", b"hollo", 1)
    fake.replace[f"/{NAME}"] = ranged(wrong)
    with pytest.raises(BytesDiffer, match="requested 3 times"):
        get(fake, tmp_path)
    assert not list(tmp_path.rglob(NAME))


def test_a_compressed_body_is_refused(fake: FakeHub, tmp_path: Path) -> None:
    """A body that unpacks to a gigabyte is not unpacked: it was not asked for."""
    fake.replace[f"/{NAME}"] = lambda handler: send(handler, b"x" * 50, Content_Encoding="gzip")
    with pytest.raises(HubFailed, match="compressed body"):
        get(fake, tmp_path)


def test_no_space_for_what_is_promised_is_said_before_a_byte(
    fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes are known before: a cache without room for them is an error with both numbers, and
    asks for no file.
    """
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 10**6 - 4096, 4096)
    )
    with pytest.raises(
        CacheFailed, match=r"No space left.*bytes must be fetched, but only 4,096 are free"
    ):
        get(fake, tmp_path)
    assert asked(fake) == []
