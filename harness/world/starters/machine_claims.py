"""Claims of a run on what it makes for its test machines, written down before it is made, so that
it can be taken away without the run.

A claim is a folder below /run. Its owner holds the lock of a file in it for as long as it lives,
however it ends, and a guard, a process in a session of its own, waits for that lock: whoever gets
it knows that the owner is gone, and takes away what the claim lists. The next run does the same for
claims whose guard was killed too. A link is known by the random address that it was made with, a
process by its start time: nothing is taken away because of its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

from harness.forms.process import start_apart

CLAIMS = Path("/run/rankproof-test-machines")
GUARD = (
    "import sys; sys.path[:0] = {path!r}; from harness.world.starters.machine_claims import guard;"
    " guard({folder!r})"
)
LOCK = "lock"
LISTED = "listed.json"
ENDS_WITHIN = 5.0


class Listed(TypedDict):
    """List of what a claim is to take away.

    Attributes:
        links: name of each network link to the address that it was made with.
        processes: pid and start time of each process.
        files: paths.
    """

    links: dict[str, str]
    processes: list[tuple[int, str]]
    files: list[str]


class MachineClaim:
    """Claim of a run, for as long as its context is entered.

    Attributes:
        mark: four hexadecimal digits, which no other claim here has.
        folder: of the claim; what sshd reads is below it.
    """

    def __init__(self) -> None:
        """Take away what runs left that are gone, and claim a mark."""
        sweep()
        CLAIMS.mkdir(mode=0o700, exist_ok=True)
        self._listed: Listed = {"links": {}, "processes": [], "files": []}
        self._lock = -1
        while self._lock < 0:
            self.mark = secrets.token_hex(2)
            self.folder = CLAIMS / self.mark
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
                self._lock = _locked(self.folder, fcntl.LOCK_EX, create=os.O_CREAT)
        self._write()
        code = GUARD.format(path=[str(Path(__file__).parents[3])], folder=str(self.folder))
        # Who kills the run's whole process group leaves the guard.
        self._guard = start_apart(
            [sys.executable, "-I", "-S", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._guard.stdout is not None
        if not self._guard.stdout.readline():
            self.close()
            raise OSError("the process that supervises the test machines did not start")

    def link(self, name: str) -> str:
        """List a network link before it is made; the address that it has to be made with."""
        address = ":".join(f"{byte:02x}" for byte in (0x02, *secrets.token_bytes(5)))
        self._listed["links"][name] = address
        self._write()
        return address

    def process(self, pid: int) -> None:
        """List a process; all that are in its network are ended with it."""
        self._listed["processes"].append((pid, _started(pid)))
        self._write()

    def file(self, path: Path) -> None:
        """List a file before it is written."""
        self._listed["files"].append(str(path))
        self._write()

    def close(self) -> None:
        """Take everything away, and wait for the guard to see that nothing is left to do."""
        _take_away(self.folder, files=False)
        # Only now: the guard, which waits for this lock, takes away what is there still.
        os.close(self._lock)
        self._guard.wait()
        assert self._guard.stdout is not None
        self._guard.stdout.close()

    def _write(self) -> None:
        coming = self.folder / f"{LISTED}.new"
        coming.write_text(json.dumps(self._listed), "utf-8")
        coming.rename(self.folder / LISTED)  # whoever reads it finds the whole list


def guard(folder: str) -> None:
    """Wait until the owner of a claim is gone, and take away what it left.

    The program of the guard.
    """
    with contextlib.suppress(FileNotFoundError):
        print("here", flush=True)
        # The owner's pipe: it must not stay open as long as the guard waits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if _locked(Path(folder), fcntl.LOCK_EX) >= 0:
            _take_away(Path(folder))


def sweep() -> None:
    """Take away what runs left that are gone, and whose guard is gone too."""
    for folder in sorted(CLAIMS.glob("*")):
        # A claim without its lock file was cut off before it had made anything, or is just being
        # made.
        with contextlib.suppress(OSError):
            # Held where its owner lives, or its guard is at it: that raises.
            lock = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock >= 0:
                _take_away(folder)
                os.close(lock)


def _locked(folder: Path, how: int, *, create: int = 0) -> int:
    """Return a descriptor that holds the lock of a claim; -1 where somebody took that claim away in
    the meantime.

    Raises:
        OSError: there is no such claim, or its lock is held and `how` does not wait.
    """
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | create, 0o600)
    try:
        fcntl.flock(lock, how)
        if os.fstat(lock).st_ino == (folder / LOCK).stat().st_ino:
            return lock
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return -1


def _take_away(folder: Path, *, files: bool = True) -> None:
    """By whoever holds the lock of the claim. What is gone already is passed over."""
    try:
        listed: Listed = json.loads((folder / LISTED).read_text("utf-8"))
    except FileNotFoundError:
        listed = {"links": {}, "processes": [], "files": []}
    for pid, started in listed["processes"]:
        _end(pid, started)
    for name, address in listed["links"].items():
        address_file = Path("/sys/class/net", name, "address")
        with contextlib.suppress(OSError):
            if address_file.read_text("ascii").strip() == address:
                subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)
    paths = [Path(path) for path in listed["files"] if files]
    for path in paths:
        path.unlink(missing_ok=True)
    for parent in {path.parent for path in paths}:
        with contextlib.suppress(OSError):  # it holds something else, or is gone
            parent.rmdir()
    shutil.rmtree(folder, ignore_errors=True)


def _end(pid: int, started: str) -> None:
    """End a process if it is the one that was listed, and all that is in its network."""
    try:
        # As long as it is open, no other network has the number of this one.
        network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if _started(pid) != started:
            return
        number = os.fstat(network).st_ino
        living = [pid]
        # Who listens goes first, so that nobody comes while the others are looked for.
        while living:
            ended = []
            for dweller in living:
                with contextlib.suppress(ProcessLookupError):
                    ended.append(_kill(dweller))
            for descriptor in ended:
                select.select([descriptor], [], [], ENDS_WITHIN)
                os.close(descriptor)
            living = _dwellers(number)
    finally:
        os.close(network)


def _dwellers(network: int) -> list[int]:
    """Processes in a network, unless it is the one of this process."""
    if network == Path("/proc/self/ns/net").stat().st_ino:
        return []
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "ns/net").stat().st_ino == network:
                pids.append(int(folder.name))
    return pids


def _kill(pid: int) -> int:
    """Kill a process; a descriptor that is readable once it has ended."""
    descriptor = os.pidfd_open(pid)
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    return descriptor


def _started(pid: int) -> str:
    """When a process started, in clock ticks since the machine did; empty where there is none."""
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[19]
        )
    return ""
