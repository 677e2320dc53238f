"""Services of a run as its evidence tells of them: which files there may be, and whether what a
trial says of a service is what the events of that service say.

The keeper of a service's processes says in the service's own events when each ended. The harness
notes it in the events of the trial, which checks are judged by. So a note that was taken out, or
put in, contradicts the service's events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.events import EventError
from harness.forms.strict_json import JSON
from harness.history import (
    SERVICE_ENDED,
    SERVICE_LAST,
    SERVICE_READY,
    SERVICE_STOPPING,
    SERVICE_UNREADY,
    History,
    Seen,
    about_service,
    ended,
)
from harness.reason import RefusalWord
from harness.record.model import Contradiction, RecordError
from harness.record.planned import demand_strikes
from harness.record.trial_reader import TrialReader
from harness.scenario import Cell, Scenario, processes_of
from harness.stats.outcome import (
    CellFacts,
    reference_folders,
    service_events,
    service_folder,
    start_of,
    trial_folder,
)
from harness.stats.verdict import Judgement

REFERENCE = "reference"
ROUNDED = 0.1
"""Seconds by which what is measured by two clocks of one process may differ."""
HEARD_WITHIN = 1_000_000_000
"""Nanoseconds in which the harness hears of the end of a process from its keeper."""


def service_files(
    scenario: Scenario, planned: Sequence[tuple[Cell, CellFacts]]
) -> Iterator[tuple[str, str, int]]:
    """Yield where evidence of a service may lie: the folder, its name, and how many processes it
    has.
    """
    for cell, fact in planned:
        if fact.skipped:
            continue
        for arm, count in fact.trials.items():
            for name, service in scenario.services_of(arm).items():
                size = processes_of(service, cell)
                for index in range(count):
                    kept = service_folder(cell.slug, arm, name, index)
                    own = trial_folder(cell.slug, arm, index)
                    yield (kept if service.keep == "cell" else own), name, size
        for folder in reference_folders(scenario, cell):
            for name, service in scenario.services_of(REFERENCE).items():
                yield folder, name, processes_of(service, cell)


def names_of(folder: str, name: str, size: int) -> Iterator[str]:
    """Yield the paths of a service's files in a folder."""
    yield service_events(folder, name)
    for process in range(size):
        yield f"{folder}/{name}-{process}.log"


class Served(TrialReader):
    """Holds what trials say of their services against the events of those."""

    def __init__(
        self,
        scenario: Scenario,
        cells: Mapping[str, Cell],
        read: Callable[[str], bytes],
        names: Collection[str],
    ) -> None:
        self._scenario = scenario
        self._cells = cells
        self._read = read
        self._names = names
        self._starts: dict[str, History] = {}
        self._processes: dict[tuple[int, int | None], str] = {}
        # Starts that trials name, by what is before their number.
        self._named: dict[tuple[str, str, str], set[int]] = {}

    def hear(self, evidence: str, history: History) -> None:
        """Take one trial, by the path of its events."""
        if not self._scenario.services or history.noted("harness.error"):
            return
        about = history.about()
        arm = str(about.get("arm"))
        cell = self._cells.get(str(about.get("cell")))
        if cell is None:
            # A reference that all cells share.
            cell = next(iter(self._cells.values()))
        for name, service in self._scenario.services_of(arm).items():
            noted = [
                *about_service(history, SERVICE_READY, name),
                *about_service(history, SERVICE_UNREADY, name),
            ]
            if len(noted) != 1:
                self._refuse(evidence, f"it reports {len(noted)} times whether {name} was ready")
            start = start_of(history, name)
            if start is None:
                self._refuse(evidence, f"the start of {name} has no number")
                continue
            folder = evidence.rpartition("/")[0]
            is_kept = service.keep == "cell" and arm != REFERENCE
            if is_kept:
                folder = service_folder(cell.slug, arm, name, start)
                self._named.setdefault((cell.slug, arm, name), set()).add(start)
            size = processes_of(service, cell)
            if arm == REFERENCE and self._scenario.subject.compare is None:
                size = 1
            served = self._events(service_events(folder, name), size)
            story = ServiceStory(evidence, history, name, service_events(folder, name), served)
            stated = {"scenario": self._scenario.id, "size": size, "backend": "none"}
            if arm != REFERENCE:
                stated |= {"cell": cell.id, "arm": arm}
            story.demand_about({**stated, "service": name, "start": start})
            if not is_kept:
                demand_strikes(self._scenario, service_events(folder, name), served)
            story.demand_whole()
            story.demand_order(is_kept=is_kept)
            if noted[0].event.name == SERVICE_READY:
                story.demand_ready(noted[0])
                story.demand_ends(is_kept=is_kept)

    def _events(self, path: str, size: int) -> History:
        if path not in self._starts:
            if path not in self._names:
                raise RecordError(f"the events of a service are missing: {path}")
            try:
                served = History.read(self._read(path), size=size)
            except EventError as error:
                raise RecordError(f"a service's events cannot be read: {error}") from None
            self._starts[path] = served
            self._demand_own(path, served)
        return self._starts[path]

    def _demand_own(self, path: str, served: History) -> None:
        """Demand that no other start has a process of this one."""
        for process in range(served.size):
            for seen in served.served(process, "rank.started"):
                key = (seen.event.ns, seen.event.pid)
                other = self._processes.setdefault(key, path)
                if other != path:
                    what = f"{path} and {other} have the same process"
                    raise Contradiction(RefusalWord.EVENTS_SHARED, what)

    def _refuse(self, evidence: str, what: str) -> None:
        raise Contradiction(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, f"{evidence}: {what}")

    def demand(self, judgement: Judgement, names: Collection[str]) -> None:
        """Demand that no start of a service that a cell keeps is left out, and none is beside.

        Raises:
            Contradiction: one is.
        """
        del judgement
        for (slug, arm, name), starts in self._named.items():
            beside = service_events(service_folder(slug, arm, name, len(starts)), name)
            if starts != set(range(len(starts))) or beside in names:
                what = f"the {arm} in {slug} has the starts {sorted(starts)} of {name}"
                raise Contradiction(RefusalWord.TRIALS_NOT_PLANNED, what)


@dataclass(frozen=True)
class ServiceStory:
    """What a trial and the events of a service say of each other.

    Attributes:
        evidence: path of the trial's events.
        trial: the trial.
        name: of the service.
        path: of the service's events.
        served: those.
    """

    evidence: str
    trial: History
    name: str
    path: str
    served: History

    def demand_about(self, stated: Mapping[str, JSON]) -> None:
        """Demand that the events are of this start of this service."""
        about = self.served.about()
        for key, value in stated.items():
            if about.get(key) != value:
                self._refuse(self.path, f"{key} is {about.get(key)!r}, not {value!r}")

    def demand_whole(self) -> None:
        """Demand that they begin and end, and tell the end of every process that they began."""
        events = [seen.event for seen in self.served.seen]
        if not events or events[0].name != "world.begin" or events[-1].name != "world.end":
            self._refuse(self.path, "it does not begin with world.begin and end with world.end")
        if self.served.noted("harness.error"):
            return
        for process in range(self.served.size):
            started = len(self.served.served(process, "rank.started"))
            exits = self.served.served(process, "rank.exited")
            if started != 1 or len(exits) != 1 or ended(exits[0].event.values) == "unknown signal":
                self._refuse(self.path, f"process {process} does not begin and end once")

    def demand_order(self, *, is_kept: bool) -> None:
        """Demand that the service was there while the trial ran, by the clock of both."""
        begun = self.served.seen[0].event.ns
        over = self.served.seen[-1].event.ns
        first = self.trial.seen[0].event.ns
        last = about_service(self.trial, SERVICE_LAST, self.name)
        until = last[0].event.ns if last else first
        if about_service(self.trial, SERVICE_ENDED, self.name):
            # Its own world was over with its processes.
            until = first
        if begun > first or (is_kept and over < until):
            self._refuse(
                self.evidence,
                (f"{self.name} was not running during the trial, according to {self.path}"),
            )
        stopping = self.served.noted(SERVICE_STOPPING)
        exits = [self.trial.exit(rank) for rank in range(self.trial.size)]
        ended_by = max((seen.event.ns for seen in exits if seen is not None), default=first)
        if stopping and stopping[0].event.ns < ended_by:
            self._refuse(self.evidence, f"{self.name} was stopped while its ranks ran")

    def demand_ready(self, ready: Seen) -> None:
        """Demand that processes, time and order of a readiness are those of the service."""
        pids = [
            seen.event.pid
            for process in range(self.served.size)
            for seen in self.served.served(process, "rank.started")
        ]
        values = ready.event.values
        if values.get("pids") != pids:
            self._refuse(
                self.evidence,
                (f"the processes of {self.name} differ from the processes of {self.path}"),
            )
        seconds = values.get("seconds")
        most = (ready.event.ns - self.served.seen[0].event.ns) / 1e9 + ROUNDED
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 <= float(str(seconds)) <= most:
            self._refuse(self.evidence, f"{self.name} cannot have been ready after {seconds!r} s")
        begun = [
            seen.event.ns
            for rank in range(self.trial.size)
            for seen in self.trial.served(rank, "rank.started")
        ]
        if begun and ready.event.ns > min(begun):
            self._refuse(self.evidence, f"{self.name} was ready after a rank had started")
        if type(values.get("is_fresh")) is not bool:
            self._refuse(
                self.evidence,
                (f"the record of {self.name} does not state whether it was started fresh"),
            )

    def demand_ends(self, *, is_kept: bool) -> None:
        """Demand that the trial names the ends of processes that the service's events show."""
        last = about_service(self.trial, SERVICE_LAST, self.name)
        if len(last) != 1:
            self._refuse(
                self.evidence, (f"it does not state the condition of {self.name} at its end")
            )
        asked = [
            *self.served.noted(SERVICE_STOPPING),
            *self.served.noted("world.stopped"),
        ]
        until = min((seen.event.ns for seen in asked), default=self.served.seen[-1].event.ns)
        if is_kept:
            # One that goes on serving may end while the harness looks. Such a start counts as
            # failed by its own events.
            until = min(until, last[0].event.ns - HEARD_WITHIN)
        shown: dict[JSON, int] = {
            process: seen.event.ns
            for process in range(self.served.size)
            if (seen := self.served.exit(process)) is not None
        }
        stated: dict[JSON, JSON] = {
            seen.event.values.get("process"): seen.event.values.get("ns")
            for seen in about_service(self.trial, SERVICE_ENDED, self.name)
        }
        unstated = [
            process for process, ns in shown.items() if process not in stated and ns < until
        ]
        invented = [process for process, ns in stated.items() if shown.get(process) != ns]
        if unstated or invented:
            which = (unstated or invented)[0]
            what = f"the end of process {which} of {self.name} differs from its events"
            self._refuse(self.evidence, what)

    def _refuse(self, evidence: str, what: str) -> None:
        raise Contradiction(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, f"{evidence}: {what}")
