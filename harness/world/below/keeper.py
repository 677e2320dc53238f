"""The keeper of one world: forked by the server, it forks the ranks, waits for them, and leaves nobody behind.

One keeper per world, because the orphans a rank leaves are adopted by the nearest subreaper: what turns up here belongs
to this world and to no other that runs at the same time. Pids, exit codes and resource use come from here (rule 13).

It talks JSON lines over one socket with the harness. It says `started`, `stopped`, `continued`, `exited`, `survivors`,
`gone`, and `unable` where it cannot fork. It is told `signal`, and what `Grip` can do, and says so when that is done.
When the socket closes, it kills what is left and ends.
Where its ranks are on test hosts, it says `hosts`, and `lost` where their wire is gone; what `wire` says, and is told,
goes through it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence

# A subject may replace os._exit, and a forked process must end here, whatever the subject did.
from os import _exit
from pathlib import Path
from typing import Any

from harness.rank.lifecycle import live
from harness.rank.process import die_with_parent, keep_private, signal_name
from harness.rank.spec import RankSpec
from harness.world.below import namespaces
from harness.world.below.descendants import adopt_orphans, child_alarm, descendants, extinguish
from harness.world.below.grip import PRESSED, WORK, Grip
from harness.world.below.requests import send
from harness.world.control import program
from harness.world.hosts.wire_process import WireLost, WireProcess

# Descriptors of a rank: 0 null, 1 and 2 its log, 3 events, 4 answers to gates, 5 and up the backend's.
EVENTS_FD, GATES_FD, BACKEND_FD = 3, 4, 5
PER_RANK = 3
SURVIVOR_LIMIT = 50


def keep(description: Path, descriptors: list[int], *, baseline: set[int], server: int) -> None:
    """Run one world to its end.

    Args:
        description: JSON file of the world: `world` (its mark), `ranks` (specs), `start`, `python`, `env`, `program`,
            `backend_fds` (per rank, indices into the backend's descriptors), `grace` (seconds that descendants of
            ended ranks are given to go by themselves), `late` (per rank, how many seconds after the others it is
            forked, or null), `own_mounts` (ranks that have mounts of their own), `clock_ahead` (per rank, nanoseconds
            that its clock is ahead), and `hosts` where it has test hosts (see `harness.world.hosts.wire_process`).
        descriptors: the control socket, then events, gates and log of each rank, then the backend's.
        baseline: descriptors of libraries the server has loaded; warm ranks keep them.
        server: pid of the fork server.
    """
    die_with_parent(server)
    adopt_orphans()
    # What it says of exits is evidence: its socket must not be taken by a rank.
    keep_private(private=True)
    world = json.loads(description.read_text())
    Keeper(world, descriptors, baseline=baseline).run()


class Keeper:
    """State of one world as its keeper sees it."""

    def __init__(self, world: dict[str, Any], descriptors: list[int], *, baseline: set[int]) -> None:
        self._world = world
        self._baseline = baseline
        self._control = socket.socket(fileno=descriptors[0])
        count = len(world["ranks"])
        self._pipes = [descriptors[1 + PER_RANK * i : 1 + PER_RANK * (i + 1)] for i in range(count)]
        self._backend = descriptors[1 + PER_RANK * count :]
        self._handed = descriptors[1:]
        self._alive: dict[int, int] = {}
        self._stopped: set[int] = set()
        self._late: list[tuple[int, int]] = []
        self._buffer = b""
        self._gone = False
        self._proof: dict[str, Any] = {}
        self._wire: WireProcess | None = None
        self._grip = Grip()

    def run(self) -> None:
        """Fork the ranks and stay until all of them and all they left behind are gone."""
        wakeup = child_alarm()
        try:
            if "hosts" in self._world:
                self._make_hosts()
            # Before any rank runs: the folder is shared, and what a rank changes in it must not be what is told.
            if self._world.get("program"):
                self._proof = program.proof(self._world["program"], code=Path(self._world["code"]))
            late = self._world["late"]
            for index in range(len(self._world["ranks"])):
                if late[index] is None:
                    self._start(index)
            # Counted from here: a rank is late by so much after the last of the others was forked.
            now = time.monotonic_ns()
            self._late = sorted(
                (now + round(seconds * 1e9), index) for index, seconds in enumerate(late) if seconds is not None
            )
            while (self._alive or self._late) and not self._gone:
                self._start_who_is_due()
                self._wait(wakeup, max(0.0, (self._late[0][0] - time.monotonic_ns()) / 1e9) if self._late else None)
            self._grip.release()
            if not self._gone:
                self._await_descendants(wakeup)
                self._count()
        except WireLost as error:
            self._say({"is": "lost", "ns": time.monotonic_ns(), "why": str(error)})
        except OSError as error:  # too many processes or descriptors: an error of the harness
            self._say({"is": "unable", "ns": time.monotonic_ns(), "why": str(error)})
        finally:
            signal.set_wakeup_fd(-1)
            extinguish(spare=self._of_ours)
            self._grip.disband()
            self._say({"is": "gone", "ns": time.monotonic_ns()})
            if self._wire is not None:
                # Nobody waits for it any more: its devices go with it, which takes a tenth of a second.
                self._wire.close()

    @property
    def _of_ours(self) -> set[int]:
        """Children that are nobody's rank, nor what a rank left."""
        return {self._wire.pid} if self._wire is not None else set()

    def _make_hosts(self) -> None:
        server = os.getppid()
        self._wire = WireProcess(self._world["hosts"], Path(self._world["ranks"][0]["scratch"]).parent)
        # A process whose rights change may lose the first; the second was given up for the wire. No rank is there yet.
        die_with_parent(server)
        keep_private(private=True)
        self._grip = Grip(self._wire.temporary())
        self._backend += self._wire.opened
        self._handed += self._wire.opened
        made = {"hosts": self._wire.evidence(), "wire": self._wire.pid}
        self._say({"is": "hosts", "ns": time.monotonic_ns(), **made}, self._wire.served)
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
            # What ranks were handed is closed here once the last has it: what a rank closes must be seen closed.
            for descriptor in self._handed:
                os.close(descriptor)
            self._handed = []

    def _start(self, index: int) -> None:
        spec = self._world["ranks"][index]
        keeper = os.getpid()
        before = time.monotonic_ns()
        pid = os.fork()
        if pid == 0:
            try:
                self._become(index, spec, keeper)
            except BaseException:  # noqa: BLE001 - a rank that cannot start says why in its log and ends
                sys.excepthook(*sys.exc_info())
            finally:
                _exit(70)
        self._alive[pid] = index
        # Of which world it is, so that the evidence of one cannot be taken for another's.
        told = {"rank": index, "pid": pid, "ns": before, "world": self._world["world"]}
        if self._wire is not None:
            told["host"] = self._wire.name_of(index)
        self._say({"is": "started", **told})
        if self._proof:
            self._say({"is": "executed", "rank": index, "pid": pid, "ns": time.monotonic_ns(), **self._proof})

    def _become(self, index: int, spec: dict[str, Any], keeper: int) -> None:
        """Turn the forked process into a rank; never returns."""
        keep_private(private=False)
        die_with_parent(keeper)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        if self._wire is not None:
            self._wire.enter(index)
            # What a rank holds is looked at from outside, and a change of its rights may close that.
            keep_private(private=False)
        # When memory runs out, the kernel shall end a rank, not the process that has to tell of it.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("500")
        if index in self._world["own_mounts"]:
            namespaces.own_mounts()
        if ahead := self._world["clock_ahead"][index]:
            namespaces.own_clock(ahead + (self._wire.clock_of(index) if self._wire is not None else 0))
        # A process whose rights have changed on the way may have lost its death signal.
        die_with_parent(keeper)
        events, gates, log = self._pipes[index]
        extra = [self._backend[i] for i in self._world["backend_fds"][index]]
        # First everything up and out of the way, then down to its number: the two ranges may overlap.
        sources = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 300) for fd in (events, gates, *extra)]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for offset, source in enumerate(sources):
            os.dup2(source, EVENTS_FD + offset)
        keep = {0, 1, 2, *range(EVENTS_FD, EVENTS_FD + len(sources))}
        folder = Path("/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd")
        fresh = self._world["start"] == "fresh"
        os.chdir(Path(spec["scratch"]) / WORK)
        for number in [int(entry.name) for entry in folder.iterdir()]:
            if number not in keep and (fresh or number not in self._baseline):
                with contextlib.suppress(OSError):
                    os.close(number)
        if argv := self._world.get("program"):
            # Python ignores these, and a program would inherit that: its pipes would end otherwise than in a shell.
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.execve(argv[0], argv, self._world["env"] | self._world["variables"][index])  # noqa: S606 - no shell
        if fresh:
            argv = [*self._world["python"], str(Path(spec["scratch"]) / "spec.json")]
            os.execve(argv[0], argv, self._world["env"] | spec["env"])  # noqa: S606 - a list, no shell
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        live(RankSpec.from_json(spec))

    def _wait(self, wakeup: int, seconds: float | None) -> None:
        """Wait for a rank to end or the harness to speak."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wakeup, select.POLLIN)
        if self._wire is not None:
            poll.register(self._wire, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else seconds * 1000))
        if wakeup in ready:
            os.read(wakeup, 4096)
        if self._wire is not None and self._wire.fileno() in ready:
            for message in self._wire.said():
                self._tell_of_wire(message)
            if self._wire.is_lost:
                raise WireLost("the wire between the hosts ended before the ranks did")
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
                # The kernel forgets that a process went on once it has ended. But nothing except SIGKILL ends one that
                # is stopped: an end of any other kind shows as well that it ran again.
                self._tell("continued", index, pid, shown_by="its end")
            self._tell(
                "exited",
                index,
                pid,
                code=code if code >= 0 else None,
                signal=signal_name(-code) if code < 0 else None,
                user_seconds=round(usage.ru_utime, 4),
                system_seconds=round(usage.ru_stime, 4),
                max_rss_kib=usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss // 1024,
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
            for pid, index in self._alive.items():
                if order["rank"] in (None, index):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, order["signal"])
                        hit.append(index)
            if order["signal"] == signal.SIGCONT:
                # Linux marks the process as continued before kill returns. Whoever opens the rank's gate waits for
                # `signalled`, so this is seen before the rank can end, which would make the kernel forget it.
                self._reap()
            # The answer to a gate waits for this: a signal sent at a gate has landed before the rank moves on.
            self._say({"is": "signalled", "ns": time.monotonic_ns(), "signal": order["signal"], "ranks": hit})

    def _press(self, index: int, what: str, order: dict[str, Any]) -> None:
        """Do something to a rank and say so, also of one that has ended: a gate waits for the answer."""
        pid = next((pid for pid, one in self._alive.items() if one == index), None)
        done = getattr(self._grip, what)(pid, spec=self._world["ranks"][index], **order)
        self._say({"is": PRESSED[what], "rank": index, "pid": pid, "ns": time.monotonic_ns(), **done})

    def _await_descendants(self, wakeup: int) -> None:
        """Give what ended ranks left a moment to go by itself (a child whose pipe has to close), then name it."""
        end = time.monotonic() + self._world["grace"]
        pause = 0.002
        while (left := descendants(spare=self._of_ours)) and time.monotonic() < end and not self._gone:
            self._wait(wakeup, pause)
            pause = min(pause * 2, 0.05)
        survivors = [
            {"pid": process.pid, "name": process.name, "state": process.state} for process in left[:SURVIVOR_LIMIT]
        ]
        self._say({"is": "survivors", "ns": time.monotonic_ns(), "count": len(left), "processes": survivors})

    def _tell(self, what: str, index: int, pid: int, **values: Any) -> None:
        self._say({"is": what, "rank": index, "pid": pid, "ns": time.monotonic_ns(), **values})

    def _say(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        try:
            send(self._control, message, descriptors)
        except OSError:
            self._gone = True
