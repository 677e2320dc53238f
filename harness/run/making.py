"""All trials of a run, made on this machine, on the nodes of a cluster, or over the machines of a hostfile."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from harness.record import sources
from harness.record.arms import differing
from harness.record.elsewhere import FarmFacts, MachinesFacts
from harness.record.results import ResultsFolder
from harness.run import over_machines
from harness.run.arms.distributions import search_path
from harness.run.arms.entry import slips
from harness.run.farm.farm import Farm, Where
from harness.run.farm.order import Order, opened
from harness.run.interrupt import Interrupt
from harness.run.material import Found
from harness.run.over_machines import Hostfile
from harness.run.preparation import Preparation, recipes_of
from harness.run.progress import Plan, Progress
from harness.run.trials import Trials
from harness.scenario import Cell, LoadedScenario, ScenarioError
from harness.stats.outcome import Arm
from harness.world.control import limits
from harness.world.control.pool import ServerPool
from harness.world.control.ports import PortLease
from harness.world.control.server_handle import ServerFailed


@dataclass(frozen=True, kw_only=True)
class Made:
    """The trials of a run, which lie in its folder now.

    Attributes:
        trials: how they were started, and what their ranks had loaded.
        differing: distributions that the arms have in different releases, by their normal names.
        counts: per cell id and arm, how many there are, void ones included.
        jobs: worlds at the same time.
        server_pids: of the fork servers on this machine.
        server_seconds: that these took to start.
        machines: where the ranks were; None for this machine.
        farm: where the trials were made; None for this machine.
    """

    trials: Trials
    differing: Collection[str]
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


def make(
    loaded: LoadedScenario,
    *,
    found: Found,
    preparation: Preparation,
    folder: ResultsFolder,
    overrides: Sequence[str],
    plan: Plan,
    jobs: int,
    on: Where | Hostfile | None,
    interrupt: Interrupt,
    progress: Progress,
) -> Made:
    """Make every trial of a run.

    Args:
        loaded: the scenario.
        found: what its arms are made of.
        preparation: the same, ready to be started.
        folder: takes the evidence.
        overrides: of the command line, as the record tells them.
        plan: the trials.
        jobs: worlds at the same time, of those that this machine bears.
        on: where; None is this machine.
        interrupt: ends it.
        progress: hears how far it is.

    Raises:
        ScenarioError: the entry cannot be called as the scenario says.
        Cancelled: the run was interrupted.
        FarmError, NoCluster, ServerFailed, NoReference: it could not be made.
    """
    scenario, runnable = loaded.scenario, preparation.runnable
    if isinstance(on, Hostfile) or (on is None and (scenario.measure or scenario.hub)):
        # What worlds side by side measure is each other; and a hub has one world at a time.
        jobs = 1
    environments = preparation.environments
    declared = {}
    for arm in found.origins:
        own = environments.get(arm)
        folders = search_path(own.python if own is not None else None)
        declared[arm] = found.told_one_by_one(arm, folders, sources.of_arm(folder.digests, arm))
    others = differing(
        scenario,
        {arm: own.facts for arm, own in environments.items()},
        {arm: own.named for arm, own in environments.items()},
    )
    recipes = recipes_of(loaded.text, overrides, preparation, folder.digests)
    with ExitStack() as stack:
        pool = stack.enter_context(ServerPool(cancel=interrupt.descriptor))
        ports = stack.enter_context(PortLease())
        machines = on if isinstance(on, Hostfile) else None
        over = stack.enter_context(over_machines.reached(machines, needs=scenario.needs, cancel=interrupt.descriptor))
        trials = Trials(
            scenario,
            preparation=preparation,
            results=folder,
            pool=pool,
            interrupt=interrupt,
            recipes=recipes,
            progress=progress,
            port=ports.take(1)[0] if scenario.hub is not None else None,
            declared=declared,
            differing=others,
            over=over,
        )
        farm: Farm | None = None
        if runnable:
            if not isinstance(on, Where):
                jobs = _borne(jobs, runnable, progress)
                trials.worlds.start_servers(lanes=min(jobs, len(runnable) * (plan.candidate + plan.control)))
            if wrong := slips(loaded, found.arms, runnable, look=trials.worlds.look):
                raise ScenarioError(wrong)
            if isinstance(on, Where):
                order = Order(
                    text=loaded.text,
                    overrides=overrides,
                    preparation=preparation,
                    files={arm: sources.of_arm(folder.digests, arm) for arm in found.arms},
                    recipes=recipes,
                    declared=declared,
                )
                farm = stack.enter_context(opened(on, scenario, order, interrupt=interrupt, worlds=trials.worlds))
                farm.prepare(says=progress.says)
                jobs = farm.lanes
        made = Made(
            trials=trials,
            differing=others,
            counts=trials.make(runnable, jobs=jobs, farm=farm),
            jobs=jobs,
            server_pids=pool.pids,
            server_seconds=pool.seconds,
            machines=over.facts() if over is not None else None,
            farm=farm.facts() if farm is not None else None,
        )
        # While they are there: once the fleet is closed nobody answers.
        if over is not None and (changed := over.fleet.changed()):
            what = "code or inputs that it was given changed there during the run, or it could not be asked at its end"
            raise ServerFailed(f"machine {', '.join(changed)}: {what}. Nothing was signed: run it again")
    for called, why in over.fleet.unwritten.items() if over is not None else ():
        progress.says(
            f"machine {called} could not write down what happened there: {why}. Free some space in its cache: had it "
            "been lost, that part would be missing"
        )
    for left in pool.left:
        progress.says(f"what ranks left in their room could not be removed: {left}")
    return made


def _borne(jobs: int, runnable: Sequence[Cell], progress: Progress) -> int:
    """How many worlds side by side, of those that are asked for, the system's limits bear."""
    largest = max(cell.ranks for cell in runnable)
    while jobs > 1 and (lacking := limits.shortage(largest, worlds=jobs)):
        progress.says(f"{jobs} worlds side by side are too many here: {lacking}")
        jobs -= 1
    return jobs
