"""However a run ends, nothing of it is left: no process, no lock, no half-signed report."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.rank.process import inspect
from tests.kit.commands import ROOT, Ran, command, environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc"),
]

# Rank 0 leaves a child in a session of its own, rank 1 stops itself: both are what a plain kill
# misses.
HOSTILE = """
import os, signal, subprocess, sys

def meet(context, *, broken):
    if context.rank == 0:
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    context.emit("met", thing="thing")
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    signal.pause()
"""
GONE_WITHIN = 2.0
LOOKS_EVERY = 0.02


def left(marker: str) -> list[int]:
    """Pids of the processes that were started with this TMPDIR, or with a room in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if f"\0TMPDIR={marker}".encode() in b"\0" + (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def await_nobody(marker: str, *, within: float) -> list[int]:
    """Who is left when nobody is, or when the time is over."""
    end = time.monotonic() + within
    while (found := left(marker)) and time.monotonic() < end:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
                os.close(descriptor)
    return found


def await_sign(process: subprocess.Popen[str], sign: Callable[[], bool]) -> None:
    """Return when there is a sign of how far a run has come; it must not end before."""
    while not sign():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOKS_EVERY)
            raise AssertionError(process.communicate())


def has_a_stopped_rank(scratch: Path) -> bool:
    """Whether some process of the run is in state T: its rank 1 has stopped itself."""
    found = (inspect(pid) for pid in left(str(scratch)))
    return any(process is not None and process.state == "T" for process in found)


# How far a run has come, by what can be seen of it from outside.
SIGNS: dict[str, Callable[[Path, Path], bool]] = {
    "begun": lambda place, _: (place / "results").exists(),
    "a server starts": lambda _, scratch: len(left(str(scratch))) > 1,
    "a world starts": lambda _, scratch: bool(list(scratch.glob("rankproof-*/world-*"))),
    "a rank is stopped": lambda _, scratch: has_a_stopped_rank(scratch),
}


def start(folder: Path, tmp_path: Path, scratch: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("run", str(folder), "--results", str(tmp_path / "results")),
        env=environment(tmp_path / "home", TMPDIR=str(scratch)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.whole
@pytest.mark.parametrize(
    ("sign", "later"),
    [
        ("begun", 0.0),
        ("a server starts", 0.0),
        ("a server starts", 2.0),
        ("a world starts", 0.0),
        ("a rank is stopped", 0.2),
    ],
)
def test_a_killed_harness_leaves_nobody_behind(
    scenario: Callable[..., Path],
    rankproof: Callable[..., Ran],
    tmp_path: Path,
    short_tmp: Path,
    sign: str,
    later: float,
) -> None:
    """SIGKILL at any moment: two seconds later no process is left, the lock is free, and the next
    run works.

    Moments go by what is seen of the run, and `later` by the time it took until then: the same on a
    busy machine.
    """
    begin = time.monotonic()
    process = start(scenario({"subject.py": HOSTILE}), tmp_path, short_tmp)
    await_sign(process, lambda: SIGNS[sign](tmp_path, short_tmp))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(later * (time.monotonic() - begin))
    still_running = process.poll() is None
    process.kill()
    error = process.communicate()[1]
    assert still_running, error
    assert await_nobody(str(short_tmp), within=GONE_WITHIN) == []
    assert list((tmp_path / "results").rglob("report.md")) == []
    assert [
        path for path in short_tmp.iterdir() if not path.name.startswith("rankproof-ports")
    ] == []
    if sign == "a rank is stopped":
        ran = rankproof("run", str(scenario()))
        assert ran.code == 0, ran.out + ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_is_marked_unfinished(
    scenario: Callable[..., Path], tmp_path: Path, short_tmp: Path, number: signal.Signals
) -> None:
    """Ctrl-C, SIGTERM and SIGHUP end the ranks, leave a folder that says it is unfinished, and exit
    code 2.
    """
    process = start(scenario({"subject.py": HOSTILE}), tmp_path, short_tmp)
    await_sign(process, lambda: SIGNS["a world starts"](tmp_path, short_tmp))
    process.send_signal(number)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 2, error
    assert "interrupted" in error
    assert "Traceback" not in error
    assert await_nobody(str(short_tmp), within=GONE_WITHIN) == []
    folders = [path.name for path in (tmp_path / "results" / "meet").iterdir()]
    assert len(folders) == 1
    assert folders[0].endswith(".unfinished")
    assert list((tmp_path / "results").rglob("report.md")) == []


@pytest.mark.whole
def test_ctrl_c_under_nox_leaves_nobody_behind(
    scenario: Callable[..., Path], tmp_path: Path, short_tmp: Path
) -> None:
    """Ctrl-C to the whole foreground group, as a terminal sends it: nox waits until the harness has
    cleaned up.
    """
    folder = scenario({"subject.py": HOSTILE})
    # The noxfile's own way to run a command, without making its environment again.
    noxfile = tmp_path / "noxfile.py"
    noxfile.write_text(
        "import nox\n@nox.session(venv_backend='none')\ndef validate(session):\n   "
        f" session.run(*{command('run', str(folder), '--results', str(tmp_path / 'results'))!r},\n "
        "       external=True, interrupt_timeout=20, terminate_timeout=20)\n"
    )
    assert "interrupt_timeout" in (ROOT / "noxfile.py").read_text()
    process = subprocess.Popen(
        [sys.executable, "-m", "nox", "-f", str(noxfile), "-s", "validate"],
        env=environment(tmp_path / "home", TMPDIR=str(short_tmp)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    await_sign(process, lambda: SIGNS["a world starts"](tmp_path, short_tmp))
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    assert await_nobody(str(short_tmp), within=GONE_WITHIN) == [], output
    assert next((tmp_path / "results" / "meet").iterdir()).name.endswith(".unfinished")
