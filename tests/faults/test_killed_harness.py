"""The harness is killed while a fault is in force."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.forms.process import cgroup_refusal

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
GONE_WITHIN = 2.0


def marked(marker: str) -> set[int]:
    """Living processes whose environment holds the marker."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                held = marker.encode() in (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if held and state not in "ZX":
                found.add(int(entry.name))
    return found


def left_after(marker: str, seconds: float) -> set[int]:
    """What of them is still there after so long; returns as soon as nothing is."""
    end = time.monotonic() + seconds
    while (left := marked(marker)) and time.monotonic() < end:
        for pid in left:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            os.close(descriptor)
    return left


@pytest.mark.parametrize("kind", ["pause", "delay", "starve", "no-space", "memory"])
def test_a_harness_killed_while_a_rank_is_struck_leaves_nobody(short_tmp: Path, kind: str) -> None:
    """SIGKILL with a rank in a fault's grip for ten minutes: two seconds later no process, mount or
    folder is left.
    """
    if kind == "memory" and (why := cgroup_refusal()):
        pytest.skip(why)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.driver", kind],
        env={**os.environ, "TMPDIR": str(short_tmp), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "struck\n"
    assert len(marked(f"TMPDIR={short_tmp}")) >= 3
    groups = [link.readlink() for link in short_tmp.glob("*/group-*")]
    assert bool(groups) == (kind == "memory")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert left_after(f"TMPDIR={short_tmp}", GONE_WITHIN) == set()
    assert str(short_tmp) not in Path("/proc/self/mounts").read_text()
    assert not any(group.exists() for group in groups)
    assert [
        path.name for path in short_tmp.iterdir() if not path.name.startswith("rankproof-ports-")
    ] == []
