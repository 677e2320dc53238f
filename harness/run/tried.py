"""One trial of each arm in one cell, to be looked at: nothing is kept, and nothing signed.

The trials are made and judged as those of a run are, in a results folder that is gone afterwards.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from harness.checks import Finding
from harness.history import History
from harness.record import environment
from harness.record.assemble import EVENTS, trial_folder
from harness.record.results import ResultsError, ResultsFolder
from harness.run import arms, inputs, needs
from harness.run.entry import slips
from harness.run.pip import EnvironmentProblem
from harness.run.run import Interrupted, RunError, Slip, environments_of_arms, interruptible
from harness.run.trials import Interrupt, Made, Trials
from harness.scenario import Cell, LoadedScenario, cells, derive_seed
from harness.stats import outcome
from harness.stats.outcome import Arm, Trial
from harness.world.pool import ServerFailed, ServerPool
from harness.world.ports import PortLease
from harness.world.world import Cancelled


class NoSuchCell(RunError):
    """The scenario has no cell of that id."""


@dataclass(frozen=True, kw_only=True)
class TriedArm:
    """One trial.

    Attributes:
        arm: which.
        trial: as it was judged, with every finding.
        history: its events.
        logs: rank to what it printed.
        stacks: rank to where it stood when it was stopped.
        seconds: from handing it to its world until it was judged.
    """

    arm: Arm
    trial: Trial
    findings: Sequence[Finding]
    history: History
    logs: Mapping[int, bytes]
    stacks: Mapping[int, bytes]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What was tried.

    Attributes:
        cell: None where none can run here.
        skipped: cell id to why it cannot.
        arms: the trials; the control's is missing where there is none.
        cells: how many cells a run would make.
        jobs: how many worlds it would have at a time.
        seconds: what a run would take, if every trial took as long as these.
    """

    cell: Cell | None
    skipped: Mapping[str, str]
    arms: Sequence[TriedArm] = ()
    cells: int = 0
    jobs: int = 1
    seconds: float = 0.0


def attempt(loaded: LoadedScenario, *, cell: str | None, jobs: int, says: Callable[[str], None]) -> Tried:
    """Make one trial of each arm.

    Args:
        loaded: the scenario.
        cell: id of the cell; None takes the first one that can run here.
        jobs: worlds at the same time, of the run whose time is told.
        says: told what takes long before the trials.

    Raises:
        NoSuchCell: there is no such cell; the message names those there are.
        Slip: the entry cannot be called as the scenario says.
        Interrupted: by Ctrl-C or SIGTERM.
        RunError: input, code or environment cannot be used.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="rankproof-try-") as root, interruptible() as interrupt:
            folder = ResultsFolder(Path(root), loaded.scenario.id)
            return _attempt(loaded, folder, cell=cell, jobs=jobs, interrupt=interrupt, says=says)
    except (KeyboardInterrupt, Cancelled):
        raise Interrupted("interrupted: nothing was kept") from None
    except arms.NotThere as error:
        raise Slip([loaded.problem(error.place, error.message)]) from None
    except (ResultsError, inputs.InputError, arms.ArmError, EnvironmentProblem, ServerFailed, OSError) as error:
        raise RunError(str(error)) from None


def _attempt(
    loaded: LoadedScenario,
    folder: ResultsFolder,
    *,
    cell: str | None,
    jobs: int,
    interrupt: Interrupt,
    says: Callable[[str], None],
) -> Tried:
    scenario, matrix = loaded.scenario, cells(loaded.scenario)
    if cell is not None and cell not in {one.id for one in matrix}:
        raise NoSuchCell(f"there is no cell {cell}; the cells are {'; '.join(one.id for one in matrix)}")
    found = inputs.resolve(scenario.inputs, folder=loaded.folder)
    paths = [resolved.path for resolved in found.values()]
    staged = arms.stage(scenario, folder=loaded.folder, inputs=paths, results=folder)
    machine = environment.capture()
    made, unavailable = environments_of_arms(scenario, says=says)
    folders = [arm.folder for arm in staged.values()]
    refusals = {
        one.id: needs.refused(scenario, one, machine, staged=folders, environments=made, unavailable=unavailable)
        for one in matrix
    }
    skipped = {name: str(why) for name, why in refusals.items() if why}
    runnable = [one for one in matrix if one.id not in skipped]
    chosen = next((one for one in runnable if cell in (None, one.id)), None)
    if chosen is None:
        return Tried(cell=None, skipped=skipped)
    once = {"candidate": 1, "control": 1, "max_voids": 0}
    single = scenario.model_copy(update={"trials": scenario.trials.model_copy(update=once)})
    begun, seconds = [0.0], dict[Arm, float]()

    def told(trial: Made) -> None:
        seconds[trial.arm] = time.monotonic() - begun[0]
        begun[0] = time.monotonic()

    with ServerPool(cancel=interrupt.descriptor) as pool, PortLease() as ports:
        trials = Trials(
            single,
            arms=staged,
            inputs=found,
            results=folder,
            pool=pool,
            interrupt=interrupt,
            began=lambda _cell: None,
            told=told,
            host=machine.host,
            recipes=dict.fromkeys(staged, ""),  # nothing of this is signed
            port=ports.take(1)[0] if scenario.hub is not None else None,
            environments=made,
        )
        trials.start_servers(lanes=1)
        if wrong := slips(loaded, staged, [chosen], look=trials.look):
            raise Slip(wrong)
        begun[0] = time.monotonic()
        trials.make([chosen], jobs=1)
        servers = pool.seconds
    alone = 1 if scenario.measure or scenario.hub else jobs
    planned = {"candidate": scenario.trials.candidate, "control": scenario.trials.control}
    per_cell = sum(planned[arm] * spent for arm, spent in seconds.items())
    return Tried(
        cell=chosen,
        skipped=skipped,
        arms=[_judged(loaded, chosen, arm, folder, seconds[arm]) for arm in get_args(Arm) if arm in seconds],
        cells=len(runnable),
        jobs=alone,
        seconds=servers + len(runnable) * per_cell / alone,
    )


def _judged(loaded: LoadedScenario, cell: Cell, arm: Arm, folder: ResultsFolder, seconds: float) -> TriedArm:
    scenario, place = loaded.scenario, trial_folder(cell.slug, arm, 0)
    history = History.read(folder.read(f"{place}/{EVENTS}"), size=cell.ranks)
    seed = str(derive_seed(scenario.seed, scenario.id, cell.id, 0))
    trial, findings = outcome.judge(scenario, arm, index=0, seed=seed, evidence=place, history=history)

    def left(ending: str) -> dict[int, bytes]:
        names = {rank: f"{place}/rank-{rank}.{ending}" for rank in range(cell.ranks)}
        return {rank: folder.read(name) for rank, name in names.items() if name in folder.digests}

    return TriedArm(
        arm=arm,
        trial=trial,
        findings=findings,
        history=history,
        logs=left("log"),
        stacks=left("stacks.txt"),
        seconds=seconds,
    )
