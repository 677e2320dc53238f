"""The worlds of a run's trials on this machine: what each is started with, each of them made, and
the interrupt that stops them all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from harness.backends import KINDS as BACKENDS
from harness.events import Event
from harness.faults import of_arm
from harness.faults.strikes import Strikes
from harness.history import History
from harness.rank.arm import LOOKED
from harness.record.facts import HOME_INPUT
from harness.run import hub
from harness.run.arms import syntax
from harness.run.arms.syntax import SubjectEntry, preload
from harness.run.artefacts import Artefacts, compare_ledgers, cut_ledgers
from harness.run.machines.over_machines import OverMachines
from harness.run.plan import TrialPlan
from harness.run.reference import INPUT, CellReference
from harness.run.services import ServiceMaterial, Services, TrialServices
from harness.scenario import Cell, Scenario, derive_seed
from harness.stats.measured import BEGIN, END, OF_THE_HUB
from harness.world.below.preload import PACKAGES
from harness.world.control.capture import Capture
from harness.world.control.hang import Hang
from harness.world.control.launch import (
    Launch,
    PlaceLaunch,
    ReportLaunch,
    StartLaunch,
    SubjectLaunch,
    WatchLaunch,
)
from harness.world.control.pool import ServerPool, is_linux, prepare
from harness.world.control.rank_environment import is_import_time
from harness.world.control.server_handle import ServerFailed
from harness.world.control.world import World
from harness.world.hosts.host import Hosts
from harness.world.machines.machine_server import MachinePool


class Interrupt:
    """A descriptor that becomes readable when the run is to stop, watched by every world."""

    def __init__(self) -> None:
        # A pipe, and not an event: every world waits for it among its other descriptors, and a
        # signal handler may write into it, where taking a lock could deadlock with the code that it
        # broke into.
        self.descriptor, self._alarm = os.pipe()

    def set(self) -> None:
        """Stop. Never taken back; safe from a signal handler."""
        with contextlib.suppress(OSError):
            os.write(self._alarm, b"x")

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self.descriptor)
        os.close(self._alarm)


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Turn Ctrl-C, SIGTERM and SIGHUP into an interrupt that worlds see, and into KeyboardInterrupt
    here.
    """
    interrupt = Interrupt()

    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        interrupt.set()
        # Only the first one breaks in: the second must not break into the cleaning up.
        if not stopping.is_set():
            stopping.set()
            raise KeyboardInterrupt

    # Python sets signal handlers in the main thread alone; in another one whoever started it
    # interrupts.
    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if main else ()
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        interrupt.close()


# Reading what a process holds walks its whole page table: so many trials of each arm give a median
# and its interval.
PROBED = 12
# What takes longer to import is not looked at: the trials will tell.
LOOK_WITHIN = 20.0


def can_be_warm(scenario: Scenario, *, packages: Iterable[frozenset[str]]) -> bool:
    """Return whether ranks start warm here, unless a server of an arm's own environment turns out
    not to fork safely.

    `packages` are, for each arm, the modules and packages at the top of its code.
    """
    changed = {name for fault in scenario.faults for name in fault.variables}
    preloaded = PACKAGES | {name.partition(".")[0] for name in scenario.world.preload}
    return (
        scenario.subject.program is None
        and scenario.world.start == "warm"
        and is_linux()
        # What a warm server has loaded cannot be loaded again from an arm that brings its own.
        and all(names.isdisjoint(preloaded) for names in packages)
        # What is read at import cannot be changed in a forked copy of a server that has imported
        # it.
        and not any(map(is_import_time, changed))
        and not hub.for_certain_ranks(scenario.faults)
    )


def _backends(scenario: Scenario) -> set[str]:
    """Those that ranks and references join."""
    reference = scenario.subject.reference
    return {*scenario.matrix.backend, *([reference.backend] if reference is not None else [])}


class Worlds:
    """Makes the worlds of one scenario's trials, one for each call.

    Safe to call from several threads.
    """

    def __init__(
        self,
        plan: TrialPlan,
        *,
        pool: ServerPool,
        cancel: int,
        artefacts: Artefacts,
        hub_port: int | None = None,
        machines: OverMachines | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            plan: what the trials are made of.
            pool: their fork servers.
            cancel: a descriptor that becomes readable when they are to stop.
            artefacts: takes what ranks keep.
            hub_port: of the hub, if the scenario has one.
            machines: the machines on which ranks are; None is this one.
        """
        scenario = plan.scenario
        self._plan = plan
        self._scenario = scenario
        self._pool = pool
        self._machines = machines
        self._cancel = cancel
        self._artefacts = artefacts
        self._hub_port = hub_port
        self._arms = plan.preparation.arms
        self._environments = plan.preparation.environments
        inputs = plan.preparation.inputs
        home = inputs.get(HOME_INPUT)
        self._home = (
            {name: home.path / name for name in home.facts.files} if home is not None else {}
        )
        self._shared_home = scenario.world.home_is == "shared"
        self._inputs = {
            name: str(resolved.path) for name, resolved in inputs.items() if name != HOME_INPUT
        }
        self._served = inputs[scenario.hub.serve].path if scenario.hub is not None else None
        # What ranks find the hub by; what the scenario says itself goes before it.
        self.env = {
            **(hub.environment(hub_port) if hub_port is not None else {}),
            **scenario.world.env,
        }
        # Only what is asked for: a gate at both ends of the subject costs every rank a moment. On a
        # node nothing is measured: its worlds are beside those of others.
        measured = any(row.probe and row.probe not in OF_THE_HUB for row in scenario.measure)
        self._probes = (BEGIN, END) if measured and plan.node is None else ()
        self._services = Services(
            ServiceMaterial(
                scenario=scenario,
                arms=self._arms,
                environments=self._environments,
                inputs=self._inputs,
                pool=pool,
                cancel=cancel,
                results=plan.results,
            )
        )
        self._warm = can_be_warm(scenario, packages=[arm.packages for arm in self._arms.values()])
        self._preload = preload(
            [arm.folder for arm in self._arms.values()],
            packages=frozenset().union(*(arm.packages for arm in self._arms.values())),
            backends=[BACKENDS[name] for name in _backends(scenario)],
            faults=scenario.faults,
            environments=bool(self._environments),
            asked=scenario.world.preload,
        )

    @property
    def start(self) -> str:
        """How ranks are started here.

        Not `warm` where a fork is not safe, where it would hide a fault, or where an arm brings
        what is preloaded.
        """
        return "warm" if self._warm else "fresh"

    def start_servers(self, *, lanes: int) -> None:
        """Start the fork servers of all arms for each lane, before the first trial, so that no
        trial's time holds it.

        Where a server of an arm's own environment cannot fork safely (a package of it starts a
        thread when imported), every rank of the run starts fresh: what starts otherwise could not
        be compared.

        Raises:
            ServerFailed: a server does not start.
            Cancelled: the run was interrupted.
        """
        for arm in self._arms:
            environment = self._environments.get(arm)
            python = environment.python if environment is not None else None
            try:
                prepare(
                    self._pool if self._machines is None else self._machines.fleet,
                    lanes,
                    warm=self._warm,
                    env=self.env,
                    python=python,
                    shared_home=self._shared_home,
                    preload=self._preload,
                )
            except ServerFailed:
                if python is None or not self._warm:
                    raise
                self._warm = False
                self.start_servers(lanes=lanes)
                return

    def look(self, arm: str) -> SubjectEntry | None:
        """Import an arm's entry where its trials would, in a world of one that joins no group, and
        say what it is.

        None where that cannot be told: the import raises, hangs or ends the rank, which is the
        trial's affair.
        """
        scenario = self._scenario
        environment = self._environments.get(arm)
        order = Launch(
            about={"scenario": scenario.id, "looks": True},
            size=1,
            backend="none",
            subject=SubjectLaunch(
                entry=scenario.subject.function,
                folder=self._arms[arm].folder,
                arguments={},
                inputs=self._inputs,
                seeds=[0],
                env=self.env,
            ),
            start=StartLaunch(
                warm=self._warm,
                python=environment.python if environment is not None else None,
                preload=self._preload,
            ),
            watch=WatchLaunch(
                deadline=min(LOOK_WITHIN, scenario.world.deadline), after_failure=0.0
            ),
            reports=ReportLaunch(looks=True),
        )
        capture = World(order, self._pool, cancel=self._cancel).run()
        said = History(capture.events, size=1).said(0, LOOKED)
        return syntax.of_values(said[0].event.values) if said else None

    def launch(self, cell: Cell, arm: str, index: int, *, hang: Hang | None = None) -> Launch:
        """Return what a trial is started with, before its faults and its reference."""
        plan = self._plan
        scenario = plan.scenario
        staged = self._arms[arm]
        environment = self._environments.get(arm)
        # What is compared with one run of a must be asked of b by the same seeds.
        sown = index if scenario.subject.compare is None else 0
        seed = derive_seed(scenario.seed, scenario.id, cell.id, index)
        placed = scenario.world.hosts_of(cell.ranks)
        return Launch(
            about={
                **({"node": plan.node} if plan.node is not None else {}),
                "scenario": scenario.id,
                "cell": cell.id,
                "arm": arm,
                "trial": index,
                "seed": str(seed),
                "start": self.start,
                "host": plan.preparation.machine.host,
                "recipe": plan.recipes[arm],
            },
            size=cell.ranks,
            backend=cell.backend,
            collective_timeout=scenario.world.collective_timeout,
            subject=SubjectLaunch(
                entry=scenario.subject.function,
                folder=staged.folder,
                arguments={**staged.arguments, **cell.axes},
                inputs=self._inputs,
                seeds=[
                    derive_seed(scenario.seed, scenario.id, cell.id, sown, rank)
                    for rank in range(cell.ranks)
                ],
                env=self.env,
                program=tuple(scenario.subject.program or ()),
            ),
            start=StartLaunch(
                warm=self._warm,
                python=environment.python if environment is not None else None,
                shared_home=self._shared_home,
                home=self._home,
                preload=self._preload,
            ),
            watch=WatchLaunch(
                deadline=scenario.world.deadline,
                after_failure=scenario.world.after_failure,
                gates=self._probes if index < PROBED else (),
                probes=self._probes if index < PROBED else (),
                hang=hang,
            ),
            reports=ReportLaunch(
                distributions=environment.named if environment is not None else (),
                declared=tuple(sorted(plan.declared.get(arm, ()))),
                differing=tuple(sorted(plan.differing)),
                tells_environment=any(
                    check.properties.needs_the_environment for check in scenario.checks
                ),
            ),
            places=PlaceLaunch(
                hosts=Hosts(count=scenario.world.hosts, of=placed) if placed is not None else None,
                machines=self._machines.placed(cell) if self._machines is not None else None,
            ),
        )

    def run_reference(
        self, cell: Cell, launch: Launch, on_left: Callable[[World, Path], None]
    ) -> Capture:
        """Run a world of a reference, with what is to be done with what its ranks left."""
        # What holds the whole model has one process of each service; what is compared rank for
        # rank has what the trials have.
        is_whole = self._scenario.subject.compare is None
        arm = "candidate" if is_whole else "reference"
        services = self._services.serve(cell, arm, 0, for_reference=True, is_whole=is_whole)
        launch = services.prepare(launch)
        world = World(
            launch,
            self._pool_of(launch),
            cancel=self._cancel,
            on_begin=services.begin,
            on_left=on_left,
            on_end=services.end,
        )
        return _served(world, services)

    def _pool_of(self, launch: Launch) -> ServerPool | MachinePool:
        """Whose servers fork the ranks: what is one process for its own is on this machine."""
        return (
            self._machines.fleet
            if self._machines is not None and launch.places.machines is not None
            else self._pool
        )

    def _observed(self, launch: Launch, reference: CellReference | None) -> Launch:
        """Return a trial's launch with what its ranks read of the reference and report of their
        calls.
        """
        if reference is not None and reference.folder is not None:
            inputs = {**launch.subject.inputs, INPUT: str(reference.folder)}
            launch = replace(launch, subject=replace(launch.subject, inputs=inputs))
        reports = replace(
            launch.reports,
            observe="collectives" in self._scenario.observe,
            digests=self._scenario.digests,
        )
        return replace(launch, reports=reports)

    def make(
        self,
        cell: Cell,
        arm: str,
        index: int,
        *,
        hang: Hang | None = None,
        reference: CellReference | None = None,
    ) -> Capture:
        """Make the world of one trial, and return what it left.

        Args:
            cell: of the scenario.
            arm: `candidate` or `control`.
            index: number of the trial within the arm.
            hang: what is to be proved of it.
            reference: what its ranks are compared with.

        Raises:
            Cancelled: the run was interrupted.
        """
        scenario = self._scenario
        launch = self._observed(self.launch(cell, arm, index, hang=hang), reference)
        faults = of_arm(scenario.faults, arm)
        seed = derive_seed(scenario.seed, scenario.id, cell.id, index)
        of_ranks = [fault for fault in faults if fault.service is None]
        strikes = Strikes(of_ranks, size=cell.ranks, seed=seed)
        launch = strikes.prepare(launch)
        of_services = [fault for fault in faults if fault.service is not None]
        for fault in of_services:
            launch = launch.gated(at=fault.event) if fault.event is not None else launch
        served = None
        if self._served is not None and self._hub_port is not None:
            served = hub.WorldHub(
                self._served, port=self._hub_port, faults=faults, size=cell.ranks, seed=seed
            )
            launch = served.prepare(launch)

        services = self._services.serve(cell, arm, index, faults=of_services, seed=seed)
        launch = services.prepare(launch)

        def begin(world: World) -> None:
            services.begin(world)
            strikes.begin(world)
            if served is not None:
                served.begin(world)

        def hosts(world: World, descriptors: list[int]) -> None:
            if served is not None:
                served.on_hosts(world, descriptors)

        def left(world: World, scratch: Path) -> None:
            if launch.reports.observe:
                cut_ledgers(scratch, size=cell.ranks)
            kept = self._artefacts.take(world, scratch, size=cell.ranks)
            alone = reference is None or reference.history.size == 1
            expected = reference.kept if reference is not None else {}
            self._artefacts.compare(world, kept, size=cell.ranks, reference=expected, alone=alone)
            runs = reference.history if reference is not None else None
            if arm == "candidate":
                self._artefacts.prick(world, kept, size=cell.ranks, reference=expected, runs=runs)
            self._artefacts.account(
                world, kept, checks=scenario.checks, size=cell.ranks, reference=expected, runs=runs
            )
            if launch.reports.observe:
                compare_ledgers(world, kept, size=cell.ranks, checks=scenario.checks)

        def at_gate(world: World, event: Event) -> None:
            strikes.at_gate(world, event)
            services.at_event(world, event)

        def end(world: World) -> None:
            strikes.end(world)
            services.end(world)
            if served is not None:
                served.end(world)

        world = World(
            launch,
            self._pool_of(launch),
            cancel=self._cancel,
            on_begin=begin,
            on_hosts=hosts,
            on_gate=at_gate,
            on_left=left,
            on_end=end,
            keeps_waiting=served.keeps_waiting if served is not None else None,
        )
        return _served(world, services)

    def close(self) -> None:
        """Stop the services that cells keep."""
        self._services.close()

    def finish(self) -> None:
        """Stop them, and keep what they left as evidence.

        Raises:
            Cancelled: the run was interrupted.
        """
        self._services.finish()


def _served(world: World, services: TrialServices) -> Capture:
    """Run a world beside its services; those of the trial end with it, whatever happens."""
    try:
        capture = world.run()
    except BaseException:
        with contextlib.suppress(Exception):
            services.finish()
        raise
    return replace(capture, services=services.finish())
