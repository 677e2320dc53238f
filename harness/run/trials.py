"""The trials of a run: which are to be made, in what order, and each of them made in a world of its own."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from harness.checks.arrays import compares_arrays
from harness.history import History, longest_silence, window
from harness.reason import VoidCode
from harness.record.artefacts import room_of
from harness.record.results import ResultsFolder
from harness.run.artefacts import Artefacts
from harness.run.farm.farm import Farm
from harness.run.interrupt import Interrupt
from harness.run.over_machines import OverMachines
from harness.run.preparation import Preparation
from harness.run.progress import MadeTrial, Progress
from harness.run.reference import References
from harness.run.worlds import Worlds
from harness.scenario import Cell, Scenario
from harness.stats import outcome
from harness.stats.outcome import EVENTS, Arm, trial_folder
from harness.stats.provenance import path_of
from harness.world.control.capture import Capture
from harness.world.control.hang import Hang
from harness.world.control.pool import ServerPool


class Trials:
    """Makes the trials of one scenario's cells.

    Attributes:
        worlds: makes their worlds on this machine.
        loaded: per arm, every list of loaded files that a rank gave, by its sha256.
    """

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
        watches: bool = True,
    ) -> None:
        """Make none yet; the arguments are those of `Worlds`. Without `watches`, hangs are proved by a window alone."""
        self._scenario = scenario
        self._stated = scenario.subject.control.must_fail if scenario.subject.control is not None else None
        self._arms = preparation.arms
        self.loaded: dict[str, dict[str, bytes]] = {arm: {} for arm in self._arms}
        self._lists = threading.Lock()
        self._results = results
        self._artefacts = Artefacts(results, compares_arrays(scenario.checks), room_of(scenario))
        self._references = References(scenario, self._artefacts, results=results)
        self._interrupt = interrupt
        self._progress = progress or Progress()
        self._farm: Farm | None = None
        self._silences: dict[str, float] = {}
        # Cells of which a trial is watched for all of `within`, and those of which one was, and hung.
        self._watching: set[str] = set()
        self._watched: set[str] = set()
        self._watches = watches
        self.worlds = Worlds(
            scenario,
            preparation=preparation,
            pool=pool,
            cancel=interrupt.descriptor,
            recipes=recipes,
            artefacts=self._artefacts,
            port=port,
            declared=declared,
            differing=differing,
            over=over,
        )

    def make(self, cells: Sequence[Cell], *, jobs: int, farm: Farm | None = None) -> dict[str, dict[Arm, int]]:
        """Make every trial of the cells that can run here, `jobs` worlds at a time; void ones are replaced as allowed.

        Args:
            cells: those that can run.
            jobs: worlds at a time.
            farm: makes the worlds elsewhere; None is here.

        Returns:
            Per cell id and arm, how many trials were made, void ones included.
        """
        self._farm = farm
        counts: dict[str, dict[Arm, int]] = {cell.id: {"candidate": 0, "control": 0} for cell in cells}
        # What used up replacements: a lost node does so once, however many trials it took along.
        voids: dict[tuple[str, Arm], set[tuple[str, int]]] = {}
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
                    if made.watched:
                        self._watching.discard(made.cell.id)
                        if made.hung:
                            self._watched.add(made.cell.id)
                    self._progress.ended(made)
                    used = voids.setdefault((made.cell.id, made.arm), set())
                    cause = ("node", made.lost) if made.lost is not None else ("trial", len(used))
                    if made.void and (cause in used or len(used) < self._scenario.trials.max_voids):
                        used.add(cause)
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
                launch=lambda arm, cell=cell: self.worlds.launch(cell, arm, 0),  # type: ignore[misc]
                start=self.worlds.start_world,
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
        """What is to be proved of a trial: the candidate's trials of the cell say how long nothing may move."""
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
        """Whether the next trial has to stand still for all of `within`: until one of its cell did.

        Where every trial must hang one at a time is watched; else whichever hangs first may be any of them.
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
        scenario, made = self._scenario, self._references.of(cell)
        hang = self._hang(cell, arm, watched=watched)
        if self._farm is not None:
            capture = self._farm.make(cell, arm, index, hang=hang)
        else:
            capture = self.worlds.make(cell, arm, index, hang=hang, reference=made)
        self._references.demand_unchanged(cell)
        folder = trial_folder(cell.slug, arm, index)
        self._keep(folder, capture)
        self._keep_lists(arm, capture.loaded)
        history = History(capture.events, size=cell.ranks, reference=made.history if made is not None else None)
        trial, _ = outcome.judge(scenario, cell, arm, index, history)
        ended = trial.outcome
        if arm == "candidate" and ended == "pass":
            self._silences[cell.id] = max(self._silences.get(cell.id, 0.0), longest_silence(history))
        must_fail = arm == "control" and self._stated is not None and self._stated.applies(cell.values)
        return MadeTrial(
            cell=cell,
            arm=arm,
            void=ended == "void",
            as_expected=(ended == "fail") == must_fail,
            lost=trial.node if trial.void is not None and trial.void.code == VoidCode.NODE_LOST else None,
            watched=watched,
            hung=ended != "void" and bool(history.noted("world.still")) and not history.noted("world.unproved"),
        )

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
