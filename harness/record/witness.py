"""Whether all trials of a run can have happened: heard one by one as they are judged, and held against each other.

Pure. What a run writes always passes, because it comes from the clock and the processes of one machine: a process
belongs to one trial, time goes one way, and no two stretches of it are alike to the nanosecond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import gt, itemgetter, sub

from harness.checks import History
from harness.digest import mark
from harness.record.contradiction import Contradiction, Word
from harness.record.facts import RunFacts

# So many gaps between events in a row, together longer than a millisecond, are alike in copies only. What the harness
# and the server tell needs fewer than what a rank tells, for a subject may emit in a loop.
FRAME, LIFE = 5, 8
FEWEST = 4
LONG = 1_000_000
# The run rounds its seconds to a tenth.
ROUNDED = 50_000_000
_event = itemgetter(0)


class Witness:
    """Hears every trial of a run once."""

    def __init__(self, run: RunFacts, read: Callable[[str], bytes]) -> None:
        self._run = run
        self._read = read
        self._spans: list[tuple[int, int, str]] = []
        self._heard: set[tuple[int, int | None, str]] = set()
        self._gaps: dict[int, tuple[str, int | None]] = {}
        self._found: dict[Word, str] = {}

    def hear(self, evidence: str, history: History) -> None:
        """Take one trial, by the path of its events."""
        if not history.seen:
            return
        # Column by column: a verifier hears tens of thousands of events.
        ns, by, name, rank, pid, _values = zip(*map(_event, history.seen), strict=True)
        self._hear_order(evidence, history, ns)
        self._hear_ranks(evidence, history, set(zip(rank, pid, strict=True)))
        self._hear_shared(evidence, set(zip(ns, pid, name, strict=True)))
        self._spans.append((ns[0], ns[-1], evidence))
        said: defaultdict[int | None, list[int]] = defaultdict(list)
        for moment, source, whose in zip(ns, by, rank, strict=True):
            said[whose if source == "rank" else None].append(moment)
        for whose, moments in said.items():
            # A program stamps its own events, and may play back a trace.
            if whose is None or not history.is_of_programs:
                self._hear_gaps((evidence, whose), moments, size=FRAME if whose is None else LIFE)

    def demand(self) -> None:
        """Say what cannot be.

        Raises:
            Contradiction: the trials cannot all have happened as they are told.
        """
        self._measure()
        for word in Word:
            if word in self._found:
                raise Contradiction(word, self._found[word])

    def _refuse(self, word: Word, message: str) -> None:
        self._found.setdefault(word, message)

    def _hear_order(self, evidence: str, history: History, ns: Sequence[int]) -> None:
        first, last = history.seen[0].event, history.seen[-1].event
        for seen, name in ((first, "world.begin"), (last, "world.end")):
            if (seen.by, seen.name) != ("harness", name) or len(history.noted(name)) != 1:
                self._refuse(Word.TIME, f"{evidence} has events outside its world.begin and world.end")
        if any(map(gt, ns, ns[1:])):
            line = next(line for line in range(1, len(ns)) if ns[line] < ns[line - 1])
            self._refuse(Word.TIME, f"{evidence}, line {line + 1}: time goes back by {ns[line - 1] - ns[line]} ns")

    def _hear_ranks(self, evidence: str, history: History, told: set[tuple[int | None, int | None]]) -> None:
        """The ranks are of this world, of this backend, and in the interpreter that the run names."""
        world = mark(self._read(evidence).partition(b"\n")[0])
        about = history.about()
        pids: dict[int | None, int | None] = {None: None}
        python = None if about.get("arm") in self._run.environments else self._run.environment.python
        for rank in range(history.size):
            for started in history.served(rank, "rank.started"):
                pids[rank] = started.event.pid
                if started.event.values.get("world") != world:
                    place = f"{evidence}, line {started.line}"
                    self._refuse(Word.TRIAL, f"{place}: rank {rank} was started in another world")
            for said, key, here in (
                ("rank.begin", "world", world),
                ("rank.begin", "python", python),
                ("backend.ready", "backend", about.get("backend")),
            ):
                # One that says so is enough: a subject may write into the channel of its rank what it likes.
                known = [] if here is None or history.is_of_programs else history.values(rank, said, key)
                if known and here not in (value for value, _ in known):
                    value, line = known[0]
                    place = f"{evidence}, line {line}"
                    self._refuse(Word.TRIAL, f"{place}: the {key} of rank {rank} is {value!r}, not {here!r}")
        for whose, pid in told:
            if pids.get(whose) != pid:
                self._refuse(Word.TRIAL, f"{evidence}: an event of rank {whose} is of pid {pid}, not {pids.get(whose)}")

    def _hear_shared(self, evidence: str, events: set[tuple[int, int | None, str]]) -> None:
        if not self._heard.isdisjoint(events):
            ns, pid, name = min(self._heard & events, key=itemgetter(0))
            other = next((file for first, last, file in self._spans if first <= ns <= last), "another trial")
            self._refuse(Word.SHARED, f"{evidence} and {other} both hold {name} of pid {pid} at {ns} ns")
        self._heard |= events

    def _hear_gaps(self, owner: tuple[str, int | None], moments: Sequence[int], *, size: int) -> None:
        for gaps in _stretches(moments, size=size):
            if (other := self._gaps.setdefault(gaps, owner)) != owner:
                told = " and ".join(file if rank is None else f"rank {rank} of {file}" for file, rank in (owner, other))
                self._refuse(Word.SHARED, f"{told} are alike to the nanosecond, one event after another: a copy")
                return

    def _measure(self) -> None:
        """The run had the time for all of it, and as many lanes as it says."""
        if not self._spans:
            return
        seconds = self._run.seconds
        begin, end = min(self._spans)[0], max(span[1] for span in self._spans)
        if end - begin > seconds * 1e9 + ROUNDED:
            took = f"its trials took {(end - begin) / 1e9:.1f} s, from the first to the last"
            self._refuse(Word.SECONDS, f"the run says that it took {seconds} s, and {took}")
        # At the same moment, what ends goes before what begins.
        begun = [(first, 1, file) for first, _, file in self._spans]
        ended = [(last, 0, "") for _, last, _ in self._spans]
        living = 0
        for _, begins, file in sorted(begun + ended):
            living += 1 if begins else -1
            if living > self._run.jobs:
                lanes = f"the run had {self._run.jobs} at a time"
                self._refuse(Word.TIME, f"{file} began while {living - 1} other trials went on, and {lanes}")
                return


def _stretches(moments: Sequence[int], *, size: int) -> Iterator[int]:
    """A number for each row of so many gaps; for a few events, one for all of them."""
    gaps = list(map(sub, moments[1:], moments))
    size = min(size, len(gaps))
    if size >= FEWEST:
        rows = zip(*(gaps[first:] for first in range(size)), strict=False)
        lengths = map(sub, moments[size:], moments)
        yield from (hash(row) for row, length in zip(rows, lengths, strict=True) if length >= LONG)
