"""Places in code that events name, held against the files of their arm: where errors were raised
and where ranks stood when they hung.

The proof of a hang is one that the harness writes: it holds what is stated, and fits the other
events. Pure.
"""

from __future__ import annotations

import ast
import io
import math
import tokenize
from collections.abc import Callable, Iterator, Mapping

from harness.events import Event
from harness.forms.strict_json import JSON
from harness.history import History
from harness.reason import RefusalWord
from harness.record.facts import SOURCE_FOLDER
from harness.record.model import ArmSummary, Contradiction
from harness.record.trial_reader import TrialReader
from harness.scenario import HangsAt, Scenario, cells
from harness.stats.hang import WATCHED, samples_of
from harness.stats.provenance import loaded_files

# Calls that end by themselves, whatever they are given: only a stated poll waits in them.
SLEEPS = ("nanosleep", "clock_nanosleep")
# Names that the interpreter gives to code without a def.
UNNAMED = ("<module>", "<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
MOMENT_NS = 10**9
# Seconds by which two readings of one clock, rounded, may differ.
ROUNDED = 0.01


class Hangs(TrialReader):
    """Proofs of hangs, held against the scenario, the other events and the files of the arm."""

    def __init__(
        self, scenario: Scenario, arms: Mapping[str, ArmSummary], read: Callable[[str], bytes]
    ) -> None:
        self._scenario = scenario
        self._arms = arms
        self._read = read
        self._files: dict[str, _Source | None] = {}

    def hear(self, evidence: str, history: History) -> None:
        """Take in a trial.

        Raises:
            Contradiction: no run writes such a proof.
        """
        for why in self._flaws(history):
            raise Contradiction(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, f"{evidence}: {why}")

    def _flaws(self, history: History) -> Iterator[str]:
        arm = str(history.about().get("arm"))
        for seen in history.seen:
            if seen.event.name == "rank.stack" and seen.event.by == "harness":
                yield from self._of_frames(seen.event, arm, history)
        proofs = history.noted("world.still")
        if not proofs:
            return
        stated = self._stated(history, arm)
        if stated is None:
            yield "a hang was proved, but the scenario does not state a hang"
            return
        if len(proofs) > 1:
            yield "a hang was proved twice"
        still = proofs[0].event
        yield from _of_values(still, stated)
        yield from _of_times(still, history)
        yield from _of_ranks(still, history)

    def _stated(self, history: History, arm: str) -> HangsAt | None:
        """Return the hang that the trial has to show; None where it has none to show."""
        control = self._scenario.subject.control
        if control is None or arm != "control":
            return None
        called = history.about().get("cell")
        cell = next((planned for planned in cells(self._scenario) if planned.id == called), None)
        return (
            control.must_fail.hang
            if cell is not None and control.must_fail.applies(cell.values)
            else None
        )

    def _of_frames(self, event: Event, arm: str, history: History) -> Iterator[str]:
        """Frames of the subject that stand where its files have no such line, or no such
        function.
        """
        if arm not in self._arms or event.rank is None:
            return
        loaded = dict(loaded_files(history, event.rank))
        files = self._arms[arm].files
        for thread in _listed(event.values.get("threads")):
            for frame in _listed(thread.get("frames")):
                file = frame.get("file")
                line = frame.get("line")
                function = frame.get("function")
                if (
                    frame.get("subject") is not True
                    or not isinstance(file, str)
                    or file not in files
                ):
                    continue
                if loaded.get(file, files[file]) != files[file]:
                    continue  # the rank wrote it anew, and the evidence does not hold that text
                source = self._source(arm, file)
                if source is None:
                    continue
                if not isinstance(line, int) or not 1 <= line <= source.lines:
                    yield (
                        f"rank {event.rank} is at {file}, line {line}, but the file has"
                        f" {source.lines} lines"
                    )
                elif not source.has(str(function), line):
                    yield (
                        f"rank {event.rank} is in {function} at {file}, line {line}, but the"
                        " function is not at that line"
                    )

    def _source(self, arm: str, file: str) -> _Source | None:
        """Return a file of an arm; None where Python could not read it."""
        path = f"{SOURCE_FOLDER}/{arm}/{file}"
        if path not in self._files:
            self._files[path] = _parsed(self._read(path))
        return self._files[path]


class _Source:
    """Outline of a file of Python: how many lines, and in which of them the code of each function
    is.
    """

    def __init__(self, text: str) -> None:
        self.lines = len(text.splitlines())
        self._places: dict[str, list[range]] = {}
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                self._places.setdefault(node.name, []).append(
                    range(first, (node.end_lineno or first) + 1)
                )

    def has(self, function: str, line: int) -> bool:
        """Return whether a function of that name has the line."""
        if function in UNNAMED or function.startswith("<"):
            return True
        return any(line in place for place in self._places.get(function, ()))


def _parsed(data: bytes) -> _Source | None:
    text = _text(data)
    try:
        return None if text is None else _Source(text)
    except (SyntaxError, ValueError):
        return None


def _text(data: bytes) -> str | None:
    """Decode a file as Python does; None where Python could not read it."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()
    # A codec may refuse in its own way: `# coding: undefined` does.
    except (SyntaxError, ValueError, LookupError):
        return None


def _of_values(still: Event, stated: HangsAt) -> Iterator[str]:
    """Yield what the proof says was stated, and what its ranks waited in."""
    values = still.values
    if values.get("spins") is not stated.spins:
        yield f"the proof has spins: {values.get('spins')}, but the scenario states {stated.spins}"
    if values.get("polls") != [*stated.polls]:
        yield (
            f"the proof has polls: {values.get('polls')}, but the scenario states {[*stated.polls]}"
        )
    if not isinstance(values.get(WATCHED), bool):
        yield "the proof does not state whether the trial was watched"
    waits = values.get("waits")
    ranks = values.get("ranks")
    if (
        not isinstance(waits, dict)
        or not isinstance(ranks, list)
        or sorted(waits) != sorted(map(str, ranks))
    ):
        yield "the proof does not state which call each rank waited in"
        return
    busy = values.get("busy")
    ends = values.get("ends")
    for rank, call in waits.items():
        loops = isinstance(busy, list) and any(str(one) == rank for one in busy)
        if loops and not stated.spins and call == "none":
            yield f"rank {rank} was busy, but the scenario does not state a loop"
        is_unknown = isinstance(call, str) and call.startswith("system call ")
        if is_unknown or (call in SLEEPS and not stated.polls):
            yield f"rank {rank} waited in {call}, which may end by itself"
        if call == "none" and not stated.spins and not stated.polls:
            yield f"rank {rank} did not wait in any call"
        after = ends.get(rank) if isinstance(ends, dict) else 0.0
        # A main thread that is said to poll waits for moments only.
        is_late = after is None or (isinstance(after, int | float) and after > 0.0)
        if not is_late and not stated.polls:
            yield f"rank {rank} waited in {call}, which ended before the world was stopped anyway"


def _of_times(still: Event, history: History) -> Iterator[str]:
    """Times that no clock gives."""
    started = history.noted("world.start")
    if not started:
        yield "it made no progress even before it was started"
        return
    passed = (still.ns - started[0].event.ns) / 1e9
    for name in ("seconds", "after"):
        value = still.values.get(name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value < 0
        ):
            yield f"the proof has {name}: {value}"
        elif value > passed + ROUNDED:
            yield f"the proof has {name}: {value}, but the world had run for {passed:.3f} s"
    spinning = still.values.get("spinning")
    for ticks in spinning.values() if isinstance(spinning, dict) else ():
        if not isinstance(ticks, dict) or any(
            not isinstance(many, int) or many < 0 for many in ticks.values()
        ):
            yield f"the proof states that a thread was busy for {ticks}"


def _of_ranks(still: Event, history: History) -> Iterator[str]:
    """Ranks that lived, and are not in the proof.

    Ranks that were asked where they stood, and whose stacks are gone.
    """
    ends = {
        rank: end.event.ns
        for rank in range(history.size)
        if (end := history.exit(rank)) is not None
    }
    listed = still.values.get("ranks")
    living = [rank for rank in range(history.size) if rank not in ends or ends[rank] > still.ns]
    # One that ended in the moment of the proof may be in it: whoever judges the trial sees that it
    # moved.
    maybe = [rank for rank in ends if 0 <= still.ns - ends[rank] < MOMENT_NS]
    if not isinstance(listed, list) or any(type(rank) is not int for rank in listed):
        yield f"the proof names ranks {listed}, which are not numbers"
        return
    missing = set(living) - set(listed)
    others = set(listed) - set(living) - set(maybe)
    if missing or others:
        yield f"the proof names ranks {listed}, but {living} had not ended"
    if history.is_of_programs:
        return
    stopped = history.noted("world.stopped")
    for rank in living:
        states = history.noted("rank.state", rank)
        was_asked = states[0].event.values.get("asked") if states else None
        is_there = stopped and ends.get(rank, still.ns) >= stopped[0].event.ns
        if not isinstance(was_asked, bool):
            yield f"the stacks of rank {rank} were never requested"
        elif not was_asked and not history.noted("world.unproved"):
            yield f"the stacks of rank {rank} were not requested, but a hang was proved"
        elif was_asked and is_there:
            numbers = [
                seen.event.values.get("sample") for seen in history.noted("rank.stack", rank)
            ]
            if len(numbers) < 2 or numbers != list(range(1, len(numbers) + 1)):
                yield f"the stacks of rank {rank} were requested twice, but they are missing"
            elif not history.noted("world.unproved") and any(
                not one for one in samples_of(history, rank)
            ):
                yield f"the stacks of rank {rank} were requested twice, but they are empty"


def _listed(value: object) -> list[Mapping[str, JSON]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


SOURCE_LIMIT = 300
"""Characters of a source line that a rank reports (`harness.rank.failure`)."""


class Frames(TrialReader):
    """Source lines that ranks reported with their errors, held against the files of their arm."""

    def __init__(self, arms: Mapping[str, ArmSummary], read: Callable[[str], bytes]) -> None:
        self._arms = arms
        self._read = read
        self._lines: dict[str, list[str]] = {}

    def hear(self, evidence: str, history: History) -> None:
        """Take in a trial.

        Only of files that the rank loaded as the evidence holds them: of others it does not hold
        the text.

        Raises:
            Contradiction: an error stands at a line that the file has not, or that reads otherwise
                there.
        """
        arm = str(history.about().get("arm"))
        if arm not in self._arms:
            arm = "candidate"  # a reference runs the candidate's code
        files = self._arms[arm].files
        folder = f"{SOURCE_FOLDER}/{arm}"
        for rank in range(history.size):
            seen = history.error(rank)
            if seen is None:
                continue
            loaded = dict(loaded_files(history, rank))
            for frame in _frames(seen.event):
                file = frame.get("file")
                line = frame.get("line")
                if not isinstance(file, str) or not isinstance(line, int) or file not in files:
                    continue
                if loaded.get(file) != files[file]:
                    continue
                text = self._line(f"{folder}/{file}", line)
                if text is not None and frame.get("source") not in ("", text):
                    raise Contradiction(
                        RefusalWord.EVENTS_OF_ANOTHER_TRIAL,
                        f"{evidence}, line {seen.line} reports an error at {file}, line {line},"
                        f" with the source line {str(frame.get('source'))[:120]!r}, but that line of"
                        f" the file is {text[:120]!r}",
                    )

    def _line(self, path: str, number: int) -> str | None:
        """Return a line as Python shows it.

        Empty where there is none, None where the file is not text.
        """
        if path not in self._lines:
            text = _text(self._read(path)) or ""
            self._lines[path] = io.StringIO(text, newline=None).readlines()
        lines = self._lines[path]
        if not lines:
            return None
        return lines[number - 1].strip()[:SOURCE_LIMIT] if 1 <= number <= len(lines) else ""


def _frames(error: Event) -> list[Mapping[str, JSON]]:
    """Return the frames inside the subject, and the one that the error names as its place."""
    frames = [
        frame for frame in _listed(error.values.get("frames")) if frame.get("subject") is True
    ]
    return [*frames, error.values] if error.values.get("file") is not None else frames
