"""The record of a sweep of operators, worked out from what ranks and the whole reported: by whoever
made it, and again by whoever verifies it.
"""

from __future__ import annotations

import lzma
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from harness.events import Event, EventError
from harness.forms.digest import sha256
from harness.forms.model import Model
from harness.record.facts import EnvironmentFacts
from harness.record.model import RecordError, read_model
from harness.series.operators.cells import Library, Operator, OperatorCell
from harness.series.operators.inquiry import Ask, FailureCause, Findings, Inquiry, Purpose, inquire
from harness.series.operators.judge import (
    COUNTS,
    MOST_ENDS,
    Outcome,
    Word,
    WorldReading,
    not_asked,
    outcome,
)
from harness.series.replay import demand_named
from harness.series.series import FOLDER, Digest, Read, SeriesFacts, SeriesPart, SeriesRecord

PATH: Final = "evidence/operators.json"
LARGEST: Final = 256 * 1024 * 1024
"""Bytes that a part may hold."""
VERSIONS: Final = "cell.versions"
SHAPE: Final = "shape"
Axes = dict[str, list[str]]


class PartOperator(Model):
    """An operator of a part.

    Attributes:
        name: of it.
        space: the axes it has, by their name in the facts.
        usual: the cell that every axis is varied from, where it is not the simplest.
    """

    name: str
    space: str
    usual: dict[str, str]


class OperatorsPart(SeriesPart):
    """Some operators of a library, in worlds of one size.

    Attributes:
        library: whose.
        ranks: world size.
        operators: of this part.
        depth: cells of each operator at most, unless it has more axes.
        scenario: sha256 of the cells of its sweep.
    """

    library: Library
    ranks: Annotated[int, Field(ge=1)]
    operators: list[PartOperator]
    depth: Annotated[int, Field(ge=1)]
    scenario: Digest

    @property
    def path(self) -> str:
        """Where its evidence is."""
        return f"{FOLDER}/{self.name}.json.xz"

    def whole_operators(self, spaces: dict[str, Axes]) -> list[Operator]:
        """Return its operators with their axes. Raises RecordError where one has none."""
        try:
            return [
                Operator(
                    library=self.library,
                    name=one.name,
                    space=one.space,
                    axes=spaces[one.space],
                    usual=one.usual,
                )
                for one in self.operators
            ]
        except KeyError as error:
            raise RecordError(f"{self.name}: the plan has no axes named {error}") from None


def cells_of(operators: Sequence[Operator], *, depth: int, seed: str) -> list[OperatorCell]:
    """Return the cells of a sweep."""
    return [cell for operator in operators for cell in operator.sample(depth, seed=seed)]


def digest_of(cells: Sequence[OperatorCell]) -> str:
    """Return what identifies the cells of a sweep."""
    return sha256("\n".join(cell.key for cell in cells).encode())


class OperatorsFacts(SeriesFacts):
    """What a sweep was going to do.

    Attributes:
        seed: of the cells that are drawn.
        within: seconds, after which no other part is begun; None for no bound.
        spaces: axes by their names, the simplest value first.
        parts: in the order in which they are made.
        machine: on which.
    """

    kind: ClassVar[str] = "operators"

    format: Literal[1]
    seed: str
    within: float | None
    spaces: dict[str, Axes]
    parts: list[OperatorsPart]
    machine: EnvironmentFacts


class AskedWorld(Model):
    """A world of an ask.

    Attributes:
        begin: index of its first cell.
        events: lines of its ranks and of whoever forked them.
    """

    begin: int
    events: list[str]


class AskEvidence(Model):
    """What came of an ask: in one process, and in one world after the other, each from the first
    cell on that the one before did not come to.

    Attributes:
        purpose: of the ask.
        cells: what was asked, in words.
        whole: events of the process that had everything.
        worlds: of the ranks.
    """

    purpose: Purpose
    cells: list[str]
    whole: list[str]
    worlds: list[AskedWorld]


class PartEvidence(Model):
    """Everything of a part.

    Attributes:
        unasked: why nothing was asked; empty where it was.
        seconds: that it took.
        asks: in order, each in slices.
    """

    unasked: str
    seconds: float
    asks: list[AskEvidence]

    def pack(self) -> bytes:
        """Encode it as it is kept."""
        return lzma.compress(self.model_dump_json(indent=0).encode(), preset=3)

    @classmethod
    def unpack(cls, data: bytes, *, name: str) -> PartEvidence:
        """Read it. Raises RecordError."""
        try:
            unpacker = lzma.LZMADecompressor()
            text = unpacker.decompress(data, max_length=LARGEST)
        except lzma.LZMAError as error:
            raise RecordError(f"{name} cannot be read: {error}") from None
        if not unpacker.eof:
            raise RecordError(f"{name} is truncated, or larger than {LARGEST} bytes")
        return read_model(cls, text, name=name)


def judged(evidence: AskEvidence, cells: Sequence[OperatorCell], *, size: int) -> list[Outcome]:
    """Judge the cells of an ask. Raises RecordError where its worlds do not follow each other."""
    whole = WorldReading(_events(evidence.whole), size=1)
    found: list[Outcome] = []
    # Beside a failing cell few are asked, and a right one among them is the control.
    most = MOST_ENDS if evidence.purpose == "sweep" else len(cells)
    for world in evidence.worlds:
        found += not_asked(cells, found, most=most)
        begin = len(found)
        if world.begin != begin:
            raise RecordError(f"a world began with cell {world.begin}, not {begin}")
        reading = WorldReading(_events(world.events), size=size)
        found += [
            outcome(cells[index], index, whole=whole, world=reading)
            for index in range(begin, reading.reached(begin, len(cells)))
        ]
    found += not_asked(cells, found, most=most)
    return found


def _events(lines: Sequence[str]) -> list[Event]:
    try:
        return [Event.parse(line) for line in lines]
    except EventError as error:
        raise RecordError(f"an event cannot be read: {error}") from None


# -- the record ------------------------------------------------------------------------------------


class CauseGroup(Model):
    """Causes that fail alike, on the same axes: most likely they are one.

    Attributes:
        library: whose.
        operators: that have it.
        ranks: world sizes.
        word: what came of it.
        kind: of difference.
        smallest: the smallest case of all.
        backing: parts whose evidence shows it.
        failing: cells of the sweep that fail like this.
    """

    library: Library
    operators: list[str]
    ranks: list[int]
    word: Word
    kind: str
    smallest: FailureCause
    smallest_ranks: int
    backing: list[str]
    failing: int


class PartRecord(Model):
    """One part: what came of it, or why it was not asked."""

    name: str
    library: Library
    ranks: int
    unasked: str
    seconds: float
    findings: Findings | None


class OperatorsRecord(SeriesRecord):
    """The record of a sweep: `results.json`.

    Attributes:
        versions: of the libraries, as ranks found them.
        parts: what came of each.
        groups: what failed, by cause; those that count first.
    """

    format: Literal[1]
    facts: OperatorsFacts
    versions: dict[str, str]
    parts: list[PartRecord]
    groups: list[CauseGroup]

    @property
    def accused(self) -> list[CauseGroup]:
        """Groups that count: shown again in fresh worlds, with a control."""
        return [group for group in self.groups if group.word in COUNTS and group.smallest.is_shown]

    @property
    def words(self) -> dict[Word, int]:
        """How many cells of the sweep each word has."""
        counts: Counter[Word] = Counter()
        for part in self.parts:
            if part.findings is not None:
                counts.update(part.findings.words)
        return dict(counts)

    @property
    def needles(self) -> tuple[int, int]:
        """How many wrong elements were put into results of the sweep, and how many were seen."""
        found = [part.findings for part in self.parts if part.findings is not None]
        return sum(one.needles for one in found), sum(one.seen for one in found)

    @property
    def seconds(self) -> float:
        """What all parts took."""
        return round(sum(part.seconds for part in self.parts), 1)

    @property
    def asked(self) -> int:
        """Calls of all worlds, those that were repeated too."""
        return sum(part.findings.asked for part in self.parts if part.findings is not None)


def inquiry_of(facts: OperatorsFacts, part: OperatorsPart) -> Inquiry:
    """Begin to ask about a part. Raises RecordError where its cells are not those planned."""
    operators = part.whole_operators(facts.spaces)
    cells = cells_of(operators, depth=part.depth, seed=facts.seed)
    if digest_of(cells) != part.scenario:
        raise RecordError(
            f"{part.name}: the cells listed in the plan are not those generated from its seed"
        )
    return inquire(operators, cells)


def assemble(read: Read, names: Collection[str]) -> OperatorsRecord:
    """Work out the record.

    Raises:
        RecordError: a part that is missing or too much, or whose evidence is not what was asked.
    """
    facts = read_model(OperatorsFacts, read(PATH), name=PATH)
    demand_named(facts)
    planned = {part.path for part in facts.parts}
    if len(planned) != len(facts.parts):
        raise RecordError("two parts have the same name")
    if odd := sorted(set(names) ^ planned ^ {PATH}):
        how = "missing" if odd[0] in planned else "not a part of this sweep"
        raise RecordError(f"{odd[0]} is {how}")
    versions: dict[str, str] = {}
    parts: list[PartRecord] = []
    for part in facts.parts:
        evidence = PartEvidence.unpack(read(part.path), name=part.path)
        findings = None if evidence.unasked else _found(facts, part, evidence)
        for name, version in sorted(_versions(evidence)):
            if versions.setdefault(name, version) != version:
                raise RecordError(
                    f"{part.path} ran {name} {version}, but other parts ran {versions[name]}"
                )
        parts.append(
            PartRecord(
                name=part.name,
                library=part.library,
                ranks=part.ranks,
                unasked=evidence.unasked,
                seconds=evidence.seconds,
                findings=findings,
            )
        )
    return OperatorsRecord(
        format=1, facts=facts, versions=versions, parts=parts, groups=grouped(parts)
    )


def _found(facts: OperatorsFacts, part: OperatorsPart, evidence: PartEvidence) -> Findings:
    """Ask about a part again, and take the answers from the evidence."""
    inquiry = inquiry_of(facts, part)
    asks = iter(evidence.asks)
    ask: Ask = next(inquiry)
    while True:
        found: list[Outcome] = []
        for one in ask.slices():
            kept = next(asks, None)
            wanted = [cell.key for cell in one.cells]
            if kept is None or kept.purpose != one.purpose or kept.cells != wanted:
                raise RecordError(f"{part.path} does not run the cells that its outcomes call for")
            outcomes = judged(kept, one.cells, size=part.ranks)
            if len(outcomes) != len(wanted):
                raise RecordError(f"{part.path} has {len(outcomes)} of {len(wanted)} answers")
            found += outcomes
        try:
            ask = inquiry.send(found)
        except StopIteration as done:
            if next(asks, None) is not None:
                raise RecordError(
                    f"{part.path} contains more cells than its outcomes call for"
                ) from None
            findings: Findings = done.value
            return findings


def _versions(evidence: PartEvidence) -> set[tuple[str, str]]:
    lines = [line for ask in evidence.asks for line in ask.whole]
    told = [event.values for event in _events(lines) if event.name == VERSIONS]
    return {(name, str(version)) for values in told for name, version in values.items()}


def grouped(parts: Sequence[PartRecord]) -> list[CauseGroup]:
    """Put causes together that fail alike, on the same axes, with the same values."""
    groups: list[list[tuple[PartRecord, FailureCause]]] = []
    for part in parts:
        for cause in part.findings.causes if part.findings is not None else ():
            mine = next((one for one in groups if _fits(part, cause, one)), None)
            if mine is None:
                groups.append(mine := [])
            mine.append((part, cause))
    return sorted(map(_group, groups), key=_rank)


def _fits(
    part: PartRecord, cause: FailureCause, members: Sequence[tuple[PartRecord, FailureCause]]
) -> bool:
    """Return whether a cause belongs to a group.

    The shape says only how many elements there have to be, and decides nothing here.
    """
    first_part, first = members[0]
    axes = cause.needs.keys() - {SHAPE}
    if first_part.library != part.library or axes != first.needs.keys() - {SHAPE}:
        return False
    # What was not shown again is never counted to what was.
    if _about(cause) != _about(first) or cause.is_shown != first.is_shown:
        return False
    if not axes:
        return cause.operator == first.operator
    return all(_agree(cause, other, axis) for _, other in members for axis in axes)


def _agree(one: FailureCause, other: FailureCause, axis: str) -> bool:
    """Return whether two causes fail together on an axis: nothing that fails one spares the other."""
    if {*one.needs[axis]} & {*other.spares[axis]} or {*other.needs[axis]} & {*one.spares[axis]}:
        return False
    return bool({*one.needs[axis]} & {*other.needs[axis]})


def _about(cause: FailureCause) -> tuple[str, str]:
    return cause.outcome.word, cause.outcome.kind


def _rank(group: CauseGroup) -> tuple[bool, bool, int]:
    """Put first what counts, then what fails most."""
    return group.word not in COUNTS, not group.smallest.is_shown, -group.failing


def _group(members: Sequence[tuple[PartRecord, FailureCause]]) -> CauseGroup:
    part, smallest = min(members, key=lambda member: (member[0].ranks, len(member[1].cell.key)))
    return CauseGroup(
        library=part.library,
        operators=sorted({cause.operator for _, cause in members}),
        ranks=sorted({part.ranks for part, _ in members}),
        word=smallest.outcome.word,
        kind=smallest.outcome.kind,
        smallest=smallest,
        smallest_ranks=part.ranks,
        backing=sorted({part.name for part, _ in members}),
        failing=sum(cause.failing for _, cause in members),
    )
