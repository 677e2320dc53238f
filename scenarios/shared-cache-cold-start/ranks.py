"""What the ranks of these scenarios have to do with one another: signs in the shared folder,
processes, sockets.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from pathlib import Path

LONGEST = 60.0


class Signs:
    """Words that ranks leave for one another in the folder they share.

    Each is there whole or not at all.
    """

    def __init__(self, shared):
        self._folder = Path(shared, "signs")
        self._folder.mkdir(exist_ok=True)

    def leave(self, name, **words):
        """Leave a word for everybody."""
        draft = self._folder / f".{name}"
        draft.write_text(json.dumps(words))
        draft.rename(self._folder / name)

    def await_(self, name):
        """Wait until it is there, and read it."""
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            try:
                return json.loads((self._folder / name).read_text())
            except FileNotFoundError:
                time.sleep(0.005)
        raise TimeoutError(f"no rank left the word {name}")


def await_end(pid):
    """Wait until a process that is not a child has ended; the kernel says when."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(LONGEST * 1000):
            raise TimeoutError(f"process {pid} did not end")
    finally:
        os.close(descriptor)


class Halfway:
    """From the byte `after` that this process receives, its reading threads stand still until `go`
    is called.

    Works below every HTTP library, and only in the rank that asks for it. What was received by then
    has been handed on.
    """

    def __init__(self, *, after):
        self._left = after
        self.reached, self._gone = threading.Event(), threading.Event()
        socket.socket.recv = self._counting(socket.socket.recv, len)
        socket.socket.recv_into = self._counting(socket.socket.recv_into, int)

    def go(self):
        """Let them read on."""
        self._gone.set()

    def _counting(self, plain, length):
        def read(*arguments, **options):
            if self._left <= 0:
                self.reached.set()
                self._gone.wait()
            found = plain(*arguments, **options)
            self._left -= length(found)
            return found

        return read


def files(cache):
    """What lies in a cache now, with sizes: the evidence of how far a download is."""
    found = sorted(path for path in Path(cache).rglob("*") if path.is_file())
    return {str(path.relative_to(cache)): path.lstat().st_size for path in found[:60]}
