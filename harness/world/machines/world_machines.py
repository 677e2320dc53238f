"""The machines of one world, seen from the harness: what is told of them, their clocks, and where
their ranks stand.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.backends import Over, Rendezvous
from harness.events import Event
from harness.faults.world_control import WorldControl
from harness.forms.strict_json import JSON
from harness.history import (
    MACHINE_COLLECTED,
    MACHINE_CUT,
    MACHINE_ENDED,
    MACHINE_JOINED,
    MACHINE_LOST,
    MACHINES_JOINED,
)
from harness.world.control.capture import Recorder
from harness.world.control.ending import Ending
from harness.world.control.launch import Launch
from harness.world.control.rank_channel import Channel
from harness.world.control.rank_states import RankStates
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
        """Whether the world has machines."""
        return self._launch.places.machines is not None

    def about(self) -> dict[str, JSON]:
        """What the world's first event says: the machines, and which of them each rank is on."""
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

    def start(
        self,
        server: MachineServer,
        handed: Sequence[int],
        rendezvous: Rendezvous,
        scratch: Path,
        channels: Mapping[int, Channel],
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


def _reading(found: Mapping[str, Any]) -> dict[str, JSON]:
    """What a machine read of a process, if it is that."""
    names = ("private_bytes", "cpu_seconds", "read_bytes", "written_bytes")
    return {name: found[name] for name in names if type(found.get(name)) in (int, float)}


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
