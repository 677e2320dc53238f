"""Handle of a running fork server, as the harness has it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.forms.digest import sha256
from harness.forms.process import start_apart
from harness.world.below import requests
from harness.world.below.leftovers import remove
from harness.world.below.preload import LIST
from harness.world.below.warden import LAID_OUT
from harness.world.control import rank_environment
from harness.world.control.names import ROOT, shorten
from harness.world.control.room import Room, base

READY_WITHIN = 120.0
ANSWER_WITHIN = 5.0
GONE_WITHIN = 10.0
# The rank's own code is loaded by its file: the folder it lies in may be a site-packages full of
# other things, and an arm's environment must not see them.
BOOT = (
    "import sys, importlib.util as u; root = sys.argv.pop(1) + '/harness'; s ="
    " u.spec_from_file_location('harness', root + '/__init__.py',"
    " submodule_search_locations=[root]); sys.modules['harness'] = u.module_from_spec(s);"
    " s.loader.exec_module(sys.modules['harness']); from harness.{module} import main;"
    " main({arguments})"
)


class ServerFailed(RuntimeError):
    """Fork server that did not start or is gone: an error of the harness, never the subject's."""


class Cancelled(Exception):
    """Interrupt of the run; the ranks of this world are gone."""


@dataclass(frozen=True, order=True)
class ServerKey:
    """Properties that let two worlds have the same server, one after the other.

    Attributes:
        modules: what a warm one imports first.
        files: of kinds, what it loads then: each with its sha256, for a plug-in's may change.
    """

    warm: bool
    environment: tuple[tuple[str, str], ...]
    python: str = ""
    shared_home: bool = False
    modules: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()


def interpreter(python: Path | None = None) -> list[str]:
    """Return the interpreter that ranks run in, this one by default.

    Without the user's site and the current folder in it.
    """
    return [str(python or sys.executable), "-s", "-P"]


class ServerHandle:
    """Running fork server, seen from the harness.

    Attributes:
        key: which worlds it can serve.
        scratch: folder of its worlds, removed with it.
        room: home, caches and temporary folder of its ranks; None where those are the user's own.
        left: what of the scratch folder could not be removed, in words.
        environment: what it was started with.
        python: the interpreter of an arm's own environment, or None.
        pid: of the process that forks; known once it is ready.
        seconds: how long it took to get ready.
        begun: when it was started, in nanoseconds since 1970.
    """

    # Over 40 statements: in which order folders are named, made and handed on is read at one place.
    def __init__(self, key: ServerKey) -> None:
        """Start it.

        Raises:
            ServerFailed: no space, no descriptors, no interpreter.
        """
        self.key = key
        self.room: Room | None = None
        self.left: list[str] = []
        self.environment = dict(key.environment)
        self.python = Path(key.python) if key.python else None
        self.seconds = 0.0
        self.begun = time.time_ns()
        # One question and its answer at a time; and no copy of the code given to two worlds.
        self._lock = threading.Lock()
        self._code: dict[Path, list[Path]] = {}
        self._copied: dict[Path, object] = {}
        # A pool that ends, and a world that discards its server, may close it together.
        self._closing = threading.Lock()
        start = "warm" if key.warm else "fresh"
        boot = BOOT.format(
            module="world.below.warden",
            arguments="int(sys.argv[1]), sys.argv[2], warm=sys.argv[3] == 'warm'",
        )
        try:
            # Only named yet: the warden, which removes it however this process ends, has to be
            # there before it is.
            self.scratch = base() / f"rankproof-{secrets.token_hex(8)}"
            if not key.shared_home:
                self.room = Room(self.scratch)
                self.environment = self.room.environment(self.environment)
            libraries = (
                rank_environment.find_driver() if rank_environment.is_driver_wanted() else {}
            )
            links = self.scratch / "driver"
            self.environment = rank_environment.with_driver(
                self.environment, folder=links, libraries=libraries
            )
            with contextlib.ExitStack() as half_done:
                ours, theirs = socket.socketpair()
                half_done.enter_context(ours)
                with theirs:
                    self._log = half_done.enter_context(tempfile.TemporaryFile())
                    self._process = start_apart(
                        [
                            *interpreter(self.python),
                            "-c",
                            boot,
                            ROOT,
                            str(theirs.fileno()),
                            str(self.scratch),
                            start,
                        ],
                        stdin=subprocess.DEVNULL,
                        stdout=self._log,
                        stderr=self._log,
                        env=self.environment,
                        cwd="/",
                        pass_fds=[theirs.fileno()],
                    )
                # Both are this object's now, and `close` closes them.
                half_done.pop_all()
        except OSError as error:
            raise ServerFailed(f"the fork server could not be started: {error}") from error
        self._control = ours
        self.pid = self._process.pid
        try:
            self.scratch.mkdir(mode=0o700)
            if self.room is not None:
                self.room.lay_out()
            rank_environment.link_driver(links, libraries)
            listing = {
                "modules": key.modules,
                "files": [self.inside(Path(file)) for file, _ in key.files],
            }
            (self.scratch / LIST).write_text(json.dumps(listing))
            # Where it has ended already, `await_ready` reports what it printed.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._control.sendall(LAID_OUT)
        except OSError as error:
            self.close()
            raise ServerFailed(f"the fork server could not be started: {error}") from error

    def await_ready(self, cancel: int | None = None) -> None:
        """Wait until the server can fork.

        Raises:
            ServerFailed: it ended, or has threads, or took longer than two minutes; the message
                holds its last words.
            Cancelled: `cancel` became readable.
        """
        message = self._hear(READY_WITHIN, cancel=cancel)
        if message is None:
            raise ServerFailed(
                f"the fork server did not become ready; its last output: {self._last_words()}"
            )
        if message["is"] != "ready":
            raise ServerFailed(f"the fork server cannot fork safely: {message['why']}")
        self.pid = message["pid"]
        self.seconds = message["seconds"]

    def take_code(self, folder: Path) -> Path:
        """Return a copy of an arm's code for one world to import from; give it back with
        `give_code`.

        The copy's name says nothing: a subject must not read from its path which arm it is in, or
        where evidence is.

        Raises:
            OSError: no space, or the folder is gone.
        """
        with self._lock:
            if spare := self._code.get(folder):
                return spare.pop()
        target = self.scratch / f"code-{secrets.token_hex(8)}"
        shutil.copytree(folder, target)
        self._copied[target] = fingerprint(target)
        return target

    def give_code(self, folder: Path, copy: Path) -> None:
        """Keep a copy for the next world if its subject left it as it was.

        Else the next one gets a new copy.

        What one trial wrote must not be what the next one reads: trials are counted as independent.
        """
        if fingerprint(copy) == self._copied.get(copy):
            with self._lock:
                self._code.setdefault(folder, []).append(copy)
        else:
            shutil.rmtree(copy, ignore_errors=True)

    def inside(self, file: Path) -> str:
        """Where ranks load a kind's file from: ours lies where they can read it, a plug-in's is
        copied by its digest.

        Raises:
            OSError: no space, or the file is gone.
        """
        # Beside it, where it is installed, lie plug-ins.
        if file.is_relative_to(Path(ROOT, "harness")):
            return str(file)
        content = file.read_bytes()
        target = self.scratch / "inside" / sha256(content) / file.name
        # Ranks are the same user: what one of them wrote there is not what the next world loads.
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return str(target)

    def request(self, world: Path, descriptors: Sequence[int]) -> None:
        """Ask for one world.

        Raises:
            ServerFailed: the server is gone.
            OSError: so many descriptors cannot be handed over.
        """
        try:
            with self._lock:
                requests.send(self._control, {"world": str(world)}, descriptors)
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:
                # Not the server's end: this process may not have so many descriptors under way.
                raise
            raise ServerFailed(
                f"the fork server is gone ({error}); its last output: {self._last_words()}"
            ) from error

    def is_well(self) -> bool:
        """Return whether it still answers, with nobody left of its worlds.

        A rank can end or stop it: it is the same user.
        """
        token = time.monotonic_ns()
        with self._lock:
            try:
                requests.send(self._control, {"ping": token})
                message = self._hear(ANSWER_WITHIN)
            # Closed meanwhile: a socket without a descriptor cannot be waited for.
            except (OSError, ValueError):
                return False
        return message is not None and message.get("ping") == token

    def has_ended(self) -> bool:
        """Return whether its end is known, without asking it."""
        if self._process.poll() is not None:
            return True
        try:
            with self._lock:
                return self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the socket: the warden ends every descendant and itself.

        Closing twice is closing once.
        """
        with self._closing:
            with contextlib.suppress(OSError):
                # A lane that is waiting in this socket is woken; closing alone would leave it
                # there.
                self._control.shutdown(socket.SHUT_RDWR)
            self._control.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GONE_WITHIN)
            if self._process.poll() is None:
                # What the warden had below it is adopted by this process, and ended by the pool.
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
            self.left = remove(self.scratch)
            self._log.close()

    def _hear(self, seconds: float, *, cancel: int | None = None) -> dict[str, Any] | None:
        """Take one message; None when the server ended or said nothing for `seconds`.

        Raises:
            Cancelled: `cancel` became readable.
        """
        end = time.monotonic() + seconds
        text = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            if cancel is not None:
                selector.register(cancel, selectors.EVENT_READ)
            while not text.endswith(b"\n"):
                ready = {key.fd for key, _ in selector.select(max(0.0, end - time.monotonic()))}
                if cancel in ready:
                    raise Cancelled
                data = b""
                if ready:
                    with contextlib.suppress(ConnectionError):
                        data = self._control.recv(65536)
                if not data:
                    return None
                text += data
        message: dict[str, Any] = json.loads(text)
        return message

    def _last_words(self) -> str:
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            written = os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(
                errors="replace"
            )
            return shorten(written, python=self.python)[-1500:].strip() or "none"
        return "none"


def fingerprint(folder: Path) -> object:
    """Return what changes when anything in a folder is written to, by the kernel's own times, which
    nobody can set back.
    """
    statuses = []
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):
            status = path.lstat()
            statuses.append(
                (str(path), status.st_ino, status.st_size, status.st_mode, status.st_ctime_ns)
            )
    return statuses
