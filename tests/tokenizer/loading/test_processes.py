"""Several processes on one cache: first loads together, killed, stopped, without working locks."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.tokenizer.loading import LockTimeout, load
from tests.tokenizer.loading.hubs import COMMIT, FakeHub, write
from tests.tokenizer.loading.test_snapshot import fetch, find

FETCH = """
import sys
from pathlib import Path
from tests.tokenizer.loading.test_snapshot import fetch
class Fake: endpoint = sys.argv[1]
fetch(Fake, Path(sys.argv[2]), seconds=60)
"""

# One process imports transformers once and forks the others, which then all start their first load
# together.
TOGETHER = """
import fcntl, json, multiprocessing, sys
endpoint, number = sys.argv[1], 8
from harness.tokenizer.loading import load
load("./warm")

def one(cache, barrier, answers):
    barrier.wait()
    try:
        loaded = load("org/name", revision="c" * 40, endpoint=endpoint, cache=cache, deadline=60)
        answers.put([loaded.identity.full, len(loaded.requests), list(loaded.remarks)])
    except BaseException as error:
        answers.put([f"{type(error).__name__}: {error}", -1, []])

def together(cache):
    fork = multiprocessing.get_context("fork")
    barrier, answers = fork.Barrier(number), fork.SimpleQueue()
    children = [fork.Process(target=one, args=(cache, barrier, answers)) for _ in range(number)]
    for child in children:
        child.start()
    found = [answers.get() for _ in children]
    for child in children:
        child.join()
    return found

print(json.dumps(together("locked")), flush=True)
fcntl.flock = lambda descriptor, operation: None
print(json.dumps(together("unlocked")), flush=True)
"""


def held_back(fake: FakeHub) -> tuple[threading.Event, threading.Event]:
    """Hold the first answer with tokenizer.json after half of its bytes: (it got there, let it go
    on).
    """
    reached, go_on = threading.Event(), threading.Event()
    content = fake.files["tokenizer.json"]

    def half(handler: http.server.BaseHTTPRequestHandler) -> None:
        del fake.replace["/tokenizer.json"]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        handler.wfile.flush()
        reached.set()
        go_on.wait(60)
        handler.wfile.write(content[len(content) // 2 :])

    fake.replace["/tokenizer.json"] = half
    return reached, go_on


def start(fake: FakeHub, cache: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", FETCH, fake.endpoint, str(cache)])


def test_a_downloader_killed_half_way_harms_nobody(fake: FakeHub, tmp_path: Path) -> None:
    """After SIGKILL in the middle of a file neither a snapshot nor a lock is left, and the next
    fetch works.
    """
    reached, go_on = held_back(fake)
    child = start(fake, tmp_path)
    try:
        assert reached.wait(60)
        assert [
            path.name.startswith(".partial-")
            for path in tmp_path.iterdir()
            if path.name != ".locks"
        ] == [True]
        child.kill()
        child.wait()
    finally:
        child.kill()
        child.wait()
        go_on.set()
    assert find(fake, tmp_path) is None
    fetch(fake, tmp_path, seconds=20)
    assert find(fake, tmp_path) is not None
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".partial-")]


@pytest.mark.slow
def test_a_stopped_holder_is_named(fake: FakeHub, tmp_path: Path) -> None:
    """Waiting for a process that is stopped ends in time with its pid and what to do.

    Continued, it finishes.
    """
    reached, go_on = held_back(fake)
    child = start(fake, tmp_path)
    try:
        assert reached.wait(60)
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(
            LockTimeout, match=rf"process {child.pid} .*stopped.*kill -CONT {child.pid}"
        ) as caught:
            load(
                "org/name",
                revision=COMMIT,
                endpoint=fake.endpoint,
                cache=tmp_path,
                deadline=30,
                lock_timeout=0.3,
            )
        assert caught.value.pid == child.pid
        assert caught.value.requests == ()
        os.kill(child.pid, signal.SIGCONT)
        go_on.set()
        assert child.wait(60) == 0
    finally:
        go_on.set()
        child.kill()
        child.wait()
    assert find(fake, tmp_path) is not None


def test_a_lock_file_of_the_dead_is_no_lock(fake: FakeHub, tmp_path: Path) -> None:
    """Lock and holder files that somebody left behind hold nobody up."""
    from harness.tokenizer.loading.snapshot import SnapshotStore
    from harness.tokenizer.loading.source import HubRepository

    place = SnapshotStore(tmp_path).place(
        HubRepository(endpoint=fake.endpoint, name="org/name"), COMMIT
    )
    lock = tmp_path / ".locks" / f"{place.parent.name}-{COMMIT}.lock"
    lock.parent.mkdir()
    lock.write_text("4242")
    lock.with_suffix(".holder").write_text(json.dumps({"pid": 1, "host": "gone", "since": 0}))
    fetch(fake, tmp_path, seconds=5)
    assert find(fake, tmp_path) is not None


def test_eight_threads_fetch_once(fake: FakeHub, tmp_path: Path) -> None:
    """Threads of one process that load the same at once share one fetch too."""
    given = {"revision": COMMIT, "endpoint": fake.endpoint, "cache": tmp_path}
    with ThreadPoolExecutor(8) as threads:
        loads = list(threads.map(lambda _: load("org/name", **given), range(8)))  # type: ignore[arg-type]
    assert len({loaded.identity for loaded in loads}) == 1
    assert sorted(len(loaded.requests) for loaded in loads) == [0] * 7 + [7]


@pytest.mark.whole
@pytest.mark.slow
def test_eight_cold_starts(fake: FakeHub, tmp_path: Path) -> None:
    """Eight processes on one cold cache all get the same: with locks one fetches, with locks that
    do nothing some do.

    In both cases nobody fails, nothing was damaged, and one whole snapshot is left.
    """
    write(tmp_path / "warm", fake.files)
    here = os.pathsep.join(str(Path(place).resolve()) for place in sys.path)
    ended = subprocess.run(
        [sys.executable, "-c", TOGETHER, fake.endpoint],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": here},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    locked, unlocked = (json.loads(line) for line in ended.stdout.splitlines()[-2:])
    assert len({identity for identity, _, _ in [*locked, *unlocked]}) == 1, (locked, unlocked)
    assert sorted(requests for _, requests, _ in locked) == [0] * 7 + [7]
    assert sorted(requests for _, requests, _ in unlocked)[-2:] == [7, 7]
    assert [remarks for _, _, remarks in [*locked, *unlocked] if remarks] == []
    for cache in (tmp_path / "locked", tmp_path / "unlocked"):
        assert find(fake, cache) is not None
        assert not [path for path in cache.iterdir() if path.name.startswith(".partial-")]
