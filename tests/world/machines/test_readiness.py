"""Machines are made ready from a lock, cleaned, asked for what they wrote down, and left empty by a
killed control.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.run.machines.collected import LateOutcome, _messages, collect, commands_of, over_ssh
from harness.run.machines.over_machines import Hostfile
from harness.run.machines.readiness import TORCH, clean, page_of, prepare
from harness.run.plan import RunSettings
from harness.run.run import run
from harness.scenario import load_scenario
from harness.world.machines.agent import HEAD
from harness.world.starters import hostfile
from tests.world.machines import machine_room
from tests.world.machines.machine_room import Room
from tests.world.machines.test_worlds import SCENARIO, SUBJECT

pytestmark = pytest.mark.whole
LEASE = 1.5


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """Three machines."""
    with machine_room.room(tmp_path_factory.mktemp("machines"), 3) as made:
        yield made


@pytest.mark.long
def test_an_environment_from_shipped_wheels(room: Room, tmp_path: Path) -> None:
    """Two machines without an index have the wheels of the lock and no others.

    Half of it is never under its name.

    The second time it is there; a wheel that is another file than the lock's makes none; who is
    used stays.
    """
    wheel = tmp_path / "wheels/tiny-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\n",
    }
    about["entry_points.txt"] = "[console_scripts]\ntiny-go = tiny:go\n"
    about["WHEEL"] += "Generator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        for name, text in about.items():
            archive.writestr(f"tiny-1.0.dist-info/{name}", text)
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    lock = tmp_path / "lock.txt"
    lock.write_text(f"tiny==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    machines = hostfile.read(room.hostfile)[:2]
    known = {"interpreter": sys.executable, "configuration": room.config}
    for words in ("made", "there"):
        done = prepare(machines, lock=lock, wheels=wheel.parent, **known)
        assert [one.why for one in done] == ["", ""]
        assert all(one.said.startswith(words) for one in done)
    place = done[0].interpreter.removeprefix("~/")
    for pid in room.pids[:2]:
        home = Path(f"/proc/{pid}/root") / Path.home().relative_to("/")
        assert list((home / place).parent.parent.glob("lib/*/site-packages/tiny.py"))
        assert f"{Path.home()}/{place}" in ((home / place).parent / "tiny-go").read_text()
    lock.write_text(f"tiny==1.0 --hash=sha256:{'0' * 64}\n")
    (refused,) = prepare(machines[:1], lock=lock, wheels=wheel.parent, **known)
    assert "HASHES" in refused.why
    environments = (
        Path(f"/proc/{room.pids[0]}/root") / Path.home().relative_to("/") / Path(place).parents[2]
    )
    assert [path.name for path in environments.iterdir() if len(path.name) == 65] == []
    # Used a moment ago.
    assert [one.said.split()[0] for one in clean(machines, most=0, **known)] == ["0", "0"]


@pytest.mark.long
def test_the_lock_of_torch_finds_its_wheel(room: Room, tmp_path: Path) -> None:
    """The shipped lock pins a torch that no index of Python's has: its page, named beside the lock,
    is asked too.

    Without the page the answer names --wheels. A wheel from the page is held to the lock as any
    other.
    """
    wheel = tmp_path / "index/torch/torch-1.0+cpu-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch.py", "")
        archive.writestr(
            "torch-1.0+cpu.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: torch\nVersion: 1.0+cpu\n",
        )
        archive.writestr(
            "torch-1.0+cpu.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("torch-1.0+cpu.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    page = tmp_path / "index/torch/index.html"
    page.write_text(f'<a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>')
    # The machines have a /tmp of their own: what they read is on what they share.
    shared = Path("/run") / f"rankproof-test-index-{os.getpid()}"
    shutil.copytree(tmp_path / "index", shared)
    try:
        lock = tmp_path / "cpu.txt"
        lock.write_text(f"torch==1.0+cpu \\\n    --hash=sha256:{digest}\n")
        machine, *_ = hostfile.read(room.hostfile)
        known = {"interpreter": sys.executable, "configuration": room.config, "wheels": None}
        (done,) = prepare([machine], lock=lock, **known)
        assert "--wheels" in done.why
        (tmp_path / TORCH).write_text(f'version = "1.0+cpu"\nindex = "{shared.as_uri()}"\n')
        (done,) = prepare([machine], lock=lock, **known)
        assert done.why == ""
        assert done.said.startswith("made")
        lock.write_text(f"torch==1.0+cpu --hash=sha256:{'0' * 64}\n")
        (done,) = prepare([machine], lock=lock, **known)
        assert "HASHES" in done.why
    finally:
        shutil.rmtree(shared)


def test_each_shipped_lock_is_looked_up_where_its_torch_is(tmp_path: Path) -> None:
    """The lock for processors alone names the page of its torch.

    A lock of another torch, or alone, names none.
    """
    locks = Path(__file__).parents[3] / "locks"
    found = {lock.name: page_of(lock) for lock in locks.glob("*.txt")}
    index = tomllib.loads((locks / TORCH).read_text())["index"]
    assert {name for name, page in found.items() if page} == {"cpu.txt"}
    assert found["cpu.txt"] == f"{index}/torch/"
    shutil.copy(locks / "cpu.txt", tmp_path)
    assert page_of(tmp_path / "cpu.txt") is None
    (tmp_path / TORCH).write_text("index = ")
    with pytest.raises(OSError, match=TORCH):
        page_of(tmp_path / "cpu.txt")


@pytest.mark.long
def test_what_a_lost_machine_wrote_down_is_collected(room: Room, tmp_path: Path) -> None:
    """When the run is over and signed: the union says why it ended its ranks, and the signed folder
    is as it was.

    A journal that says that all was well changes nothing: its trial has failed. One that
    contradicts is not joined.
    """
    text = SUBJECT.replace(
        "def steps(context):", "def steps(context, missing=False):\n    assert not missing"
    )
    (tmp_path / "subject.py").write_text(text)
    asked = (
        SCENARIO.replace("subject:meet", "subject:steps")
        .replace("agree", "event")
        .replace("value: met.ranks", "event: met")
    )
    (tmp_path / "scenario.yaml").write_text(asked.replace("candidate: 2", "candidate: 1"))
    machines = hostfile.read(room.hostfile)
    over = threading.Event()

    def cut() -> None:
        while not over.is_set() and not _ranks_are_at_work(room, 1):
            time.sleep(0.05)
        room.cut(1)

    cutting = threading.Thread(target=cut)
    cutting.start()
    named = Hostfile(
        machines=machines,
        interpreter=sys.executable,
        configuration=room.config,
        lease=LEASE,
        back_within=0.5,
    )
    settings = RunSettings(results=tmp_path / "results", signer=None, where=named)
    try:
        done = run(load_scenario(tmp_path), settings)
    finally:
        over.set()
        cutting.join()
        room.join(1)
    before = _digests(done.folder)
    fetch = over_ssh(
        commands_of(room.hostfile, interpreter=sys.executable, configuration=room.config)
    )
    outcome = collect(done.folder, fetch=fetch)
    (found,) = outcome.found
    assert found.late is not None, found.why
    assert "lease lost" in found.late.why
    assert (found.late.whole, outcome.contradiction) == (True, "")
    assert {event.name for event in found.late.events} >= {"machine.ended", "rank.exited"}
    assert _digests(done.folder) == before
    place = outcome.folder / found.missing.file
    whole = place.read_bytes()

    def again(change: Callable[[dict[str, object]], None]) -> LateOutcome:
        parts = []
        place.write_bytes(whole)
        for message, content in list(_messages(place)):
            change(message)
            words = json.dumps(message).encode()
            parts += [HEAD.pack(len(words), len(content)), words, content]
        place.write_bytes(b"".join(parts))
        return collect(done.folder, fetch=fetch)

    def well(message: dict[str, object]) -> None:
        told = message.get("told")
        if isinstance(told, dict) and told["is"] == "exited":
            told.update(code=0, signal=None)

    forged = again(well)
    ((was, now, failures),) = forged.trials.values()
    assert (was, now, forged.verdict) == ("fail", "fail", outcome.verdict)
    assert any("machines-stayed" in failure for failure in failures)
    (refused,) = again(lambda message: message.update(world="another")).found
    assert "its journal was not merged" in refused.why


def _ranks_are_at_work(room: Room, index: int) -> bool:
    own = Path(f"/proc/{room.pids[index]}/ns/net").stat().st_ino
    home = Path("~root").expanduser().relative_to("/")
    names = Path("/proc").glob(f"[0-9]*/root/{home}/.cache/rankproof/machines/runs/*/*")
    for path in names:
        try:
            if (
                Path("/proc", path.parts[2], "ns/net").stat().st_ino == own
                and path.stat().st_size > 20_000
            ):
                return True
        except OSError:
            continue
    return False


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_killed_control_leaves_nothing(
    room: Room, tmp_path: Path, often: Callable[..., range]
) -> None:
    """Killed at whatever moment, connecting, giving, warming or in a world: after the lease no
    machine has anything.
    """
    (tmp_path / "subject.py").write_text(SUBJECT)
    (tmp_path / "scenario.yaml").write_text(SCENARIO.replace("candidate: 2", "candidate: 2000"))
    command = [
        sys.executable,
        "-m",
        "harness.cli",
        "run",
        str(tmp_path),
        "--hosts",
        str(room.hostfile),
        "--unsigned",
    ]
    command += ["--ssh-config", str(room.config), "--results", str(tmp_path / "results")]
    took = []
    moments = random.Random(19)
    for turn in often(1, soak=20):
        control = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not any(room.living(index) for index in range(3)):
            assert control.poll() is None
            time.sleep(0.05)
        time.sleep(moments.uniform(0.0, 25.0))
        there = sum(len(room.living(index)) for index in range(3))
        os.kill(control.pid, signal.SIGKILL)
        control.wait()
        killed = time.monotonic()
        while any(room.living(index) for index in range(3)):
            assert time.monotonic() < killed + 30
            time.sleep(0.05)
        took.append(time.monotonic() - killed)
        print(f"turn {turn}: {there} processes there, gone after {took[-1]:.1f} s")
