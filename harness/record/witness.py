"""Witness of a run: whether its trials are its own, and can all have happened: heard one by one,
and held against each other.

Pure. What a run writes always passes, because it comes from the clock and the processes of one
machine: a process belongs to one trial, time goes one way, and no two stretches of it are alike to
the nanosecond. The words of `CONTRADICTIONS` are for evidence that was changed and signed again. A
forgery that is consistent with itself has none: docs/verify.md lists both.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import gt, itemgetter, sub

from harness.events import Event, EventError, parse_lines
from harness.forms.digest import mark
from harness.forms.strict_json import JSON
from harness.history import History
from harness.reason import RefusalWord
from harness.record.facts import MachinesFacts, RunFacts
from harness.record.farmed import Places, clock_of, demand_kind, lanes_of, replaced
from harness.record.model import Contradiction, RecordError
from harness.record.sources import KEY as RECIPE
from harness.record.trial_reader import TrialReader
from harness.scenario import Cell, Scenario, derive_seed, reference_of
from harness.scenario.matrix import machines_of
from harness.stats.outcome import EVENTS, LOST, CellFacts, reference_folders, trial_folder
from harness.stats.verdict import Judgement

# So many gaps between events in a row, together longer than a millisecond, are alike in copies
# only: of what is told of a program, and of what a rank says, which may be in a loop.
FRAME = 5
LIFE = 8
FEWEST = 3
LONG = 1_000_000
# The run rounds its seconds to a tenth.
ROUNDED = 50_000_000
_event = itemgetter(0)
# A trial may be dealt to a node as that is lost, by a thread that has to wait for its turn.
AT_ONCE = 5_000_000_000
# What is contradicted, in the order in which it is told where there is more than one.
CONTRADICTIONS = (
    RefusalWord.EVENTS_SHARED,
    RefusalWord.EVENTS_OF_ANOTHER_TRIAL,
    RefusalWord.EVENTS_OUT_OF_TIME,
    RefusalWord.SECONDS_TOO_SHORT,
    RefusalWord.TRIALS_NOT_PLANNED,
    RefusalWord.SKIP_CONTRADICTED,
)


class Witness(TrialReader):
    """Hears every trial of a run once."""

    def __init__(self, run: RunFacts, read: Callable[[str], bytes]) -> None:
        self._run = run
        self._read = read
        # By the node whose clock they are of: times of two machines are never compared (rule 16).
        self._spans: defaultdict[int | None, list[tuple[int, int, int, str]]] = defaultdict(list)
        # What went with each node that was lost, by the clock of whoever made the run.
        self._gone: defaultdict[JSON, list[tuple[int, int, str]]] = defaultdict(list)
        self._heard: list[tuple[Sequence[int], Sequence[int | None], Sequence[str]]] = []
        self._gaps: dict[int, tuple[str, int | None]] = {}
        self._found: dict[RefusalWord, str] = {}

    def hear(self, evidence: str, history: History) -> None:
        """Take one trial, by the path of its events."""
        if not history.seen:
            return
        if (about := history.about()).get(LOST) and (broken := history.noted("harness.error")):
            demand_kind(self._run, about.get("node"), broken[0].event.values.get("type"))
        # Column by column: a verifier hears tens of thousands of events.
        ns, by, name, rank, pid, _values = zip(*map(_event, history.seen), strict=True)
        self._hear_order(evidence, history, ns)
        self._hear_ranks(evidence, history, set(zip(rank, pid, strict=True)))
        self._spans[clock_of(about)].append((min(ns), max(ns), len(self._heard), evidence))
        if about.get(LOST):
            self._gone[about.get("node")].append((min(ns), max(ns), evidence))
        self._heard.append((ns, pid, name))
        if history.is_of_programs:
            # A program stamps its own events, and may play back a trace: what is told of it must
            # do.
            frame = [moment for moment, source in zip(ns, by, strict=True) if source != "rank"]
            self._hear_gaps((evidence, None), frame, size=FRAME)
            return
        said: defaultdict[int | None, list[int]] = defaultdict(list)
        for moment, whose in compress(zip(ns, rank, strict=True), map("rank".__eq__, by)):
            said[whose].append(moment)
        for whose, moments in said.items():
            self._hear_gaps((evidence, whose), moments, size=LIFE)

    def demand(self, judgement: Judgement, names: Collection[str]) -> None:
        """Say what cannot be.

        Raises:
            Contradiction: the trials cannot all have happened as they are told.
        """
        del judgement, names
        self._compare()
        self._measure()
        for word in CONTRADICTIONS:
            if word in self._found:
                raise Contradiction(word, self._found[word])

    def _refuse(self, word: RefusalWord, message: str) -> None:
        self._found.setdefault(word, message)

    def _hear_order(self, evidence: str, history: History, ns: Sequence[int]) -> None:
        first = history.seen[0].event
        last = history.seen[-1].event
        for seen, name in ((first, "world.begin"), (last, "world.end")):
            if (seen.by, seen.name) != ("harness", name) or len(history.noted(name)) != 1:
                self._refuse(
                    RefusalWord.EVENTS_OUT_OF_TIME,
                    f"{evidence} has events outside its world.begin and world.end",
                )
        if any(map(gt, ns, ns[1:])):
            line = next(line for line in range(1, len(ns)) if ns[line] < ns[line - 1])
            self._refuse(
                RefusalWord.EVENTS_OUT_OF_TIME,
                f"{evidence}, line {line + 1}: time goes back by {ns[line - 1] - ns[line]} ns",
            )

    def _hear_ranks(
        self, evidence: str, history: History, processes: set[tuple[int | None, int | None]]
    ) -> None:
        """Hold the ranks against this world: of this backend, and in the interpreter that the run
        names.
        """
        world = mark(self._read(evidence).partition(b"\n")[0])
        about = history.about()
        pids: dict[int | None, int | None] = {None: None}
        wanted_of_rank: dict[str, JSON] = {"world": world}
        # A reference runs in the candidate's, where it is not an arm of its own.
        arm = about.get("arm")
        if arm == "reference" and arm not in self._run.arguments:
            arm = "candidate"
        if arm not in self._run.environments:
            wanted_of_rank["python"] = self._run.environment.python
        named_by = (
            ()
            if history.is_of_programs
            else (
                ("rank.begin", wanted_of_rank),
                ("backend.ready", {"backend": about.get("backend")}),
            )
        )
        for rank in range(history.size):
            for started in history.served(rank, "rank.started"):
                pids[rank] = started.event.pid
                if started.event.values.get("world") != world:
                    place = f"{evidence}, line {started.line}"
                    self._refuse(
                        RefusalWord.EVENTS_OF_ANOTHER_TRIAL,
                        f"{place}: rank {rank} was started in a different world",
                    )
            for name, wanted in named_by:
                said = history.said(rank, name)
                # One that says so is enough: a subject may write into the channel of its rank what
                # it likes.
                if said and not any(wanted.items() <= seen.event.values.items() for seen in said):
                    values = said[0].event.values
                    key = next(key for key in wanted if values.get(key) != wanted[key])
                    what = f"the {key} of rank {rank} is {values.get(key)!r}, not {wanted[key]!r}"
                    self._refuse(
                        RefusalWord.EVENTS_OF_ANOTHER_TRIAL,
                        f"{evidence}, line {said[0].line}: {what}",
                    )
        for whose, pid in processes:
            if pids.get(whose) != pid:
                self._refuse(
                    RefusalWord.EVENTS_OF_ANOTHER_TRIAL,
                    f"{evidence}: an event of rank {whose} has pid {pid}, not {pids.get(whose)}",
                )

    def _hear_gaps(
        self, owner: tuple[str, int | None], moments: Sequence[int], *, size: int
    ) -> None:
        stretches = dict.fromkeys(_stretches(moments, size=size), owner)
        if not self._gaps.keys().isdisjoint(stretches):
            other = next(self._gaps[gaps] for gaps in stretches if gaps in self._gaps)
            copies = " and ".join(
                file if rank is None else f"rank {rank} of {file}" for file, rank in (owner, other)
            )
            self._refuse(
                RefusalWord.EVENTS_SHARED,
                (
                    f"{copies} have the same times to the nanosecond in every event, so one of them is"
                    " a copy"
                ),
            )
        self._gaps |= stretches

    def _compare(self) -> None:
        """Trials at the same time share no event; where time only goes on, others cannot."""
        for spans in self._spans.values():
            group: list[tuple[int, str]] = []
            until = 0
            for first, last, place, file in [*sorted(spans), (sys.maxsize, 0, 0, "")]:
                if first > until:
                    self._compare_those(group if len(group) > 1 else ())
                    group = []
                group.append((place, file))
                until = max(until, last)

    def _compare_those(self, group: Iterable[tuple[int, str]]) -> None:
        known: dict[tuple[int, int | None, str], str] = {}
        for place, file in group:
            events = dict.fromkeys(zip(*self._heard[place], strict=True), file)
            if shared := known.keys() & events.keys():
                ns, pid, name = min(shared, key=itemgetter(0))
                other = known[ns, pid, name]
                self._refuse(
                    RefusalWord.EVENTS_SHARED,
                    f"{file} and {other} both contain {name} of pid {pid} at {ns} ns",
                )
            known |= events

    def _measure(self) -> None:
        """Demand that the run had the time for all of it, and as many lanes as it says."""
        for node, spans in self._spans.items():
            self._measure_those(spans, lanes=lanes_of(self._run, node))
        # A node is lost once: what it takes along goes on at that moment.
        for node, gone in self._gone.items():
            began, _, late = max(gone)
            over, early = min((end, file) for _, end, file in gone)
            if began > over + AT_ONCE:
                parted = f"{(began - over) / 1e9:.1f} s after {early} ended"
                why = (
                    f"{late} began {parted}, but both were lost with node {node}, which was lost"
                    " only once"
                )
                self._refuse(RefusalWord.EVENTS_OUT_OF_TIME, why)

    def _measure_those(self, spans: Sequence[tuple[int, int, int, str]], *, lanes: int) -> None:
        seconds = self._run.seconds
        begin = min(spans)[0]
        end = max(map(itemgetter(1), spans))
        if end - begin > seconds * 1e9 + ROUNDED:
            took = f"its trials took {(end - begin) / 1e9:.1f} s, from the first to the last"
            self._refuse(
                RefusalWord.SECONDS_TOO_SHORT,
                (f"the run states that it took {seconds} s, but {took}"),
            )
        # At the same moment, what ends goes before what begins.
        begun = [(first, 1, file) for first, _, _, file in spans]
        ended = [(last, 0, "") for _, last, _, _ in spans]
        living = 0
        for _, begins, file in sorted(begun + ended):
            living += 1 if begins else -1
            if living > lanes:
                most = f"the run had at most {lanes} at a time"
                self._refuse(
                    RefusalWord.EVENTS_OUT_OF_TIME,
                    f"{file} began while {living - 1} other trials were running, but {most}",
                )
                return


def _stretches(moments: Sequence[int], *, size: int) -> Iterable[int]:
    """Return a number for each row of so many gaps; for a few events, one for all of them."""
    gaps = list(map(sub, moments[1:], moments))
    size = min(size, len(gaps))
    if size < FEWEST:
        return ()
    rows = zip(*(gaps[first:] for first in range(size)), strict=False)
    return compress(map(hash, rows), map(LONG.__le__, map(sub, moments[size:], moments)))


def demand_own(
    scenario: Scenario,
    run: RunFacts,
    planned: Sequence[tuple[Cell, CellFacts]],
    recipes: Mapping[str, str],
    read: Callable[[str], bytes],
) -> None:
    """Demand that the first line of every trial says of which run, cell, arm and place it is, and
    what it is made of.

    Raises:
        Contradiction: it says another.
        RecordError: it is not a first line.
    """
    begun: dict[tuple[int | None, int], str] = {}
    places = Places(run)
    for evidence, own in _own(scenario, planned, run.machines):
        begin = _first_event(read(evidence), evidence)
        spellings = {
            **own,
            "scenario": scenario.id,
            "start": run.start,
            **places.of(begin.values, evidence),
            RECIPE: recipes[str(own["arm"]) if own["arm"] in recipes else "candidate"],
            "program": True if scenario.subject.program is not None else None,
        }
        for key, value in spellings.items():
            if (found := begin.values.get(key)) != value:
                message = f"{evidence} is from another trial: its {key} is {found!r}, not {value!r}"
                raise Contradiction(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, message)
        moment = clock_of(begin.values), begin.ns
        if moment in begun:
            raise Contradiction(
                RefusalWord.EVENTS_SHARED, f"{evidence} is a copy of {begun[moment]}"
            )
        begun[moment] = evidence


def _machines(machines: MachinesFacts | None, cell: Cell) -> JSON:
    """Return what the first line of a cell's worlds says of their machines."""
    if machines is None:
        return None
    slots = [machine.slots for machine in machines.machines]
    placed = machines_of(machines.placement, slots=slots, size=cell.ranks, hosts=cell.hosts)
    return {"called": [machine.called for machine in machines.machines], "of": list(placed or ())}


def _own(
    scenario: Scenario, planned: Sequence[tuple[Cell, CellFacts]], machines: MachinesFacts | None
) -> Iterator[tuple[str, dict[str, JSON]]]:
    """Every trial and every run of a reference, by the path of its events, with what its first line
    has to say.
    """
    known: set[str] = set()
    for cell, facts in planned:
        placed = scenario.world.hosts_of(cell.ranks)
        place: dict[str, JSON] = {"cell": cell.id, "size": cell.ranks, "backend": cell.backend}
        place["hosts"] = None if placed is None else list(placed)
        place["machines"] = _machines(machines, cell)
        for arm, count in facts.trials.items():
            for index in range(count):
                seed = str(derive_seed(scenario.seed, scenario.id, cell.id, index))
                path = f"{trial_folder(cell.slug, arm, index)}/{EVENTS}"
                yield path, {**place, "arm": arm, "trial": index, "seed": seed}
        if facts.skipped or (plan := reference_of(scenario, cell)) is None:
            continue
        for index, folder in enumerate(reference_folders(scenario, cell)):
            if folder not in known:
                known.add(folder)
                seed = str(derive_seed(scenario.seed, scenario.id, plan.owner, 0))
                about = {
                    "cell": plan.owner,
                    "size": plan.size,
                    "backend": plan.backend,
                    "arm": "reference",
                }
                where = ("hosts", "machines")
                alone = (
                    dict.fromkeys(where) if plan.offered else {name: place[name] for name in where}
                )
                yield f"{folder}/{EVENTS}", {**about, **alone, "trial": index, "seed": seed}


def demand_planned(scenario: Scenario, judgement: Judgement) -> None:
    """Demand that a void trial is replaced, as often as the scenario allows, and no other trial is
    made twice.

    Raises:
        Contradiction: there are more trials, or fewer.
    """
    wanted = {"candidate": scenario.trials.candidate, "control": scenario.trials.control}
    for cell in judgement.cells:
        for arm, tally in cell.arms.items():
            planned = wanted[arm]
            fewest, most = replaced(tally.trials, max_voids=scenario.trials.max_voids)
            if not fewest <= len(tally.trials) - planned <= most:
                ran = f"{len(tally.trials)} {arm} trials, {tally.voids} of them void"
                raise Contradiction(
                    RefusalWord.TRIALS_NOT_PLANNED,
                    f"cell {cell.id} has {ran}, but its scenario plans {planned}",
                )


def _first_event(text: bytes, name: str) -> Event:
    try:
        event = parse_lines(text.partition(b"\n")[0] + b"\n")[0]
    except EventError as error:
        raise RecordError(f"{name}: {error}") from None
    if (event.by, event.name) != ("harness", "world.begin"):
        raise RecordError(f"{name} does not begin with world.begin")
    return event
