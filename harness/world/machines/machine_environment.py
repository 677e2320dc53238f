"""Environments that a machine makes from a lock: each is whole, or not there.

Standard library alone, as of Python 3.9.

One is made beside its place and named when it is done, by whoever holds its lock; who comes second
finds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from harness.world.machines.tree import Uses

FOLDER = "environments"
# Of what pip says, the end tells what went wrong.
MOST_SAID = 2000
LARGEST_SCRIPT = 2**20
PIP = (
    "install",
    "--require-hashes",
    "--only-binary",
    ":all:",
    "--no-input",
    "--progress-bar",
    "off",
)
QUIET = ("--disable-pip-version-check", "--no-color", "--no-warn-script-location")


class NotMade(Exception):
    """An environment that cannot be made here; the message says why."""


def name_of(lock: bytes) -> str:
    """What the environment of a lock is called on this kind of machine with this interpreter."""
    kind = [
        platform.python_implementation(),
        platform.python_version(),
        platform.system(),
        platform.machine(),
    ]
    return hashlib.sha256(
        json.dumps([hashlib.sha256(lock).hexdigest(), *kind]).encode()
    ).hexdigest()


def prepare(
    folder: Path,
    lock: Path,
    wheels: Path | None,
    *,
    goes_on: Callable[[], bool],
    page: str | None = None,
) -> tuple[Path, bool]:
    """Have the environment of a lock; its interpreter, and whether it was made now.

    Args:
        folder: of all environments here.
        lock: requirements, each with the sha256 of its files.
        wheels: a folder of them, in place of any index; None: as pip is configured here.
        goes_on: asked all the time; once it says no, what was begun is taken away.
        page: of wheels that an index may lack, looked at beside it; each wheel is held to the lock
            all the same.

    Raises:
        NotMade: it cannot be made, or nobody wants it any more.
        OSError: no space.
    """
    place = folder / name_of(lock.read_bytes())
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / f".lock-{place.name}").open("wb") as held:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            _wait(goes_on)
        Uses(folder).hold(place.name)
        if place.exists():
            return place / "bin" / "python", False
        coming = folder / f".{place.name}"
        shutil.rmtree(coming, ignore_errors=True)  # of one that was killed
        try:
            _run([sys.executable, "-m", "venv", "--without-pip", str(coming)], goes_on)
            source = ["--find-links", page] if page else []
            if wheels is not None:
                source = ["--no-index", "--find-links", str(wheels)]
            _run(
                [
                    str(coming / "bin" / "python"),
                    "-s",
                    str(_pip()),
                    *PIP,
                    *QUIET,
                    *source,
                    "--requirement",
                    str(lock),
                ],
                goes_on,
            )
            _move_scripts(coming, place)
            coming.rename(place)
        except BaseException:
            shutil.rmtree(coming, ignore_errors=True)
            raise
    return place / "bin" / "python", True


def _pip() -> Path:
    """The pip that comes with Python, which runs without being installed."""
    wheels: list[Path] = []
    with contextlib.suppress(ImportError):
        import ensurepip

        wheels = sorted((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
    if not wheels:
        raise NotMade(
            "its Python brings no pip: install its ensurepip (Debian: python3-venv), or name"
            " another Python"
        )
    return wheels[-1] / "pip"


def _run(command: list[str], goes_on: Callable[[], bool]) -> None:
    """Run a program to its end, or end it with everything that it started."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
            "LC_ALL": "C.UTF-8",
        },
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        said = b""
        try:
            while process.poll() is None:
                said = (said + (process.stdout.read() or b""))[-MOST_SAID:]
                _wait(goes_on)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        said = (said + (process.stdout.read() or b""))[-MOST_SAID:]
    if process.returncode:
        lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        last = (errors or ["it said nothing"])[-1]
        raise NotMade(f"{Path(command[2]).name} ended with {process.returncode}: {last}")


def _wait(goes_on: Callable[[], bool]) -> None:
    if not goes_on():
        raise NotMade("nobody waits for it any more")


def _move_scripts(coming: Path, place: Path) -> None:
    """Have scripts name the interpreter where it will be.

    What Python reads goes by where it lies.
    """
    for path in (coming / "bin").iterdir():
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST_SCRIPT:
            continue
        text = path.read_bytes()
        if os.fsencode(coming) in text:
            path.write_bytes(text.replace(os.fsencode(coming), os.fsencode(place)))
