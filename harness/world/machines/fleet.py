"""Fleet: the machines of a run, reached once, given what ranks need once, and asked for one world
after the other.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from harness.backends import Over
from harness.forms.model import MOST_RANKS
from harness.forms.text import printable
from harness.world.control.names import ROOT
from harness.world.control.server_handle import Cancelled, ServerFailed
from harness.world.machines import store
from harness.world.machines.agent_channel import Start, Unreachable
from harness.world.machines.heartbeat import BEAT, MachineLine
from harness.world.machines.relay import Relay
from harness.world.machines.roll import Placed

# Until a machine is ready: connected, given Rankproof, its fork server warm.
READY_WITHIN = 120.0
# One that answers again is given so long to be ready, however little is left of the time to come
# back.
BACK_AT_LEAST = 30.0
# Descriptors for all but channels and ranks' pipes.
BESIDE = 128
# How many are reached at the same time: beside a thousand the heartbeats of those that are ready
# came too late.
AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class Reached:
    """How a machine of a fleet is reached.

    Attributes:
        name: what its user calls it.
        called: what evidence calls it.
        command: starts the agent there.
        address: at which the other machines reach it; empty: the one at which ssh did.
        slots: how many ranks it has room for.
        demand: is given its facts, and raises `Unreachable` where no rank can run there.
    """

    name: str
    called: str
    command: Start
    address: str
    slots: int
    demand: Callable[[Mapping[str, Any]], None]


class Cables(Protocol):
    """Of test machines, by their place in the hostfile.

    Each answers with the link's state as the kernel tells it.
    """

    def cut(self, index: int) -> str:
        """Pull one out."""
        ...

    def join(self, index: int) -> str:
        """Put it in again."""
        ...


def have_descriptors(machines: int) -> None:
    """Raise this process's soft limit of descriptors to what so many channels take, as far as it
    may be raised.

    Many systems begin with 1,024, which a world of 64 ranks on 110 machines uses up.
    """
    wanted = 3 * machines + 9 * MOST_RANKS + BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


class Fleet:
    """Machines, reached when first needed.

    Closing it leaves no process behind on one that is reached.

    Attributes:
        seconds: how long the machines took to get ready, the slowest of them.
        pids: of their fork servers.
        left: nothing; as a pool's.
        unwritten: why a machine could not write down all that happened on it, such as a full disk,
            by what evidence calls it.
        run: by which the machines know this run.
        lease: seconds without a heartbeat after which a machine ends its ranks.
        cables: of test machines; None where nobody can pull one.
    """

    def __init__(
        self,
        machines: Sequence[Reached],
        *,
        lease: float,
        back_within: float,
        cancel: int | None = None,
        cables: Cables | None = None,
    ) -> None:
        """Reach nobody yet.

        Args:
            machines: of the hostfile.
            lease: seconds without a heartbeat after which a machine ends its ranks.
            back_within: seconds for which a lost machine is waited for, to collect what it wrote
                down.
            cancel: readable when the run is interrupted.
            cables: pulls the machines' cables, where it can be done from here.
        """
        self.cables = cables
        self._machines = machines
        self.lease = lease
        self._back_within = back_within
        self._cancel = cancel
        self._lines: dict[int, MachineLine] = {}
        self._ready: dict[int, dict[str, Any]] = {}
        self._given_up: dict[int, str] = {}
        # Trees that each machine was given in this run, however often it was reached anew, and who
        # changed one.
        self._given: dict[int, set[str]] = {}
        self._changed: set[int] = set()
        # How often all lines were closed, so that nobody keeps a line for a world that was left.
        self._times_left = 0
        self.run = secrets.token_hex(8)
        self._trees: dict[Path, tuple[str, dict[str, Path]]] = {}
        # Held while a tree is read: several machines ask for the same one at once.
        self._lock = threading.Lock()
        self._closed = threading.Event()
        # Readable once it is closed or the run interrupted: what waits for a machine then waits no
        # longer.
        self._stopped, self._stopper = os.pipe()
        # Threads that still wait for a machine hold this fleet, and so these.
        weakref.finalize(self, _close, self._stopped, self._stopper)
        self.seconds = 0.0
        self.pids: tuple[int, ...] = ()
        self.left: list[str] = []
        self.unwritten: dict[str, str] = {}

    def __enter__(self) -> Self:
        have_descriptors(len(self._machines))
        threading.Thread(target=self._beat, daemon=True, name="heartbeats").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        with ThreadPoolExecutor(max_workers=max(1, len(self._lines))) as enders:
            list(enders.map(MachineLine.close, self._lines.values()))

    def _stop(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            os.write(self._stopper, b".")

    # -- machines

    def have_all_ready(self, needs: dict[str, Any]) -> None:
        """Have a fork server ready on every machine.

        Raises:
            ServerFailed: a machine is not reached, or cannot have ranks.
            Cancelled: the run was interrupted meanwhile.
        """
        began = time.monotonic()
        indices = range(len(self._machines))
        starters = ThreadPoolExecutor(max_workers=min(AT_ONCE, len(self._machines)))
        started = [starters.submit(self._have_ready, index, needs) for index in indices]
        # Nobody waits here for a silent machine: an interrupt has to end the run at once.
        starters.shutdown(wait=False)
        while wait(started, timeout=0.2).not_done:
            if self._cancel is not None and select.select([self._cancel], [], [], 0)[0]:
                self._stop()
                raise Cancelled
        whys = [future.result() for future in started]
        wrong = [f"{self._machines[index].called}: {why}" for index, why in enumerate(whys) if why]
        if wrong:
            raise ServerFailed(f"cannot form a world across these machines: {'; '.join(wrong)}")
        self.seconds = max(self.seconds, time.monotonic() - began)
        self.pids = tuple(self._ready[index]["pid"] for index in indices)

    def leave(self) -> None:
        """Close every line: the next world reaches its machines anew."""
        # First: a thread that is still reconnecting for the world that is left then keeps no line.
        self._times_left += 1
        for line in list(self._lines.values()):
            line.close()
        self._lines.clear()
        self._ready.clear()

    def _have_ready(self, index: int, needs: dict[str, Any]) -> str:
        """Have a machine ready; else say why it is not."""
        if index in self._given_up:
            return self._given_up[index]
        try:
            line = self._lines.get(index)
            if line is None:
                line = self._lines[index] = self._connect(index)
            # One that was there is waited for, and then never tried again.
            elif line.lost and (line := self.reconnect(index)) is None:
                return self._given_up.get(index, "its world was already closed")
            if self._ready.get(index, {}).get("needs") != needs:
                address = self._machines[index].address or line.facts.get("address") or "127.0.0.1"
                answer = line.ask(
                    "server", **needs, address=address, ports=self.ports(index), within=READY_WITHIN
                )
                if not answer["interface"]:
                    return (
                        f"none of its network interfaces has the address {address}; correct ips in"
                        " the hostfile"
                    )
                self._ready[index] = {**answer, "needs": needs, "address": address}
        except (Unreachable, OSError, KeyError, TypeError) as error:
            return str(error)
        return ""

    def _connect(self, index: int, *, within: float = READY_WITHIN) -> MachineLine:
        line = MachineLine(
            index,
            self._machines[index].command,
            within=within,
            lease=self.lease,
            demand=self._machines[index].demand,
            root=self._tree(Path(ROOT, "harness"), below="harness/"),
            run=self.run,
            stop=self._stopped,
        )
        if self._closed.is_set():  # meanwhile: who closed the others does not know of it
            line.close()
            raise Unreachable("the run is over")
        return line

    def reconnect(self, index: int) -> MachineLine | None:
        """Reach a lost machine again, for as long as it is waited for; None where that is in vain,
        or the run ends.
        """
        until = time.monotonic() + self._back_within
        times_left = self._times_left
        if (gone := self._lines.get(index)) is not None:
            gone.close()
        while not self._closed.is_set() and (left := until - time.monotonic()) > 0:
            with contextlib.suppress(Unreachable, OSError):
                line = self._connect(index, within=max(left, BACK_AT_LEAST))
                if times_left == self._times_left:
                    self._lines[index] = line
                    self._ready.pop(index, None)
                    return line
                line.close()
            if times_left != self._times_left:
                return None  # the next world has a line of its own, and may have more luck
            self._closed.wait(min(1.0, left))
        self._given_up[index] = f"it was lost, and did not come back within {self._back_within:g} s"
        return None

    def _beat(self) -> None:
        while not self._closed.wait(BEAT):
            for line in list(self._lines.values()):
                if not line.lost:
                    line.beat()

    def _tree(self, place: Path, *, below: str = "") -> tuple[str, dict[str, Path]]:
        with self._lock:
            if place not in self._trees:
                files = {below + name: path for name, path in store.files_of(place).items()}
                self._trees[place] = store.digest_of(files), files
            return self._trees[place]

    def give_tree(self, place: Path) -> str:
        """Have a file or folder on every machine; its digest there.

        Raises:
            ServerFailed: a machine does not take it.
        """
        digest, files = self._tree(place)
        for index, line in self._lines.items():
            looked_at = self._ready[index].setdefault("trees", set())
            given = self._given.setdefault(index, set())
            if digest not in looked_at:
                try:
                    if line.give(digest, files, within=READY_WITHIN) and digest in given:
                        self._changed.add(index)
                except Unreachable as error:
                    raise ServerFailed(f"{self._machines[index].called}: {error}") from None
                looked_at.add(digest)
                given.add(digest)
        return digest

    def changed(self) -> list[str]:
        """Which machines lacked, once or now, what they were given, or do not say, by what evidence
        calls them.

        One that was given up is not asked: its trials say so, for they failed or are void.
        """
        machines = set(self._changed)
        for index in sorted(self._given.keys() - self._given_up.keys()):
            line = self._lines.get(index)
            if line is None or line.lost:
                line = self.reconnect(index)
            try:
                digests = sorted(self._given[index])
                if (
                    line is None
                    or line.ask("lacks", trees=digests, within=READY_WITHIN).get("lacks") != []
                ):
                    machines.add(index)
            except Unreachable:
                machines.add(index)
        return [self._machines[index].called for index in sorted(machines)]

    @property
    def has_lost(self) -> bool:
        """Return whether a machine did not come back in time, with what it wrote down."""
        return bool(self._given_up)

    def told(self) -> list[dict[str, Any]]:
        """Return what each machine says of itself, and of its wall clock against ours.

        Nothing of one that was not reached.
        """
        messages = []
        for index in range(len(self._machines)):
            line = self._lines.get(index)
            messages.append({} if line is None else {**line.facts, **line.offset()})
        return messages

    def placed(self, of: Sequence[int]) -> Placed:
        """Return the machines of a world whose ranks are on these, once all are ready."""
        return Placed(
            of=tuple(of), called=tuple(machine.called for machine in self._machines), reached=()
        )

    def over(self, of: Sequence[int]) -> Over:
        """Where the ranks of a world are reached."""
        known = [self._ready[index] for index in of]
        ports = {index: iter(self._ready[index]["ports"]) for index in set(of)}
        return Over(
            addresses=[facts["address"] for facts in known],
            ports=[next(ports[index]) for index in of],
            interfaces=[facts["interface"] for facts in known],
        )

    @contextlib.contextmanager
    def relaying(self, placed: Placed, **world: Any) -> Iterator[Relay]:
        """Yield a relay for one world."""
        relay = Relay(
            {index: self._lines[index] for index in placed.used},
            placed,
            run=self.run,
            reconnect=self.reconnect,
            **world,
        )
        try:
            yield relay
        finally:
            relay.close()

    def ports(self, index: int) -> int:
        """How many ports a world needs on a machine: one for each rank, and one for the subject's
        own use.
        """
        return self._machines[index].slots + 1

    def port(self, index: int) -> int:
        """Return the port of a machine that is for the subject's own use."""
        return int(self._ready[index]["ports"][-1])

    def lines(self, used: Sequence[int]) -> dict[int, MachineLine]:
        """Return the lines to some machines."""
        return {index: self._lines[index] for index in used}

    def no_journal(self, index: int, why: str) -> None:
        """Take why a machine could not write down all that happened in a world: only control has
        the rest.
        """
        self.unwritten.setdefault(self._machines[index].called, printable(why, limit=200))

    def again(self, index: int, ports: list[int]) -> None:
        """Take the ports that a machine has for its next world."""
        if index in self._ready:
            self._ready[index]["ports"] = ports


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
