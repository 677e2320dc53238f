"""Warden of one fork server: the small process above it that outlives whatever happens to it.

A server that is busy importing torch cannot notice that the harness is gone, and one that a rank
has killed can collect nobody. The warden imports next to nothing, forks the server, and waits for
one of two things. The harness closes its socket, however it ended: the warden SIGKILLs everything
below itself and removes the scratch folder. The server ends: what it left behind is ended, and only
then does the harness hear of it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import sys
from os import _exit
from pathlib import Path

from harness.rank.process import die_with_parent
from harness.world.below.isolation import disband_left
from harness.world.below.leftovers import adopt_orphans, child_alarm, extinguish, remove

LAID_OUT = b"!"
"""What the harness sends when the scratch folder is as the server needs it."""


def main(control: int, scratch: str, *, warm: bool) -> None:
    """Fork the server and stay until the harness is gone.

    Args:
        control: descriptor of a connected stream socket to the harness.
        scratch: folder to remove in the end; the harness sends `LAID_OUT` when it has made it.
        warm: whether the server imports what ranks need first.
    """
    # The folder is made by the harness, and when this process is there: one that is killed
    # meanwhile leaves nothing.
    if os.read(control, 1):
        os.chdir(scratch)
        _stay(control, scratch, warm=warm)
    remove(Path(scratch))


def _stay(control: int, scratch: str, *, warm: bool) -> None:
    adopt_orphans()
    # A rank that dies of a signal must not fill the disk with its memory.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Before the fork: a server that ends at once must be heard of, too.
    wakeup = child_alarm()
    warden = os.getpid()
    # This process has one thread, so no lock is held in the copy.
    server = os.fork()
    if server == 0:
        try:
            # The alarm is the warden's: the end of a keeper would be written into its pipe.
            os.close(wakeup)
            os.close(signal.set_wakeup_fd(-1))
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _serve(control, scratch, warden=warden, warm=warm)
        # The server's own failure goes to its log, and the harness reads it there.
        except BaseException:  # noqa: BLE001
            sys.excepthook(*sys.exc_info())
        finally:
            _exit(1)
    _guard(socket.socket(fileno=control), wakeup, server=server)
    extinguish()
    disband_left(Path(scratch))


def _serve(control: int, scratch: str, *, warden: int, warm: bool) -> None:
    # Without a warden nobody ends what the server leaves behind.
    die_with_parent(warden)
    # Imported here alone, so that the warden itself stays small.
    from harness.world.below.keeper_server import serve

    serve(control, scratch, warm=warm)
    _exit(0)


def _guard(channel: socket.socket, wakeup: int, *, server: int) -> None:
    """Return when the harness has closed its end."""
    poll = select.poll()
    # No event is asked for: the server reads this socket, the warden only wants to know when it is
    # hung up.
    poll.register(channel, 0)
    poll.register(wakeup, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if channel.fileno() in ready:
            return
        if wakeup in ready:
            # Emptied before reaping: a child that ends in between rings again.
            os.read(wakeup, 4096)
            if _reaped(server):
                # Before the harness hears of it: then it may start another server in its place.
                extinguish()
                with contextlib.suppress(OSError):
                    channel.shutdown(socket.SHUT_WR)


def _reaped(server: int) -> bool:
    """Reap what has ended; whether the server was among it."""
    has_server = False
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            has_server = has_server or pid == server
    return has_server
