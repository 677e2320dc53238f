"""Server of one world over machines: what a fork server is to a world whose ranks are here."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.backends import Over, Rendezvous
from harness.forms.process import start_apart
from harness.world.below.leftovers import remove
from harness.world.below.preload import EVERYTHING, Preload
from harness.world.control.launch import Launch
from harness.world.control.names import ROOT
from harness.world.control.room import base
from harness.world.control.server_handle import ServerFailed
from harness.world.machines.fleet import Cables, Fleet
from harness.world.machines.node_channel import PlacedMachines, ShareOrder
from harness.world.machines.relay import Relay
from harness.world.machines.roll import Placed
from harness.world.machines.share import travels

# Beyond its deadline and the time of the others: then a machine ends its ranks, whatever control
# does.
UNTIL = 30.0
HANDED_OVER_WITHIN = 120.0
# Of a world that was left before its end: longer than machines take to end their ranks.
LEFT_WITHIN = 15.0


def inside(file: Path) -> str:
    """Where Rankproof's own file lies below it.

    Raises:
        OSError: it is a plug-in's, which machines are not given.
    """
    if not file.is_relative_to(Path(ROOT, "harness")):
        raise OSError(
            f"{file.name} belongs to a plug-in, and plug-ins are not supported in worlds that"
            " span several machines; remove the checks and faults that use it"
        )
    return file.relative_to(ROOT).as_posix()


class MachineServer:
    """Server of one world, whose ranks are on the machines of a fleet."""

    room = None

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._used: list[int] = []
        self._relaying = contextlib.ExitStack()
        self._relay: Relay | None = None
        self._mark = ""
        self.scratch = base() / f"rankproof-{secrets.token_hex(8)}"
        # Only named yet: who removes it when this process is killed has to be there before it is.
        self._remover = start_apart(
            ["sh", "-c", 'cat; exec rm -rf -- "$1"', "sh", str(self.scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        self.scratch.mkdir(mode=0o700)

    def take_code(self, folder: Path) -> Path:
        """Have the arm's code on every machine."""
        self._code = self._fleet.give_tree(folder)
        return folder

    def give_code(self, folder: Path, copy: Path) -> None:
        """Each machine has its own copy, and looks at it itself."""

    def over(self, placed: Placed) -> Over:
        """Where the ranks are reached."""
        return self._fleet.over(placed.of)

    def start(
        self,
        launch: Launch,
        handed: Sequence[int],
        *,
        rendezvous: Rendezvous,
        scratch: Path,
        world: str,
        begun: int,
    ) -> Relay:
        """Ask every machine for its ranks.

        Raises:
            ServerFailed: a machine does not take what they need.
            OSError: a file of the run cannot be read.
        """
        machines = launch.places.machines
        assert machines is not None
        self._used = machines.used
        self._mark = world
        over = self._fleet.over(machines.of)
        reached = dict(zip(machines.of, over.addresses, strict=True))
        placed: PlacedMachines = {
            "of": machines.of,
            "called": machines.called,
            "reached": [reached.get(index, "") for index in range(len(machines.called))],
        }
        common: ShareOrder = {
            "ask": "world",
            "world": world,
            "launch": travels(launch),
            "code": self._code,
            "inputs": {
                name: (self._fleet.give_tree(Path(path)), Path(path).name)
                for name, path in launch.subject.inputs.items()
            },
            "inside": {kind: inside(file) for kind, file in launch.faults.inside.items()},
            "machines": placed,
            "rendezvous": {
                "ranks": list(rendezvous.ranks),
                "env": list(rendezvous.env),
                "opened": [asdict(opening) for opening in rendezvous.opened],
            },
            "port": self._fleet.port(machines.of[0]),
            "until": launch.watch.deadline + launch.watch.after_failure + UNTIL,
            # Of each machine, below.
            "ranks": [],
            "ports": 0,
        }
        for rank in range(launch.size):
            (scratch / f"rank-{rank}" / "kept").mkdir(parents=True)
        self._relay = self._relaying.enter_context(
            self._fleet.relaying(
                machines, mark=world, begun=begun, descriptors=handed, scratch=scratch
            )
        )
        for index, line in self._fleet.lines(self._used).items():
            line.send({**common, "ranks": machines.ranks(index), "ports": self._fleet.ports(index)})
        return self._relay

    @property
    def lease(self) -> float:
        """Seconds without a heartbeat after which a machine ends its ranks."""
        return self._fleet.lease

    @property
    def cables(self) -> Cables | None:
        """Pulls the machines' cables; None where nobody can."""
        return self._fleet.cables

    def finish(self) -> None:
        """Wait until every machine that is there has handed over what its ranks left.

        Raises:
            ServerFailed: one does not.
        """
        if self._relay is not None and not self._relay.await_over(HANDED_OVER_WITHIN):
            raise ServerFailed(
                f"a machine did not send the files of its ranks within {HANDED_OVER_WITHIN:g} s"
            )

    def is_well(self) -> bool:
        """Return whether nobody is left of the world on any machine."""
        return self._relay is None or (
            self._relay.await_over(LEFT_WITHIN)
            and all(report.get("well") for report in self._relay.given.values())
        )

    def end(self) -> None:
        """End the world: what machines wrote down of it is not needed any more."""
        if self._relay is not None:
            for index, report in self._relay.given.items():
                if isinstance(why := report.get("journal"), str) and why:
                    self._fleet.no_journal(index, why)
                ports = report.get("ports")
                if isinstance(ports, list) and all(
                    type(port) is int and 0 < port < 65536 for port in ports
                ):
                    self._fleet.again(index, ports)
            for line in self._fleet.lines(
                sorted(self._relay.given.keys() | self._relay.collected)
            ).values():
                line.send({"ask": "done", "world": self._mark})
        self._relaying.close()
        self._relay = None
        remove(self.scratch)
        assert self._remover.stdin is not None
        self._remover.stdin.close()
        self._remover.wait()


class MachinePool(Fleet):
    """Pool whose one server has ranks on several machines."""

    def take(
        self,
        *,
        warm: bool,
        env: Mapping[str, str],
        python: Path | None = None,
        shared_home: bool = False,
        preload: Preload = EVERYTHING,
    ) -> MachineServer:
        """Return the server whose ranks are on the machines, with a fork server ready on each.

        Raises:
            ServerFailed: a machine is not reached, or cannot have ranks.
            Cancelled: the run was interrupted meanwhile.
        """
        del python
        needs: dict[str, Any] = {
            "warm": warm,
            "env": dict(env),
            "shared_home": shared_home,
            "modules": list(preload.modules) if warm else [],
            "files": [inside(file) for file in preload.files] if warm else [],
        }
        self.have_all_ready(needs)
        return MachineServer(self)

    def give(self, server: MachineServer) -> None:
        """Give the server back when its world is over."""
        server.end()

    def discard(self, server: MachineServer) -> None:
        """End the server of a world that failed: its machines are reached anew."""
        server.end()
        self.leave()
