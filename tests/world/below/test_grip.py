"""What a keeper does to a process from outside, and what it refuses."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.forms.kernel import cgroup_refusal, located_cgroup
from harness.world.below.grip import Grip, located
from harness.world.below.isolation import MemoryGroup, disband_left

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="limits of other processes: Linux"
)


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
    return {
        "scratch": str(tmp_path / "rank-0"),
        "env": {"HOME": str(tmp_path / "home")},
        "inputs": inputs,
    }


def test_a_limit_is_set_read_back_and_taken_back(other: int, spec: dict[str, Any]) -> None:
    """The soft limit alone changes, the kernel tells it, and the one before comes back."""
    grip, before = Grip(), resource.prlimit(other, resource.RLIMIT_NOFILE)
    assert grip.limit(other, spec=spec, name="open-files", to=5)["now"] == 5
    assert resource.prlimit(other, resource.RLIMIT_NOFILE) == (5, before[1])
    assert grip.limit(other, spec=spec, name="open-files", to=None)["now"] == before[0]
    assert resource.prlimit(other, resource.RLIMIT_NOFILE) == before


def test_what_cannot_be_done_says_why(other: int, spec: dict[str, Any]) -> None:
    """A process that is gone, a folder that is not there, a file that is too short: each has a
    reason.
    """
    grip = Grip()
    assert "why" in grip.limit(None, spec=spec, name="open-files", to=5)
    assert "why" in grip.crowd(None, spec=spec, burners=2)
    assert "why" in grip.cover(other, spec=spec, place="shared/none", how="full", space=4096)
    # It has no mounts of its own.
    assert "why" in grip.cover(other, spec=spec, place="shared", how="read-only")
    assert "why" in grip.spoil(other, spec=spec, place="shared/none", how="truncated", keep=0)
    (Path(spec["scratch"]).parent / "shared" / "short").write_bytes(b"abc")
    assert "why" in grip.spoil(other, spec=spec, place="shared/short", how="replaced", keep=3)


def test_company_on_a_core_is_ended_with_its_cores_given_back(
    other: int, spec: dict[str, Any]
) -> None:
    """The burners are children of whoever started them, and gone once it is over, or when the rank
    is.
    """
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


def test_a_burner_that_has_been_reaped_is_not_killed(
    other: int, spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pid may be another process's by then."""
    grip = Grip()
    grip.crowd(other, spec=spec, burners=2)
    first, second = (pid for burners in grip._burners.values() for pid in burners)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    grip.forget(first)
    killed = []
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: (killed.append(pid), kill(pid, number)))
    grip.release()
    assert killed == [second]


def test_a_fork_that_fails_leaves_no_descriptor(
    other: int, spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are too many processes, a folder cannot be covered, and that is all."""

    def refuse() -> int:
        raise OSError("too many processes")

    monkeypatch.setattr(os, "fork", refuse)
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    done = Grip().cover(other, spec=spec, place="shared", how="read-only")
    assert "too many processes" in done["why"]
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208


def test_permissions_come_back_also_when_the_rank_is_gone(spec: dict[str, Any]) -> None:
    """They are the folder's own: what outlives the rank is taken back all the same."""
    grip, shared = Grip(), Path(spec["scratch"]).parent / "shared"
    mode = shared.stat().st_mode
    assert grip.cover(1, spec=spec, place="shared", how="denied")["mode"] == 0
    assert shared.stat().st_mode & 0o777 == 0
    grip.cover(None, spec=spec, place="shared", how="open")
    assert shared.stat().st_mode == mode


def test_no_link_leads_out_of_a_place(spec: dict[str, Any], tmp_path: Path) -> None:
    """What a subject links to from its folders is not the trial's: it is neither spoiled nor
    found.
    """
    mine = tmp_path / "mine"
    mine.write_bytes(b"precious")
    (tmp_path / "home" / "link").symlink_to(mine)
    done = Grip().spoil(None, spec=spec, place="home/link", how="truncated", keep=0)
    assert "points outside" in done["why"]
    assert mine.read_bytes() == b"precious"
    with pytest.raises(ValueError, match="has no"):
        located("inputs/other", spec)
    assert located("inputs/model", spec) == (tmp_path / "model").resolve()


@pytest.mark.skipif(bool(cgroup_refusal()), reason="nobody may make a memory cgroup here")
def test_who_takes_more_memory_than_its_group_may_is_killed(tmp_path: Path) -> None:
    """The kernel ends the one process, not who forked it, and the group goes with it.

    Without a limit it lives.
    """
    grip, spec, links = Grip(), {"scratch": str(tmp_path / "world" / "rank-0")}, tmp_path
    take = "import sys; sys.stdin.read(1); held = bytearray(b'x') * (64 << 20); sys.stdin.read(1)"
    ends = []
    for back in (False, True):
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", take], stdin=subprocess.PIPE, bufsize=0
        )
        told = grip.limit(process.pid, spec=spec, name="memory", to=16 << 20)
        assert (told["now"], told["holds"]) == (16 << 20, True)
        (link,) = links.glob("group-*")
        group = link.readlink()
        assert group.is_dir()
        if back:
            assert (
                grip.limit(process.pid, spec=spec, name="memory", to=None)["now"] == told["before"]
            )
        process.communicate(b"..")
        ends.append(process.returncode)
        grip.disband()
        assert not group.exists()
        assert not list(links.glob("group-*"))
    assert ends == [-signal.SIGKILL, 0]


@pytest.mark.skipif(bool(cgroup_refusal()), reason="nobody may make a memory cgroup here")
def test_a_group_whose_maker_was_killed_is_removed_by_who_clears_up(
    other: int, tmp_path: Path
) -> None:
    """The link is there before the group is; a link that leads elsewhere removes nothing."""
    MemoryGroup(other, limit=1 << 30, links=tmp_path).leave()
    (group,) = (link.readlink() for link in tmp_path.glob("group-*"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "group-forged").symlink_to(tmp_path / "elsewhere")
    disband_left(tmp_path)
    assert not group.exists()
    assert (tmp_path / "elsewhere").is_dir()


V1 = "9:name=systemd:/\n4:memory:/box/7\n0::/\n"
V2 = "0::/user.slice/user-1000.slice/session.scope\n"


@pytest.mark.parametrize(
    ("groups", "mounts", "found"),
    [
        (
            V1,
            "40 30 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
            (1, "/sys/fs/cgroup/memory/box/7"),
        ),
        (
            V1,
            "40 30 0:30 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
            (1, "/sys/fs/cgroup/memory/7"),
        ),
        (
            V2,
            "40 30 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            (2, "/sys/fs/cgroup/user.slice/user-1000.slice"),
        ),
        (
            "0::/\n",
            "40 30 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw",
            (2, "/sys/fs/cgroup"),
        ),
    ],
)
def test_groups_go_where_the_kernel_lets_them_count(
    groups: str, mounts: str, found: tuple[int, str]
) -> None:
    """Below one's own in version 1, beside it in version 2, where a group with processes has none
    below it.
    """
    other = (
        "41 30 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n42 30 0:32 / /proc rw - proc"
        " proc rw\n"
    )
    version, place = located_cgroup(groups, other + mounts)
    assert (version, str(place)) == found
    with pytest.raises(OSError, match="no cgroup file system"):
        located_cgroup(groups, other)
