"""The harness is killed while a fault is in force."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.forms.kernel import cgroup_refusal
from tests.kit.worlds import marked, survivors

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
GONE_WITHIN = 2.0


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
    assert survivors(f"TMPDIR={short_tmp}", spare=set(), within=GONE_WITHIN) == set()
    assert str(short_tmp) not in Path("/proc/self/mounts").read_text()
    assert not any(group.exists() for group in groups)
    assert [
        path.name for path in short_tmp.iterdir() if not path.name.startswith("rankproof-ports-")
    ] == []
