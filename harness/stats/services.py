"""Services of a cell over all its trials: how often each was started, how long that took, and how
it ended.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median

from pydantic import Field

from harness.forms.model import Model
from harness.history import (
    SERVICE_ENDED,
    SERVICE_LAST,
    SERVICE_READY,
    SERVICE_STOPPING,
    SERVICE_UNREADY,
    History,
    about_service,
    ended,
)
from harness.scenario import Cell, Scenario, processes_of
from harness.scenario.service import Service
from harness.stats.outcome import (
    Arm,
    CellFields,
    JudgedTrial,
    TrialKeeper,
    service_events,
    service_folder,
    trial_folder,
)
from harness.stats.tally import NO_STARTS, Starts

WAYS_KEPT = 5


class ServiceSummary(Model):
    """One service in one arm of a cell.

    Attributes:
        program: its command line.
        env: its variables.
        processes: of each start.
        keep: trial or cell.
        starts: how often it was started.
        unready: starts that were never ready.
        unhealthy: trials at whose end it ran and was not healthy.
        seconds: median time until it was ready; None where it never was.
        ends: how processes ended before they were asked to, with the number of trials, the first
            few ways.
        max_rss_kib: most memory of one of its processes; None where no end was seen.
        left: most processes that it left when it had ended; the keeper ended them.
        ended: of a service that the cell keeps, starts that ended by themselves.
        events: path of the events of its first start.
    """

    name: str
    arm: Arm
    program: list[str]
    env: dict[str, str]
    processes: int
    keep: str
    starts: int
    unready: int
    unhealthy: int
    seconds: float | None
    ends: dict[str, int] = Field(default_factory=dict)
    max_rss_kib: int | None
    left: int = 0
    ended: int = 0
    events: str

    @property
    def command_line(self) -> str:
        """Its variables and its program as a shell takes them."""
        variables = [f"{key}={shlex.quote(value)}" for key, value in sorted(self.env.items())]
        return " ".join([*variables, shlex.join(self.program)])


@dataclass
class ServiceCounts:
    """What is known so far of one service in one arm."""

    arm: Arm
    service: Service
    starts: dict[int, int] = field(default_factory=dict)
    ready: dict[int, float] = field(default_factory=dict)
    unready: set[int] = field(default_factory=set)
    ends: dict[str, int] = field(default_factory=dict)
    unhealthy: int = 0
    memory: int = 0
    events: str = ""
    ended: set[int] = field(default_factory=set)
    left: int = 0


class ServiceKeeper(TrialKeeper):
    """Takes the trials of one cell, and keeps what they say of the services."""

    def __init__(
        self,
        scenario: Scenario,
        cell: Cell,
    ) -> None:
        self._cell = cell
        self._faults = scenario.faults
        arms: list[Arm] = ["candidate"]
        if scenario.subject.control is not None:
            arms.append("control")
        self._counts = {
            (arm, name): ServiceCounts(arm, service)
            for arm in arms
            for name, service in scenario.services_of(arm).items()
        }

    def take(self, judged: JudgedTrial) -> None:
        """Take one trial, a void one too: its services were started."""
        history = judged.history
        deadly = {fault.id for fault in self._faults if fault.properties.ends_rank}
        for (arm, name), counts in self._counts.items():
            if arm != judged.arm:
                continue
            by_fault = {
                strike.rank
                for strike in judged.trial.strikes
                if strike.service == name and strike.proved and strike.fault in deadly
            }
            self._take(counts, name, judged.trial.index, history, by_fault)

    # Five arguments: a trial, and which service of it.
    def _take(
        self,
        counts: ServiceCounts,
        name: str,
        index: int,
        history: History,
        by_fault: Collection[object],
    ) -> None:
        for seen in about_service(history, SERVICE_READY, name):
            start = _number(seen.event.values.get("start"))
            counts.starts[index] = start
            counts.ready.setdefault(start, _seconds(seen.event.values.get("seconds")))
        for seen in about_service(history, SERVICE_UNREADY, name):
            start = _number(seen.event.values.get("start"))
            counts.starts[index] = start
            counts.unready.add(start)
        ways = {
            ended(seen.event.values)
            for seen in about_service(history, SERVICE_ENDED, name)
            if seen.event.values.get("process") not in by_fault
        }
        for way in sorted(ways):
            if way in counts.ends or len(counts.ends) < WAYS_KEPT:
                counts.ends[way] = counts.ends.get(way, 0) + 1
        healthy = [
            seen.event.values.get("healthy") for seen in about_service(history, SERVICE_LAST, name)
        ]
        counts.unhealthy += not ways and not by_fault and healthy == [False]
        served = history.services.get(name)
        if served is None:
            return
        start = counts.starts.get(index, index)
        if not counts.events:
            folder = trial_folder(self._cell.slug, counts.arm, index)
            if counts.service.keep == "cell":
                folder = service_folder(self._cell.slug, counts.arm, name, start)
            counts.events = service_events(folder, name)
        counts.memory = max(counts.memory, _memory(served))
        if _ended_by_itself(served):
            counts.ended.add(start)
        counts.left = max(counts.left, _left(served))

    def starts(self, arm: Arm) -> Starts:
        """Return which start of what the cell keeps each trial of an arm had."""
        kept = [
            counts
            for (whose, _), counts in self._counts.items()
            if whose == arm and counts.service.keep == "cell"
        ]
        if not kept:
            return NO_STARTS
        # Trials are as independent as the service that was started least.
        least = min(kept, key=lambda counts: len(set(counts.starts.values())))
        return Starts(of=least.starts, ended=frozenset(least.ended))

    def fields(self) -> CellFields:
        return {"services": [self._summary(*key) for key in self._counts]}

    def _summary(self, arm: Arm, name: str) -> ServiceSummary:
        counts = self._counts[arm, name]
        service = counts.service
        own = service.keep == "trial"
        return ServiceSummary(
            name=name,
            arm=arm,
            program=list(service.program),
            env=dict(service.env),
            processes=processes_of(service, self._cell),
            keep=service.keep,
            starts=len(counts.starts) if own else len(set(counts.starts.values())),
            unready=len(counts.unready),
            unhealthy=counts.unhealthy,
            seconds=round(median(counts.ready.values()), 3) if counts.ready else None,
            ends=counts.ends,
            max_rss_kib=counts.memory or None,
            left=counts.left,
            ended=len(counts.ended) if service.keep == "cell" else 0,
            events=counts.events,
        )


def _ended_by_itself(served: History) -> bool:
    """Return whether a process ended before anybody asked it to."""
    asked = [*served.noted(SERVICE_STOPPING), *served.noted("world.stopped")]
    until = min((seen.event.ns for seen in asked), default=None)
    for process in range(served.size):
        end = served.exit(process)
        if end is not None and (until is None or end.event.ns < until):
            return True
    return False


def _left(served: History) -> int:
    for seen in served.served(None, "world.survivors"):
        count = seen.event.values.get("count")
        if isinstance(count, int):
            return count
    return 0


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _memory(served: History) -> int:
    """Most memory of one of a service's processes, in KiB; 0 where no end was seen."""
    found = [0]
    for process in range(served.size):
        end = served.exit(process)
        size = end.event.values.get("max_rss_kib") if end is not None else None
        if isinstance(size, int):
            found.append(size)
    return max(found)
