"""The test hosts of one world, seen from the harness: what is told of them, their clocks, and
orders to their wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.events import Event
from harness.faults.link import STRUCK, UNDONE, links_of
from harness.forms.strict_json import JSON
from harness.history import RANK_CLOCK
from harness.world.control import waits
from harness.world.control.capture import Recorder
from harness.world.control.launch import Launch
from harness.world.control.rank_channel import Channel
from harness.world.control.rank_states import RankStates


class HostControl:
    """Inert in a world whose ranks are on this machine, but for the clocks that some of them may
    have of their own.
    """

    def __init__(self, launch: Launch, recorder: Recorder, states: RankStates) -> None:
        self._hosts = launch.places.hosts
        self._size = launch.size
        self._clocks = dict(launch.faults.clock_ahead)
        self._unread = set(self._clocks)
        self._states = states
        self._seed = launch.about.get("seed", "0")
        self._recorder = recorder
        self._holding: set[tuple[object, int | None]] = set()

    @property
    def is_there(self) -> bool:
        """Whether the world has test hosts."""
        return self._hosts is not None

    def about(self) -> dict[str, JSON]:
        """What the world's first event says: the host of each rank."""
        return {"hosts": list(self._hosts.of)} if self._hosts is not None else {}

    def addresses(self) -> list[str] | None:
        """The address of each rank's host."""
        return self._hosts.addresses if self._hosts is not None else None

    def made(self, ns: int, values: dict[str, Any], channels: Mapping[int, Channel]) -> None:
        """The hosts are there, and no rank is yet: what ranks stamp goes by the clocks of their
        hosts from now on.
        """
        self._recorder.add(Event(ns=ns, by="server", name="hosts.made", values=values))
        self._states.wire = values["wire"]
        for rank, host in enumerate(self._hosts.of if self._hosts is not None else ()):
            self._go_by(channels[rank], rank, ahead=values["hosts"][host]["clock_ahead"])

    def channels(self, *, not_before: int) -> dict[int, Channel]:
        """The channel of each rank, which takes what the rank stamps by the rank's own clock."""
        channels = {rank: Channel(rank, not_before=not_before) for rank in range(self._size)}
        for rank in self._clocks:
            self._go_by(channels[rank], rank)
        return channels

    def _go_by(self, channel: Channel, rank: int, *, ahead: int = 0) -> None:
        """A rank's clock is `ahead` by what its host's is, in nanoseconds, and by what its own is
        beyond that.
        """
        channel.ahead = self._recorder.ahead[rank] = ahead + self._clocks.get(rank, 0)

    def heard(self, rank: int) -> None:
        """A rank has said something, so it is in its namespaces: read the clock of one that has its
        own, once.
        """
        # Who speaks may be heard before the keeper tells its pid; then it is read when the rank
        # speaks again.
        if rank in self._unread and (pid := self._states.started.get(rank)) is not None:
            self._unread.remove(rank)
            self._recorder.note(RANK_CLOCK, rank=rank, ahead=round(waits.ahead(pid) * 1e9))

    def said(self, ns: int, rank: int | None, values: dict[str, Any]) -> tuple[str, bool]:
        """Take what the wire says; returns what it is called, with the fault it is about, and
        whether it answers.
        """
        name = f"wire.{values.pop('what')}"
        if values.pop("holds", False):
            self._holding.add((values["fault"], rank))
        elif name == UNDONE:
            self._holding.discard((values.get("fault"), rank))
        self._recorder.add(Event(ns=ns, by="server", rank=rank, name=name, values=values))
        return f"{name} {values.get('fault')}", name in (STRUCK, UNDONE)

    def keeps_waiting(self) -> str:
        """Why a rank may wait for the wire alone: what waits for a packet that is on its way does
        not hang.
        """
        return "packets are held back on a wire" if self._holding else ""

    def order(self, order: Mapping[str, Any]) -> dict[str, JSON]:
        """An order for the wire, with the links of the rank's host that it is about.

        The wire draws what it does by chance from the trial's seed.
        """
        assert self._hosts is not None
        host = self._hosts.of[order["rank"]]
        to = order.get("to")
        links = links_of(host, count=self._hosts.count, to=to, way=str(order.get("way")))
        seed = f"{self._seed} {order['fault']} {order['rank']}"
        return {**order, "links": list(links), "seed": seed}
