"""The trials of a run: which are made, where, in what order, and each of them in a world of its
own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from harness.checks.arrays import compares_arrays
from harness.history import History, longest_silence, window
from harness.reason import VoidCode
from harness.record.artefacts import room_of
from harness.record.facts import FarmFacts, MachinesFacts
from harness.run.arms.entry import slips
from harness.run.artefacts import Artefacts
from harness.run.farm.farm import Farm, opened
from harness.run.machines import over_machines
from harness.run.machines.over_machines import OverMachines
from harness.run.plan import RunPlan, TrialPlan
from harness.run.progress import MadeTrial, Progress
from harness.run.reference import References
from harness.run.script import keep_script, run_script
from harness.run.services import keep_capture
from harness.run.worlds import Interrupt, Worlds
from harness.scenario import Cell, ScenarioError, processes_of
from harness.stats import outcome
from harness.stats.outcome import EVENTS, Arm, trial_folder
from harness.stats.provenance import path_of
from harness.world.control import capacity
from harness.world.control.capture import Capture
from harness.world.control.hang import Hang
from harness.world.control.pool import PortLease, ServerPool
from harness.world.control.server_handle import ServerFailed


class TrialMaker:
    """Makes the trials of one scenario's cells.

    Attributes:
        worlds: makes their worlds on this machine.
        loaded: per arm, every list of loaded files that a rank gave, by its sha256.
    """

    def __init__(
        self,
        plan: TrialPlan,
        *,
        pool: ServerPool,
        interrupt: Interrupt,
        progress: Progress | None = None,
        hub_port: int | None = None,
        machines: OverMachines | None = None,
    ) -> None:
        """Make none yet.

        Args:
            plan: what the trials are made of.
            pool: their fork servers.
            interrupt: ends them.
            progress: hears of each.
            hub_port: of the hub, if the scenario has one.
            machines: the machines on which ranks are; None is this one.
        """
        scenario = plan.scenario
        self._scenario = scenario
        self._stated = (
            scenario.subject.control.must_fail if scenario.subject.control is not None else None
        )
        self._arms = plan.preparation.arms
        self.loaded: dict[str, dict[str, bytes]] = {arm: {} for arm in self._arms}
        # Trials end in several threads: whether a list is new is asked and decided by one at a
        # time.
        self._lists = threading.Lock()
        self._results = plan.results
        self._artefacts = Artefacts(
            plan.results, compares_arrays(scenario.checks), room_of(scenario)
        )
        self._references = References(scenario, self._artefacts, results=plan.results)
        self._interrupt = interrupt
        self._progress = progress or Progress()
        self._farm: Farm | None = None
        self._silences: dict[str, float] = {}
        # Cells of which a trial is watched for all of `within`, and those of which one was, and
        # hung.
        self._watching: set[str] = set()
        self._watched: set[str] = set()
        self._watches = plan.watches
        self.worlds = Worlds(
            plan,
            pool=pool,
            cancel=interrupt.descriptor,
            artefacts=self._artefacts,
            hub_port=hub_port,
            machines=machines,
        )

    def make(
        self, cells: Sequence[Cell], *, jobs: int, farm: Farm | None = None
    ) -> dict[str, dict[Arm, int]]:
        """Make every trial of the cells that can run here, `jobs` worlds at a time.

        Void ones are replaced as allowed.

        Args:
            cells: those that can run.
            jobs: worlds at a time.
            farm: makes the worlds elsewhere; None is here.

        Returns:
            Per cell id and arm, how many trials were made, void ones included.
        """
        self._farm = farm
        counts: dict[str, dict[Arm, int]] = {
            cell.id: {"candidate": 0, "control": 0} for cell in cells
        }
        # What used up replacements: a lost node does so once, however many trials it took along.
        voids: dict[tuple[str, Arm], set[tuple[str, int]]] = {}
        planned = self._plan(cells)
        running: set[Future[MadeTrial]] = set()
        executor = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="world")
        try:
            while True:
                while len(running) < jobs and (item := next(planned, None)) is not None:
                    if self._hangs(*item):
                        # How long the candidate is silent says for how long a hang has to stand
                        # still.
                        wait(running)
                    running.add(self._submit(executor, counts, *item))
                if not running:
                    self.worlds.finish()
                    self._artefacts.write()
                    return counts
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    trial = future.result()
                    if trial.watched:
                        self._watching.discard(trial.cell.id)
                        if trial.hung:
                            self._watched.add(trial.cell.id)
                    self._progress.ended(trial)
                    used = voids.setdefault((trial.cell.id, trial.arm), set())
                    cause = ("node", trial.lost) if trial.lost is not None else ("trial", len(used))
                    if trial.void and (
                        cause in used or len(used) < self._scenario.trials.max_voids
                    ):
                        used.add(cause)
                        running.add(self._submit(executor, counts, trial.cell, trial.arm))
        except BaseException:
            # Worlds in flight end their ranks first; nobody is left behind by leaving early.
            self._interrupt.set()
            raise
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
            self.worlds.close()
            self._references.close()
            self._artefacts.close()

    def _plan(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Arm]]:
        """Spread control trials among the candidate's, so that both arms run under one load."""
        for cell in cells:
            self._references.make(
                cell,
                launch=partial(self.worlds.launch, cell, index=0),
                run=partial(self.worlds.run_reference, cell),
                keep=self._keep_reference,
                says=self._progress.compares,
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
        return self._stated.applies(cell.values)

    def _hang(self, cell: Cell, arm: str, *, watched: bool) -> Hang | None:
        """Return what is to be proved of a trial: the candidate's trials of the cell say how long
        nothing may move.
        """
        if self._stated is None or self._stated.hang is None or not self._hangs(cell, arm):
            return None
        seconds = window(self._silences.get(cell.id, 0.0))
        stated = self._stated.hang
        return Hang(
            window=seconds,
            within=self._stated.within,
            spins=stated.spins,
            polls=stated.polls,
            watched=watched and self._watches,
            of_programs=self._scenario.subject.program is not None,
        )

    def _is_watched(self, cell: Cell, arm: str) -> bool:
        """Return whether the next trial has to stand still for all of `within`: until one of its
        cell did.

        Where every trial must hang one at a time is watched; else whichever hangs first may be any
        of them.
        """
        if not self._hangs(cell, arm) or self._stated is None or self._stated.hang is None:
            return False
        if self._stated.hang.spins:
            return True
        if cell.id in self._watched or (self._stated.share.every and cell.id in self._watching):
            return False
        self._watching.add(cell.id)
        return True

    def _submit(
        self, executor: ThreadPoolExecutor, counts: dict[str, dict[Arm, int]], cell: Cell, arm: Arm
    ) -> Future[MadeTrial]:
        index = counts[cell.id][arm]
        counts[cell.id][arm] += 1
        self._progress.began(cell)
        return executor.submit(self._make, cell, arm, index, watched=self._is_watched(cell, arm))

    def _make(self, cell: Cell, arm: Arm, index: int, *, watched: bool) -> MadeTrial:
        scenario = self._scenario
        reference = self._references.of(cell)
        hang = self._hang(cell, arm, watched=watched)
        if self._farm is not None:
            capture = self._farm.make(cell, arm, index, hang=hang)
        else:
            capture = self.worlds.make(cell, arm, index, hang=hang, reference=reference)
        self._references.demand_unchanged(cell)
        folder = trial_folder(cell.slug, arm, index)
        self._keep(folder, capture)
        self._keep_lists(arm, capture.loaded)
        history = History(
            capture.events,
            size=cell.ranks,
            reference=reference.history if reference is not None else None,
        )
        history = history.with_services(self._histories(cell, arm, capture))
        trial, _ = outcome.judge(scenario, cell, arm, index, history)
        ended = trial.outcome
        if arm == "candidate" and ended == "pass":
            self._silences[cell.id] = max(
                self._silences.get(cell.id, 0.0), longest_silence(history)
            )
        must_fail = (
            arm == "control" and self._stated is not None and self._stated.applies(cell.values)
        )
        return MadeTrial(
            cell=cell,
            arm=arm,
            void=ended == "void",
            as_expected=(ended == "fail") == must_fail,
            lost=(
                trial.node
                if trial.void is not None and trial.void.code == VoidCode.NODE_LOST
                else None
            ),
            watched=watched,
            hung=ended != "void"
            and bool(history.noted("world.still"))
            and not history.noted("world.unproved"),
        )

    def _histories(self, cell: Cell, arm: Arm, capture: Capture) -> dict[str, History]:
        """Return the events of a trial's own services, by name."""
        services = self._scenario.services_of(arm)
        return {
            name: History(served.events, size=processes_of(services[name], cell))
            for name, served in capture.services.items()
        }

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
        for name, served in capture.services.items():
            keep_capture(self._results, f"{folder}/{name}", served)

    def _keep_lists(self, arm: str, lists: Mapping[str, bytes]) -> None:
        """Most ranks of a run have the same loaded: each list is kept once."""
        with self._lists:
            for digest, listing in lists.items():
                if all(digest not in known for known in self.loaded.values()):
                    self._results.write(path_of(digest), listing)
                self.loaded[arm][digest] = listing


@dataclass(frozen=True, kw_only=True)
class MadeTrials:
    """The trials of a run, which lie in its folder now.

    Attributes:
        trials: how they were started, and what their ranks had loaded.
        counts: per cell id and arm, how many there are, void ones included.
        jobs: worlds at the same time.
        server_pids: of the fork servers on this machine.
        server_seconds: that these took to start.
        machines: where the ranks were; None for this machine.
        farm: where the trials were made; None for this machine.
    """

    trials: TrialMaker
    counts: Mapping[str, Mapping[Arm, int]]
    jobs: int
    server_pids: Sequence[int]
    server_seconds: float
    machines: MachinesFacts | None
    farm: FarmFacts | None

    def of(self, cell: Cell) -> dict[str, int]:
        """How many trials there are of a cell."""
        counts = self.counts.get(cell.id, {})
        return {arm: counts.get(arm, 0) for arm in ("candidate", "control")}


def make(plan: RunPlan, *, interrupt: Interrupt, progress: Progress) -> MadeTrials:
    """Make every trial of a run.

    Args:
        plan: what is made, of what and where.
        interrupt: ends it.
        progress: hears how far it is.

    Raises:
        ScenarioError: the entry cannot be called as the scenario says.
        Cancelled: the run was interrupted.
        FarmError, NoCluster, ServerFailed, NoReference: it could not be made.
    """
    scenario = plan.scenario
    runnable = plan.runnable
    jobs = plan.jobs
    nodes = plan.settings.nodes
    cancel = interrupt.descriptor
    keep_script(plan)
    with ExitStack() as stack:
        pool = stack.enter_context(ServerPool(cancel=cancel))
        ports = stack.enter_context(PortLease())
        machines = stack.enter_context(
            over_machines.reached(plan.settings.hostfile, needs=scenario.needs, cancel=cancel)
        )
        trials = TrialMaker(
            plan.trials,
            pool=pool,
            interrupt=interrupt,
            progress=progress,
            hub_port=ports.take(1)[0] if scenario.hub is not None else None,
            machines=machines,
        )
        farm: Farm | None = None
        if runnable:
            if nodes is None:
                jobs = _borne(jobs, runnable, progress)
                planned = plan.counts()
                lanes = min(jobs, len(runnable) * (planned.candidate + planned.control))
                trials.worlds.start_servers(lanes=lanes)
            if wrong := slips(
                plan.loaded, plan.ingredients.arms, runnable, look=trials.worlds.look
            ):
                raise ScenarioError(wrong)
            if nodes is not None:
                farm = stack.enter_context(
                    opened(plan, nodes, interrupt=interrupt, worlds=trials.worlds)
                )
                farm.prepare(says=progress.says)
                jobs = farm.lanes
        trials_made = MadeTrials(
            trials=trials,
            counts=trials.make(runnable, jobs=jobs, farm=farm),
            jobs=jobs,
            server_pids=pool.pids,
            server_seconds=pool.seconds,
            machines=machines.facts() if machines is not None else None,
            farm=farm.facts() if farm is not None else None,
        )
        run_script(plan, pool, cancel=cancel, progress=progress)
        # Asked before the fleet is closed: afterwards no machine answers.
        if machines is not None and (changed := machines.fleet.changed()):
            what = "its code or inputs changed during the run, or it did not answer at the end"
            raise ServerFailed(
                f"machine {', '.join(changed)}: {what}. Nothing was signed; run it again"
            )
    for called, why in machines.fleet.unwritten.items() if machines is not None else ():
        progress.says(
            f"machine {called} could not write its journal: {why}. Free some space in its cache;"
            " if the machine is lost, its events are lost too"
        )
    for left in pool.left:
        progress.says(f"could not remove files that ranks left in their home folder: {left}")
    return trials_made


def _borne(jobs: int, runnable: Sequence[Cell], progress: Progress) -> int:
    """How many worlds side by side, of those that are asked for, the system's limits bear."""
    largest = max(cell.ranks for cell in runnable)
    while jobs > 1 and (lacking := capacity.shortage(largest, worlds=jobs)):
        progress.says(f"{jobs} worlds at a time are too many for this machine: {lacking}")
        jobs -= 1
    return jobs
