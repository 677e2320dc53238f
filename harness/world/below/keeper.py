"""Keeper of one world: forked by the server, it has its ranks started, waits for them, and leaves
nobody behind.

One keeper per world, because the orphans a rank leaves are adopted by the nearest subreaper: what
turns up here belongs to this world and to no other that runs at the same time. Pids, exit codes and
resource use come from here (rule 13).

It talks JSON lines over one socket with the harness. It says `started`, `stopped`, `continued`,
`exited`, `survivors`, `gone`, and `unable` where it cannot fork. It is told `signal`, and what
`Grip` can do, and says so when that is done. When the socket closes, it kills what is left and
ends. Where its ranks are on test hosts, it says `hosts`, and `lost` where their wire is gone; what
`wire` says, and is told, goes through it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.forms.kernel import signal_name
from harness.forms.strict_json import JSON
from harness.rank.process import die_with_parent, keep_private
from harness.world.below.grip import PRESSED, Grip
from harness.world.below.leftovers import adopt_orphans, child_alarm, descendants, extinguish
from harness.world.below.rank_start import RankStart, WorldOrder, proof
from harness.world.below.requests import send
from harness.world.hosts.wire import WireLost, WireProcess

SURVIVOR_LIMIT = 50


def keep(description: Path, descriptors: list[int], *, baseline: set[int], server: int) -> None:
    """Run one world to its end.

    Args:
        description: JSON file of the world, as `WorldOrder`.
        descriptors: the control socket, then events, gates and log of each rank, then the
            backend's.
        baseline: descriptors of libraries the server has loaded; warm ranks keep them.
        server: pid of the fork server.
    """
    # First: a server that dies while this process starts would leave it alone for ever.
    die_with_parent(server)
    # Before any rank is forked: what one leaves behind must turn up here.
    adopt_orphans()
    # What it says of exits is evidence: its socket must not be taken by a rank.
    keep_private(private=True)
    world: WorldOrder = json.loads(description.read_text())
    Keeper(world, descriptors, baseline=baseline).run()


class Keeper:
    """State of one world as its keeper sees it."""

    def __init__(self, world: WorldOrder, descriptors: list[int], *, baseline: set[int]) -> None:
        self._world = world
        self._control = socket.socket(fileno=descriptors[0])
        self._ranks = RankStart(world, descriptors[1:], baseline=baseline)
        self._alive: dict[int, int] = {}
        self._stopped: set[int] = set()
        self._late: list[tuple[int, int]] = []
        self._buffer = b""
        self._gone = False
        self._proof: dict[str, JSON] = {}
        self._wire: WireProcess | None = None
        self._grip = Grip()

    def run(self) -> None:
        """Fork the ranks and stay until all of them and all they left behind are gone."""
        # Before the first fork: a rank that ends at once must be heard of, too.
        wakeup = child_alarm()
        try:
            if "hosts" in self._world:
                self._make_hosts()
            # Before any rank runs: the folder is shared, and what a rank changes in it must not be
            # what is told.
            if "program" in self._world:
                self._proof = proof(self._world["program"], code=Path(self._world["code"]))
            late = self._world["late"]
            for index in range(len(self._world["ranks"])):
                if late[index] is None:
                    self._start(index)
            # Counted from here: a rank is late by so much after the last of the others was forked.
            now = time.monotonic_ns()
            self._late = sorted(
                (now + round(seconds * 1e9), index)
                for index, seconds in enumerate(late)
                if seconds is not None
            )
            while (self._alive or self._late) and not self._gone:
                self._start_who_is_due()
                self._wait(
                    wakeup,
                    (
                        max(0.0, (self._late[0][0] - time.monotonic_ns()) / 1e9)
                        if self._late
                        else None
                    ),
                )
            # Before survivors are counted: burners are ours, and no rank left them.
            self._grip.release()
            if not self._gone:
                self._await_descendants(wakeup)
                self._count()
        except WireLost as error:
            self._say({"is": "lost", "ns": time.monotonic_ns(), "why": str(error)})
        except OSError as error:  # too many processes or descriptors: an error of the harness
            self._say({"is": "unable", "ns": time.monotonic_ns(), "why": str(error)})
        finally:
            # Nobody reads the alarm from here on.
            signal.set_wakeup_fd(-1)
            extinguish(spare=self._of_ours)
            # A group can be removed only when nobody is in it any more.
            self._grip.disband()
            # Last: whoever hears it starts the next world in the same room.
            self._say({"is": "gone", "ns": time.monotonic_ns()})
            if self._wire is not None:
                # Nobody waits for it any more: its devices go with it, which takes a tenth of a
                # second.
                self._wire.close()

    @property
    def _of_ours(self) -> set[int]:
        """Children that are nobody's rank, nor what a rank left."""
        return {self._wire.pid} if self._wire is not None else set()

    def _make_hosts(self) -> None:
        server = os.getppid()
        self._wire = WireProcess(
            self._world["hosts"], Path(self._world["ranks"][0]["scratch"]).parent
        )
        # A process whose rights change may lose the first; the second was given up for the wire. No
        # rank is there yet.
        die_with_parent(server)
        keep_private(private=True)
        self._grip = Grip(self._wire.temporary())
        self._ranks.place_on(self._wire)
        hosts = self._wire.evidence()
        message = {"is": "hosts", "ns": time.monotonic_ns(), "hosts": hosts, "wire": self._wire.pid}
        self._say(message, self._wire.served)
        # The harness has them now, and a rank must not inherit them.
        for descriptor in self._wire.served:
            os.close(descriptor)

    def _count(self) -> None:
        if self._wire is not None:
            for message in self._wire.last_words():
                self._tell_of_wire(message)

    def _tell_of_wire(self, message: dict[str, Any]) -> None:
        self._say({**message, "is": "wire", "what": message["is"]})

    def _start_who_is_due(self) -> None:
        while self._late and self._late[0][0] <= time.monotonic_ns():
            self._start(self._late.pop(0)[1])
        if not self._late:
            self._ranks.close()

    def _start(self, index: int) -> None:
        # Before the fork: a rank must not seem to have emitted an event before it was started.
        before = time.monotonic_ns()
        pid = self._ranks.fork(index)
        self._alive[pid] = index
        # The mark of the world, so that the evidence of one cannot be taken for another's.
        host = {"host": self._wire.name_of(index)} if self._wire is not None else {}
        started = {"is": "started", "rank": index, "pid": pid, "ns": before}
        self._say({**started, "world": self._world["world"], **host})
        if self._proof:
            self._say(
                {
                    "is": "executed",
                    "rank": index,
                    "pid": pid,
                    "ns": time.monotonic_ns(),
                    **self._proof,
                }
            )

    def _wait(self, wakeup: int, seconds: float | None) -> None:
        """Wait for a rank to end or the harness to speak."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wakeup, select.POLLIN)
        if self._wire is not None:
            poll.register(self._wire, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else seconds * 1000))
        if wakeup in ready:
            # Emptied before reaping: a child that ends in between rings again.
            os.read(wakeup, 4096)
        if self._wire is not None and self._wire.fileno() in ready:
            for message in self._wire.said():
                self._tell_of_wire(message)
            if self._wire.is_lost:
                raise WireLost("the process that links the test hosts ended before the ranks did")
        # Before the harness is listened to: no signal goes to a rank that has ended already.
        self._reap()
        if self._control.fileno() in ready:
            self._listen()

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (index := self._alive.get(pid)) is None:
                if not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                    self._grip.forget(pid)
                continue
            if os.WIFSTOPPED(status):
                self._stopped.add(pid)
                self._tell("stopped", index, pid, signal=signal_name(os.WSTOPSIG(status)))
                continue
            if os.WIFCONTINUED(status):
                self._stopped.discard(pid)
                self._tell("continued", index, pid)
                continue
            del self._alive[pid]
            self._grip.release(pid)
            code = os.waitstatus_to_exitcode(status)
            if pid in self._stopped and code != -signal.SIGKILL:
                # The kernel forgets that a process went on once it has ended. But nothing except
                # SIGKILL ends one that is stopped: an end of any other kind shows as well that it
                # ran again.
                self._tell("continued", index, pid, shown_by="its end")
            self._tell(
                "exited",
                index,
                pid,
                code=code if code >= 0 else None,
                signal=signal_name(-code) if code < 0 else None,
                user_seconds=round(usage.ru_utime, 4),
                system_seconds=round(usage.ru_stime, 4),
                max_rss_kib=(
                    usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss // 1024
                ),
            )

    def _listen(self) -> None:
        try:
            data = self._control.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self._gone = True
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "wire" in order:
                if self._wire is not None:
                    self._wire.order(order["wire"])
                continue
            if "signal" not in order:
                index = order.pop("rank")
                self._press(index, *order.popitem())
                continue
            if order["rank"] is None and order["signal"] == signal.SIGKILL:
                self._late.clear()  # the world is being stopped: nobody starts any more
            hit = []
            # Those that live or are not reaped yet: their pids are nobody else's.
            for pid, index in self._alive.items():
                if order["rank"] in (None, index):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, order["signal"])
                        hit.append(index)
            if order["signal"] == signal.SIGCONT:
                # Linux marks the process as continued before kill returns. Whoever opens the rank's
                # gate waits for `signalled`, so this is seen before the rank can end, which would
                # make the kernel forget it.
                self._reap()
            # The answer to a gate waits for this: a signal sent at a gate has landed before the
            # rank moves on.
            self._say(
                {
                    "is": "signalled",
                    "ns": time.monotonic_ns(),
                    "signal": order["signal"],
                    "ranks": hit,
                }
            )

    def _press(self, index: int, what: str, order: dict[str, Any]) -> None:
        """Do something to a rank and say so, also of one that has ended: a gate waits for the
        answer.
        """
        pid = next((pid for pid, other in self._alive.items() if other == index), None)
        done = getattr(self._grip, what)(pid, spec=self._world["ranks"][index], **order)
        self._say(
            {"is": PRESSED[what], "rank": index, "pid": pid, "ns": time.monotonic_ns(), **done}
        )

    def _await_descendants(self, wakeup: int) -> None:
        """Give what ended ranks left a moment to go by itself (a child whose pipe has to close),
        then name it.
        """
        end = time.monotonic() + self._world["grace"]
        pause = 0.002
        while (
            (left := descendants(spare=self._of_ours)) and time.monotonic() < end and not self._gone
        ):
            self._wait(wakeup, pause)
            pause = min(pause * 2, 0.05)
        survivors = [
            {"pid": process.pid, "name": process.name, "state": process.state}
            for process in left[:SURVIVOR_LIMIT]
        ]
        self._say(
            {
                "is": "survivors",
                "ns": time.monotonic_ns(),
                "count": len(left),
                "processes": survivors,
            }
        )

    def _tell(self, what: str, index: int, pid: int, **values: Any) -> None:
        self._say({"is": what, "rank": index, "pid": pid, "ns": time.monotonic_ns(), **values})

    def _say(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        try:
            send(self._control, message, descriptors)
        except OSError:
            self._gone = True
