"""Trials dealt to the nodes of a cluster: one world for each free lane, and what became of each
node.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from harness.checks.accounted import accounted
from harness.checks.arrays import compares_arrays
from harness.events import Event
from harness.forms.distribution import normal
from harness.forms.strict_json import JSON
from harness.forms.text import plural, printable
from harness.record.facts import EnvironmentFacts, FarmFacts, NodeFacts
from harness.record.farmed import digest_of
from harness.run.farm.node import (
    BEAT,
    PIECE,
    Answer,
    AnswerRefused,
    Manifest,
    Node,
    manifest_of,
    own_code,
    sources,
    take,
)
from harness.run.machines import readiness
from harness.run.plan import RayNodes, RunPlan
from harness.run.worlds import Interrupt, Worlds
from harness.scenario import Cell, Scenario
from harness.world.control.capture import Capture
from harness.world.control.hang import Hang
from harness.world.control.world import Cancelled
from harness.world.machines.agent_channel import LEASE
from harness.world.starters.ray import Cluster, ClusterNode
from harness.world.starters.ray_relay import ActorGone, NodeLost

# Beside what a trial may take by its scenario: starting a world, and bringing what it left.
SPARE = 120.0
READY_WITHIN = 600.0
ENDS_WITHIN = 20.0
LOOKS_EVERY = 0.5
MOST_NAMED = 3
PROGRAM = (
    "sys.path.insert(0, os.path.join(sys.argv[1], 'code')); "
    "from harness.run.farm.agent import main; main(folder=sys.argv[1], lease=float(sys.argv[2]))"
)


@dataclass(frozen=True, kw_only=True)
class FarmOrder:
    """What every node is given, and what it is expected to have.

    Attributes:
        manifest: of a node, by its number and its lanes.
        sources: where each file is on this machine, by its digest.
        start: how ranks start here.
        machine: this one, and its packages.
    """

    manifest: Callable[[int, int], Manifest]
    sources: Mapping[str, Path]
    start: str
    machine: EnvironmentFacts


class FarmError(Exception):
    """Trials cannot be made on these nodes; the message says what, where and what to do."""


def refusal(scenario: Scenario, *, environments: Collection[str]) -> str | None:
    """Why the trials of a scenario are not farmed; None where they are.

    What is not there is not pretended.
    """
    reasons = {
        "it compares with a reference, which runs on this machine": (
            scenario.subject.reference or scenario.subject.compare
        ),
        "it has a hub, which listens on this machine": scenario.hub,
        "it has services, which listen on this machine": scenario.services,
        "its checks compare artefacts that ranks keep": (
            compares_arrays(scenario.checks) or accounted(scenario.checks)
        ),
        "it observes collectives, but their ledgers stay on the node": scenario.observe,
        "it needs GPUs, but none are requested from Ray, so ranks would not have any": (
            scenario.needs.gpus or "nccl" in scenario.matrix.backend
        ),
        "its world is on test hosts": scenario.world.hosts > 1,
        "its ranks use the user's own home folder, which differs on each node": (
            scenario.world.home_is == "shared"
        ),
        "an arm has its own environment, which is created on this machine": environments,
    }
    return next((why for why, holds in reasons.items() if holds), None)


class Farm:
    """The nodes of one run; a context manager, which ends what runs there."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: RayNodes,
        scenario: Scenario,
        *,
        cancel: int,
        expects: Callable[[Cell, str, int], Mapping[str, JSON]],
        order: FarmOrder,
    ) -> None:
        """Start nothing yet.

        Args:
            cluster: whose nodes are used; left with this.
            nodes: how they are used.
            scenario: the question.
            cancel: a descriptor that becomes readable when the run is to stop.
            expects: what the first line of a trial says, by cell, arm and number, if it is made
                here.
            order: for every node.
        """
        self._cluster = cluster
        self._settings = nodes
        self._scenario = scenario
        self._cancel = cancel
        self._expects = expects
        self._order = order
        self._nodes: list[Node] = []
        self._facts: dict[int, NodeFacts] = {}
        self._lists: dict[int, dict[str, bytes]] = {}
        self._free: list[int] = []
        # Guards the free lanes; trials that find none wait for one to be given back.
        self._lanes = threading.Condition()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._cluster.__exit__()

    @property
    def lanes(self) -> int:
        """Worlds at the same time, on all nodes together."""
        return sum(facts.lanes for facts in self._facts.values())

    def prepare(self, *, says: Callable[[str], None]) -> None:
        """Have every node ready for its first trial.

        Args:
            says: hears of nodes that are left out.

        Raises:
            FarmError: no node can be used, or one that answers must not be.
            Cancelled: the run was interrupted.
        """
        if not (places := self._cluster.places()):
            raise FarmError(
                "the cluster has no node with a free CPU; start a node with `ray start`"
            )
        code = own_code()
        for number, place in enumerate(places):
            actor = self._cluster.start(
                place,
                PROGRAM,
                arguments=[str(LEASE)],
                code=code,
                interpreter=sys.executable,
                beat=BEAT,
            )
            self._nodes.append(Node(actor, number=number, name=place.name))

        def ready(node: Node, place: ClusterNode) -> str | None:
            try:
                return self._ready(node, place)
            except NodeLost as error:
                says(f"node {node.number} is left out: {error}")
                return None
            except (ActorGone, AnswerRefused) as error:
                return f"node {node.number}: {error}"

        with ThreadPoolExecutor(max_workers=len(places)) as threads:
            problems = [why for why in threads.map(ready, self._nodes, places) if why]
        if problems:
            more = f"; and {plural(len(problems) - 1, 'other node')}" if len(problems) > 1 else ""
            raise FarmError(problems[0] + more)
        if not self._facts:
            raise FarmError(
                "no node of the cluster could be used; wait until processors are free, or use"
                " other nodes"
            )

    def _ready(self, node: Node, place: ClusterNode) -> str | None:
        """Why a node must not be used; None once it can be."""
        description, _ = self._answer(node.ask("facts"))
        try:
            there = EnvironmentFacts.model_validate(description.get("environment"))
            pid = int(description["pid"])
        except (ValidationError, KeyError, TypeError, ValueError):
            raise AnswerRefused("it did not identify itself as a process of this run") from None
        if why := _unlike(there, self._order.machine):
            return f"node {node.number}: {why}"
        lacking, _ = self._answer(node.ask("lacks", digests=sorted(self._order.sources)))
        wanted = lacking.get("lacks")
        if not isinstance(wanted, list) or not all(
            isinstance(digest_asked, str) and digest_asked in self._order.sources
            for digest_asked in wanted
        ):
            raise AnswerRefused("it asked for a file that was not offered")
        for digest in dict.fromkeys(wanted):
            self._bring(node, digest, self._order.sources[digest])
        lanes = self._settings.jobs or max(1, place.cores // 2)
        whole = self._order.manifest(node.number, lanes)
        prepared, _ = self._answer(node.ask("prepare", manifest=whole.model_dump(mode="json")))
        if why := prepared.get("refuses"):
            return f"node {node.number}: {printable(str(why), limit=300)}"
        if prepared.get("start") != self._order.start:
            start = printable(str(prepared.get("start")))
            return (
                f"node {node.number}: ranks start {start} on that node, but {self._order.start}"
                " on this machine"
            )
        facts = NodeFacts(
            number=node.number,
            name=printable(place.name, limit=100) if self._settings.named else None,
            host=there.host,
            harness_pid=pid,
            server_pids=_pids(prepared),
            lanes=lanes,
            system=there.system,
            release=there.release,
            cpu=there.cpu,
            cores=there.cores,
            affinity=there.affinity,
            memory=there.memory,
            gpu=there.gpu,
            packages=digest_of(there.packages),
        )
        with self._lanes:
            self._facts[node.number] = facts
            self._lists[node.number] = {}
            self._free += [node.number] * lanes
        return None

    def _bring(self, node: Node, digest: str, path: Path) -> None:
        size = path.stat().st_size
        at = 0
        with path.open("rb") as file:
            while at == 0 or at < size:
                piece = file.read(PIECE)
                at += len(piece)
                self._answer(
                    node.ask("piece", piece, digest=digest, first=at == len(piece), last=at >= size)
                )
                if not piece:
                    return

    def _answer(self, asked: Future[Answer], *, within: float = READY_WITHIN) -> Answer:
        """Return an answer, once it is there.

        Raises:
            NodeLost, ActorGone, AnswerRefused: it does not come.
            FarmError: it says that something failed.
            Cancelled: the run was interrupted.
        """
        until = time.monotonic() + within
        while not wait([asked], timeout=LOOKS_EVERY).done:
            if select.select([self._cancel], [], [], 0)[0]:
                raise Cancelled
            if time.monotonic() > until:
                raise AnswerRefused(
                    f"it did not answer within {within:g} s, although its node is still up"
                )
        message, content = asked.result()
        if (failed := message.get("failed")) is not None:
            raise FarmError(f"a node failed: {printable(str(failed), limit=500)}")
        return message, content

    def make(self, cell: Cell, arm: str, index: int, *, hang: Hang | None) -> Capture:
        """Make one trial on a node that has a free lane.

        What became of it where that node did not stay.

        Raises:
            FarmError: no node is left, or one sent what it must not.
            Cancelled: the run was interrupted.
        """
        number = self._take_lane()
        node = self._nodes[number]
        facts = self._facts[number]
        about = {**self._expects(cell, arm, index), "node": number}
        began = time.monotonic_ns()
        order = None if hang is None else asdict(hang)
        world = self._scenario.world
        within = (
            world.deadline
            + world.after_failure
            + (hang.within if hang is not None else 0.0)
            + SPARE
        )
        try:
            known = self._lists[number]
            asked = node.ask(
                "trial", cell=cell.id, arm=arm, index=index, hang=order, known=[*known]
            )
            message, content = self._answer(asked, within=within)
            _demand_unchanged(message)
            there = {**about, "host": facts.host, "harness_pid": facts.harness_pid}
            return take(message.get("files"), content, about=there, size=cell.ranks, known=known)
        except (NodeLost, ActorGone) as error:
            return _left(about, error, began=began)
        except AnswerRefused as error:
            raise FarmError(
                f"node {number} sent an invalid response: {error}. Nothing was signed"
            ) from None
        except FarmError as error:
            raise FarmError(f"node {number}: {error}. Nothing was signed") from None
        finally:
            self._give_lane(number)

    def _take_lane(self) -> int:
        with self._lanes:
            while True:
                self._free = [number for number in self._free if self._nodes[number].ended is None]
                if self._free:
                    return self._free.pop(0)
                if all(self._nodes[number].ended is not None for number in self._facts):
                    raise FarmError(f"no nodes are left: {self._nodes[max(self._facts)].ended}")
                if select.select([self._cancel], [], [], 0)[0]:
                    raise Cancelled
                self._lanes.wait(LOOKS_EVERY)

    def _give_lane(self, number: int) -> None:
        with self._lanes:
            self._free.append(number)
            self._lanes.notify()

    def facts(self) -> FarmFacts:
        """Return what the nodes were, once all trials are there. Ends what runs there.

        Raises:
            FarmError: an input was changed on a node.
        """
        if changed := self.close():
            raise FarmError(f"a rank changed {changed[0]} during the run. Nothing was signed")
        nodes = [facts for _, facts in sorted(self._facts.items())]
        return FarmFacts(starter="ray", version=self._cluster.version, nodes=nodes)

    def close(self) -> list[str]:
        """End what runs on the nodes, and wait for it; the inputs that were changed there."""
        if self._closed:
            return []
        self._closed = True
        changed: list[str] = []

        def end(node: Node) -> None:
            facts = self._facts.get(node.number)
            if node.ended is None:
                asked = node.ask("end")
                if not wait([asked], timeout=ENDS_WITHIN).done:
                    changed.append(f"node {node.number} did not report whether an input")
                elif asked.exception() is None:
                    answer, _ = asked.result()
                    changed.extend(_changed(answer))
                    if facts is not None:
                        self._facts[node.number] = facts.model_copy(
                            update={"server_pids": _pids(answer)}
                        )
                    node.await_end(ENDS_WITHIN)
                    node.kill()
                    return
            if facts is not None and node.ended is not None:
                lost = f"{type(node.ended).__name__}: {node.ended}"
                self._facts[node.number] = facts.model_copy(update={"lost": lost})
            node.kill()

        if self._nodes:
            with ThreadPoolExecutor(max_workers=len(self._nodes)) as threads:
                list(threads.map(end, self._nodes))
        return changed


def _unlike(there: EnvironmentFacts, here: EnvironmentFacts) -> str | None:
    """Why ranks of a node would not run what ranks run here, with what to do; None where they
    would.
    """
    for key in ("system", "machine", "implementation", "python"):
        expected = getattr(here, key)
        other = getattr(there, key)
        if expected != other:
            shown = printable(str(other), limit=60)
            return (
                f"its {key} is {shown}, but {expected} on this machine; start Ray on that node"
                " from an environment made from the same lock file"
            )
    packages = (
        {normal(package.name): (package.version, package.record or "") for package in of.packages}
        for of in (there, here)
    )
    if not (differing := readiness.differences(*packages)):
        return None
    more = len(differing) - MOST_NAMED
    some = ", ".join(differing[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    differ = "differs" if len(differing) == 1 else "differ"
    what = f"{plural(len(differing), 'package')} {differ} from the packages on this machine: {some}"
    return (
        f"{what}; install from the same lock file on that node, and start Ray from that environment"
    )


def _pids(answer: Mapping[str, Any]) -> list[int]:
    pids = answer.get("servers")
    if not isinstance(pids, list) or not all(type(pid) is int for pid in pids):
        raise AnswerRefused("its response does not list its fork servers")
    return pids


def _changed(answer: Mapping[str, Any]) -> list[str]:
    """Return the inputs that a node says were changed there."""
    changed = answer.get("changed")
    names = changed if isinstance(changed, list) else ["(it did not report which)"]
    return [printable(f"input {name}", limit=200) for name in names]


def _demand_unchanged(answer: Mapping[str, Any]) -> None:
    if changed := _changed(answer):
        raise FarmError(f"a rank changed {changed[0]} on its node")


def _left(about: Mapping[str, JSON], error: Exception, *, began: int) -> Capture:
    """Return a trial whose node did not stay, as control saw it: no rank of it said anything that
    arrived.
    """
    kind = type(error).__name__
    begun = Event(
        ns=began,
        by="harness",
        name="world.begin",
        values={**about, "lost": True, "harness_pid": os.getpid()},
    )
    failed = Event(
        ns=time.monotonic_ns(),
        by="harness",
        name="harness.error",
        values={"type": kind, "message": str(error)},
    )
    ended = Event(ns=time.monotonic_ns(), by="harness", name="world.end")
    return Capture(events=(begun, failed, ended), logs={}, stacks={})


def opened(plan: RunPlan, nodes: RayNodes, *, interrupt: Interrupt, worlds: Worlds) -> Farm:
    """Return the farm of a run, joined to its cluster; no node has anything yet.

    Raises:
        FarmError: the scenario is not one whose trials are farmed.
        NoCluster: there is no cluster.
    """
    preparation = plan.preparation
    if why := refusal(plan.scenario, environments=preparation.environments):
        raise FarmError(
            f"its trials cannot run on the nodes, because {why}; run it with --on local"
        )

    def expects(cell: Cell, arm: str, index: int) -> Mapping[str, JSON]:
        launch = worlds.launch(cell, arm, index)
        program = {"program": True} if launch.subject.program else {}
        return {**launch.about, **program, "size": launch.size, "backend": launch.backend}

    files = {name: (staged, plan.files(name)) for name, staged in preparation.arms.items()}
    return Farm(
        Cluster(nodes.address),
        nodes,
        plan.scenario,
        cancel=interrupt.descriptor,
        expects=expects,
        order=FarmOrder(
            manifest=partial(manifest_of, plan),
            sources=sources(files, preparation.inputs),
            start=worlds.start,
            machine=preparation.machine,
        ),
    )
