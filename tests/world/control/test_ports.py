"""Leased ports: never two holders, never a dead one, never a busy port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.world.control import pool
from harness.world.control.pool import NoPort, PortLease

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys
from pathlib import Path
from harness.world.control import pool
pool._candidates = lambda: range(int(sys.argv[2]), int(sys.argv[3]))
lease = pool.PortLease(folder=Path(sys.argv[1]))
print(lease.take(int(sys.argv[4])), flush=True)
sys.stdin.read()
"""


def _hold(
    folder: Path, first: int, last: int, count: int
) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), str(first), str(last), str(count)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, [int(word) for word in process.stdout.readline().strip("[]\n").split(",")]


def _free(count: int) -> range:
    """`count` ports in a row that can be had, outside the range worlds lease from and below the
    system's own.

    A fixed row inside our range failed now and then: a world that ended within the last minute
    leaves its port in TIME_WAIT, which is not free, and rightly so.
    """
    for first in range(30_000, 32_700, count):
        row = range(first, first + count)
        if all(map(pool._is_free, row)):
            return row
    raise AssertionError(f"no {count} free ports in a row between 30000 and 32700")


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_two_processes_never_hold_the_same_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ports of another process are skipped, and free again once it was killed."""
    row = _free(10)
    monkeypatch.setattr(pool, "_candidates", lambda: row)
    process, held = _hold(tmp_path, row.start, row.stop, 5)
    try:
        with PortLease(folder=tmp_path) as lease:
            assert not set(lease.take(5)) & set(held)
            with pytest.raises(NoPort, match="1 free ports are needed"):
                lease.take(1)
    finally:
        _end(process)
    with PortLease(folder=tmp_path) as lease:
        assert sorted(lease.take(10)) == list(row)


def test_two_leases_of_one_process_never_hold_the_same_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lanes of one harness are as far apart as two harnesses.

    Released ports can be had again.
    """
    row = _free(4)
    monkeypatch.setattr(pool, "_candidates", lambda: row)
    with PortLease(folder=tmp_path) as one, PortLease(folder=tmp_path) as two:
        assert set(one.take(2)).isdisjoint(two.take(2))
        one.release()
        assert len(two.take(2)) == 2


def test_a_port_somebody_listens_on_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy port is not leased, on loopback or on every address."""
    for address in ("127.0.0.1", "0.0.0.0"):  # noqa: S104 - a busy port is what this is about
        with socket.create_server((address, 0)) as busy:
            port = busy.getsockname()[1]
            monkeypatch.setattr(pool, "_candidates", lambda port=port: range(port, port + 1))
            with PortLease(folder=tmp_path) as lease, pytest.raises(NoPort):
                lease.take(1)


def test_the_range_lies_outside_the_systems_own() -> None:
    """No leased port is one that the system hands out by itself."""
    low, high = (int(word) for word in pool.RANGE_FILE.read_text().split())
    found = pool._candidates()
    assert len(found) > 1000
    assert not set(found) & set(range(low, high + 1))


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A lease folder that is a link or a file is never written through."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    (tmp_path / "file").write_text("")
    for path in (link, tmp_path / "file"):
        with pytest.raises(NoPort, match="it is not a folder; remove it"):
            PortLease(folder=path).take(1)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """In a shared temporary folder somebody may have made our folder first."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 12345, -1)
    with pytest.raises(NoPort, match="belongs to user 12345"):
        PortLease(folder=folder).take(1)
