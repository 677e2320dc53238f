"""Keeps the process of a stage: starts it again when it ends, and when rank 0 asks for that."""

import signal
import time
from multiprocessing import connection, get_context

from harness._integrity import FolderStore

LOOK = 0.05
"""Seconds between two looks at what rank 0 asks for."""


class Keeper:
    """Of one stage above rank 0. Its process is a fork, which has no cache of tokens.

    Args:
        context: of the rank.
        start: called with how often the stage was started before; gives what its process runs.
    """

    def __init__(self, context, start):
        self._context, self._start = context, start
        self._store = FolderStore(context.shared)
        self._starts = self._handled = 0

    def keep(self, *, restarts=True):
        """Until the stage ends by itself with exit code 0, or at its end without `restarts`."""
        worker = self._began()
        while True:
            connection.wait([worker.sentinel], timeout=LOOK)
            asked = int(self._store.get(_asked(self._context.rank)) or 0)
            if asked > self._handled:
                worker.kill()
                worker.join()
                worker = self._began()
                self._handled = asked
                self._store.set(_done(self._context.rank), str(asked).encode())
            elif not worker.is_alive():
                worker.join()
                if worker.exitcode == 0:
                    self._context.emit("stage.ended", starts=self._starts)
                    return
                self._context.emit("stage.died", pid=worker.pid, code=worker.exitcode)
                if worker.exitcode != -signal.SIGKILL or not restarts:
                    return
                worker = self._began()

    def _began(self):
        worker = get_context("fork").Process(target=self._start(self._starts))
        worker.start()
        self._starts += 1
        self._store.set(_pid(self._context.rank), str(worker.pid).encode())
        self._context.emit("stage.began", pid=worker.pid)
        return worker


def ask(store, rank, number, *, timeout):
    """Have a stage's process ended and started again; wait until it is.

    Raises:
        TimeoutError: its keeper does not answer.
    """
    until = time.monotonic() + timeout
    store.set(_asked(rank), str(number).encode())
    while store.get(_done(rank)) != str(number).encode():
        if time.monotonic() > until:
            raise TimeoutError(f"nobody restarted stage {rank} within {timeout:g} s")
        time.sleep(LOOK / 5)


def pid_of(store, rank):
    """The process of a stage."""
    return int(store.get(_pid(rank)))


def _asked(rank):
    return f"restart/{rank}"


def _done(rank):
    return f"restarted/{rank}"


def _pid(rank):
    return f"stage/{rank}"
