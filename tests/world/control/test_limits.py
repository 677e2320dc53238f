"""What the system lets worlds have, read from its own files, and what is said where that is not
enough.
"""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.world.control import capacity
from harness.world.control.capacity import MIB, Limit


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with files of its own: `proc`, and `groups` with the control groups."""
    monkeypatch.setattr(capacity, "PROC", tmp_path / "proc")
    monkeypatch.setattr(capacity, "GROUPS", tmp_path / "groups")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path


def write(folder: Path, **files: str) -> None:
    """Write files by their names, with dots for underscores."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def left(what: str) -> list[int]:
    """How much is left under each limit of something."""
    return [limit.left for limit in capacity.limits() if limit.what == what]


def test_processes_are_limited_by_every_control_group(machine: Path) -> None:
    """Of one hierarchy each group above counts too; `max` is not a limit, and the remedy names the
    setting.
    """
    (machine / "proc" / "self" / "cgroup").write_text("0::/user/run\n")
    write(machine / "groups" / "user" / "run", pids__max="max\n", pids__current="9\n")
    write(machine / "groups" / "user", pids__max="100\n", pids__current="40\n")
    assert left("processes and threads") == [60]
    assert re.search(
        r"64 ranks need 388 processes and threads, but only 60 are available; raise pids.max",
        capacity.shortage(64),
    )
    assert capacity.shortage(8) == ""


def test_older_control_groups_and_the_kernel_limit_processes(machine: Path) -> None:
    """A group of the controller's own hierarchy counts, one of another's does not, and the kernel's
    numbers do.
    """
    (machine / "proc" / "self" / "cgroup").write_text("8:pids:/a\n7:cpu,cpuacct:/b\n")
    write(machine / "groups" / "pids" / "a", pids__max="50\n", pids__current="20\n")
    write(machine / "groups" / "cpu,cpuacct" / "b", pids__max="1\n", pids__current="1\n")
    write(machine / "proc" / "sys" / "kernel", pid_max="1000000\n")
    kernels, groups = left("processes and threads")
    assert 1_000_000 - 50_000 < kernels < 1_000_000
    assert groups == 30


def test_memory_is_limited_by_control_groups_less_what_is_only_cached(machine: Path) -> None:
    """What a group may still have counts with its cached files, in both layouts."""
    (machine / "proc" / "self" / "cgroup").write_text("4:memory:/a\n0::/b\n")
    stat = f"anon 5\ninactive_file {10 * MIB}\nactive_file {20 * MIB}\n"
    write(
        machine / "groups" / "memory" / "a",
        memory__limit_in_bytes=f"{100 * MIB}",
        memory__usage_in_bytes=f"{90 * MIB}",
        memory__stat=stat,
    )
    write(machine / "groups" / "b", memory__max=f"{500 * MIB}", memory__current=f"{90 * MIB}")
    assert left("MiB of memory")[1:] == [410, 40]
    assert (
        "64 ranks need 256 MiB of memory, but only 40 are available; raise memory.limit_in_bytes"
        in capacity.shortage(64)
    )
    assert capacity.shortage(40, memory=1) == ""


def test_descriptors_are_limited_by_the_soft_limit(machine: Path) -> None:
    """A limit that is lowered is felt, and what raises it again is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    try:
        said = capacity.shortage(64)
        found = re.fullmatch(
            r"64 ranks need 552 descriptors, but only (\d+) are available; raise the limit with ulimit -n (\d+)",
            said,
        )
        assert found
        assert int(found[1]) == 400 - len(list(Path("/proc/self/fd").iterdir()))
        assert capacity.shortage(2) == ""
        assert "2 worlds of 40 ranks need 720 descriptors" in capacity.shortage(40, worlds=2)
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(found[2]), hard))
        assert capacity.shortage(64) == ""
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@given(
    left=st.integers(-5, 10_000),
    per_rank=st.integers(1, 50),
    per_world=st.integers(0, 400),
    ranks=st.integers(1, 64),
    worlds=st.integers(1, 8),
)
def test_a_world_has_as_many_ranks_as_a_limit_bears(
    left: int, per_rank: int, per_world: int, ranks: int, worlds: int
) -> None:
    """So many can be had, one more cannot; more worlds never need less."""
    limit = Limit(
        what="things", left=left, per_rank=per_rank, per_world=per_world, raised_by="more, {}"
    )
    assert bool(limit.shortage(ranks)) == (ranks > limit.bears)
    if limit.shortage(ranks, worlds=worlds) == "":
        assert limit.shortage(ranks) == ""
