"""The wire of one world: the process through which every packet between two test hosts passes.

It makes the hosts, then reads what each of them sends and writes it to whom it is for, counted;
where a fault of the scenario is in force on that link, it does to the packets what the fault says
(`harness.world.hosts.link_faults`). It is neither a rank nor a survivor, and ends with its keeper.
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
import time

# A subject may have replaced os._exit in a server that imported it.
from os import _exit
from typing import Any

from harness.rank.process import die_with_parent, keep_private
from harness.world.below import namespaces
from harness.world.below.requests import Requests, send
from harness.world.hosts import host as hosts
from harness.world.hosts.host import MTU, NETWORK, Host
from harness.world.hosts.link_faults import Link, LinkFault, on_links

# Of one host before the others have their turn.
BURST = 64
PREFIX = bytes(int(part) for part in NETWORK.split("."))
# Longer than any packet can be.
ROOM = MTU + 536


def begin(channel: socket.socket, *, keeper: int, world: dict[str, Any]) -> None:
    """Be the wire; never returns.

    Args:
        channel: to the keeper, which has just been forked from, and says when it has a user
            namespace of its own.
        keeper: its pid.
        world: what `WireProcess.start` was given.
    """
    die_with_parent(keeper)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Nothing here makes circles, and a collection would copy the memory shared with the server.
    gc.disable()
    try:
        orders = Requests(channel)
        _await(orders)
        namespaces.map_users(keeper)
        user = os.open(f"/proc/{keeper}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        namespaces.enter(user, step="enter the user namespace")
        os.close(user)
        # A process whose rights change may lose its death signal.
        die_with_parent(keeper)
        test_hosts, opened = _make(world)
        keep_private(private=True)
        about = [
            {"clock_ahead": host.clock_ahead, "kinds": list(host.namespaces)} for host in test_hosts
        ]
        handed = [descriptor for host in test_hosts for descriptor in host.namespaces.values()]
        send(channel, {"is": "hosts", "hosts": about}, [*handed, *opened])
        for descriptor in (*handed, *opened):
            os.close(descriptor)
        Wire(channel, orders, test_hosts).run()
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


def _make(world: dict[str, Any]) -> tuple[list[Host], list[int]]:
    """Make the hosts, and open on them what ranks need before they are there.

    Last what a hub is reached by.
    """
    test_hosts = []
    opened = {}
    served = list[int]()
    for host in range(world["count"]):
        test_hosts.append(
            hosts.make(host, places={**world["places"], "own": world["places"]["own"][host]})
        )
        for index, wanted in enumerate(world["open"]):
            if wanted["host"] == host:
                opened[index] = _open(host, wanted)
        if world.get("served"):
            served += hosts.serve(world["served"])
    return test_hosts, [opened[index] for index in sorted(opened)] + served


def _open(host: int, wanted: dict[str, Any]) -> int:
    if wanted["port"] is None:
        # Read again from its beginning, it tells of this host's connections, whoever reads it
        # wherever.
        return os.open("/proc/self/net/tcp", os.O_RDONLY | os.O_CLOEXEC)
    return socket.create_server(
        (hosts.address(host), wanted["port"]), backlog=wanted["backlog"]
    ).detach()


class Wire:
    """The wire, joined to its hosts."""

    def __init__(self, channel: socket.socket, orders: Requests, made: list[Host]) -> None:
        self._channel = channel
        self._orders = orders
        self._tuns = [host.tun for host in made]
        self._host_of = {tun: host for host, tun in enumerate(self._tuns)}
        self._links = {
            (source, target): Link(source=source, target=target)
            for source in range(len(made))
            for target in range(len(made))
            if source != target
        }
        self._faults: dict[tuple[str, int], LinkFault] = {}
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
                fault = self._faults[name] = LinkFault.of(order)
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
