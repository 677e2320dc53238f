"""The trials of a run: which are to be made, in what order, and each of them made in a world of its own."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from harness.backends import KINDS as BACKENDS
from harness.checks.arrays import compares_arrays
from harness.faults import of_arm
from harness.faults.strikes import Strikes
from harness.history import History, longest_silence, window
from harness.rank.look import LOOKED
from harness.record.artefacts import room_of
from harness.record.facts import HOME_INPUT
from harness.record.results import ResultsFolder
from harness.run import hub, ledgers
from harness.run.arms import signature
from harness.run.arms.imports import preload
from harness.run.arms.signature import Entry
from harness.run.artefacts import Artefacts
from harness.run.interrupt import Interrupt
from harness.run.over_machines import OverMachines
from harness.run.preparation import Preparation
from harness.run.progress import MadeTrial, Progress
from harness.run.reference import INPUT, References
from harness.scenario import Cell, Scenario, derive_seed
from harness.stats import outcome
from harness.stats.measured import BEGIN, END, OF_THE_HUB
from harness.stats.outcome import EVENTS, Arm, trial_folder
from harness.stats.provenance import path_of
from harness.world.capture import Capture
from harness.world.environment import is_import_time
from harness.world.fork_server import ServerFailed
from harness.world.hang import Hang
from harness.world.hosts.host import Hosts
from harness.world.machines.fleet import Fleet
from harness.world.pool import ServerPool, is_linux
from harness.world.preload import PACKAGES
from harness.world.world import Launch, World

# Reading what a process holds walks its whole page table: so many trials of each arm give a median and its interval.
PROBED = 12
# What takes longer to import is not looked at: the trials will tell.
LOOK_WITHIN = 20.0


def can_be_warm(scenario: Scenario, *, packages: Iterable[frozenset[str]]) -> bool:
    """Whether ranks start warm here, unless a server of an arm's own environment turns out not to fork safely.

    `packages` are, for each arm, the modules and packages at the top of its code.
    """
    changed = {name for fault in scenario.faults for name in fault.variables}
    return (
        scenario.subject.program is None
        and scenario.world.start == "warm"
        and is_linux()
        # What a warm server has loaded cannot be loaded again from an arm that brings its own.
        and all(names.isdisjoint(PACKAGES) for names in packages)
        # What is read at import cannot be changed in a forked copy of a server that has imported it.
        and not any(map(is_import_time, changed))
        and not hub.for_certain_ranks(scenario.faults)
    )


def _backends(scenario: Scenario) -> set[str]:
    """Those that ranks and references join."""
    own = scenario.subject.reference
    return {*scenario.matrix.backend, *([own.backend] if own is not None else [])}


class Trials:
    """Makes the trials of one scenario's cells."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        preparation: Preparation,
        results: ResultsFolder,
        pool: ServerPool,
        interrupt: Interrupt,
        recipes: Mapping[str, str],
        progress: Progress | None = None,
        port: int | None = None,
        declared: Mapping[str, Collection[str]] | None = None,
        differing: Collection[str] = (),
        over: OverMachines | None = None,
    ) -> None:
        self._scenario = scenario
        self._stated = scenario.subject.control.must_fail if scenario.subject.control is not None else None
        arms, inputs = preparation.arms, preparation.inputs
        home = inputs.get(HOME_INPUT)
        self._home = {name: home.path / name for name in home.facts.files} if home is not None else {}
        self._shared_home = scenario.world.home_is == "shared"
        self._arms = arms
        self._environments = preparation.environments
        self._inputs = {name: str(found.path) for name, found in inputs.items() if name != HOME_INPUT}
        self._declared = declared or {}
        self._differing = tuple(sorted(differing))
        # Per arm, every list of loaded files that a rank gave, by its sha256.
        self.loaded: dict[str, dict[str, bytes]] = {arm: {} for arm in arms}
        self._lists = threading.Lock()
        self._results = results
        self._artefacts = Artefacts(results, compares_arrays(scenario.checks), room_of(scenario))
        self._references = References(scenario, self._artefacts, results=results)
        self._pool = pool
        self._over = over
        self._interrupt = interrupt
        self._progress = progress or Progress()
        self._host = preparation.machine.host
        self._recipes = recipes
        self._port = port
        self._served = inputs[scenario.hub.serve].path if scenario.hub is not None else None
        # What ranks find the hub by; what the scenario says itself goes before it.
        self.env = {**(hub.environment(port) if port is not None else {}), **scenario.world.env}
        # Only what is asked for: a gate at both ends of the subject costs every rank a moment.
        self._probes = (
            (BEGIN, END) if any(row.probe and row.probe not in OF_THE_HUB for row in scenario.measure) else ()
        )
        self._silences: dict[str, float] = {}
        self._warm = can_be_warm(scenario, packages=[arm.packages for arm in arms.values()])
        self._preload = preload(
            [arm.folder for arm in arms.values()],
            own=frozenset().union(*(arm.packages for arm in arms.values())),
            backends=[BACKENDS[name] for name in _backends(scenario)],
            faults=scenario.faults,
            environments=bool(self._environments),
        )

    @property
    def start(self) -> str:
        """How ranks are started here.

        Not `warm` where a fork is not safe, where it would hide a fault, or where an arm brings what is preloaded.
        """
        return "warm" if self._warm else "fresh"

    def start_servers(self, *, lanes: int) -> None:
        """Start the fork servers of all arms for each lane, before the first trial, so that no trial's time holds it.

        Where a server of an arm's own environment cannot fork safely (a package of it starts a thread when imported),
        every rank of the run starts fresh: what starts otherwise could not be compared.

        Raises:
            ServerFailed: a server does not start.
            Cancelled: the run was interrupted.
        """
        for arm in self._arms:
            made = self._environments.get(arm)
            python = made.python if made is not None else None
            try:
                (self._pool if self._over is None else self._over.fleet).prepare(
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

    def look(self, arm: str) -> Entry | None:
        """Import an arm's entry where its trials would, in a world of one that joins no group, and say what it is.

        None where that cannot be told: the import raises, hangs or ends the rank, which is the trial's affair.
        """
        scenario, own = self._scenario, self._environments.get(arm)
        order = Launch(
            about={"scenario": scenario.id, "looks": True},
            size=1,
            backend="none",
            warm=self._warm,
            entry=scenario.subject.function,
            folder=self._arms[arm].folder,
            arguments={},
            inputs=self._inputs,
            seeds=[0],
            env=self.env,
            deadline=min(LOOK_WITHIN, scenario.world.deadline),
            after_failure=0.0,
            python=own.python if own is not None else None,
            looks=True,
            preload=self._preload,
        )
        capture = World(order, self._pool, cancel=self._interrupt.descriptor).run()
        said = History(capture.events, size=1).said(0, LOOKED)
        return signature.of_values(said[0].event.values) if said else None

    def make(self, cells: Sequence[Cell], *, jobs: int) -> dict[str, dict[Arm, int]]:
        """Make every trial of the cells that can run here, `jobs` worlds at a time; void ones are replaced as allowed.

        Returns:
            Per cell id and arm, how many trials were made, void ones included.
        """
        counts: dict[str, dict[Arm, int]] = {cell.id: {"candidate": 0, "control": 0} for cell in cells}
        voids: dict[tuple[str, Arm], int] = {}
        planned = self._plan(cells)
        running: set[Future[MadeTrial]] = set()
        executor = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="world")
        try:
            while True:
                while len(running) < jobs and (item := next(planned, None)) is not None:
                    if self._hangs(*item):
                        # How long the candidate is silent says for how long a hang has to stand still.
                        wait(running)
                    running.add(self._submit(executor, counts, *item))
                if not running:
                    self._artefacts.write()
                    return counts
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    made = future.result()
                    self._progress.ended(made)
                    key = (made.cell.id, made.arm)
                    if made.void and voids.get(key, 0) < self._scenario.trials.max_voids:
                        voids[key] = voids.get(key, 0) + 1
                        running.add(self._submit(executor, counts, made.cell, made.arm))
        except BaseException:
            # Worlds in flight end their ranks first; nobody is left behind by leaving early.
            self._interrupt.set()
            raise
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
            self._references.close()
            self._artefacts.close()

    def _plan(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Arm]]:
        """Control trials are spread among the candidate's, so that both arms meet the same weather."""
        for cell in cells:
            self._references.make(
                cell,
                launch=lambda arm, cell=cell: self._launch(cell, arm, 0),  # type: ignore[misc]
                start=lambda launch, on_left: World(
                    launch, self._pool_of(launch), cancel=self._interrupt.descriptor, on_left=on_left
                ),
                keep=self._keep_reference,
            )
            candidates = self._scenario.trials.candidate
            controls = self._scenario.trials.control if "control" in self._arms else 0
            total = candidates + controls
            if self._hangs(cell, "control"):
                for position in range(total):
                    yield cell, "candidate" if position < candidates else "control"
                continue
            for position in range(total):
                is_control = (position + 1) * controls // total > position * controls // total
                yield cell, "control" if is_control else "candidate"

    def _hangs(self, cell: Cell, arm: str) -> bool:
        if arm != "control" or self._stated is None or self._stated.hang is None:
            return False
        return self._stated.applies(cell.ranks, cell.backend, cell.axes)

    def _hang(self, cell: Cell, arm: str) -> Hang | None:
        """What is to be proved of a trial: the candidate's trials of the cell say how long nothing may move."""
        if self._stated is None or self._stated.hang is None or not self._hangs(cell, arm):
            return None
        seconds = window(self._silences.get(cell.id, 0.0))
        return Hang(window=seconds, within=self._stated.within, spins=self._stated.hang.spins)

    def _submit(
        self, executor: ThreadPoolExecutor, counts: dict[str, dict[Arm, int]], cell: Cell, arm: Arm
    ) -> Future[MadeTrial]:
        index = counts[cell.id][arm]
        counts[cell.id][arm] += 1
        self._progress.began(cell)
        return executor.submit(self._make, cell, arm, index)

    def _launch(self, cell: Cell, arm: str, index: int) -> Launch:
        scenario, staged, own = self._scenario, self._arms[arm], self._environments.get(arm)
        # What is compared with one run of a must be asked of b by the same seeds.
        sown = index if scenario.subject.compare is None else 0
        seed = derive_seed(scenario.seed, scenario.id, cell.id, index)
        placed = scenario.world.hosts_of(cell.ranks)
        return Launch(
            about={
                "scenario": scenario.id,
                "cell": cell.id,
                "arm": arm,
                "trial": index,
                "seed": str(seed),
                "start": self.start,
                "host": self._host,
                "recipe": self._recipes[arm],
            },
            size=cell.ranks,
            backend=cell.backend,
            warm=self._warm,
            entry=scenario.subject.function,
            folder=staged.folder,
            arguments={**staged.arguments, **cell.axes},
            inputs=self._inputs,
            seeds=[derive_seed(scenario.seed, scenario.id, cell.id, sown, rank) for rank in range(cell.ranks)],
            env=self.env,
            deadline=scenario.world.deadline,
            after_failure=scenario.world.after_failure,
            gates=self._probes if index < PROBED else (),
            probes=self._probes if index < PROBED else (),
            program=tuple(scenario.subject.program or ()),
            python=own.python if own is not None else None,
            distributions=own.named if own is not None else (),
            hang=self._hang(cell, arm),
            shared_home=self._shared_home,
            home=self._home,
            preload=self._preload,
            declared=tuple(sorted(self._declared.get(arm, ()))),
            differing=self._differing,
            hosts=Hosts(count=scenario.world.hosts, of=placed) if placed is not None else None,
            machines=self._over.placed(cell.ranks) if self._over is not None else None,
            tells_environment=any(check.properties.needs_the_environment for check in scenario.checks),
            collective_timeout=scenario.world.collective_timeout,
        )

    def _pool_of(self, launch: Launch) -> ServerPool | Fleet:
        """Whose servers fork the ranks: what is one process for its own is on this machine."""
        return self._over.fleet if self._over is not None and launch.machines is not None else self._pool

    def _make(self, cell: Cell, arm: Arm, index: int) -> MadeTrial:
        scenario, made = self._scenario, self._references.of(cell)
        launch = self._launch(cell, arm, index)
        if made is not None and made.folder is not None:
            launch = replace(launch, inputs={**launch.inputs, INPUT: str(made.folder)})
        launch = replace(launch, observe="collectives" in scenario.observe, digests=scenario.digests)
        faults = of_arm(scenario.faults, arm)
        seed = derive_seed(scenario.seed, scenario.id, cell.id, index)
        strikes = Strikes(faults, size=cell.ranks, seed=seed)
        launch = strikes.prepare(launch)
        served = None
        if self._served is not None and self._port is not None:
            served = hub.WorldHub(self._served, port=self._port, faults=faults, size=cell.ranks, seed=seed)
            launch = served.prepare(launch)

        def begin(world: World) -> None:
            strikes.begin(world)
            if served is not None:
                served.begin(world)

        def hosts(world: World, descriptors: list[int]) -> None:
            if served is not None:
                served.on_hosts(world, descriptors)

        def left(world: World, scratch: Path) -> None:
            if launch.observe:
                ledgers.cut(scratch, size=cell.ranks)
            kept, alone = self._artefacts.take(world, scratch, size=cell.ranks), made is None or made.history.size == 1
            expected = made.kept if made is not None else {}
            self._artefacts.compare(world, kept, size=cell.ranks, reference=expected, alone=alone)
            runs = made.history if made is not None else None
            self._artefacts.account(world, kept, checks=scenario.checks, size=cell.ranks, reference=expected, runs=runs)
            if launch.observe:
                ledgers.compare(world, kept, size=cell.ranks, checks=scenario.checks)

        def end(world: World) -> None:
            strikes.end(world)
            if served is not None:
                served.end(world)

        world = World(
            launch,
            self._pool_of(launch),
            cancel=self._interrupt.descriptor,
            on_begin=begin,
            on_hosts=hosts,
            on_gate=strikes.at_gate,
            on_left=left,
            on_end=end,
            keeps_waiting=served.keeps_waiting if served is not None else None,
        )
        capture = world.run()
        self._references.demand_unchanged(cell)
        folder = trial_folder(cell.slug, arm, index)
        self._keep(folder, capture)
        self._keep_lists(arm, capture.loaded)
        history = History(capture.events, size=cell.ranks, reference=made.history if made is not None else None)
        trial, _ = outcome.judge(scenario, cell, arm, index, history)
        ended = trial.outcome
        if arm == "candidate" and ended == "pass":
            self._silences[cell.id] = max(self._silences.get(cell.id, 0.0), longest_silence(history))
        must_fail = (
            arm == "control" and self._stated is not None and self._stated.applies(cell.ranks, cell.backend, cell.axes)
        )
        return MadeTrial(cell=cell, arm=arm, void=ended == "void", as_expected=(ended == "fail") == must_fail)

    def _keep_reference(self, arm: str, folder: str, capture: Capture) -> None:
        self._keep(folder, capture)
        self._keep_lists(arm, capture.loaded)

    def _keep(self, folder: str, capture: Capture) -> None:
        lines = "".join(event.line() + "\n" for event in capture.events)
        for rank, log in sorted(capture.logs.items()):
            self._results.write(f"{folder}/rank-{rank}.log", log)
        for rank, stacks in sorted(capture.stacks.items()):
            self._results.write(f"{folder}/rank-{rank}.stacks.txt", stacks)
        self._results.write(f"{folder}/{EVENTS}", lines.encode("ascii"))

    def _keep_lists(self, arm: str, lists: Mapping[str, bytes]) -> None:
        """Most ranks of a run have the same loaded: each list is kept once."""
        with self._lists:
            for digest, listing in lists.items():
                if all(digest not in known for known in self.loaded.values()):
                    self._results.write(path_of(digest), listing)
                self.loaded[arm][digest] = listing
