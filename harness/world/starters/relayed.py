"""What is behind a relay, as `subprocess.Popen` shows what is here: three pipes and an end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from typing import IO, Protocol

from harness.world.starters.relay import CHUNK

# For how long a relay that has nothing to say keeps one question open.
WAIT = 1.0
# As ssh says of a machine that it lost.
LOST = 255


class NodeLost(Exception):
    """A node is gone: Ray says so, or it did not answer."""


class ActorGone(Exception):
    """The actor, or what it started, ended on a node that is still there."""


class Bytes(Protocol):
    """What relays bytes to and from a process at a node, as `harness.world.starters.ray.Actor`."""

    def read(self, wait: float) -> bytes | None:
        """What came; None once the process has ended."""

    def write(self, content: bytes) -> None:
        """Send bytes after those before; none is their end."""

    def said(self) -> str:
        """What the process said beside them."""

    def kill(self) -> None:
        """End the relay."""


class Piped:
    """A process behind a relay.

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
        with os.fdopen(says, "wb", 0) as pipe, contextlib.suppress(OSError):
            pipe.write(why.encode())
        self._finish(code)
        os.close(writes)
