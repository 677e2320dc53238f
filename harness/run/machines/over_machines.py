"""A run whose ranks are on the machines of a hostfile: what is refused, where ranks go, what is
recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from harness import backends
from harness.checks.survivors import SurvivorsCheck
from harness.faults import Fault, for_test_machines
from harness.forms.text import plural
from harness.reason import Skip, SkipCode
from harness.record.facts import MachineFacts, MachinesFacts
from harness.record.skips import unmet
from harness.run.machines.collected import digest_of, remember
from harness.run.machines.readiness import Offered, facts_of, problems_of
from harness.run.preparation import Preparation
from harness.scenario import Cell, Needs, Scenario
from harness.scenario.matrix import machines_of
from harness.world.machines import agent
from harness.world.machines.agent_channel import LEASE, Start, Unreachable, argv, boot
from harness.world.machines.fleet import Reached
from harness.world.machines.machine_server import MachinePool
from harness.world.machines.roll import Placed
from harness.world.starters import hostfile
from harness.world.starters.hostfile import Machine
from harness.world.starters.ray import Cluster, ClusterNode, NoCluster
from harness.world.starters.test_machines import TestMachines

# For how long a machine that was lost is waited for, to collect what it wrote down.
BACK_WITHIN = 30.0


@dataclass(frozen=True, kw_only=True)
class Hostfile:
    """The machines that somebody named for a run, and how to reach them.

    Attributes:
        machines: of the hostfile.
        placement: spread, pack, or the machine of each rank by its place in the hostfile.
        interpreter: path of the Python in whose environment ranks run there.
        configuration: for ssh, instead of the user's own.
        made_here: the machines, where they were made of this one.
        named: whether the record calls machines by their names; else by digests of them.
        lease: seconds without a heartbeat after which a machine ends its ranks.
        back_within: seconds for which one that was lost is waited for.
        cluster: of Ray whose nodes the machines are, in place of what ssh reaches; None for ssh.
        nodes: they, in the order of the machines.
    """

    machines: Sequence[Machine]
    interpreter: str
    placement: Literal["spread", "pack"] | tuple[int, ...] = "spread"
    configuration: Path | None = None
    made_here: TestMachines | None = None
    named: bool = False
    lease: float = LEASE
    back_within: float = BACK_WITHIN
    cluster: str | None = None
    nodes: Sequence[ClusterNode] = ()

    @property
    def slots(self) -> list[int]:
        """For how many ranks each machine has room."""
        return [machine.slots for machine in self.machines]

    def of(self, cell: Cell) -> tuple[int, ...] | None:
        """Return the machine of each rank of a cell's worlds; None where there is no room for
        them.
        """
        return machines_of(self.placement, slots=self.slots, size=cell.ranks, hosts=cell.hosts)

    def called(self, machine: Machine) -> str:
        """Return what the record calls a machine."""
        return machine.name if self.named else digest_of(machine.name)


@dataclass(frozen=True, kw_only=True)
class OverMachines:
    """The machines of a run that goes on.

    Attributes:
        fleet: whose servers fork the ranks.
        hostfile: which machines they are.
    """

    fleet: MachinePool
    hostfile: Hostfile

    def placed(self, cell: Cell) -> Placed:
        """Where the ranks of a cell's worlds are."""
        of = self.hostfile.of(cell)
        assert of is not None  # a cell for which there is no room is skipped
        return self.fleet.placed(of)

    def facts(self) -> MachinesFacts:
        """Return what the record says of them."""
        placement = self.hostfile.placement
        return MachinesFacts(
            machines=[
                MachineFacts(
                    called=self.hostfile.called(machine), slots=machine.slots, **_facts(answer)
                )
                for machine, answer in zip(self.hostfile.machines, self.fleet.told(), strict=True)
            ],
            placement=placement if isinstance(placement, str) else list(placement),
            lease=self.hostfile.lease,
            starter="ray" if self.hostfile.cluster is not None else None,
            ready=round(self.fleet.seconds, 2),
            made_here=self.hostfile.made_here is not None,
        )


def of_cluster(where: str, **how: Any) -> Hostfile:
    """Return the nodes that a cluster of Ray has now, as a hostfile names machines.

    Each is called by its host, or, where these are not each another's, by its address, or else by
    its id.

    Args:
        where: `ray`, or `ray://HEAD:PORT`.
        **how: of `Hostfile`; `placement` as the command line has it.

    Raises:
        NoCluster: there is none, or it has no node with a processor to deal out.
        ScenarioError: the placement names what is not in it.
    """
    with Cluster(where) as cluster:
        places = cluster.places()
    if not places:
        raise NoCluster("the cluster has no node with a free CPU; start a node with `ray start`")
    ways = (
        [place.name for place in places],
        [place.address for place in places],
        [place.id for place in places],
    )
    names = next(names for names in ways if len({*names}) == len(places))
    named = sorted(zip(names, places, strict=True), key=lambda pair: pair[0])
    machines = [
        Machine(name=name, slots=place.cores, addresses=(place.address,)) for name, place in named
    ]
    rule = hostfile.placement(how.pop("placement"), machines=machines)
    return Hostfile(
        machines=machines,
        placement=rule,
        cluster=where,
        nodes=tuple(place for _, place in named),
        **how,
    )


def _facts(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Of a machine that was never reached, as where every cell is skipped, nothing is known."""
    system = " ".join(
        str(answer.get(name, "")) for name in ("system", "release", "architecture")
    ).strip()
    return {
        "system": system[:200],
        "python": str(answer.get("python", ""))[:40],
        "cores": int(answer.get("cores", 0)),
        "memory": int(answer.get("memory", 0)),
        "offset": round(float(answer.get("offset", 0.0)), 4),
        "offset_within": round(float(answer.get("offset_within", 0.0)), 6),
    }


def refusal(scenario: Scenario, *, over_ray: bool = False) -> str:
    """Why a scenario cannot run over machines, each reason with what to do; empty where it can.

    What works on one machine and is not here is refused before anything starts: nothing of a
    question is left out.
    """
    subject = scenario.subject
    control = subject.control.must_fail if subject.control is not None else None
    reasons = []
    if scenario.world.hosts > 1:
        reasons.append(
            "its ranks are on test hosts; leave world.hosts at 1, because each machine is already"
            " a host"
        )
    if scenario.hub is not None or any(fault.properties.needs_a_hub for fault in scenario.faults):
        reasons.append("a hub serves only one machine; pass files to the ranks as inputs instead")
    if scenario.services:
        reasons.append(
            "its services would run on one machine, and ranks on other machines could not reach"
            " them; run it without a hostfile"
        )
    if any(subject.environment_of(arm) is not None for arm in subject.arms.values()):
        reasons.append(
            "an arm has its own environment, but only the environment that is already on every"
            " machine can be used"
        )
    if getattr(control, "hang", None) is not None:
        reasons.append(
            "a hang can be proved only on a single machine; state a different way in which the"
            " control fails"
        )
    if scenario.world.home_is == "shared" or scenario.world.home is not None:
        reasons.append(
            "ranks on machines have a separate home folder on each machine; remove world.home"
        )
    if scenario.needs.shared == "world":
        reasons.append("needs.shared is world, but each machine has its own folder")
    # A hub was named above, with what to do instead.
    kinds = {
        fault.kind
        for fault in scenario.faults
        if not (fault.is_over_machines() or fault.properties.needs_a_hub)
    }
    if kinds:
        reasons.append(
            f"faults of kind {', '.join(sorted(kinds))} work only on one machine or test hosts;"
            " leave them out"
        )
    timed = sorted({check.kind for check in scenario.checks if isinstance(check, SurvivorsCheck)})
    if timed:
        reasons.append(
            f"checks of kind {', '.join(timed)} would compare the clocks of two machines; leave"
            " them out"
        )
    if over_ray and (scenario.needs.gpus or "nccl" in scenario.matrix.backend):
        reasons.append(
            "no GPUs are requested from Ray, so ranks would not have any; reach its nodes by ssh,"
            " with a hostfile"
        )
    return f"it cannot run on several machines: {'; '.join(reasons)}" if reasons else ""


def skip(preparation: Preparation, hostfile: Hostfile, *, faults: Sequence[Fault] = ()) -> None:
    """Skip the cells for which there is no room on the machines, or whose backend does not join
    ranks on several.
    """
    for cell in preparation.runnable:
        if (unlike := _without_room(cell, hostfile)) is not None:
            preparation.skipped[cell.id] = unlike
        elif hostfile.made_here is None and (lacking := for_test_machines(faults)):
            preparation.skipped[cell.id] = Skip(SkipCode.MACHINE_FAULT, lacking)
        elif (refused := backends.machines_refusal(cell.backend)) is not None:
            preparation.skipped[cell.id] = refused


def _without_room(cell: Cell, hostfile: Hostfile) -> Skip | None:
    """Why the machines cannot have the ranks of a cell, or not on as many of them as it says."""
    if hostfile.of(cell) is not None:
        return None
    there = len(hostfile.machines)
    room = sum(hostfile.slots[: cell.hosts])
    if not isinstance(hostfile.placement, str):
        room = len(hostfile.placement)
    if cell.hosts is None:
        why = (
            f"{cell.ranks} ranks, but the hostfile has room for {room}; increase slots in the"
            " hostfile"
        )
        return Skip(SkipCode.CELL_LIMIT, why)
    on = plural(cell.hosts, "machine")
    if cell.hosts > there:
        why = f"its ranks need {on}, but the hostfile has {there}; add more machines"
    elif room < cell.ranks:
        why = (
            f"{cell.ranks} ranks on {on}, which have room for {room}; increase slots in the"
            " hostfile"
        )
    else:
        why = f"--placement does not put its {cell.ranks} ranks on {on}; remove --placement"
    return Skip(SkipCode.CELL_HOSTS, why)


@contextmanager
def reached(named: Hostfile | None, *, needs: Needs, cancel: int) -> Iterator[OverMachines | None]:
    """Machines that were named, until the run is over; each is reached when its first world is.

    Args:
        named: a hostfile's machines, or a cluster's nodes; None for a run on this machine.
        needs: what the scenario needs of a machine, asked of each as of this one.
        cancel: readable when the run is interrupted.

    Raises:
        NoCluster: the cluster whose nodes they are does not answer.
    """
    if named is None:
        yield None
        return
    here = agent.facts()
    same: dict[str, str] = {}

    def demand(machine: Machine, answer: Mapping[str, Any]) -> None:
        """Demand what `rankproof hosts check` asks, before a rank is there."""
        facts = facts_of(answer)
        problems = [f"{what}: {remedy}" for what, remedy in problems_of(facts, here=here)]
        if (lacking := unmet(needs, Offered.of(facts))) is not None:
            problems.append(f"{lacking}; remove it from the hostfile")
        first = (
            same.setdefault(facts["machine"], machine.name) if facts["machine"] else machine.name
        )
        if first != machine.name:
            problems.append(
                "it is another name for a machine that the hostfile already lists; keep one of the"
                " names, with the slots of both"
            )
        if problems:
            raise Unreachable("; ".join(problems))

    with ExitStack() as stack:
        starts = _starts(named, stack)
        machines = [
            Reached(
                name=machine.name,
                called=named.called(machine),
                command=start,
                address=machine.addresses[0] if machine.addresses else "",
                slots=machine.slots,
                demand=partial(demand, machine),
            )
            for machine, start in zip(named.machines, starts, strict=True)
        ]
        reaching = MachinePool(
            machines,
            lease=named.lease,
            back_within=named.back_within,
            cancel=cancel,
            cables=named.made_here,
        )
        fleet = stack.enter_context(reaching)
        try:
            yield OverMachines(fleet=fleet, hostfile=named)
        finally:
            if fleet.has_lost and named.made_here is None:
                remember(
                    fleet.run,
                    {
                        machine.called: machine.command
                        for machine in machines
                        if not callable(machine.command)
                    },
                )


def _starts(named: Hostfile, stack: ExitStack) -> Sequence[Start]:
    """Return what starts the agent on each machine, until the stack is left."""
    if named.cluster is None:
        there = argv(named.interpreter)
        return [
            hostfile.ssh_command(machine.name, there, configuration=named.configuration)
            for machine in named.machines
        ]
    cluster = stack.enter_context(Cluster(named.cluster))
    return [
        partial(cluster.pipe, place, boot(), interpreter=named.interpreter) for place in named.nodes
    ]
