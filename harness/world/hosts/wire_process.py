"""The wire and its hosts, seen from the keeper: made before any rank, entered by each, asked for
counts at the end.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from os import _exit
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from harness.rank.process import keep_private
from harness.world.below import namespaces
from harness.world.below.requests import Requests, send
from harness.world.hosts import host as hosts
from harness.world.hosts import wire


class HostsOrder(TypedDict):
    """The order for the test hosts of one world.

    Attributes:
        count: how many hosts.
        of: the host of each rank.
        open: what to open on which host, for the backend.
        kept: files and folders below /tmp that must be seen on every host.
        temporary: the ranks' temporary folder, where they have one.
        served: the port of a hub that every host is to have on its loopback, or nothing.
    """

    count: int
    of: list[int]
    open: list[Opening]
    kept: list[str]
    temporary: NotRequired[str | None]
    served: NotRequired[int | None]


class Opening(TypedDict):
    """A socket that listens on a host; without a port, the host's table of connections."""

    host: int
    port: int | None
    backlog: int


READY_WITHIN = 20.0
COUNTED_WITHIN = 5.0


class WireLost(OSError):
    """The wire ended before the ranks did, or does not answer: an error of the harness."""


class WireProcess:
    """The hosts of one world.

    Attributes:
        pid: of the wire.
        clocks: nanoseconds that the clock of each host is ahead of ours.
        opened: descriptors of what was opened on the hosts, in the order it was asked for.
        served: descriptors by which a hub is reached on the hosts, two for each: see
            `harness.world.hosts.host.serve`.
    """

    def __init__(self, world: HostsOrder, scratch: Path) -> None:
        """Make a user namespace around this process, and have the wire make the hosts.

        To be called with one thread, before anything was forked that has to stay outside. Leaves
        this process readable for others of its user.

        Args:
            world: the order for its hosts.
            scratch: folder of the world.

        Raises:
            OSError: it is not allowed here; the message says which step.
            WireLost: the wire did not get ready.
        """
        self._of = world["of"]
        self._before = namespaces.capabilities()
        names = scratch / "hosts"
        names.write_text(hosts.names_file(world["count"]))
        folders = [str(scratch / hosts.name_of(host)) for host in range(world["count"])]
        self._own = folders if world.get("temporary") else None
        places = {
            "own": folders,
            "names": str(names),
            "temporary": world.get("temporary"),
            "kept": hosts.below_tmp([str(scratch), *world["kept"]]),
        }
        self._channel, theirs = socket.socketpair()
        keeper = os.getpid()
        # The wire is the same user, and has to look into this process to give its namespace users.
        keep_private(private=False)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _close_all_but(theirs.fileno())
                wire.begin(theirs, keeper=keeper, world={**world, "places": places})
            finally:
                _exit(1)
        theirs.close()
        self._said = Requests(self._channel)
        self._waiting: list[dict[str, Any]] = []
        self.is_lost = False
        namespaces.unshare(
            namespaces.CLONE_NEWUSER | namespaces.CLONE_NEWNS, step="make a user namespace"
        )
        send(self._channel, {"do": "make"})
        answer, handed = self._answer()
        if answer["is"] != "hosts":
            raise WireLost(answer["why"])
        self.clocks = [host["clock_ahead"] for host in answer["hosts"]]
        self._namespaces = []
        for host in answer["hosts"]:
            count = len(host["kinds"])
            self._namespaces.append(handed[:count])
            del handed[:count]
        self.opened = handed[: len(world["open"])]
        self.served = handed[len(world["open"]) :]

    def fileno(self) -> int:
        """What to wait for: the wire says something, or is gone."""
        return self._channel.fileno()

    def evidence(self) -> list[dict[str, Any]]:
        """The hosts, in words."""
        return [
            {"name": hosts.name_of(host), "address": hosts.address(host), "clock_ahead": ahead}
            for host, ahead in enumerate(self.clocks)
        ]

    def enter(self, rank: int) -> None:
        """Enter the host of a rank, for good.

        Raises:
            OSError: the kernel refuses.
        """
        hosts.enter(self._namespaces[self._of[rank]], before=self._before)

    def name_of(self, rank: int) -> str:
        """What the host of a rank is called."""
        return hosts.name_of(self._of[rank])

    def clock_of(self, rank: int) -> int:
        """Nanoseconds that the clock of a rank's host is ahead of ours."""
        return int(self.clocks[self._of[rank]])

    def temporary(self) -> dict[int, str]:
        """Rank to the folder outside that it has as its temporary one.

        Nobody where they have the user's.
        """
        return (
            {rank: self._own[host] for rank, host in enumerate(self._of)}
            if self._own is not None
            else {}
        )

    def order(self, order: dict[str, Any]) -> None:
        """Tell the wire something; what it answers is among what it says."""
        with contextlib.suppress(OSError):  # it is gone, which is heard elsewhere
            send(self._channel, order)

    def said(self) -> Iterator[dict[str, Any]]:
        """What the wire has said; nothing for ever once it is lost."""
        try:
            for message, _ in self._said.receive():
                del message["descriptors"]
                yield message
        except (EOFError, OSError):
            self.is_lost = True

    def last_words(self) -> Iterator[dict[str, Any]]:
        """Have it count, and hear all of it.

        Raises:
            WireLost: it does not answer, or is gone.
        """
        self.order({"do": "end"})
        end = time.monotonic() + COUNTED_WITHIN
        while not self.is_lost:
            if not select.select([self._channel], [], [], max(0.0, end - time.monotonic()))[0]:
                break
            for message in self.said():
                yield message
                if message["is"] == "carried":
                    return
        raise WireLost(
            "the wire between the hosts did not answer when the ranks had ended: was it stopped or"
            " killed?"
        )

    def close(self) -> None:
        """End the wire. Takes a while: its devices go with it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._channel.close()

    def _answer(self) -> tuple[dict[str, Any], list[int]]:
        end = time.monotonic() + READY_WITHIN
        with contextlib.suppress(EOFError):
            while select.select([self._channel], [], [], max(0.0, end - time.monotonic()))[0]:
                for message, descriptors in self._said.receive():
                    return message, descriptors
        raise WireLost("the wire between the hosts did not get ready")


def _close_all_but(kept: int) -> None:
    """The wire must hold no pipe of a rank open: their ends would not be seen."""
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number != kept:
            with contextlib.suppress(OSError):
                os.close(number)


def attempt(count: int) -> None:
    """Make hosts and end with them, to know whether it can be done here.

    Says on standard error why not.
    """
    with tempfile.TemporaryDirectory(prefix="rankproof-hosts-") as folder:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                world: HostsOrder = {"count": count, "of": [0], "open": [], "kept": []}
                with contextlib.closing(WireProcess(world, Path(folder))) as wire:
                    wire.enter(0)
                code = 0
            except OSError as error:
                print(error.strerror or error, file=sys.stderr, flush=True)
            finally:
                _exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    sys.exit(code)
