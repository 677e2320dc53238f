"""What came of a cell: a pure function of what the ranks and the whole reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from harness.events import Event
from harness.forms.model import Model
from harness.series.operators.cells import OperatorCell

DONE: Final = "cell.done"
WHOLE: Final = "cell.whole"
HANG: Final = "cell.hang"
STOPPED: Final = "cell.stopped"
Word = Literal["RIGHT", "DEFECT", "CRASH", "HANG", "DIFFERS", "REFUSES", "NO ORACLE", "NOT ASKED"]
WORDS: Final[tuple[Word, ...]] = get_args(Word)
COUNTS: Final = frozenset({"DEFECT", "CRASH", "HANG"})
"""Words that accuse somebody."""
MOST_ENDS: Final = 4
"""Worlds of one sweep that an operator may end in one slice: a hang costs ten seconds."""
EXTREMES: Final = ("max", "min")
ZEROS: Final = frozenset({"0", "0.0", "-0.0"})


class Outcome(Model):
    """What came of one cell.

    Attributes:
        word: RIGHT where every rank has what the whole says, bit for bit or within the tolerance;
            DEFECT where a rank has something else and said nothing; CRASH and HANG where a rank
            ended or stood still; DIFFERS where the difference is one that nobody promises against;
            REFUSES where a rank raised; NO ORACLE where one process cannot do it either, or a rank
            was too slow; NOT ASKED
            where too many cells of the operator had ended their world before.
        kind: of a difference: values, shape, dtype, memory outside of the result, the input.
        ranks: that have it.
        fact: in a sentence.
    """

    word: Word
    kind: str = ""
    ranks: list[int] = []  # noqa: RUF012 - pydantic copies it
    fact: str = ""


@dataclass(frozen=True)
class ArrayDifference:
    """One array that is not what it has to be.

    Attributes:
        kind: as of an outcome.
        fact: in words.
        excused: why it does not count; empty where it does.
    """

    kind: str
    fact: str
    excused: str = ""


CRASHES: Final = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"})
Said = Mapping[str, Any]


class WorldReading:
    """What the ranks of one world, or the process of the whole, said of each cell.

    Attributes:
        done: for each rank, what it said of a cell, by index.
        stopped: what a rank said of why it went no further; empty where it did.
    """

    def __init__(self, events: Iterable[Event], *, size: int) -> None:
        self.done: list[dict[int, Said]] = [{} for _ in range(size)]
        self.hung: list[dict[int, str]] = [{} for _ in range(size)]
        self.crashed: dict[int, str] = {}
        self.killed: dict[int, str] = {}
        self.stopped: dict[int, Said] = {}
        for event in events:
            if event.rank is None:
                continue
            values: Said = event.values
            if event.by != "rank":
                # How a rank ended is said by the process that forked it.
                if event.name == "rank.exited" and values.get("signal"):
                    ended = self.crashed if values["signal"] in CRASHES else self.killed
                    ended[event.rank] = str(values["signal"])
            elif event.name in (DONE, WHOLE):
                self.done[event.rank][values["index"]] = values
            elif event.name == HANG:
                self.hung[event.rank][values["index"]] = str(values["at"])
            elif event.name == STOPPED:
                self.stopped[event.rank] = values

    def reached(self, begin: int, count: int) -> int:
        """Return the first cell that the world did not come to.

        A world that ended without stopping came to the cell after the last that all ranks did. A
        rank that stopped came to the cell that it names, also where another rank was ended before
        it could report that cell.
        """
        after = begin
        while after < count and all(after in rank for rank in self.done):
            after += 1
        if not self.stopped:
            return min(count, after + 1)
        named = [said.get("index") for said in self.stopped.values()]
        return min(count, max([after, *(place + 1 for place in named if isinstance(place, int))]))


def not_asked(
    cells: Sequence[OperatorCell], found: Sequence[Outcome], *, most: int
) -> list[Outcome]:
    """Return what to say of the next cells, while their operator ended `most` worlds."""
    ends = Counter(
        cell.operator
        for cell, came in zip(cells, found, strict=False)
        if came.word in ("CRASH", "HANG")
    )
    skipped: list[Outcome] = []
    for cell in cells[len(found) :]:
        if ends[cell.operator] < most:
            break
        skipped.append(
            Outcome(word="NOT ASKED", fact=f"{cell.operator} crashed or hung {most} worlds")
        )
    return skipped


def outcome(cell: OperatorCell, index: int, *, whole: WorldReading, world: WorldReading) -> Outcome:
    """Judge a cell that a world came to."""
    said = [rank.get(index) for rank in world.done]
    silent = [rank for rank, values in enumerate(said) if values is None]
    crashed = [rank for rank in silent if rank in world.crashed]
    if crashed:
        fact = f"rank {crashed[0]} was ended by {world.crashed[crashed[0]]}"
        return Outcome(word="CRASH", kind="crash", ranks=crashed, fact=fact)
    raised = {
        rank: str(values["raised"])
        for rank, values in enumerate(said)
        if values and "raised" in values
    }
    if raised:
        return _refused(raised, [world.stopped.get(rank, {}) for rank in raised], index)
    hung = {rank: world.hung[rank][index] for rank in silent if index in world.hung[rank]}
    if hung and len(hung) == len(silent):
        rank, at = min(hung.items())
        return Outcome(word="HANG", kind="hang", ranks=sorted(hung), fact=f"rank {rank} at {at}")
    if hung or any(rank in world.killed for rank in silent):
        return Outcome(word="NO ORACLE", fact="a rank was still computing when it was stopped")
    if silent:
        fact = f"rank {silent[0]} exited without an answer"
        return Outcome(word="CRASH", kind="crash", ranks=silent, fact=fact)
    right = whole.done[0].get(index)
    if right is None or "raised" in right:
        why = "the single process did not answer" if right is None else str(right["raised"])
        return Outcome(word="NO ORACLE", fact=why)
    return _compared(cell, right, [values for values in said if values is not None])


def _refused(raised: Mapping[int, str], stopped: Sequence[Said], index: int) -> Outcome:
    """A call that raised: it is right to, unless it made the next call wrong."""
    first = raised[min(raised)]
    for rank, said in zip(raised, stopped, strict=True):
        if said.get("index") == index and "total" in said:
            fact = (
                f"rank {rank}: after {first!r} the next all_reduce returned {said['total']}"
                f" instead of {said['wanted']}, without an error"
            )
            return Outcome(word="DEFECT", kind="next call", ranks=sorted(raised), fact=fact)
    return Outcome(word="REFUSES", ranks=sorted(raised), fact=first)


def _compared(cell: OperatorCell, whole: Said, answers: Sequence[Said]) -> Outcome:
    """Compare what every rank has with what the whole says."""
    found: list[tuple[int, ArrayDifference]] = []
    rights = whole["ranks"]
    for rank, answer in enumerate(answers):
        right = rights[rank if len(rights) > 1 else 0]
        for name, wanted in right.items():
            got = answer["got"].get(name)
            tolerance = float(whole["tolerances"].get(name, 0.0))
            difference = compare(cell, name, wanted, got, tolerance=tolerance)
            if difference is not None:
                found.append((rank, difference))
    if not found:
        return Outcome(word="RIGHT")
    counted = [(rank, difference) for rank, difference in found if not difference.excused]
    rank, first = (counted or found)[0]
    same = sorted({other for other, each in found if each.kind == first.kind})
    fact = f"rank {rank}: {first.fact}{f' ({first.excused})' if first.excused else ''}"
    word: Word = "DEFECT" if counted else "DIFFERS"
    return Outcome(word=word, kind=first.kind, ranks=same, fact=fact)


def compare(
    cell: OperatorCell,
    name: str,
    wanted: Mapping[str, Any],
    got: Mapping[str, Any] | None,
    *,
    tolerance: float,
) -> ArrayDifference | None:
    """Compare one array; None where it is what it has to be."""
    kind = name.partition("-")[0]
    kind = {"memory": "memory around it", "given": "input"}.get(kind, kind)
    if got is None:
        return ArrayDifference(kind, f"{name} is missing")
    if got["shape"] != wanted["shape"]:
        return ArrayDifference(f"shape of {kind}", f"{got['shape']} instead of {wanted['shape']}")
    off = [
        (place, left, right)
        for place, (left, right) in enumerate(zip(got["values"], wanted["values"], strict=True))
        if not _is_near(left, right, tolerance)
    ]
    if not off:
        if got["dtype"] == wanted["dtype"]:
            return None
        fact = f"{got['dtype']} instead of {wanted['dtype']}"
        return ArrayDifference(f"dtype of {kind}", fact, "the values are the same")
    place, left, right = off[0]
    fact = f"{_shown(got)} instead of {_shown(wanted)}; first at {place}: {left} instead of {right}"
    if len(off) > 1:
        fact += f", {len(off)} elements"
    return ArrayDifference(kind, fact, _excuse(cell, kind, off))


def _is_near(left: float | str, right: float | str, tolerance: float) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    if left == right:
        # A zero has a sign.
        return left != 0 or str(left).startswith("-") == str(right).startswith("-")
    return tolerance > 0 and abs(left - right) <= tolerance


def _excuse(cell: OperatorCell, kind: str, off: Sequence[tuple[int, Any, Any]]) -> str:
    """Why nobody promised otherwise; empty where somebody did."""
    # By name, in whatever they are a part of: an operator, an expression, a placement.
    words = (cell.operator, *(cell.axes.get(axis, "") for axis in ("op", "placement")))
    is_extreme = any(word in text for word in EXTREMES for text in words)
    # Of a NaN that is not in the right result either, the extreme is not the cause.
    is_extreme |= all(str(right) == "nan" for _, _, right in off) and any(
        word in cell.axes.get("then", "") for word in EXTREMES
    )
    pairs = [{str(left), str(right)} for _, left, right in off]
    if all(left == 0 and right == 0 for _, left, right in off):
        return "only the sign of a zero differs"
    if is_extreme and all("nan" in pair for pair in pairs):
        return "NaN in a maximum or minimum"
    if kind.startswith("gradient") and all("nan" in pair and pair & ZEROS for pair in pairs):
        return "NaN for zero in a gradient, where the function has a kink"
    return ""


def _shown(array: Mapping[str, Any]) -> str:
    values = array["values"]
    text = ", ".join(str(value) for value in values[:8])
    return f"[{text}{', ...' if len(values) > 8 else ''}]"
