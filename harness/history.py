"""Events of a trial, asked by rank. Pure: bytes or events in, answers out."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from operator import attrgetter
from typing import NamedTuple

from harness.events import Event, parse_lines
from harness.forms.strict_json import JSON

# Errors that any typing mistake raises: where nobody states one, it shows nothing of what was to be
# shown.
SLIPS = frozenset({"NameError", "ImportError", "AttributeError", "SyntaxError", "TypeError"})


class Seen(NamedTuple):
    """Event and the line of `events.jsonl` it is on (from 1)."""

    event: Event
    line: int


class FaultOnRank(NamedTuple):
    """Proof of one fault of the scenario on one rank, as far as a check may ask for it.

    Attributes:
        fault: its id.
        rank: the rank it was for, as the scenario says, whatever the events say.
        struck: the harness' word that it struck; None where it did not.
        proved: whether it provably took effect.
        ends: whether it provably ended the rank.
    """

    fault: str
    rank: int
    struck: Seen | None
    proved: bool
    ends: bool


_place = attrgetter("by", "rank", "name")


class History:
    """Events of one trial, in order of time.

    What a rank says of itself and what the server or the harness evidences are kept apart: a rank
    cannot forge its own exit code.

    Attributes:
        size: world size.
        seen: every event with its line.
        reference: the events of the reference that the trial is compared with, which is a world of
            one.
        is_of_programs: whether the ranks are programs, that have no runtime of ours to tell of
            themselves.
        faults: what is proved of the scenario's faults, rank by rank.
        services: the events of the trial's own services, by name; of each its processes are ranks.
    """

    faults: Sequence[FaultOnRank] = ()
    services: Mapping[str, History] = {}

    def __init__(
        self, events: Iterable[Event], *, size: int, reference: History | None = None
    ) -> None:
        self.size = size
        self.reference = reference
        self.seen: Sequence[Seen] = list(map(Seen, events, count(1)))
        self._by_rank: defaultdict[tuple[str, int | None, str], list[Seen]] = defaultdict(list)
        self._by_artefact: defaultdict[tuple[str, int | None, str, str], list[Seen]] = defaultdict(
            list
        )
        for seen in self.seen:
            place = _place(seen.event)
            self._by_rank[place].append(seen)
            # Of a large model a rank keeps thousands, and each is looked for by its name.
            if seen.event.name in ARTEFACTS and isinstance(
                artefact := seen.event.values.get("artefact"), str
            ):
                self._by_artefact[(*place, artefact)].append(seen)
        begun = self.noted("world.begin")
        self._about: Mapping[str, JSON] = begun[0].event.values if begun else {}
        self.is_of_programs = self._about.get("program") is True

    @classmethod
    def read(cls, text: bytes, *, size: int, reference: History | None = None) -> History:
        """Parse an `events.jsonl`.

        Raises:
            EventError: a line is not an event; the message names it.
        """
        return cls(parse_lines(text), size=size, reference=reference)

    def with_faults(self, faults: Sequence[FaultOnRank]) -> History:
        """Return the same events with what they prove of the faults."""
        other = copy.copy(self)
        other.faults = faults
        return other

    def with_services(self, services: Mapping[str, History]) -> History:
        """Return the same events with those of the trial's own services."""
        other = copy.copy(self)
        other.services = services
        return other

    def said(self, rank: int, name: str) -> Sequence[Seen]:
        """Return what the rank itself emitted under that name."""
        return self._by_rank.get(("rank", rank, name), ())

    def served(self, rank: int | None, name: str) -> Sequence[Seen]:
        """Return what the process that forked the ranks says, of a rank or of the world."""
        return self._by_rank.get(("server", rank, name), ())

    def noted(self, name: str, rank: int | None = None) -> Sequence[Seen]:
        """Return what the harness says, of a rank or of the world."""
        return self._by_rank.get(("harness", rank, name), ())

    def kept(self, rank: int, artefact: str) -> Sequence[Seen]:
        """Return what the rank said of an artefact that it kept."""
        return self._by_artefact.get(("rank", rank, ARTEFACT_KEPT, artefact), ())

    def found(self, rank: int, artefact: str) -> Sequence[Seen]:
        """Return what the harness saw of an artefact of the rank."""
        return self._by_artefact.get(("harness", rank, ARTEFACT_FOUND, artefact), ())

    def values(self, rank: int, event: str, key: str) -> Sequence[tuple[JSON, int]]:
        """List every value the rank reported under `event` and `key`, with its line."""
        return [
            (seen.event.values[key], seen.line)
            for seen in self.said(rank, event)
            if key in seen.event.values
        ]

    def exit(self, rank: int) -> Seen | None:
        """Return the end of the rank, as the server reaped it."""
        return next(iter(self.served(rank, "rank.exited")), None)

    def error(self, rank: int) -> Seen | None:
        """Return the exception that ended the rank, as the rank described it."""
        return next(iter(self.said(rank, "rank.error")), None)

    def ended_by(self, rank: int) -> FaultOnRank | None:
        """Return the fault that provably ended the rank."""
        return next((fault for fault in self.faults if fault.rank == rank and fault.ends), None)

    def was_stopped(self, rank: int) -> bool:
        """Tell whether the harness stopped the rank with its world."""
        lists = (seen.event.values.get("ranks") for seen in self.noted("world.stopped"))
        return any(isinstance(ranks, list) and rank in ranks for ranks in lists)

    def executed(self, rank: int) -> Seen | None:
        """Return what was executed as this rank, by its forker's word; None for a rank of
        Python.
        """
        return next(iter(self.served(rank, "program.started")), None)

    def executed_files(self, rank: int) -> Sequence[tuple[str, str]]:
        """List files of the code on a program's command line, with their sha256.

        Evidence of another form names none.
        """
        seen = self.executed(rank)
        named = seen.event.values.get("files") if seen else None
        return [
            (str(one.get("file")), str(one.get("sha256")))
            for one in (named if isinstance(named, list) else ())
            if isinstance(one, dict)
        ]

    def began(self, rank: int) -> bool:
        """Tell whether the subject itself began on this rank.

        A program has, once it says that it is ready.
        """
        return bool(self.said(rank, "ready" if self.is_of_programs else "subject.begin"))

    def returned(self, rank: int) -> Seen | None:
        """Return what shows that the subject returned: its own word, or a program's exit code 0."""
        if not self.is_of_programs:
            return next(iter(self.said(rank, "subject.end")), None)
        end = self.exit(rank)
        return end if end is not None and end.event.values.get("code") == 0 else None

    def about(self) -> Mapping[str, JSON]:
        """Values of `world.begin`."""
        return self._about

    def start_ns(self) -> int:
        """When the trial began, in CLOCK_MONOTONIC nanoseconds."""
        return self.seen[0].event.ns if self.seen else 0


def machine_of(history: History, rank: int) -> JSON:
    """Return the machine of a rank, in a world over several; None where all were on one."""
    placed = history.about().get("machines")
    of = placed.get("of") if isinstance(placed, dict) else None
    return of[rank] if isinstance(of, list) and rank < len(of) else None


def machine_called(history: History, rank: int) -> JSON:
    """Name the machine of a rank as evidence does, in a world over several; None on one machine."""
    placed = history.about().get("machines")
    index = machine_of(history, rank)
    names = placed.get("called") if isinstance(placed, dict) else None
    if not isinstance(names, list) or type(index) is not int or not 0 <= index < len(names):
        return None
    return names[index]


def neighbours(history: History, rank: int) -> list[int]:
    """List the other ranks on the machine of a rank, in a world over several."""
    machine = machine_of(history, rank)
    if machine is None:
        return []
    ranks = range(history.size)
    return [other for other in ranks if other != rank and machine_of(history, other) == machine]


def ended(values: object) -> str:
    """Describe how a process ended: `code 1` or `SIGKILL`."""
    if not isinstance(values, dict):
        return "unknown"
    if values.get("code") is not None:
        return f"code {values['code']}"
    return str(values.get("signal") or "unknown signal")


# A window is at least 2 s, and ten times the longest silence of the cell's candidate trials.
LEAST = 2.0
TIMES = 10
# What ends a silence that the harness itself kept a rank in: a gate that it held, a rank that it
# had stopped.
KEPT = frozenset({"gate.opened", "rank.continued"})


def longest_silence(history: History) -> float:
    """Return the longest time, in seconds, in which no rank emitted anything or ended."""
    if not (started := history.noted("world.start")):
        return 0.0
    last = started[0].event.ns
    longest = 0
    for seen in history.seen:
        event = seen.event
        if event.ns < last or (
            event.by != "rank" and event.name not in KEPT and event.name != "rank.exited"
        ):
            continue
        if event.name not in KEPT:
            longest = max(longest, event.ns - last)
        last = event.ns
    return longest / 1e9


def window(silence: float) -> float:
    """Return for how many seconds a world must stand still, by its candidate's longest silence."""
    return max(LEAST, TIMES * silence)


HUB_BEGIN = "hub.begin"
HUB_REQUEST = "hub.request"
HUB_END = "hub.end"


def hub_requests(history: History, rank: int) -> Sequence[Seen]:
    """Return the requests that a rank's own process made."""
    return history.noted(HUB_REQUEST, rank)


def all_hub_requests(history: History) -> list[Seen]:
    """List all requests of a trial, those of ranks' children and of strangers too."""
    return [
        seen
        for seen in history.seen
        if (seen.event.by, seen.event.name) == ("harness", HUB_REQUEST)
    ]


def hub_log_flaw(history: History) -> str:
    """Say why the hub's log of a trial is not whole; empty where it is."""
    end = history.noted(HUB_END)
    if not history.noted(HUB_BEGIN) or not end:
        return "the hub's log has no end" if history.noted(HUB_BEGIN) else "there was no hub"
    logged = len(all_hub_requests(history))
    counted = end[0].event.values.get("requests")
    return (
        "" if logged == counted else f"the hub counted {counted} requests, and its log has {logged}"
    )


# The harness notes these of a service in the events of a trial: service, start, and
# seconds, pids, is_fresh (the trial is the first of this start):
SERVICE_READY = "service.ready"
# why, seconds:
SERVICE_UNREADY = "service.unready"
# process, and code or signal, of one that ended before it was asked to:
SERVICE_ENDED = "service.ended"
# healthy, when the ranks had ended:
SERVICE_LAST = "service.last"
# The harness notes this in the events of a service when it asks it to end.
SERVICE_STOPPING = "service.stopping"


def about_service(history: History, name: str, service: str) -> list[Seen]:
    """List what the harness noted of a service under a name."""
    return [seen for seen in history.noted(name) if seen.event.values.get("service") == service]


# Of a world over machines, by the harness. The clocks and the lease of the machines:
MACHINES_JOINED = "machines.joined"
# A machine that was not reached any more:
MACHINE_LOST = "machine.lost"
# A machine that ended its ranks by itself:
MACHINE_ENDED = "machine.ended"
# A fault pulled the cable of a test machine out, or put it in again: fault, link.
MACHINE_CUT = "machine.cut"
MACHINE_JOINED = "machine.joined"
# How many messages of a lost machine came late, and why these are not all:
MACHINE_COLLECTED = "machine.collected"
# What a lost machine had written down came after the run; how much of it was new:
MACHINE_LATE = "machine.late"
# The harness notes this of a rank with its own clock, when it first speaks: by how many ns that is
# `ahead`.
RANK_CLOCK = "rank.clock"
# A rank's runtime reports this where a check asks for its environment: `harness.rank.environment`.
ENVIRONMENT_TOLD = "rank.environment"
# A rank reports this when it keeps an artefact.
ARTEFACT_KEPT = "artefact.kept"
# The harness notes this of each artefact, once the rank has ended: artefact, file, bytes, sha256,
# dtype, shape, stored.
ARTEFACT_FOUND = "artefact.found"
ARTEFACTS = frozenset({ARTEFACT_KEPT, ARTEFACT_FOUND})
# The harness notes this of each check that compares arrays, for each rank: check, found, expected,
# comparison.
ARTEFACT_COMPARED = "artefact.compared"

# A rank's runtime reports this when a fault struck one of its calls: `harness.faults.call`.
FAULT_IN_CALL = "fault.call"
# A rank's runtime reports its calls with coded payloads (`harness.rank.context`), and at the
# end how many they were.
CODED = "collectives.coded"
CODED_END = "collectives.coded-end"
# The harness notes this of each check with a tolerance for arrays: check, expected, others,
# needles.
NEEDLES_TRIED = "needles.tried"
# The harness notes this of each check of many artefacts together: check, files, account.
ARTEFACTS_ACCOUNTED = "artefacts.accounted"

# The harness notes this once the ranks have ended, where their calls are observed: ranks, checks.
LEDGERS_COMPARED = "ledgers.compared"


def artefact_found(history: History, rank: int, name: str) -> Seen | None:
    """Return the artefact of a rank as the harness saw it, if there is one of that name."""
    return next(iter(history.found(rank, name)), None)


def artefact_compared(history: History, rank: int, check: str) -> Seen | None:
    """Return the comparison of a check's arrays on a rank."""
    return next(
        (
            seen
            for seen in history.noted(ARTEFACT_COMPARED, rank)
            if seen.event.values.get("check") == check
        ),
        None,
    )


def why_no_artefact(history: History, rank: int, name: str) -> str:
    """Say why a rank has no artefact of that name."""
    for seen in history.noted(ARTEFACT_FOUND, rank):
        file = str(seen.event.values.get("file"))
        why = seen.event.values.get("why")
        if why and file.startswith(f"{name}."):
            return f"{name} was not kept: {file}: {why}"
        # Without a file it is about the whole folder.
        if why and not file:
            return f"{name} was not kept, or not checked: {why}"
    return f"{name} was not kept"


def artefact_was_changed(history: History, rank: int, name: str) -> bool:
    """Tell whether the file is not the one that the rank said it kept. Programs do not say."""
    seen = artefact_found(history, rank, name)
    said = [kept.event.values.get("sha256") for kept in history.kept(rank, name)]
    return bool(said) and seen is not None and said != [seen.event.values.get("sha256")]
