"""Wire of one world: the process through which every packet between two test hosts passes.

It makes the hosts, then reads what each of them sends and writes it to whom it is for, counted;
where a fault of the scenario is in force on that link, it does to the packets what the fault says
(`harness.world.hosts.link_faults`). It is neither a rank nor a survivor, and ends with its keeper,
which has it made before any rank (`WireProcess`), and asks it for counts at the end.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator

# A subject may have replaced os._exit in a server that imported it.
from os import _exit
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from harness.rank.process import die_with_parent, keep_private
from harness.world.below import isolation
from harness.world.below.requests import Requests, send
from harness.world.hosts import host as hosts
from harness.world.hosts.host import MTU, NETWORK, Host, HostPlaces
from harness.world.hosts.link_faults import Link, PacketFault, on_links

# Of one host before the others have their turn.
BURST = 64
PREFIX = bytes(int(part) for part in NETWORK.split("."))
# Longer than any packet can be.
ROOM = MTU + 536


class HostsOrder(TypedDict):
    """Order for the test hosts of one world.

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
    """Socket that listens on a host; without a port, the host's table of connections."""

    host: int
    port: int | None
    backlog: int


def begin(
    channel: socket.socket, *, keeper: int, world: HostsOrder, places: list[HostPlaces]
) -> None:
    """Be the wire; never returns.

    Args:
        channel: to the keeper, which has just been forked from, and says when it has a user
            namespace of its own.
        keeper: its pid.
        world: the order for the hosts.
        places: files and folders of each host.
    """
    die_with_parent(keeper)
    # The keeper's alarm: a signal here would be written into its pipe.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Nothing here makes circles, and a collection would copy the memory shared with the server.
    gc.disable()
    try:
        orders = Requests(channel)
        # The keeper says when it has its user namespace: only then there is one to be mapped, from
        # outside, and entered.
        _await(orders)
        isolation.map_users(keeper)
        user = os.open(f"/proc/{keeper}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        isolation.enter(user, step="enter the user namespace")
        os.close(user)
        # A process whose rights change may lose its death signal.
        die_with_parent(keeper)
        test_hosts, opened = _make(world, places)
        # What it counts is evidence: no rank may look into it.
        keep_private(private=True)
        about = [
            {"clock_ahead": host.clock_ahead, "kinds": list(host.namespaces)} for host in test_hosts
        ]
        handed = [descriptor for host in test_hosts for descriptor in host.namespaces.values()]
        send(channel, {"is": "hosts", "hosts": about}, [*handed, *opened])
        # The keeper has them now; held here too, what ranks close would not be seen closed.
        for descriptor in (*handed, *opened):
            os.close(descriptor)
        HostWire(channel, orders, test_hosts).run()
    except EOFError:
        _exit(0)  # the keeper is gone, and nobody is left who could be served
    except OSError as error:
        with contextlib.suppress(OSError):
            send(channel, {"is": "unable", "why": error.strerror or str(error)})
    except BaseException:  # noqa: BLE001 - its own failure goes to the server's log
        sys.excepthook(*sys.exc_info())
    finally:
        _exit(1)


def _await(orders: Requests) -> None:
    while not list(orders.receive()):
        pass


def _make(world: HostsOrder, places: list[HostPlaces]) -> tuple[list[Host], list[int]]:
    """Make the hosts, and open on them what ranks need before they are there.

    Last what a hub is reached by.
    """
    test_hosts = []
    opened = {}
    served = list[int]()
    for host in range(world["count"]):
        test_hosts.append(hosts.make(host, places=places[host]))
        for index, wanted in enumerate(world["open"]):
            if wanted["host"] == host:
                opened[index] = _open(host, wanted)
        if port := world.get("served"):
            served += hosts.serve(port)
    return test_hosts, [opened[index] for index in sorted(opened)] + served


def _open(host: int, wanted: Opening) -> int:
    if wanted["port"] is None:
        # Read again from its beginning, it tells of this host's connections, whoever reads it
        # wherever.
        return os.open("/proc/self/net/tcp", os.O_RDONLY | os.O_CLOEXEC)
    return socket.create_server(
        (hosts.address(host), wanted["port"]), backlog=wanted["backlog"]
    ).detach()


class HostWire:
    """Wire that is joined to its hosts."""

    def __init__(self, channel: socket.socket, orders: Requests, test_hosts: list[Host]) -> None:
        self._channel = channel
        self._orders = orders
        self._tuns = [host.tun for host in test_hosts]
        self._host_of = {tun: host for host, tun in enumerate(self._tuns)}
        self._links = {
            (source, target): Link(source=source, target=target)
            for source in range(len(test_hosts))
            for target in range(len(test_hosts))
            if source != target
        }
        self._faults: dict[tuple[str, int], PacketFault] = {}
        self._held: list[tuple[int, int, Link, bytes]] = []
        self._order = 0
        self._ended = False

    def run(self) -> None:
        """Carry packets until the keeper has heard the last count, or is gone."""
        poll = select.poll()
        for descriptor in (*self._tuns, self._channel.fileno()):
            poll.register(descriptor, select.POLLIN)
        while not self._ended:
            for descriptor, _ in poll.poll(self._patience()):
                if descriptor == self._channel.fileno():
                    self._listen()
                else:
                    self._carry(descriptor)
            self._release()
        # Until the keeper ends it: closing the devices takes long, and nobody shall wait for that.
        signal.pause()

    def _patience(self) -> float | None:
        """Milliseconds until a packet that is held has to go on."""
        if not self._held:
            return None
        return max(0.0, (self._held[0][0] - time.monotonic_ns()) / 1e6)

    def _carry(self, tun: int) -> None:
        source = self._host_of[tun]
        for _ in range(BURST):
            try:
                packet = os.read(tun, ROOM)
            except BlockingIOError:
                return
            if len(packet) < 20 or packet[0] >> 4 != 4 or packet[16:19] != PREFIX:
                continue  # of no other host: what a host's own kernel asks the network at large
            link = self._links.get((source, packet[19] - 1))
            if link is None:
                continue
            link.count(packet)
            if link.faults:
                self._strike(link, packet)
            else:
                self._deliver(link, packet)

    def _strike(self, link: Link, packet: bytes) -> None:
        now = time.monotonic_ns()
        for due, on, changed in link.pass_through(packet, now=now):
            if due <= now:
                self._deliver(on, changed)
            else:
                self._order += 1
                heapq.heappush(self._held, (due, self._order, on, changed))

    def _release(self) -> None:
        now = time.monotonic_ns()
        while self._held and self._held[0][0] <= now:
            _, _, link, packet = heapq.heappop(self._held)
            self._deliver(link, packet)

    def _deliver(self, link: Link, packet: bytes) -> None:
        try:
            os.write(self._tuns[link.target], packet)
        except OSError:
            # The host takes no more: its TCP will be sent it again. It is said, for it was no fault
            # that lost it.
            link.lost += 1

    def _listen(self) -> None:
        for order, _ in self._orders.receive():
            do = order["do"]
            name = (order.get("fault", ""), order.get("rank", -1))
            if do == "strike":
                fault = self._faults[name] = PacketFault.of(order)
                on_links(fault, self._links)
                self._say(
                    "struck",
                    fault=name[0],
                    rank=name[1],
                    links=[list(pair) for pair in fault.pairs],
                    holds=fault.holds,
                )
            elif do == "undo":
                self._say("undone", **self._taken_back(name))
            elif do == "end":
                self._end()

    def _taken_back(self, name: tuple[str, int]) -> dict[str, Any]:
        fault = self._faults.pop(name, None)
        for link in self._links.values():
            link.faults = [other for other in link.faults if other is not fault]
        for _, link, packet in fault.let_go() if fault is not None else ():
            self._deliver(link, packet)
        return {
            "fault": name[0],
            "rank": name[1],
            **(fault.evidence() if fault is not None else {}),
        }

    def _end(self) -> None:
        """Say all that was counted."""
        for name in list(self._faults):
            self._say("counted", **self._taken_back(name))
        links = [link.evidence() for link in self._links.values() if link.packets]
        self._say("carried", links=links, held=len(self._held))
        self._ended = True

    def _say(self, what: str, **values: Any) -> None:
        send(self._channel, {"is": what, "ns": time.monotonic_ns(), **values})


READY_WITHIN = 20.0
COUNTED_WITHIN = 5.0


class WireLost(OSError):
    """Wire that ended before the ranks did, or does not answer: an error of the harness."""


class WireProcess:
    """Hosts of one world and the wire that made them, seen from the keeper.

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
        self._before = isolation.capabilities()
        names = scratch / "hosts"
        names.write_text(hosts.names_file(world["count"]))
        folders = [str(scratch / hosts.name_of(host)) for host in range(world["count"])]
        self._own = folders if world.get("temporary") else None
        kept = hosts.below_tmp([str(scratch), *world["kept"]])
        places: list[HostPlaces] = [
            {"own": own, "names": str(names), "temporary": world.get("temporary"), "kept": kept}
            for own in folders
        ]
        self._channel, theirs = socket.socketpair()
        keeper = os.getpid()
        # The wire is the same user, and has to look into this process to give its namespace users.
        keep_private(private=False)
        # Before the user namespace is made: the wire has to map its users from outside. The keeper
        # has one thread, so no lock is held in the copy.
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _close_all_but(theirs.fileno())
                begin(theirs, keeper=keeper, world=world, places=places)
            finally:
                _exit(1)
        theirs.close()
        self._said = Requests(self._channel)
        self.is_lost = False
        isolation.unshare(
            isolation.CLONE_NEWUSER | isolation.CLONE_NEWNS, step="create a user namespace"
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
        """Return what to wait for: the wire says something, or is gone."""
        return self._channel.fileno()

    def evidence(self) -> list[dict[str, Any]]:
        """Return the hosts, in words."""
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
        """Return what the host of a rank is called."""
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
        """Yield what the wire has said; nothing for ever once it is lost."""
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
            "the process that links the test hosts did not answer after the ranks had ended; check"
            " whether it was stopped or killed"
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
        raise WireLost("the process that links the test hosts did not become ready")


def _close_all_but(kept: int) -> None:
    """Close every pipe of a rank in the wire: their ends would not be seen."""
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
