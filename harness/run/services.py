"""Services of a run's trials: servers in worlds of their own, which are ready before any rank of a
trial is started.

Each start of a service is a world like that of a trial (`harness.run.service_world`), so its
processes are forked by a keeper, have a room, and leave nobody behind. The trial's events say what
was seen of it, and its own events what its keeper says of its processes.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from harness.events import Event
from harness.faults import Fault
from harness.faults.strikes import Strikes
from harness.forms.strict_json import JSON
from harness.history import (
    SERVICE_ENDED,
    SERVICE_LAST,
    SERVICE_READY,
    SERVICE_UNREADY,
)
from harness.record.results import ResultsFolder
from harness.run.arms.staging import StagedArm
from harness.run.environments.cache import ReadyEnvironment
from harness.run.service_world import (
    ENDS_WITHIN,
    HOST,
    JOINED_WITHIN,
    ServiceWorld,
)
from harness.scenario import Cell, Scenario, processes_of
from harness.scenario.matrix import hosts_of as placed_on
from harness.scenario.service import Service
from harness.stats.outcome import service_events, service_folder
from harness.world.control.capture import Capture
from harness.world.control.launch import (
    Launch,
    PlaceLaunch,
    StartLaunch,
    SubjectLaunch,
    WatchLaunch,
)
from harness.world.control.pool import PortLease, ServerPool
from harness.world.control.rank_environment import launcher_environment
from harness.world.control.world import World
from harness.world.hosts.door import Door, through
from harness.world.hosts.host import INTERFACE, Hosts

VARIABLE: Final = "RANKPROOF_SERVICE_"
FOLDER: Final = "services"
"""Below the results folder, until the run is over: what processes read to find each other."""
BUSY_WITHIN: Final = 10.0
"""Seconds in which it answers whether it is healthy when the ranks have ended: it may be busy."""
KEPT_FOR: Final = 24 * 3600.0
"""Seconds after which a service that a cell keeps is stopped, whatever it does."""


@dataclass
class KeptService:
    """A service that trials of one arm of a cell share.

    Attributes:
        starts: how often it was started.
        slot: which part of the trials it serves now.
        running: None before the first trial, and after it ended.
    """

    cell: Cell
    arm: str
    starts: int = 0
    slot: int = -1
    running: ServiceWorld | None = None


@dataclass(frozen=True, kw_only=True)
class ServiceMaterial:
    """What the services of a run are made of.

    Attributes:
        scenario: the question.
        arms: the staged code of each arm.
        environments: of the arms that have their own.
        inputs: name to absolute path.
        pool: fork servers.
        cancel: a descriptor that becomes readable when they are to stop.
        results: takes the evidence of those that a cell keeps.
    """

    scenario: Scenario
    arms: Mapping[str, StagedArm]
    environments: Mapping[str, ReadyEnvironment]
    inputs: Mapping[str, str]
    pool: ServerPool
    cancel: int
    results: ResultsFolder


class Services:
    """Services of a run, one trial after the other. To be closed."""

    def __init__(self, material: ServiceMaterial) -> None:
        self._material = material
        self._kept: dict[tuple[str, str, str], KeptService] = {}

    # Seven arguments: a trial is named by three, and the reference's has none of the others.
    def serve(
        self,
        cell: Cell,
        arm: str,
        index: int,
        *,
        faults: Sequence[Fault] = (),
        seed: int = 0,
        for_reference: bool = False,
        is_whole: bool = False,
    ) -> TrialServices:
        """Have every service of a trial ready, or seen not to be.

        Args:
            cell: of the trial.
            arm: that the trial is of.
            index: number of the trial within the arm.
            faults: of the trial.
            seed: of the trial.
            for_reference: whether it is a run of a reference, which shares none.
            is_whole: whether each has one process, whatever the cell says.

        Raises:
            Cancelled: the run was interrupted.
        """
        serving = TrialServices()
        for name, service in self._material.scenario.services_of(arm).items():
            size = 1 if is_whole else processes_of(service, cell)
            if service.keep == "cell" and not for_reference:
                running, is_fresh = self._share(name, service, cell, arm, index)
            else:
                running = self._start(
                    name, service, cell, arm, index, size=size, faults=faults, seed=seed
                )
                serving.own[name] = running
                is_fresh = True
            serving.running[name] = running
            if is_fresh:
                serving.fresh.add(name)
        return serving

    def close(self) -> None:
        """Stop those that cells keep."""
        for kept in self._kept.values():
            with suppress(Exception):
                self._stop(kept)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def finish(self) -> None:
        """Stop those that cells keep, and keep their evidence.

        Raises:
            Cancelled: the run was interrupted.
        """
        for kept in self._kept.values():
            self._stop(kept)

    @property
    def _scratch(self) -> Path:
        return self._material.results.path.resolve() / FOLDER

    def _share(
        self, name: str, service: Service, cell: Cell, arm: str, index: int
    ) -> tuple[ServiceWorld, bool]:
        """Return the start that serves a trial, and whether this is its first trial."""
        for kept in self._kept.values():
            if kept.cell.id != cell.id:
                # Cells follow one another: the servers of one are not left to take memory.
                self._stop(kept)
        kept = self._kept.setdefault((cell.id, arm, name), KeptService(cell, arm))
        slot = slot_of(self._material.scenario, service, arm, index)
        running = kept.running
        if running is not None and slot == kept.slot and not running.why and not running.exits():
            return running, False
        self._stop(kept)
        size = processes_of(service, cell)
        running = self._start(name, service, cell, arm, kept.starts, size=size)
        kept.running = running
        kept.starts += 1
        kept.slot = slot
        return running, True

    def _stop(self, kept: KeptService) -> None:
        running = kept.running
        if running is None:
            return
        kept.running = None
        place = service_folder(kept.cell.slug, kept.arm, running.name, running.start)
        keep_capture(self._material.results, f"{place}/{running.name}", running.stop())

    # Eight arguments: what is started, for which trial, and what is done to it.
    def _start(
        self,
        name: str,
        service: Service,
        cell: Cell,
        arm: str,
        start: int,
        *,
        size: int,
        faults: Sequence[Fault] = (),
        seed: int = 0,
    ) -> ServiceWorld:
        # Of its own: a run of a thousand starts holds no thousand leases.
        ports = PortLease()
        port = ports.take(1)[0]
        launch = self._launch(name, service, cell, arm, start, size=size, port=port)
        for process, variables in enumerate(self._found_by(service, size, ports)):
            launch = launch.with_variables(ranks=[process], variables=variables)
        strikes = Strikes(
            [fault for fault in faults if fault.service == name], size=size, seed=seed
        )
        launch = strikes.prepare(launch)
        door = None
        if launch.places.hosts is not None:
            door = Door(self._door(port), port=port)
        running = ServiceWorld(
            name, service, launch, strikes, start=start, ports=ports, port=port, door=door
        )
        running.begin(self._material.pool, cancel=self._material.cancel)
        return running

    # Seven arguments: what one start of one service needs; they last for this call alone.
    def _launch(
        self,
        name: str,
        service: Service,
        cell: Cell,
        arm: str,
        start: int,
        *,
        size: int,
        port: int,
    ) -> Launch:
        material = self._material
        of_arm = arm if arm in material.arms else "candidate"
        staged = material.arms[of_arm]
        environment = material.environments.get(of_arm)
        own = service.keep == "trial"
        reference = material.scenario.subject.reference
        trial = material.scenario.world.deadline
        if reference is not None and reference.deadline is not None:
            trial = max(trial, reference.deadline)
        deadline = service.ready.within + trial + JOINED_WITHIN
        inputs = material.inputs
        placed = hosts_of(service, size)
        program = service.program
        if placed is not None:
            program = tuple(through(program, place=self._door(port), port=port))
            # Seen on the hosts, where they have a /tmp of their own.
            inputs = {**inputs, FOLDER: str(self._scratch)}
        return Launch(
            about={
                "scenario": material.scenario.id,
                "cell": cell.id,
                "arm": arm,
                "service": name,
                "start": start,
            },
            size=size,
            backend="none",
            subject=SubjectLaunch(
                entry="",
                folder=staged.folder,
                arguments={
                    **staged.arguments,
                    **cell.axes,
                    "processes": size,
                    "port": port,
                },
                inputs=inputs,
                seeds=[0] * size,
                env=service.env,
                program=program,
                is_service=True,
            ),
            # Its own interpreter, so that `python` in its program is the one of its arm.
            start=StartLaunch(
                warm=False,
                python=environment.python if environment is not None else Path(sys.executable),
            ),
            watch=WatchLaunch(deadline=deadline if own else KEPT_FOR, after_failure=ENDS_WITHIN),
            places=PlaceLaunch(hosts=placed),
        )

    def _door(self, port: int) -> Path:
        """Return the socket by which a service on test hosts is reached."""
        self._scratch.mkdir(exist_ok=True)
        return self._scratch / f"{port}"

    def _found_by(self, service: Service, size: int, ports: PortLease) -> list[dict[str, str]]:
        """Return the variables by which each process finds the others."""
        placed = hosts_of(service, size)
        if service.backend == "gloo":
            port = ports.take(1)[0]
            interface = {} if placed is None else {"GLOO_SOCKET_IFNAME": INTERFACE}
            return [
                interface
                | launcher_environment(
                    rank=rank,
                    size=size,
                    port=port,
                    local=placed.local(rank) if placed is not None else None,
                    master=placed.addresses[0] if placed is not None else HOST,
                )
                for rank in range(size)
            ]
        if service.backend == "mlx-ring" and size > 1:
            taken = ports.take(size)
            names = [HOST] * size if placed is None else placed.addresses
            addresses = [[f"{name}:{port}"] for name, port in zip(names, taken, strict=True)]
            self._scratch.mkdir(exist_ok=True)
            hostfile = self._scratch / f"hosts-{taken[0]}.json"
            hostfile.write_text(json.dumps(addresses))
            return [{"MLX_RANK": str(rank), "MLX_HOSTFILE": str(hostfile)} for rank in range(size)]
        return []


@dataclass
class TrialServices:
    """Services of one trial.

    Attributes:
        running: all of them, by name.
        own: those that end with the trial.
        fresh: names of those that were started for this trial.
    """

    running: dict[str, ServiceWorld] = field(default_factory=dict)
    own: dict[str, ServiceWorld] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)

    def prepare(self, launch: Launch) -> Launch:
        """Tell the ranks where the services are."""
        env = {variable(name): running.address for name, running in self.running.items()}
        if not env:
            return launch
        subject = replace(launch.subject, env={**launch.subject.env, **env})
        return replace(launch, subject=subject)

    def begin(self, world: World) -> None:
        """Note in the events of the trial which services are ready."""
        for name, running in self.running.items():
            about: dict[str, JSON] = {
                "service": name,
                "start": running.start,
                "seconds": running.seconds,
            }
            if running.why:
                world.note(SERVICE_UNREADY, rank=None, **about, why=running.why)
            else:
                pids: list[JSON] = [*running.pids()]
                is_fresh = name in self.fresh
                world.note(SERVICE_READY, rank=None, **about, pids=pids, is_fresh=is_fresh)

    def at_event(self, world: World, event: Event) -> None:
        """Strike those that a fault is for where a rank emits an event."""
        for running in self.own.values():
            running.strikes.at_event(world, event)

    def end(self, world: World) -> None:
        """Note how they are when the ranks have ended, and stop those that end with the trial.

        These are stopped first, so that no end of theirs is missed: a process closes its sockets
        before its keeper hears of its end.
        """
        for name, running in self.running.items():
            is_healthy = not running.why and running.is_healthy(within=BUSY_WITHIN)
            if name in self.own:
                with suppress(Exception):
                    running.stop()
            if running.why:
                continue
            for event in running.own_ends():
                how = {key: event.values.get(key) for key in ("code", "signal")}
                about: dict[str, JSON] = {
                    "service": name,
                    "start": running.start,
                    "process": event.rank,
                }
                # Its own time may be before the trial began, whose first event is another.
                world.note(SERVICE_ENDED, rank=None, **about, **how, ns=event.ns)
            world.note(SERVICE_LAST, service=name, start=running.start, healthy=is_healthy)

    def finish(self) -> dict[str, Capture]:
        """Stop those that end with the trial, and return what they left.

        Raises:
            Cancelled: the run was interrupted.
        """
        return {name: running.stop() for name, running in self.own.items()}


def hosts_of(service: Service, size: int) -> Hosts | None:
    """Return the test hosts of a service's processes; None where they are on this machine."""
    if service.hosts == 1 or size == 1:
        return None
    of = placed_on("round-robin", hosts=service.hosts, size=size)
    return Hosts(count=min(service.hosts, size), of=of)


def variable(name: str) -> str:
    """Return the variable by which ranks find a service."""
    return VARIABLE + name.upper().replace("-", "_")


def slot_of(scenario: Scenario, service: Service, arm: str, index: int) -> int:
    """Return which start of a service that its cell keeps serves a trial."""
    trials = scenario.trials
    planned = trials.control if arm == "control" else trials.candidate
    return min(index * service.starts // planned, service.starts - 1)


def keep_capture(results: ResultsFolder, prefix: str, capture: Capture) -> None:
    """Write the events and logs of a start of a service as evidence."""
    for process, log in sorted(capture.logs.items()):
        results.write(f"{prefix}-{process}.log", log)
    lines = "".join(event.line() + "\n" for event in capture.events)
    folder, _, name = prefix.rpartition("/")
    results.write(service_events(folder, name), lines.encode("ascii"))
