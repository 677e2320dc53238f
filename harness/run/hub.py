"""The hub of a scenario: one for each world, on one port for the whole run, its log joined to the
ranks by process.

The port stays because a warm rank's libraries read HF_ENDPOINT before it is forked. So worlds
follow one another. Where ranks are on test hosts, it is at the same address of each host's
loopback.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.events import Event
from harness.faults import Fault
from harness.faults.hub import HubFault
from harness.history import HUB_BEGIN, HUB_END, HUB_REQUEST
from harness.hub import Access, HubError, Rules
from harness.hub import Hub as Server
from harness.hub.place import GivenSocket, ListeningPlace
from harness.world.control.launch import Launch
from harness.world.control.server_handle import ServerFailed
from harness.world.control.world import World

NAMED = re.compile(r"rank-(\d+)")
HOST = "127.0.0.1"


def environment(port: int) -> dict[str, str]:
    """Variables that lead every rank to the hub; what the scenario sets itself goes before them."""
    return {"HF_ENDPOINT": f"http://{HOST}:{port}", "HF_HUB_OFFLINE": "0"}


def for_certain_ranks(faults: Sequence[Fault]) -> bool:
    """Return whether the hub must know from the address alone which rank asks: then no rank can be
    forked from a server.
    """
    return any(isinstance(fault, HubFault) and fault.ranks.which != "every" for fault in faults)


class WorldHub:
    """The hub of one world. Give `begin`, `on_hosts` and `end` to it."""

    def __init__(
        self, folder: Path, *, port: int, faults: Sequence[Fault], size: int, seed: int
    ) -> None:
        self._apart = for_certain_ranks(faults)
        self._size = size
        self._port = port
        self._hosts = 0
        self._is_begun = False
        rules = [
            fault.rule(clients=tuple(map(_client, fault.ranks.of(size))) if self._apart else None)
            for fault in faults
            if isinstance(fault, HubFault)
        ]
        self._server = Server(
            folder, rules=Rules(schema=1, seed=str(seed), rules=tuple(rules)), host=HOST, port=port
        )

    def prepare(self, launch: Launch) -> Launch:
        """Give each rank an address of its own, where its requests must be told from its peers'
        beforehand.
        """
        for rank in range(self._size) if self._apart else ():
            address = f"http://{HOST}:{self._port}/client/{_client(rank)}"
            launch = launch.with_variables(ranks=[rank], variables={"HF_ENDPOINT": address})
        if launch.places.hosts is not None:
            self._hosts = launch.places.hosts.count
            hosts = replace(launch.places.hosts, served=self._port)
            launch = replace(launch, places=replace(launch.places, hosts=hosts))
        return launch

    def begin(self, world: World) -> None:
        """Start it, before any rank; where there are test hosts, it waits for them.

        Raises:
            ServerFailed: the folder or the port cannot be used.
        """
        if not self._hosts:
            self._start(world)

    def on_hosts(self, world: World, descriptors: Sequence[int]) -> None:
        """Start it where it is reached on the hosts.

        Args:
            world: whose hosts were made.
            descriptors: what `harness.world.hosts.host.serve` gave on each of them; they are the
                hub's from now on.

        Raises:
            ServerFailed: the folder cannot be used, or the kernel has handed over too few
                descriptors.
        """
        if len(descriptors) != 2 * self._hosts:
            raise ServerFailed(
                f"the hub received {len(descriptors)} file descriptors instead of"
                f" {2 * self._hosts}, two for each of {self._hosts} hosts"
            )
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        pairs = zip(sockets[::2], sockets[1::2], strict=True)
        self._start(world, [GivenSocket(bound, kernel) for bound, kernel in pairs])

    def _start(self, world: World, places: Sequence[ListeningPlace] = ()) -> None:
        try:
            self._server.start(places)
        except HubError as error:
            raise ServerFailed(f"the hub could not be started: {error}") from error
        self._is_begun = True
        world.note(HUB_BEGIN, repositories=sorted(self._server.repositories))

    def keeps_waiting(self) -> str:
        """Why the hub keeps a rank waiting, in words.

        Empty where it has answered all it was asked.
        """
        return "the scenario's hub has not answered yet" if self._server.busy() else ""

    def end(self, world: World) -> None:
        """Stop it, and add every request to the world's events."""
        try:
            self._server.stop()
            requests = self._server.requests()
        except HubError as error:
            world.note("harness.error", type="HubError", message=str(error)[:2000])
            return
        if not self._is_begun:
            return
        ranks = {pid: rank for rank, pid in world.pids.items()}
        for request in requests:
            world.add(_event(request, ranks))
        world.note(HUB_END, requests=len(requests))


def _client(rank: int) -> str:
    return f"rank-{rank}"


def _event(request: Access, ranks: Mapping[int, int]) -> Event:
    """Return a request as an event, of the rank whose process made it.

    Its children's and strangers' are of no rank.
    """
    rank = ranks.get(request.pid) if request.pid is not None else None
    if request.pid is None and (named := NAMED.fullmatch(request.client)):
        rank = int(named[1])  # where a system does not tell which process is at the other end
    return Event(
        ns=request.ns,
        by="harness",
        rank=rank,
        name=HUB_REQUEST,
        values={
            "n": request.n,
            "client": request.client,
            "method": request.method,
            "path": request.path,
            "role": request.role,
            "status": request.status,
            "rules": list(request.rules),
            "bytes": request.bytes,
            "end": request.end,
            "ms": round(request.duration_ns / 1e6, 3),
            **({} if rank is not None else {"by_pid": request.pid}),
        },
    )
