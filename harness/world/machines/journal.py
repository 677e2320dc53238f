"""What happened in one world on one machine, on the machine's own disk until control has it: a file
of messages.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.world.machines.agent import HEAD, cache

RUNS = "runs"
NAME = re.compile(r"[0-9a-f]{8,64}")
# Nobody came for what is older, in seconds.
KEPT_FOR = 30 * 86400
MOST_BYTES = 2**30


class Journal:
    """Takes every message that a world sends up, in order.

    What cannot be written is not written, and that is said.

    Attributes:
        lacks: why it is not whole; empty where it is.
    """

    def __init__(self, run: str, world: str, *, machine: int) -> None:
        self.path = place(run, world, machine=machine)
        self.lacks = ""
        self._bytes = 0
        self._descriptor = -1
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
            )
            # Until it is closed, however this process ends, nobody reads it.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.lacks = f"there is no journal: {error.strerror}"

    def add(self, message: bytes) -> None:
        """Append a message as it goes over the channel."""
        self._bytes += len(message)
        if self._descriptor < 0 or self.lacks:
            return
        if self._bytes > MOST_BYTES:
            self.lacks = f"the journal ends after {MOST_BYTES} bytes"
            return
        try:
            left = memoryview(message)
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self.lacks = f"the journal ends early: {error.strerror}"

    def close(self, *, keep: bool) -> None:
        """Close it; what control has is not kept."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if not keep:
            with contextlib.suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()


def place(run: str, world: str, *, machine: int) -> Path:
    """Where the journal of a world lies; machines may have one home folder between them.

    Raises:
        ValueError: one of them is not what these are called.
    """
    if not NAME.fullmatch(run) or not NAME.fullmatch(world):
        raise ValueError("a run and a world are named by hexadecimal digits")
    return cache() / RUNS / run / f"{world}-{machine}"


def read(path: Path, *, after: int) -> Iterator[bytes]:
    """The messages whose number is greater.

    The last one, cut off while it was written, is not among them.
    """
    with path.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        while len(head := stream.read(HEAD.size)) == HEAD.size:
            words, size = HEAD.unpack(head)
            text = stream.read(words)
            content = stream.read(size)
            if len(text) != words or len(content) != size:
                return
            message: dict[str, Any] = json.loads(text)
            if message["n"] > after:
                yield head + text + content


def forget() -> None:
    """Take away what nobody came for in a month."""
    with contextlib.suppress(OSError):
        for run in (cache() / RUNS).iterdir():
            for path in run.iterdir():
                if path.stat().st_mtime < time.time() - KEPT_FOR:
                    path.unlink()
            with contextlib.suppress(OSError):
                run.rmdir()
