"""What an actor of Ray is on a node: starts our process there, and hands bytes on, both ways.

Sent by value: standard library only, and nothing of ours has to be installed for it.
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
import zipfile

CHUNK = 2**20
MOST_SAID = 4096
# Twice forked: what ends an actor's process may end its children too, and ours has worlds to end first.
BOOT = (
    "import os, sys; os.fork() and os._exit(0); sys.path.insert(0, sys.argv[1]); "
    "from harness.run.farm.agent import main; main(lease=float(sys.argv[2]), folder=sys.argv[3])"
)


class Relay:
    """One process of ours on a node. Its methods are called from several threads."""

    def __init__(self, code: bytes, *, interpreter: str, lease: float, beat: bytes) -> None:
        """Start it.

        Args:
            code: a zip archive of the package `harness`.
            interpreter: path of the Python to run it in; where that is not there, the one that runs this.
            lease: seconds without a message after which it ends.
            beat: a message that says nothing.
        """
        self._beat = beat
        self._lock = threading.Lock()
        self._folder = tempfile.mkdtemp(prefix="rankproof-farm-")
        try:
            with zipfile.ZipFile(io.BytesIO(code)) as archive:
                archive.extractall(os.path.join(self._folder, "code"))  # noqa: PTH118 - as elsewhere here
            self._log = os.path.join(self._folder, "agent.log")  # noqa: PTH118
            python = interpreter if os.access(interpreter, os.X_OK) else sys.executable
            words = [python, "-s", "-P", "-c", BOOT, os.path.join(self._folder, "code"), str(lease), self._folder]  # noqa: PTH118
            with open(self._log, "wb") as log:  # noqa: PTH123
                starter = subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self._folder,
                    start_new_session=True,
                    bufsize=0,
                )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        assert starter.stdin is not None
        assert starter.stdout is not None
        self._writes, self._reads = os.dup(starter.stdin.fileno()), os.dup(starter.stdout.fileno())
        starter.stdin.close()
        starter.stdout.close()
        starter.wait()

    def read(self, wait: float) -> bytes | None:
        """What the process wrote since; empty if nothing in `wait` seconds; None once it has ended.

        That it is asked is what the process hears of control while there is nothing else to say.
        """
        self.write(self._beat)
        if not select.select([self._reads], [], [], wait)[0]:
            return b""
        if part := os.read(self._reads, CHUNK):
            return part
        return None

    def write(self, content: bytes) -> None:
        """Hand a whole message on."""
        left = memoryview(content)
        with self._lock, contextlib.suppress(BrokenPipeError):  # `read` tells its end
            while left:
                left = left[os.write(self._writes, left) :]

    def close(self) -> None:
        """Close the channel: the process ends its worlds and itself."""
        with self._lock:
            os.close(self._writes)
            self._writes = os.open(os.devnull, os.O_WRONLY)

    def said(self) -> str:
        """The last that the process said beside its messages. Once it has ended, what it left behind goes."""
        text = b""
        with contextlib.suppress(OSError), open(self._log, "rb") as log:  # noqa: PTH123
            text = log.read()[-MOST_SAID:]
        shutil.rmtree(self._folder, ignore_errors=True)
        return text.decode("utf-8", "replace")
