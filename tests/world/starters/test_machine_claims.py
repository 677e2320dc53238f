"""Test machines of a run that was killed: its guard, or the next run, takes all of it away, and
nothing of others.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.world.starters import machine_claims
from harness.world.starters.machine_claims import CLAIMS, MachineClaim
from harness.world.starters.test_machines import made, refusal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.whole,
    pytest.mark.skipif(bool(refusal()), reason="this machine cannot make test machines"),
]
ROOT = Path(__file__).parents[3]
DRIVER = """
import os, signal, sys, time
from pathlib import Path
from harness.world.starters import machine_claims, test_machines
stage, group = sys.argv[2], sys.argv[3] == "group"

def die(*_):
    if stage == "stay":
        print("stays", flush=True)
        signal.pause()
    if group:
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

begin = machine_claims.MachineClaim.__init__
def told(self):
    begin(self)
    print(self.mark, flush=True)

machine_claims.MachineClaim.__init__ = told
calls = 0
def at(real, name):
    def call(*arguments):
        global calls
        found = real(*arguments)
        calls += 1
        if stage == f"{name}-{calls}":
            die()
        return found
    return call

if stage.startswith("step"):
    # After each program that is run, and each thing that is listed: bridge, address, cable, process.
    test_machines._run = at(test_machines._run, "step")
if stage.startswith("listed"):
    machine_claims.MachineClaim._write = at(machine_claims.MachineClaim._write, "listed")
with test_machines.made(Path(sys.argv[1]), 2) as there:
    die()
"""


def left(mark: str) -> list[str]:
    """Links and claims of a mark that are on this machine."""
    links = [one.name for one in Path("/sys/class/net").iterdir() if one.name[2:6] == mark]
    return sorted([*links, *(one.name for one in CLAIMS.glob(mark))])


def drive(folder: Path, stage: str, *, group: bool) -> tuple[subprocess.Popen[str], str]:
    """A run that kills itself at a stage, or with `stay` goes on, and the mark of its claim."""
    run = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder), stage, "group" if group else "alone"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "DRIVEN": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert run.stdout is not None
    mark = run.stdout.readline().strip()
    assert mark
    return run, mark


def living(folder: Path) -> dict[int, tuple[str, int]]:
    """Processes of a run: what each was started with, and a descriptor that is readable once it has
    ended.
    """
    found = {}
    for one in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"DRIVEN={folder}\0".encode() in (one / "environ").read_bytes():
                words = (one / "cmdline").read_bytes().decode("utf-8", "replace")
                found[int(one.name)] = words, os.pidfd_open(int(one.name))
    return found


def await_guard(folder: Path) -> None:
    """Wait until the guard of a run has ended."""
    for words, descriptor in living(folder).values():
        if "import guard" in words:
            assert select.select([descriptor], [], [], 30.0)[0]
        os.close(descriptor)


def kill_guards(words: str) -> None:
    """Kill the guard whose program has these words in it, and wait for its end."""
    for one in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (one / "cmdline").read_bytes().decode("utf-8", "replace")
            if "import guard" in line and words in line:
                descriptor = os.pidfd_open(int(one.name))
                os.kill(int(one.name), signal.SIGKILL)
                assert select.select([descriptor], [], [], 30.0)[0]
                os.close(descriptor)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a run has its keys."""
    place = tmp_path / "machines"
    place.mkdir()
    yield place
    machine_claims.sweep()


STAGES = (
    "step-1",
    "step-2",
    "step-3",
    "step-5",
    "step-6",
    "step-8",
    "listed-2",
    "listed-5",
    "listed-12",
    "made",
)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("group", [False, True], ids=["alone", "group"])
def test_a_run_that_is_killed_leaves_nothing(folder: Path, stage: str, group: bool) -> None:
    """SIGKILL of the run or of its whole process group, at any step: its guard takes away all that
    was made.
    """
    run, mark = drive(folder, stage, group=group)
    with run:
        assert run.wait(60) == -signal.SIGKILL
    await_guard(folder)
    assert left(mark) == []
    assert living(folder) == {}
    assert not folder.exists() or not list(folder.iterdir())


def test_the_next_run_sweeps_where_the_guard_was_killed_too(folder: Path, tmp_path: Path) -> None:
    """Guard and run killed together: the next run takes away what they left before it makes its
    own.
    """
    run, mark = drive(folder, "stay", group=False)
    with run:
        assert run.stdout is not None
        assert run.stdout.readline() == "stays\n"
        kill_guards(f"/{mark}'")
        run.kill()
        run.wait()
    assert len(left(mark)) == 4
    (tmp_path / "next").mkdir()
    with made(tmp_path / "next", 1):
        assert left(mark) == []
        assert living(folder) == {}
    assert not folder.exists()


def test_the_machines_of_a_living_run_are_never_touched(folder: Path, tmp_path: Path) -> None:
    """Another run sweeps and ends: those of the first answer to ssh as before, also where its guard
    is gone.
    """
    with made(folder, 1) as first:
        mark = first.links[0][2:6]
        kill_guards(f"/{mark}'")
        before = left(mark)
        (tmp_path / "next").mkdir()
        with made(tmp_path / "next", 1):
            pass
        assert left(mark) == before
        asked = ["ssh", "-F", str(first.config), "machine-0", "hostname"]
        assert (
            subprocess.run(asked, check=True, capture_output=True, text=True).stdout
            == "machine-0\n"
        )


def test_what_only_has_the_name_is_left_alone(folder: Path) -> None:
    """A link of the listed name with another address, and a process of the listed number that began
    at another time.
    """
    claim = MachineClaim()
    name = f"rb{claim.mark}"
    claim.link(name)
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    with subprocess.Popen(["sleep", "1000"]) as other:
        try:
            claim.process(other.pid)
            claim._listed["processes"][0] = (other.pid, "1")
            claim._write()
            claim.close()
            assert other.poll() is None
            assert Path("/sys/class/net", name).exists()
        finally:
            other.kill()
            subprocess.run(["ip", "link", "del", name], check=True)
