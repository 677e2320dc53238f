"""What a keeper does to a process from outside, and what it refuses."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.world.grip import Grip, located

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of other processes: Linux")


@pytest.fixture
def other() -> Iterator[int]:
    """The pid of a process that does nothing."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    """A rank's folders, as its spec names them."""
    for name in ("rank-0/work", "shared", "home", "model"):
        (tmp_path / name).mkdir(parents=True)
    inputs = {"model": str(tmp_path / "model")}
    return {"scratch": str(tmp_path / "rank-0"), "env": {"HOME": str(tmp_path / "home")}, "inputs": inputs}


def test_a_limit_is_set_read_back_and_taken_back(other: int, spec: dict[str, Any]) -> None:
    """The soft limit alone changes, the kernel tells it, and the one before comes back."""
    grip, before = Grip(), resource.prlimit(other, resource.RLIMIT_NOFILE)
    assert grip.limit(other, spec=spec, name="open-files", to=5)["now"] == 5
    assert resource.prlimit(other, resource.RLIMIT_NOFILE) == (5, before[1])
    assert grip.limit(other, spec=spec, name="open-files", to=None)["now"] == before[0]
    assert resource.prlimit(other, resource.RLIMIT_NOFILE) == before


def test_what_cannot_be_done_says_why(other: int, spec: dict[str, Any]) -> None:
    """A process that is gone, a folder that is not there, a file that is too short: each has a reason."""
    grip = Grip()
    assert "why" in grip.limit(None, spec=spec, name="open-files", to=5)
    assert "why" in grip.crowd(None, spec=spec, burners=2)
    assert "why" in grip.cover(other, spec=spec, place="shared/none", how="full", space=4096)
    assert "why" in grip.cover(other, spec=spec, place="shared", how="read-only")  # it has no mounts of its own
    assert "why" in grip.spoil(other, spec=spec, place="shared/none", how="truncated", keep=0)
    (Path(spec["scratch"]).parent / "shared" / "short").write_bytes(b"abc")
    assert "why" in grip.spoil(other, spec=spec, place="shared/short", how="replaced", keep=3)


def test_company_on_a_core_is_ended_with_its_cores_given_back(other: int, spec: dict[str, Any]) -> None:
    """The burners are children of whoever started them, and gone once it is over, or when the rank is."""
    grip, cores = Grip(), os.sched_getaffinity(other)
    began = grip.crowd(other, spec=spec, burners=2)
    assert os.sched_getaffinity(other) == {began["core"]}
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert len(children) >= 3
    ended = grip.crowd(other, spec=spec, burners=0)
    assert ended["waited"] >= began["waited"]
    assert os.sched_getaffinity(other) == cores
    grip.crowd(other, spec=spec, burners=2)
    grip.release()
    left = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert len(left) == len(children) - 2


def test_permissions_come_back_also_when_the_rank_is_gone(spec: dict[str, Any]) -> None:
    """They are the folder's own: what outlives the rank is taken back all the same."""
    grip, shared = Grip(), Path(spec["scratch"]).parent / "shared"
    mode = shared.stat().st_mode
    assert grip.cover(1, spec=spec, place="shared", how="denied")["mode"] == 0
    assert shared.stat().st_mode & 0o777 == 0
    grip.cover(None, spec=spec, place="shared", how="open")
    assert shared.stat().st_mode == mode


def test_no_link_leads_out_of_a_place(spec: dict[str, Any], tmp_path: Path) -> None:
    """What a subject links to from its folders is not the trial's: it is neither spoiled nor found."""
    mine = tmp_path / "mine"
    mine.write_bytes(b"precious")
    (tmp_path / "home" / "link").symlink_to(mine)
    done = Grip().spoil(None, spec=spec, place="home/link", how="truncated", keep=0)
    assert "leads out" in done["why"]
    assert mine.read_bytes() == b"precious"
    with pytest.raises(ValueError, match="has no"):
        located("inputs/other", spec)
    assert located("inputs/model", spec) == (tmp_path / "model").resolve()
