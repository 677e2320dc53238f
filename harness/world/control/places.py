"""Where the ranks of one world are, seen from the harness: on test hosts or on machines.

Each knows what is reported of its places, and their clocks; test hosts take orders to their wire,
machines say where their ranks stand.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.backends import Over, Rendezvous
from harness.events import Event
from harness.faults.link import STRUCK, UNDONE, links_of
from harness.faults.world_control import WorldControl
from harness.forms.strict_json import JSON
from harness.history import (
    MACHINE_COLLECTED,
    MACHINE_CUT,
    MACHINE_ENDED,
    MACHINE_JOINED,
    MACHINE_LOST,
    MACHINES_JOINED,
    RANK_CLOCK,
)
from harness.world.control import waits
from harness.world.control.capture import Recorder
from harness.world.control.ending import Ending
from harness.world.control.launch import Launch
from harness.world.control.ranks import RankChannel, RankStates
from harness.world.machines.heartbeat import DRIFT
from harness.world.machines.machine_server import MachineServer
from harness.world.machines.relay import Relay

if TYPE_CHECKING:
    from harness.world.machines.fleet import Cables

# A machine that was lost is waited for, and collected from, less long than this.
LOST_WITHIN = 600.0


class MachineControl:
    """Inert in a world whose ranks are on this machine."""

    def __init__(self, launch: Launch, recorder: Recorder, states: RankStates) -> None:
        self._launch = launch
        self._recorder = recorder
        self._states = states
        self._ending: MachinesEnding | None = None
        self._cables: Cables | None = None
        self._cut: dict[int, str] = {}

    def cut_off(self, rank: int, *, fault: str) -> None:
        """Cut a rank's machine off, unless it is.

        What the kernel says of its link then is evidence.
        """
        placed = self._launch.places.machines
        if placed is None or self._cables is None or (index := placed.of[rank]) in self._cut:
            return
        self._cut[index] = fault
        state = self._cables.cut(index)
        self._recorder.note(MACHINE_CUT, machine=placed.called[index], fault=fault, link=state)

    def join(self, rank: int, *, fault: str) -> None:
        """Join it again, where this fault has cut it off."""
        placed = self._launch.places.machines
        if (
            placed is None
            or self._cables is None
            or self._cut.get(index := placed.of[rank]) != fault
        ):
            return
        del self._cut[index]
        state = self._cables.join(index)
        self._recorder.note(MACHINE_JOINED, machine=placed.called[index], fault=fault, link=state)

    @property
    def are_there(self) -> bool:
        """Return whether the world has machines."""
        return self._launch.places.machines is not None

    def about(self) -> dict[str, JSON]:
        """Return what the world's first event says: the machines, and which of them each rank is
        on.
        """
        placed = self._launch.places.machines
        return (
            {"machines": {"called": list(placed.called), "of": list(placed.of)}}
            if placed is not None
            else {}
        )

    def over(self, server: object) -> Over | None:
        """Where the ranks are reached."""
        placed = self._launch.places.machines
        return (
            server.over(placed)
            if placed is not None and isinstance(server, MachineServer)
            else None
        )

    # Seven arguments: what a world has prepared, which lasts for this call alone.
    def start(
        self,
        server: MachineServer,
        handed: Sequence[int],
        rendezvous: Rendezvous,
        scratch: Path,
        channels: Mapping[int, RankChannel],
        *,
        begun: int,
        world: str,
    ) -> None:
        """Ask the machines for their ranks.

        What these stamp goes by their machines' clocks from now on.
        """
        placed = self._launch.places.machines
        assert placed is not None
        self._cables = server.cables
        relay = server.start(
            self._launch, handed, rendezvous=rendezvous, scratch=scratch, world=world, begun=begun
        )
        self._recorder.elsewhere = relay.elsewhere
        if self._ending is not None:
            self._ending.relay = relay
        drift = round(
            DRIFT * 1e9 * (self._launch.watch.deadline + self._launch.watch.after_failure)
        )
        for rank, machine in enumerate(placed.of):
            ahead, within = relay.clocks[machine]
            channels[rank].ahead = self._recorder.ahead[rank] = ahead
            channels[rank].within = within + drift + 1_000_000
        self._recorder.note(
            MACHINES_JOINED,
            machines=[
                {"machine": placed.called[machine], "clock_ahead": ahead, "within": within}
                for machine, (ahead, within) in sorted(relay.clocks.items())
            ],
            lease=server.lease,
            after_failure=self._launch.watch.after_failure,
        )

    def ending(self, world: WorldControl, scratch: Path) -> Ending:
        """Who ends the ranks: over machines, each of these asks its own where they stand."""
        known: dict[str, Any] = {
            "launch": self._launch,
            "recorder": self._recorder,
            "scratch": scratch,
        }
        if not self.are_there:
            return Ending(world, self._states, **known)
        self._ending = MachinesEnding(world, self._states, **known)
        return self._ending

    def hear(self, kind: str, message: dict[str, Any]) -> bool:
        """Take what the relay says beside what a keeper says.

        Returns whether an order was answered by it.
        """
        placed = self._launch.places.machines
        if placed is None or self._ending is None:
            return False
        called = placed.called[message["machine"]] if kind.startswith("machine-") else ""
        match kind:
            case "measured":
                if isinstance(read := message["read"], dict):
                    at = str(message["at"])
                    self._recorder.note(
                        "rank.measured", rank=message["rank"], at=at, **_reading(read)
                    )
                return True
            case "state":
                self._recorder.note("rank.state", rank=message["rank"], state=message["state"])
            case "silenced":
                self._recorder.note("channel.closed", rank=message["rank"])
            case "stood":
                self._ending.stood = True
            case "machine-lost":
                self._recorder.note(
                    MACHINE_LOST, machine=called, why=message["why"], ranks=message["ranks"]
                )
                self._states.lost |= {*message["ranks"]}
                self._ending.failed()
            case "machine-ended":
                values = {"machine": called, "why": message["why"], "ranks": message["ranks"]}
                values |= {"silent": message["silent"]} if "silent" in message else {}
                self._recorder.add(
                    Event(ns=message["ns"], by="harness", name=MACHINE_ENDED, values=values)
                )
                self._ending.failed()
            case "machine-back":
                self._recorder.note("machine.back", machine=called)
            case "machine-collected":
                self._recorder.note(MACHINE_COLLECTED, machine=called, **message["late"])
        return False


def _reading(reading: Mapping[str, Any]) -> dict[str, JSON]:
    """Return what a machine read of a process, if it is that."""
    names = ("private_bytes", "cpu_seconds", "read_bytes", "written_bytes")
    return {name: reading[name] for name in names if type(reading.get(name)) in (int, float)}


class MachinesEnding(Ending):
    """Ends a world over machines: each asks its own ranks where they stand.

    Attributes:
        stood: whether all machines have told it.
        relay: to the machines, once they were asked for their ranks.
    """

    relay: Relay | None = None

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        # The relay waits for a machine that was lost, and then for what it wrote down.
        self._last_words_within += LOST_WITHIN
        self.stood = False

    def _take_stacks(self, why: str, *, rounds: int = 1) -> None:
        del rounds
        self.took_stacks = True
        self._why = why
        self._rounds = 0
        self.stood = False
        living = self._states.living()
        able = [rank for rank in living if self._has_stacks and rank in self._states.begun]
        self._texts = {rank: [] for rank in able}
        self._stacks_at = time.monotonic()
        if self.relay is not None:
            self.relay.ask_stacks(able)

    def _stacks_are_quiet(self) -> bool:
        return self.stood

    def _writing(self) -> bool:
        return not self.stood


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
        """Return whether the world has test hosts."""
        return self._hosts is not None

    def about(self) -> dict[str, JSON]:
        """Return what the world's first event says: the host of each rank."""
        return {"hosts": list(self._hosts.of)} if self._hosts is not None else {}

    def addresses(self) -> list[str] | None:
        """Return the address of each rank's host."""
        return self._hosts.addresses if self._hosts is not None else None

    def made(self, ns: int, values: dict[str, Any], channels: Mapping[int, RankChannel]) -> None:
        """Take the hosts, before any rank is there: what ranks stamp goes by the clocks of their
        hosts from now on.
        """
        self._recorder.add(Event(ns=ns, by="server", name="hosts.made", values=values))
        self._states.wire = values["wire"]
        for rank, host in enumerate(self._hosts.of if self._hosts is not None else ()):
            self._go_by(channels[rank], rank, ahead=values["hosts"][host]["clock_ahead"])

    def channels(self, *, not_before: int) -> dict[int, RankChannel]:
        """Return the channel of each rank, which takes what the rank stamps by the rank's own
        clock.
        """
        channels = {rank: RankChannel(rank, not_before=not_before) for rank in range(self._size)}
        for rank in self._clocks:
            self._go_by(channels[rank], rank)
        return channels

    def _go_by(self, channel: RankChannel, rank: int, *, ahead: int = 0) -> None:
        """Set a rank's clock `ahead` by what its host's is, in nanoseconds, and by what its own is
        beyond that.
        """
        channel.ahead = self._recorder.ahead[rank] = ahead + self._clocks.get(rank, 0)

    def heard(self, rank: int) -> None:
        """Read the clock of a rank that has its own, once: a rank that emits something is in its
        namespaces.
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
        return "packets between test hosts are being held back" if self._holding else ""

    def order(self, order: Mapping[str, Any]) -> dict[str, JSON]:
        """Return an order for the wire, with the links of the rank's host that it is about.

        The wire draws what it does by chance from the trial's seed.
        """
        assert self._hosts is not None
        host = self._hosts.of[order["rank"]]
        to = order.get("to")
        links = links_of(host, count=self._hosts.count, to=to, way=str(order.get("way")))
        seed = f"{self._seed} {order['fault']} {order['rank']}"
        return {**order, "links": list(links), "seed": seed}
