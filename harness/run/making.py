"""All trials of a run, made on this machine, on the nodes of a cluster, or over the machines of a hostfile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from harness.record.elsewhere import FarmFacts, MachinesFacts
from harness.run.arms.entry import slips
from harness.run.farm.farm import Farm
from harness.run.farm.order import opened
from harness.run.interrupt import Interrupt
from harness.run.machines import over_machines
from harness.run.plan import RunPlan
from harness.run.progress import Progress
from harness.run.trials import Trials
from harness.scenario import Cell, ScenarioError
from harness.stats.outcome import Arm
from harness.world import limits
from harness.world.fork_server import ServerFailed
from harness.world.pool import ServerPool
from harness.world.ports import PortLease


@dataclass(frozen=True, kw_only=True)
class Made:
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

    trials: Trials
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


def make(plan: RunPlan, *, interrupt: Interrupt, progress: Progress) -> Made:
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
    with ExitStack() as stack:
        pool = stack.enter_context(ServerPool(cancel=cancel))
        ports = stack.enter_context(PortLease())
        machines = stack.enter_context(
            over_machines.reached(plan.settings.hostfile, needs=scenario.needs, cancel=cancel)
        )
        trials = Trials(
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
            if wrong := slips(plan.loaded, plan.found.arms, runnable, look=trials.worlds.look):
                raise ScenarioError(wrong)
            if nodes is not None:
                farm = stack.enter_context(opened(plan, nodes, interrupt=interrupt, worlds=trials.worlds))
                farm.prepare(says=progress.says)
                jobs = farm.lanes
        made = Made(
            trials=trials,
            counts=trials.make(runnable, jobs=jobs, farm=farm),
            jobs=jobs,
            server_pids=pool.pids,
            server_seconds=pool.seconds,
            machines=machines.facts() if machines is not None else None,
            farm=farm.facts() if farm is not None else None,
        )
        # Asked before the fleet is closed: afterwards no machine answers.
        if machines is not None and (changed := machines.fleet.changed()):
            what = "code or inputs that it was given changed there during the run, or it could not be asked at its end"
            raise ServerFailed(f"machine {', '.join(changed)}: {what}. Nothing was signed: run it again")
    for called, why in machines.fleet.unwritten.items() if machines is not None else ():
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
