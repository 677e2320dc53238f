"""Nodes on which a run's trials were made, held against the trials themselves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.forms.digest import sha256
from harness.forms.distribution import normal
from harness.forms.strict_json import JSON
from harness.forms.text import plural
from harness.reason import RefusalWord, VoidCode
from harness.record.facts import PackageFacts, RunFacts
from harness.record.model import Contradiction, RecordError
from harness.record.skips import unmet
from harness.scenario import Scenario
from harness.stats.outcome import LOST, NODE_LOST, Trial

# Installs packages, or is brought along: no rank imports it from there.
BROUGHT = frozenset({"rankproof", "pip", "setuptools", "wheel"})


def digest_of(packages: Sequence[PackageFacts]) -> str:
    """One digest of what is installed: the same for two nodes whose packages have the same
    files.
    """
    listed = sorted(
        [normal(package.name), package.version, package.record or ""]
        for package in packages
        if normal(package.name) not in BROUGHT
    )
    return sha256(json.dumps(listed).encode())


def demand_farmed(scenario: Scenario, run: RunFacts) -> None:
    """Demand that what a run says of its nodes agrees with itself, and with where its machine says
    it was.

    Raises:
        RecordError: it does not.
    """
    if run.farm is None:
        return
    nodes = run.farm.nodes
    if len({node.number for node in nodes}) != len(nodes) or not nodes:
        raise RecordError("the run lists a node twice")
    if (lanes := sum(node.lanes for node in nodes)) != run.jobs:
        raise RecordError(
            f"the run's nodes state a total of {plural(lanes, 'concurrent world')}, but the run"
            f" states {run.jobs}"
        )
    here = digest_of(run.environment.packages)
    for node in nodes:
        if node.packages != here:
            raise RecordError(f"node {node.number} had different packages from the run")
    if (
        scenario.subject.reference is not None
        or scenario.subject.compare is not None
        or run.environments
    ):
        raise RecordError(
            "the run's trials were distributed over nodes, but its scenario does not allow that"
        )


@dataclass(frozen=True, kw_only=True)
class _Offered:
    """Machine as a record describes it.

    What else scenarios need was asked of it before a rank was there.
    """

    cores: int
    memory: int
    system: str = ""
    gpu: None = None
    nix: None = None


def demand_over_machines(scenario: Scenario, run: RunFacts) -> None:
    """Demand that what a run says of its machines is what a run can say.

    Raises:
        RecordError: it is not.
    """
    if run.machines is None:
        return
    if (
        run.farm is not None
        or run.environments
        or run.jobs != 1
        or scenario.world.hosts > 1
        or scenario.hub
    ):
        raise RecordError(
            "the run states that its ranks ran on the machines of a hostfile or of a Ray cluster,"
            " but contains data that such a run never has"
        )
    if len({machine.called for machine in run.machines.machines}) != len(run.machines.machines):
        raise RecordError("the run lists a machine twice")
    for machine in run.machines.machines:
        # Of one that was never reached, or is lost, nothing is known.
        needs = scenario.needs.model_copy(update={"os": None, "gpus": None, "nix": None})
        if (
            machine.cores
            and (lacking := unmet(needs, _Offered(cores=machine.cores, memory=machine.memory)))
            is not None
        ):
            raise RecordError(f"machine {machine.called} had ranks, but its scenario {lacking}")


def clock_of(about: Mapping[str, JSON]) -> int | None:
    """Return the node by whose clock a trial is told; None is the clock of whoever made the run."""
    node = about.get("node")
    return node if type(node) is int and not about.get(LOST) else None


def lanes_of(run: RunFacts, node: int | None) -> int:
    """How many trials can have gone on at the same time by one clock."""
    nodes = run.farm.nodes if run.farm is not None else []
    return next((known.lanes for known in nodes if known.number == node), run.jobs)


def most_at_once(run: RunFacts) -> int:
    """How many trials one cause can have made void: what a lost node had in its lanes."""
    return (
        max((node.lanes for node in run.farm.nodes if node.lost), default=1)
        if run.farm is not None
        else 1
    )


class Places:
    """Places that trials have to name in their first lines, trial by trial."""

    def __init__(self, run: RunFacts) -> None:
        """Begin."""
        self._run = run
        self._nodes = {node.number: node for node in run.farm.nodes} if run.farm is not None else {}
        self._taken = Counter[int]()

    def of(self, about: Mapping[str, JSON], evidence: str) -> dict[str, JSON]:
        """Return what a first line has to say of its place, by what it says itself.

        Raises:
            Contradiction: it cannot have been there.
        """
        number = about.get("node")
        lost = about.get(LOST)
        here: dict[str, JSON] = {
            "host": self._run.environment.host,
            "harness_pid": self._run.harness_pid,
        }
        # The reference of a run is made where the run is; one that was farmed has none.
        if not self._nodes:
            return {**here, "node": None, LOST: None}
        node = self._nodes.get(number) if type(number) is int else None
        if node is None:
            message = f"{evidence} names the node {number!r}, which is not among the run's nodes"
            raise Contradiction(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, message)
        if lost is None:
            return {"host": node.host, "harness_pid": node.harness_pid, "node": number, LOST: None}
        self._taken[node.number] += 1
        if node.lost is None or self._taken[node.number] > node.lanes:
            most = f"ran at most {node.lanes} trials at a time"
            what = "was not lost" if node.lost is None else most
            message = f"{evidence} is marked as lost with node {node.number}, which {what}"
            raise Contradiction(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, message)
        return {**here, "node": number, LOST: True}


def replaced(trials: Sequence[Trial], *, max_voids: int) -> tuple[int, int]:
    """How many trials of an arm were made again, at least and at most.

    Every void trial uses one of `max_voids`; those that went with one node use one together.
    """
    lost = Counter(
        trial.node
        for trial in trials
        if trial.void is not None and trial.void.code == VoidCode.NODE_LOST
    )
    others = sum(trial.void is not None for trial in trials) - lost.total()
    causes = sorted([*lost.values(), *[1] * others])
    # Which of more causes came first is not told; then too few count anyway.
    return sum(causes[:max_voids]), sum(causes[::-1][:max_voids])


def demand_kind(run: RunFacts, node: JSON, kind: JSON) -> None:
    """Demand that a trial that went with a node tells of the end that the run tells of that node.

    Raises:
        Contradiction: it tells of another.
    """
    nodes = run.farm.nodes if run.farm is not None else []
    lost = next((known.lost or "" for known in nodes if known.number == node), "")
    if (kind == NODE_LOST) != lost.startswith(f"{NODE_LOST}: "):
        message = f"a trial states that node {node} ended by {kind}, but the run states {lost!r}"
        raise Contradiction(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, message)
