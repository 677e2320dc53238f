"""Relay between control and a process of ours on a node of Ray: the actor there, which starts the
process and hands bytes on, both ways; and here the process as `subprocess.Popen` shows one, three
pipes and an end.

`RayRelay` is sent by value: standard library only, and nothing of ours has to be installed for it.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Sequence
from typing import IO, Protocol

CHUNK = 2**20
MOST_SAID = 4096
# Twice forked: what ends an actor's process may end its children too, and ours has worlds to end
# first.
TWICE = "import os, sys; os.fork() and os._exit(0); "
# Control asks every second. Whom Ray leaves behind when control is gone, it asks no more.
UNASKED = 30.0


class RayRelay:
    """One process of ours on a node. Its methods are called from several threads."""

    def __init__(
        self,
        program: str,
        *,
        arguments: Sequence[str] = (),
        code: bytes = b"",
        interpreter: str,
        beat: bytes = b"",
        alone: bool = False,
    ) -> None:
        """Start it.

        Args:
            program: text of what it runs. Its arguments are a folder of its own, empty where no
                code came, and others.
            arguments: the others.
            code: a zip archive of the package `harness`, laid out in that folder.
            interpreter: path of the Python to run it in; where that is not there, the one that runs
                this.
            beat: a message that says nothing, sent whenever control asks; empty where control has
                its own.
            alone: whether the process serves this relay only, and ends when nobody has asked
                anything for `UNASKED` seconds.
        """
        self._beat = beat
        # Calls come in several threads: parts are written in order, and none into another.
        self._lock = threading.Lock()
        self._early: dict[int, bytes] = {}
        self._next = 0
        self._asked = time.monotonic()
        self._folder = tempfile.mkdtemp(prefix="rankproof-farm-") if code else ""
        try:
            if code:
                with zipfile.ZipFile(io.BytesIO(code)) as archive:
                    # os.path, as everywhere in this class: it is sent by value.
                    archive.extractall(os.path.join(self._folder, "code"))  # noqa: PTH118
            python = interpreter if os.access(interpreter, os.X_OK) else sys.executable
            # Without a name, so that nothing is left of it however this process ends.
            with tempfile.TemporaryFile() as log:
                starter = subprocess.Popen(
                    [python, "-s", "-P", "-c", TWICE + program, self._folder, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self._folder or "/",
                    start_new_session=True,
                    bufsize=0,
                )
                self._log = os.dup(log.fileno())
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        assert starter.stdin is not None
        assert starter.stdout is not None
        # Copies of our own: the starter ends at once, and its pipes go on to the process it forked.
        self._writes = os.dup(starter.stdin.fileno())
        self._reads = os.dup(starter.stdout.fileno())
        starter.stdin.close()
        starter.stdout.close()
        starter.wait()
        if alone:
            threading.Thread(target=self._end_unasked, daemon=True).start()

    def read(self, wait: float) -> bytes | None:
        """Return what the process wrote since; empty if nothing in `wait` seconds; None once it has
        ended.

        That it is asked is what the process hears of control while there is nothing else to say.
        """
        self._asked = time.monotonic()
        if self._beat:
            with self._lock:
                self._send(self._beat)
        if not select.select([self._reads], [], [], wait)[0]:
            return b""
        if part := os.read(self._reads, CHUNK):
            return part
        return None

    def write(self, content: bytes, number: int) -> None:
        """Hand bytes on in the order of their numbers, from 0.

        None is the end: the channel is closed.

        Calls of one caller may overtake each other where an actor has several threads.
        """
        with self._lock:
            self._early[number] = content
            while self._next in self._early:
                part = self._early.pop(self._next)
                self._next += 1
                if part:
                    self._send(part)
                else:
                    self._close()

    def _send(self, content: bytes) -> None:
        left = memoryview(content)
        with contextlib.suppress(BrokenPipeError):  # `read` tells its end
            while left:
                left = left[os.write(self._writes, left) :]

    def close(self) -> None:
        """Close the channel: the process ends its worlds and itself."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        os.close(self._writes)
        # What is still sent goes nowhere, and not to whatever file has the number next.
        self._writes = os.open(os.devnull, os.O_WRONLY)

    def said(self) -> str:
        """Return the last that the process said beside its messages.

        Once it has ended, what it left behind goes.
        """
        size = os.fstat(self._log).st_size
        text = os.pread(self._log, MOST_SAID, max(0, size - MOST_SAID))
        shutil.rmtree(self._folder, ignore_errors=True)
        return text.decode("utf-8", "replace")

    def _end_unasked(self) -> None:
        while (left := self._asked + UNASKED - time.monotonic()) > 0:
            time.sleep(left)
        os._exit(0)


# For how long a relay that has nothing to say keeps one question open.
WAIT = 1.0
# As ssh says of a machine that it lost.
LOST = 255


class NodeLost(Exception):
    """Node that is gone: Ray says so, or it did not answer."""


class ActorGone(Exception):
    """End of the actor, or of what it started, on a node that is still there."""


class Bytes(Protocol):
    """Carrier of bytes to and from a process at a node, as `harness.world.starters.ray.Actor`."""

    def read(self, wait: float) -> bytes | None:
        """Return what came; None once the process has ended."""

    def write(self, content: bytes) -> None:
        """Send bytes after those before; none is their end."""

    def said(self) -> str:
        """Return what the process said beside them."""

    def kill(self) -> None:
        """End the relay."""


class Piped:
    """Process behind a relay.

    Attributes:
        stdin, stdout, stderr: of it. The last tells what it said, and how the relay ended, once it
            has.
    """

    def __init__(self, relay: Bytes) -> None:
        """Begin to pipe."""
        self._relay = relay
        self._code: int | None = None
        self._ended = threading.Event()
        down = os.pipe()
        up = os.pipe()
        said = os.pipe()
        self.stdin: IO[bytes] | None = os.fdopen(down[1], "wb", 0)
        self.stdout: IO[bytes] | None = os.fdopen(up[0], "rb", 0)
        self.stderr: IO[bytes] | None = os.fdopen(said[0], "rb", 0)
        threading.Thread(target=self._hand_down, args=(down[0],), daemon=True, name="down").start()
        threading.Thread(
            target=self._hand_up, args=(up[1], said[1]), daemon=True, name="up"
        ).start()

    def poll(self) -> int | None:
        """None while it is there; then 0, or 255 where the relay was lost: how a process ended no
        relay knows.
        """
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            TimeoutExpired: it is still there.
        """
        if not self._ended.wait(timeout) or self._code is None:
            raise subprocess.TimeoutExpired("relay", timeout or 0.0)
        return self._code

    def kill(self) -> None:
        """End the relay: the process hears that its channel is closed.

        Nobody waits longer for what is lost.
        """
        self._finish(LOST)

    def _finish(self, code: int) -> None:
        if self._code is None:
            self._code = code
        self._ended.set()
        with contextlib.suppress(Exception):  # it is gone already, and says so in words of its own
            self._relay.kill()

    def _hand_down(self, reads: int) -> None:
        with os.fdopen(reads, "rb", 0) as pipe, contextlib.suppress(Exception):
            while part := pipe.read(CHUNK):
                self._relay.write(part)
            self._relay.write(b"")

    def _hand_up(self, writes: int, says: int) -> None:
        code = LOST
        why = ""
        try:
            while not self._ended.is_set() and (part := self._relay.read(WAIT)) is not None:
                left = memoryview(part)
                while left:
                    left = left[os.write(writes, left) :]
            if not self._ended.is_set():
                code = 0
                why = self._relay.said()
        except (NodeLost, ActorGone) as error:
            why = str(error)
        except OSError:
            pass  # nobody reads it any more
        # Standard output ends last: who reads that asks at once for the exit code and the words.
        with os.fdopen(says, "wb", 0) as pipe, contextlib.suppress(OSError):
            pipe.write(why.encode())
        self._finish(code)
        os.close(writes)
