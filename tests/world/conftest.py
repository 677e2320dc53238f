"""A pool of real servers, worlds of the subjects here, and a look for whatever they left."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.events import Event
from harness.forms.process import started_apart
from harness.history import History
from harness.world.control.launch import Launch
from harness.world.control.pool import ServerPool, prepare
from harness.world.control.world import World
from tests.kit.worlds import (
    ENGINES,
    Lived,
    descriptors,
    launch,
    survivors,
)


@pytest.fixture(scope="package")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary folder of our own: what a server inherits of it marks every process it forks.

    It ends when other tests begin, whose servers it would mark too.
    """
    tmp_path_factory.getbasetemp()  # pytest's own folder is made where it would be without this one
    # Short: a room lies in it, and pytest's own folders are too long for a socket's path.
    folder = Path(tempfile.mkdtemp(prefix="rp-", dir="/tmp"))
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    os.environ["SECRET_TOKEN"] = "hunter2"  # noqa: S105 - no rank may see it
    yield folder
    del os.environ["SECRET_TOKEN"]
    tempfile.tempdir = before[1]
    os.environ.pop("TMPDIR")
    if before[0] is not None:
        os.environ["TMPDIR"] = before[0]
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="package")
def pool(ground: Path) -> Iterator[ServerPool]:
    """One pool, so that the warm server is started once."""
    with ServerPool() as found:
        prepare(found, 1, warm=True, env={}, preload=ENGINES)
        yield found
    assert survivors(str(ground), spare=set(), within=2.0) == set()
    assert [
        path.name for path in ground.iterdir() if not path.name.startswith("rankproof-ports-")
    ] == []


@pytest.fixture
def order() -> Callable[..., Launch]:
    """Make an order."""
    return launch


@pytest.fixture
def live(pool: ServerPool, ground: Path) -> Iterator[Callable[..., Lived]]:
    """Run a subject's world. Afterwards nothing of it may be left: no process, descriptor or
    folder.
    """
    opened = descriptors()
    first = True

    def run(
        entry: str,
        *,
        on_gate: Any = None,
        on_left: Any = None,
        cancel: int | None = None,
        **rest: Any,
    ) -> Lived:
        nonlocal opened, first
        order = launch(entry, **rest)
        if first:
            start = order.start
            prepare(
                pool,
                1,
                warm=start.warm,
                env=order.subject.env,
                shared_home=start.shared_home,
                preload=start.preload,
            )
            first, opened = False, descriptors()
        begin = time.monotonic()
        capture = World(order, pool, on_gate=on_gate, on_left=on_left, cancel=cancel).run()
        lived = Lived(capture, History(capture.events, size=order.size), time.monotonic() - begin)
        for event in capture.events:  # whatever a subject wrote can be written down and read back
            assert event == Event.parse(event.line())
        return lived

    yield run
    servers = {server.pid for server in pool._living} | started_apart()
    assert survivors(str(ground), spare=servers, within=2.0) == set()
    folders = {server.scratch for server in pool._living}
    assert {
        path for path in ground.iterdir() if not path.name.startswith("rankproof-ports-")
    } == folders
    assert [
        path for folder in folders for path in folder.iterdir() if path.name.startswith("world-")
    ] == []
    # A server that was lost has been replaced, or will be by the next world: its socket may be
    # missing, never one more.
    assert descriptors() <= opened


@pytest.fixture
def prompt(live: Callable[..., Lived]) -> Callable[..., bool]:
    """Whether a world took little more than the seconds it had to, by what a healthy world takes
    here and now.
    """

    def is_prompt(lived: Lived, *, after: float = 0.0) -> bool:
        return lived.seconds < after + 20 * max(live("calm:gather").seconds, 0.1)

    return is_prompt


@pytest.fixture
def leftovers() -> Callable[..., set[int]]:
    """See `survivors`."""
    return survivors
