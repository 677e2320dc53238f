"""`collective-correct`: every element that a rank got from a call is the one that rank, index and
sequence make.

The subject makes its calls with the payloads of `context.coded`. The rank tells what came as
digests; what must have come is worked out here, in closed form, and so is what came instead.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from harness.checks.check import OF_A_VALUE, RankCheck
from harness.checks.finding import RankFinding, failed
from harness.forms.text import plural
from harness.history import CODED, CODED_END, History
from harness.ledger import coded

KEYS = ("operation", "elements", "dtype", "reduction")
DIGEST = re.compile(r"[0-9a-f]{64}")
# How many calls before and behind it something may have come from.
NEAR = 8
# Of more elements nobody waits for a sum that is made one by one.
MOST_SWAPPED = 1 << 16


class CollectiveCorrectCheck(RankCheck):
    """Every element of the result of every coded call is right, and all ranks made the same
    calls.
    """

    properties: ClassVar = replace(OF_A_VALUE, compares=False, compares_ranks=False)
    example: ClassVar = "{id: correct, kind: collective-correct, ranks: every, calls: 10}"

    kind: Literal["collective-correct"]
    calls: Annotated[int, Field(ge=1)] = Field(
        1, description="The minimum number of calls that each rank must have made."
    )

    @property
    def event(self) -> str:
        """Event by which a rank reports that these were all."""
        return CODED_END

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Judge what the rank told, call by call."""
        told = list(_told(history, rank))
        others = {
            other: {
                call.get("sequence"): call
                for call, _ in _told(history, other)
                if _is_hashable(call)
            }
            for other in range(history.size)
            if other != rank
        }
        for number, (call, line) in enumerate(told, start=1):
            if call.get("sequence") != number:
                return failed(
                    rank,
                    f"call {number} has no report, so its result was not checked",
                    line,
                    missing=True,
                )
            if call.get("operation") == "skip":
                continue
            there = {other: calls[number] for other, calls in others.items() if number in calls}
            if why := _wrong(call, there, rank, history.size) or _differs(call, there):
                return failed(rank, why, line)
        ends = {
            one: [seen.event.values.get("calls") for seen in history.said(one, CODED_END)]
            for one in range(history.size)
        }
        totals = history.said(rank, CODED_END)
        end = totals[0].line if totals else None
        if ends[rank] != [len(told)]:
            return failed(
                rank,
                f"it reported {plural(len(told), 'coded call')}, but not that these were all",
                end,
                missing=not totals,
            )
        odd = next((one for one, calls in ends.items() if calls and calls != ends[rank]), None)
        if odd is not None:
            return failed(
                rank,
                f"it began {plural(len(told), 'coded call')}, but rank {odd} {ends[odd][0]}",
                end,
            )
        looked_at = sum(call.get("operation") != "skip" for call, _ in told)
        shown = f"{plural(looked_at, 'call')} correct"
        reason = (
            f"it made {plural(looked_at, 'coded call')}, not {self.calls}"
            if looked_at < self.calls
            else ""
        )
        return RankFinding(rank=rank, passed=not reason, observed=shown, reason=reason, line=end)


def _told(history: History, rank: int) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield the calls that a rank reported, each with its line."""
    for seen in history.said(rank, CODED):
        calls = seen.event.values.get("calls")
        for call in calls if isinstance(calls, list) else [None]:
            yield (call if isinstance(call, dict) else {}), seen.line


def _is_hashable(call: Mapping[str, Any]) -> bool:
    return type(call.get("sequence")) is int


@dataclass(frozen=True)
class _Call:
    """Call as it was reported; hashable, so that its result is worked out once."""

    operation: str
    elements: int
    dtype: str
    reduction: str
    other: int
    sequence: int
    rank: int
    size: int

    @property
    def sources(self) -> list[int | None]:
        return coded.sources(self.operation, size=self.size, other=self.other)

    def made(self, source: int | None) -> bytes:
        return coded.expected(
            self.operation,
            source,
            rank=self.rank,
            size=self.size,
            sequence=self.sequence,
            elements=self.elements,
            dtype=self.dtype,
            reduction=self.reduction,
        )

    @property
    def first(self) -> int:
        """Index of the first element that comes, in what each rank gives."""
        return (
            self.rank * self.elements if self.operation in ("reduce_scatter", "all_to_all") else 0
        )

    def filled(self, value: coded.Value) -> bytes:
        return coded.fill(
            value, first=self.first, elements=self.elements, dtype=self.dtype, size=self.size
        )

    def swapped(self, value: coded.Value, others: Sequence[coded.Value]) -> bytes:
        of = self.elements * (self.size if self.operation == "reduce_scatter" else 1)
        known = {"first": self.first, "elements": self.elements, "of": of, "size": self.size}
        return coded.with_halves_swapped(value, others, dtype=self.dtype, **known)


def _read(call: Mapping[str, Any], *, rank: int, size: int) -> _Call | None:
    """Read a call as it was reported; None where it cannot be one."""
    words: Any = [call.get(key) for key in ("operation", "dtype", "reduction")]
    numbers: Any = [call.get(key) for key in ("elements", "other", "sequence")]
    if not all(type(number) is int and 0 <= number <= coded.MOST_ELEMENTS for number in numbers):
        return None
    operation, dtype, reduction = words
    elements, other, sequence = numbers
    # A rank may say anything: what is not a text cannot be looked for in a set.
    is_known = (
        all(isinstance(word, str) for word in words)
        and operation in coded.OPERATIONS
        and dtype in coded.MOST
        and reduction in coded.REDUCTIONS
    )
    if not is_known or other >= size or size > coded.LARGEST_WORLD:
        return None
    return _Call(
        operation=operation,
        elements=elements,
        dtype=dtype,
        reduction=reduction,
        other=other,
        sequence=sequence,
        rank=rank,
        size=size,
    )


def _wrong(
    values: Mapping[str, Any], there: Mapping[int, Mapping[str, Any]], rank: int, size: int
) -> str:
    """Say what is wrong about what came of a call; empty where nothing is.

    `there` are the other ranks' same calls.
    """
    call = _read(values, rank=rank, size=size)
    if call is None:
        return f"coded payloads do not support call {values.get('sequence')}"
    parts = values.get("parts")
    sources = call.sources
    named = (
        f"{call.operation} #{call.sequence} of {call.elements} {call.dtype} at {values.get('site')}"
    )
    if not isinstance(parts, list) or len(parts) != len(sources):
        return f"{named}: no report of the result"
    whole = coded.width(call.dtype) * call.elements * len(sources)
    if sources and values.get("bytes") != whole:
        return f"{named} returned {values.get('bytes')} bytes, not {whole}"
    for place, (source, digest) in enumerate(zip(sources, parts, strict=True)):
        if digest != _digest(call, source):
            where = f"in the data from rank {source}, " if source is not None else ""
            said = (
                _first(values, call, source, place),
                _instead(call, source, str(digest)),
                _elsewhere(there),
            )
            return f"{named}: {where}" + "; ".join(filter(None, said))
    return ""


@functools.lru_cache(maxsize=8192)
def _digest(call: _Call, source: int | None) -> str:
    return hashlib.sha256(call.made(source)).hexdigest()


def _first(values: Mapping[str, Any], call: _Call, source: int | None, place: int) -> str:
    """Describe the first wrong element that the rank reported, and what it must be."""
    first = values.get("first")
    told = first if isinstance(first, dict) else {}
    index = told.get("index")
    got = told.get("got")
    step = coded.width(call.dtype)
    right = call.made(source)
    is_told = (
        told.get("part") == place
        and type(index) is int
        and 0 <= index < call.elements
        and isinstance(got, str)
    )
    if not is_told or not re.fullmatch(rf"[0-9a-f]{{{2 * step}}}", str(got)):
        return "not all elements are correct"
    assert isinstance(index, int)
    wanted = right[index * step : (index + 1) * step]
    found = bytes.fromhex(str(got))
    if wanted == found:
        return "not all elements are correct"
    shown = f"{coded.decoded(found, call.dtype):g}, not {coded.decoded(wanted, call.dtype):g}"
    return f"the first wrong element, at index {index}, is {shown}"


@functools.lru_cache(maxsize=8192)  # one defect gives the same wrong elements in every trial
def _instead(call: _Call, source: int | None, digest: str) -> str:
    """Say whose elements of which call came instead, where that explains all of them.

    Empty where nothing does.
    """
    if not DIGEST.fullmatch(digest):
        return ""
    for words, payload in _explanations(call, source):
        if hashlib.sha256(payload).hexdigest() == digest:
            return words
    return ""


def _explanations(call: _Call, source: int | None) -> Iterator[tuple[str, bytes]]:
    """Yield what may have come instead, in words and bytes."""
    count = coded.modulus(call.dtype, call.size)
    steps = [
        step
        for distance in range(1, NEAR + 1)
        for step in (-distance, distance)
        if call.sequence + step > 0
    ]
    if source is not None:
        for rank in sorted(range(call.size), key=lambda one: one != source):
            for step in [0, *steps]:
                if (rank, step) != (source, 0):
                    words = f"it is what rank {rank} passed to call {call.sequence + step}"
                    yield (
                        words,
                        call.filled(coded.given_by(rank, call.sequence + step, count=count)),
                    )
        yield "its halves are swapped", coded.halves_swapped(call.made(source), call.dtype)
        yield "it is all zeros", bytes(len(call.made(source)))
        return
    own = [coded.given_by(rank, call.sequence, count=count) for rank in range(call.size)]
    for rank in range(call.size):
        others = [value for one, value in enumerate(own) if one != rank]
        yield (
            f"the contribution of rank {rank} is missing",
            call.filled(coded.of_all(others, call.reduction)),
        )
        if call.reduction == "sum":
            yield (
                f"the contribution of rank {rank} was added twice",
                call.filled(coded.of_all([*own, own[rank]], "sum")),
            )
        if call.reduction == "sum" and call.elements <= MOST_SWAPPED:
            yield (
                f"the halves of the contribution of rank {rank} are swapped",
                call.swapped(own[rank], others),
            )
        for step in steps:
            stale = [*others, coded.given_by(rank, call.sequence + step, count=count)]
            words = f"the contribution of rank {rank} is from call {call.sequence + step}"
            yield words, call.filled(coded.of_all(stale, call.reduction))


def _elsewhere(there: Mapping[int, Mapping[str, Any]]) -> str:
    """Say where the other ranks made the call."""
    places = [
        f"rank {other} at {call['site']}" for other, call in there.items() if call.get("site")
    ]
    return f"the same call of {', '.join(places)}" if places else ""


def _differs(values: Mapping[str, Any], there: Mapping[int, Mapping[str, Any]]) -> str:
    """Say how another rank's call of this sequence differs; empty where none does."""
    for other, call in there.items():
        if call.get("operation") == "skip":
            continue
        mine, theirs = ([_alike(one, key) for key in KEYS] for one in (values, call))
        if mine != theirs:
            shown = [" ".join(map(str, one)) for one in (mine, theirs)]
            return (
                f"call {values.get('sequence')} is {shown[0]} here, and {shown[1]} on rank {other}"
            )
    return ""


def _alike(call: Mapping[str, Any], key: str) -> Any:
    """Return a value that the ranks of a call have to share.

    Both ends of a transfer are one operation.
    """
    value = call.get(key)
    return "send" if key == "operation" and value == "recv" else value
