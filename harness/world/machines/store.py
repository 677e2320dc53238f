"""Store of what a machine was given: trees by their digest, environments by their lock.

Standard library alone, as of Python 3.9. Each is whole, or not there.

What is used is held by a lock for as long as its user lives, and cleaning takes nothing that is
held, nor what was used within the last hour: whoever has just asked for it may not hold it yet.
An environment is made beside its place and named when it is done, by whoever holds its lock; who
comes second finds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PIECE = 4 * 2**20
# What compilers of Python leave beside the files is made again there.
PASSED_OVER = frozenset({"__pycache__"})


USED = ".used"
# Cleaning: in seconds, and bytes of all that lies in one folder.
KEPT_AT_LEAST = 3600
KEPT_FOR = 30 * 86400
MOST_KEPT = 20 * 2**30
# What comes, or is made, begins with a dot until it is whole; older than this nobody is at it any
# more.
COMING_FOR = 86400


class BadTree(Exception):
    """Tree that is not the one that was named."""


def files_of(place: Path) -> dict[str, Path]:
    """Each regular file of a folder by its path below it; a file alone by the empty path.

    Links are followed.

    Raises:
        OSError: something cannot be read.
    """
    if not place.is_dir():
        return {"": place}
    files = {}
    for folder, folders, names in os.walk(place, followlinks=True):
        folders[:] = sorted(set(folders) - PASSED_OVER)
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file():
                files[path.relative_to(place).as_posix()] = path
    return files


def digest_of(files: dict[str, Path]) -> str:
    """One sha256 over the paths, modes and contents of files."""
    listing = []
    for name, path in sorted(files.items()):
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while piece := stream.read(2**20):
                digest.update(piece)
        listing.append([name, bool(path.stat().st_mode & 0o100), digest.hexdigest()])
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()


def pieces(files: dict[str, Path]) -> Iterator[tuple[list[list[Any]], bytes]]:
    """Yield what `TreeStore.put` takes, in messages of at most a few MiB: where each part belongs,
    and the parts.
    """
    parts = []
    content = bytearray()
    for name, path in sorted(files.items()):
        at = 0
        runs = bool(path.stat().st_mode & 0o100)
        with path.open("rb") as stream:
            while True:
                part = stream.read(PIECE - len(content))
                parts.append([name, runs, at, len(part)])
                content += part
                at += len(part)
                if len(content) >= PIECE:
                    yield parts, bytes(content)
                    parts = []
                    content = bytearray()
                elif not part:
                    break
    yield parts, bytes(content)


class TreeStore:
    """Trees that a machine has, below one folder: each is whole, or not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._coming: dict[str, Path] = {}
        self._uses = Uses(folder)

    def place(self, digest: str) -> Path:
        """Where a tree lies."""
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise BadTree("its digest is malformed")
        return self._folder / digest

    def has(self, digest: str) -> bool:
        """Return whether a tree is there, as its digest says; one that was changed is removed."""
        place = self.place(digest)
        if not place.exists():
            return False
        self._uses.hold(digest)
        if not place.exists():  # somebody cleaned in that moment
            return False
        if digest_of(files_of(place)) == digest:
            return True
        self._remove(place)
        return False

    def hold(self, place: str) -> None:
        """Hold the tree that lies at a place, if that is one of these."""
        if Path(place).parent.resolve() == self._folder.resolve():
            self._uses.hold(Path(place).name)

    def put(self, digest: str, parts: list[list[Any]], content: bytes) -> None:
        """Take a message of `pieces`.

        Raises:
            BadTree: a path leads out of the tree, or the parts are not those that came.
            OSError: there is no space.
        """
        self.place(digest)
        if digest not in self._coming:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._coming[digest] = self._folder / f".{secrets.token_hex(8)}"
        try:
            self._add(self._coming[digest], parts, content)
        except (BadTree, OSError):
            # What came so far would take space that nobody ever gives back.
            self._remove(self._coming.pop(digest))
            raise

    def _add(self, coming: Path, parts: list[list[Any]], content: bytes) -> None:
        if sum(size for _, _, _, size in parts) != len(content):
            raise BadTree("the sizes of its parts do not match the data received")
        start = 0
        for name, runs, at, size in parts:
            if name.startswith("/") or ".." in name.split("/") or "\0" in name:
                raise BadTree(f"{name!r} points outside its folder")
            path = coming / name if name else coming
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if at else "wb") as stream:
                stream.seek(at)
                stream.write(content[start : start + size])
            path.chmod(0o700 if runs else 0o600)
            start += size

    def keep(self, digest: str) -> None:
        """Keep a tree that is whole.

        Raises:
            BadTree: it is not the one that was named.
        """
        coming = self._coming.pop(digest, None)
        if coming is None or digest_of(files_of(coming)) != digest:
            if coming is not None:
                self._remove(coming)
            raise BadTree("the received files differ from the files that were announced")
        place = self.place(digest)
        self._uses.hold(digest)
        try:
            coming.rename(place)
        except OSError:  # somebody else was faster
            self._remove(coming)
            if digest_of(files_of(place)) != digest:
                raise

    def _remove(self, place: Path) -> None:
        if place.is_dir():
            shutil.rmtree(place)
        elif place.exists():
            place.unlink()


class Uses:
    """Uses of the entries of a folder: a lock for each, held until its process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, name: str) -> None:
        """Hold one of them from now on."""
        if name not in self._held:
            self._held[name] = self._locked(name, fcntl.LOCK_SH)
        os.utime(self._held[name])

    def _locked(self, name: str, how: int) -> int:
        """Return a descriptor that holds the lock of a name: of the file that others open too, not
        of one taken away.
        """
        path = self._folder / USED / name
        while True:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, how)
                with contextlib.suppress(FileNotFoundError):
                    # Who cleans removes the file under its lock: the next lock is on a new file.
                    if os.fstat(descriptor).st_ino == path.stat().st_ino:
                        return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def clean(self, *, most: int = MOST_KEPT, older: float = KEPT_FOR) -> tuple[int, int]:
        """Take away what nobody uses: what is older, and of the rest the oldest until no more than
        `most` is left.

        Args:
            most: bytes that may stay.
            older: seconds since it was used last.

        Returns:
            How many were taken away, and their bytes.
        """
        now = time.time()
        unused = list[tuple[float, int, Path]]()
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.name == USED or path.name.startswith(".lock-"):
                    continue
                with contextlib.suppress(OSError):
                    unused.append((self._used(path), _size(path), path))
        left = sum(size for _, size, _ in unused)
        gone = 0
        freed = 0
        for used, size, path in sorted(unused):
            coming = path.name.startswith(".")
            is_due = now - used > COMING_FOR if coming else now - used > older or left > most
            if is_due and now - used > KEPT_AT_LEAST and self._take_away(path):
                left -= size
                gone += 1
                freed += size
        return gone, freed

    def _used(self, path: Path) -> float:
        times = [path.lstat().st_mtime]
        with contextlib.suppress(OSError):
            times.append((self._folder / USED / path.name).stat().st_mtime)
        return max(times)

    def _take_away(self, path: Path) -> bool:
        """Take one away, unless somebody holds it."""
        try:
            descriptor = self._locked(path.name, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        try:
            going = path.with_name(f".{secrets.token_hex(8)}")
            path.rename(going)  # never half of it under its name
            if going.is_dir():
                shutil.rmtree(going, ignore_errors=True)
            else:
                going.unlink()
            (self._folder / USED / path.name).unlink()
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True


def _size(path: Path) -> int:
    """Bytes that a file or folder takes; links count for themselves."""
    total = path.lstat().st_blocks * 512
    if path.is_dir() and not path.is_symlink():
        for folder, folders, names in os.walk(path):
            for name in (*folders, *names):
                with contextlib.suppress(OSError):
                    total += Path(folder, name).lstat().st_blocks * 512
    return total


ENVIRONMENTS = "environments"
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
    """Environment that cannot be made here; the message says why."""


def name_of(lock: bytes) -> str:
    """Return what the environment of a lock is called on this kind of machine with this
    interpreter.
    """
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
    """Return the pip that comes with Python, which runs without being installed."""
    wheels: list[Path] = []
    with contextlib.suppress(ImportError):
        import ensurepip

        wheels = sorted((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
    if not wheels:
        raise NotMade(
            "its Python has no pip; install its ensurepip (Debian: python3-venv), or choose another"
            " Python"
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
            # Its whole session: pip starts programs of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        said = (said + (process.stdout.read() or b""))[-MOST_SAID:]
    if process.returncode:
        lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        last = (errors or ["it printed no error"])[-1]
        raise NotMade(f"{Path(command[2]).name} failed with exit code {process.returncode}: {last}")


def _wait(goes_on: Callable[[], bool]) -> None:
    if not goes_on():
        raise NotMade("it is no longer needed")


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
