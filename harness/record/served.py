"""Services of a run as its evidence tells of them: which files there may be, and whether what a
trial says of a service is what the events of that service say.

The keeper of a service's processes says in the service's own events when each ended. The harness
notes it in the events of the trial, which checks are judged by. So a note that was taken out, or
put in, contradicts the service's events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from harness.events import EventError
from harness.forms.strict_json import JSON
from harness.history import (
    SERVICE_ENDED,
    SERVICE_LAST,
    SERVICE_READY,
    SERVICE_STOPPING,
    SERVICE_UNREADY,
    History,
    about_service,
)
from harness.reason import RefusalWord
from harness.record.model import Contradiction, RecordError
from harness.record.planned import demand_strikes
from harness.record.trial_reader import TrialReader
from harness.scenario import Cell, Scenario, processes_of
from harness.scenario.service import Service
from harness.stats.outcome import (
    CellFacts,
    reference_folders,
    service_events,
    service_folder,
    trial_folder,
)
from harness.stats.verdict import Judgement

REFERENCE = "reference"
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
            self._hear_service(evidence, history, name, service, cell, arm)

    # Six arguments: a trial, and which of its services.
    def _hear_service(
        self,
        evidence: str,
        history: History,
        name: str,
        service: Service,
        cell: Cell,
        arm: str,
    ) -> None:
        noted = [
            *about_service(history, SERVICE_READY, name),
            *about_service(history, SERVICE_UNREADY, name),
        ]
        if len(noted) != 1:
            self._refuse(evidence, f"it says {len(noted)} times whether {name} was ready")
        stated = noted[0].event
        start = stated.values.get("start")
        if type(start) is not int or start < 0:
            self._refuse(evidence, f"{name} has no number of its start")
            return
        is_kept = service.keep == "cell" and arm != REFERENCE
        folder = evidence.rpartition("/")[0]
        if is_kept:
            folder = service_folder(cell.slug, arm, name, start)
            self._named.setdefault((cell.id, arm, name), set()).add(start)
        path = service_events(folder, name)
        served = self._events(path, 1 if arm == REFERENCE else processes_of(service, cell))
        own: dict[str, JSON] = {"cell": cell.id, "arm": arm, "service": name, "start": start}
        for key, value in own.items():
            if arm != REFERENCE and served.about().get(key) != value:
                self._refuse(path, f"{key} is {served.about().get(key)!r}, not {value!r}")
        if not is_kept:
            demand_strikes(self._scenario, path, served)
        if stated.name == SERVICE_READY:
            pids = [
                seen.event.pid
                for process in range(served.size)
                for seen in served.served(process, "rank.started")
            ]
            if stated.values.get("pids") != pids:
                self._refuse(evidence, f"the processes of {name} are not those of {path}")
            self._demand_ends(evidence, history, name, served, is_kept=is_kept)

    # Five arguments: what two files say of one service, and whether it outlives the trial.
    def _demand_ends(
        self, evidence: str, history: History, name: str, served: History, *, is_kept: bool
    ) -> None:
        """Demand that a trial names the ends of processes that its service's events show."""
        last = about_service(history, SERVICE_LAST, name)
        if len(last) != 1:
            self._refuse(evidence, f"it does not say how {name} was at its end")
        # One that goes on serving may end while the harness looks, which it hears a little later.
        until = last[0].event.ns - HEARD_WITHIN
        stopping = served.noted(SERVICE_STOPPING)
        if not is_kept:
            # All of its processes may have ended before it was asked to.
            until = stopping[0].event.ns if stopping else served.seen[-1].event.ns
        shown: dict[JSON, int] = {
            process: seen.event.ns
            for process in range(served.size)
            if (seen := served.exit(process)) is not None
        }
        stated: dict[JSON, int] = {
            seen.event.values.get("process"): seen.event.ns
            for seen in about_service(history, SERVICE_ENDED, name)
        }
        unstated = [
            process for process, ns in shown.items() if process not in stated and ns < until
        ]
        invented = [process for process, ns in stated.items() if shown.get(process) != ns]
        if unstated or invented:
            which = (unstated or invented)[0]
            self._refuse(evidence, f"the end of process {which} of {name} is not as in its events")

    def _events(self, path: str, size: int) -> History:
        if path not in self._starts:
            if path not in self._names:
                raise RecordError(f"the events of a service are missing: {path}")
            try:
                self._starts[path] = History.read(self._read(path), size=size)
            except EventError as error:
                raise RecordError(f"a service's events cannot be read: {error}") from None
        return self._starts[path]

    def _refuse(self, evidence: str, what: str) -> None:
        raise Contradiction(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, f"{evidence}: {what}")

    def demand(self, judgement: Judgement, names: Collection[str]) -> None:
        """Demand that no start of a service that a cell keeps is left out.

        Raises:
            Contradiction: one is.
        """
        del judgement, names
        for (cell, arm, name), starts in self._named.items():
            if starts != set(range(len(starts))):
                what = f"{arm} of cell {cell} names the starts {sorted(starts)} of {name}"
                raise Contradiction(RefusalWord.TRIALS_NOT_PLANNED, what)
