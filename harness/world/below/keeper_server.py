"""Fork server: a process that has imported what ranks need and forks one keeper per world.

Single-threaded, because a fork copies one thread only. Started with a clean environment, below a
warden, with one socket to the harness: when that socket closes, however the harness ended, the
warden SIGKILLs every descendant until none is left (stopped ones and those with a session of their
own too).

`multiprocessing`'s forkserver cannot do this: its children outlive a SIGKILLed harness, it is one
per interpreter, and it has no `wait4`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import sys
import time
from os import _exit
from pathlib import Path
from typing import Any

from harness.world.below import keeper
from harness.world.below.leftovers import adopt_orphans, child_alarm, extinguish
from harness.world.below.preload import preload
from harness.world.below.rank_start import open_descriptors
from harness.world.below.requests import Requests

# Descriptors that ranks get at fixed numbers (events, gates, the backend's): nothing else may live
# there.
RESERVED = range(3, 24)


def serve(control: int, scratch: str, *, warm: bool) -> None:
    """Serve until the harness is gone.

    Args:
        control: descriptor of a connected stream socket to the harness.
        scratch: folder for what the server itself has to write; the warden removes it.
        warm: whether to import what ranks need first.
    """
    channel = _settle(control)
    # A keeper that is killed leaves its ranks to this process, and not to init.
    adopt_orphans()
    started = time.monotonic()
    modules = preload(scratch) if warm else []
    threads = _threads()
    if warm and threads != 1:
        # A forked copy of a process with threads can hang on a lock no thread will ever release:
        # refuse, do not hope.
        why = (
            f"it has {threads} threads after preloading {', '.join(modules)}, but must have only"
            " one"
        )
        _tell(channel, {"is": "unfit", "why": why})
        return
    # What libraries have opened by now; taken before the alarm, whose pipe is no rank's.
    baseline = _descriptors() - set(RESERVED) - {channel.fileno()}
    wakeup = child_alarm()
    seconds = time.monotonic() - started
    _tell(
        channel,
        {
            "is": "ready",
            "pid": os.getpid(),
            "threads": threads,
            "modules": modules,
            "seconds": seconds,
        },
    )
    ForkServer(channel, wakeup=wakeup, baseline=baseline).run()


class ForkServer:
    """Fork server that is ready: its requests, its keepers."""

    def __init__(self, channel: socket.socket, *, wakeup: int, baseline: set[int]) -> None:
        self._channel = channel
        self._wakeup = wakeup
        self._baseline = baseline
        self._keepers: set[int] = set()
        self._requests = Requests(channel)

    def run(self) -> None:
        """Serve until the harness closes the socket."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._wakeup in ready:
                # Emptied before reaping: a child that ends in between rings again.
                os.read(self._wakeup, 4096)
                self._reap()
            if self._channel.fileno() in ready and not self._listen():
                return

    def _listen(self) -> bool:
        """Do what the harness asks. False when it is gone."""
        try:
            for request, descriptors in self._requests.receive():
                if "ping" in request:
                    # Asked when its one world is over: who hears the answer knows that nobody of it
                    # is left.
                    self._reap(every_keeper=True)
                    _tell(self._channel, {"is": "pong", "ping": request["ping"]})
                elif len(descriptors) == request["descriptors"]:
                    self._fork(Path(request["world"]), descriptors)
                else:  # the kernel drops descriptors when this process has too many
                    _refuse(
                        descriptors,
                        f"{len(descriptors)} of {request['descriptors']} descriptors arrived",
                    )
                # The keeper has copies. Held here too, they would never be seen closed.
                for descriptor in descriptors:
                    os.close(descriptor)
        except EOFError:
            return False
        return True

    def _fork(self, world: Path, descriptors: list[int]) -> None:
        server = os.getpid()
        try:
            # One thread, as `serve` has checked, so no lock is held in the copy.
            pid = os.fork()
        except OSError as error:  # too many processes
            _refuse(descriptors, str(error))
            return
        if pid:
            self._keepers.add(pid)
            return
        try:
            # The harness would not see the server's end while a keeper holds its socket.
            self._channel.close()
            keeper.keep(world, descriptors, baseline=self._baseline, server=server)
            _exit(0)
        # The keeper's own failure goes to the server's log, and the socket closes.
        except BaseException:  # noqa: BLE001
            sys.excepthook(*sys.exc_info())
        finally:
            # Never back into the server's loop: two processes would answer the harness.
            _exit(1)

    def _reap(self, *, every_keeper: bool = False) -> None:
        """Reap who has ended; with `every_keeper`, stay until no keeper lives."""
        killed = False
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, 0 if every_keeper and self._keepers else os.WNOHANG)
                if pid == 0:
                    break
                if pid in self._keepers:
                    self._keepers.discard(pid)
                    killed = killed or status != 0
        if killed:
            # A keeper ends with nobody below it. One that was killed leaves us what had left its
            # ranks.
            extinguish(spare=self._keepers)


def _refuse(descriptors: list[int], why: str) -> None:
    """Say why a world cannot be, in its keeper's place.

    Without a descriptor, that its socket closes has to do.
    """
    with contextlib.suppress(OSError, IndexError):
        os.write(
            descriptors[0],
            json.dumps({"is": "unable", "ns": time.monotonic_ns(), "why": why}).encode() + b"\n",
        )


def _settle(control: int) -> socket.socket:
    """Move the control socket away and fill the reserved descriptors, so that no library opens a
    file there.
    """
    # Closed on exec: what a rank executes must not reach the harness.
    high = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, 100)
    os.close(control)
    filler = os.open(os.devnull, os.O_RDWR)
    for number in RESERVED:
        if number != filler:
            os.dup2(filler, number, inheritable=False)
    if filler not in RESERVED:
        os.close(filler)
    return socket.socket(fileno=high)


def _threads() -> int:
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else 1


def _descriptors() -> set[int]:
    """Return the open descriptors; the one by which they were listed is closed by now."""
    numbers = set()
    for number in open_descriptors():
        with contextlib.suppress(OSError):
            os.fstat(number)
            numbers.add(number)
    return numbers


def _tell(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")
