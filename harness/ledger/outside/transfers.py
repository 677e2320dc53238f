"""Hold what ranks sent against what others received, by the digests in their ledgers: the first
that differs. Pure.

What one rank gives and another takes has one digest at both ends. A sum has none: there the sketch
of each result has to be the sum of the sketches of the parts, within the rounding that adding so
many numbers of that type can have in any order. A maximum or minimum is only held against what the
other ranks got.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.forms.strict_json import JSON
from harness.ledger.call import BARRIERS, GATHERS, RECEIVE, SEND, SPLIT, SUMS, Call
from harness.ledger.file import CallPart, Ledger, Sketch
from harness.ledger.outside.agreement import Pair, calls_together, pairs_together

EXACT = frozenset({"max", "min", "band", "bor", "bxor"})
"""Reductions in which every order gives the same elements, so that all results are alike."""
# The largest relative error of one addition, by type; and that of the arithmetic of the sketches.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
OF_SKETCHES = 2.0**-53
CLEARLY = 16
"""So many times what rounding allows has a sum to be off, before one rank is blamed for it."""
WHOLE_BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, kw_only=True)
class Damage:
    """Payload that did not arrive as it was sent.

    Attributes:
        ranks: those of which one is to blame, ascending.
        sender: the rank that gave it; None of a sum, to which all give.
        sent: its call.
        receiver: the rank that got something else.
        received: its call.
        like: what it got instead, where that is known: another rank's or call's payload.
    """

    ranks: tuple[int, ...]
    sender: int | None
    sent: Call | None
    receiver: int
    received: Call
    like: str

    def values(self) -> dict[str, JSON]:
        """Return the damage as JSON."""
        return {
            "ranks": list(self.ranks),
            "sender": self.sender,
            "sent": self.sent.values() if self.sent else None,
            "receiver": self.receiver,
            "received": self.received.values(),
            "like": self.like,
        }


@dataclass(frozen=True, kw_only=True)
class Transfers:
    """Comparison of the digests of some ranks.

    Attributes:
        damage: the first; None where there is none.
        compared: rank to how many of its calls were held against what the other end has.
        left: rank to how many of its calls with a payload were not.
    """

    damage: Damage | None
    compared: Mapping[int, int]
    left: Mapping[int, int]


def transfers(ledgers: Mapping[int, Ledger]) -> Transfers:
    """Hold the digests of some ranks against each other.

    Calls with ranks that are not among them are left out. So is what follows the first call in
    which two ranks of a group are out of step, or that was not digested: it counts as not compared.
    """
    return _TransferComparison(ledgers).compare()


class _TransferComparison:
    """Parts, calls and senders of some ledgers, by rank, and which calls were compared."""

    def __init__(self, ledgers: Mapping[int, Ledger]) -> None:
        self._ledgers = ledgers
        self._parts: dict[tuple[int, int, str], list[CallPart]] = defaultdict(list)
        self._senders: dict[int, list[tuple[int, CallPart]]] = defaultdict(list)
        self._calls = {
            rank: {call.number: call for call in ledger.calls} for rank, ledger in ledgers.items()
        }
        for rank, ledger in ledgers.items():
            for part in ledger.parts:
                self._parts[rank, part.call, part.side].append(part)
                if part.side == "sent":
                    self._senders[part.digest].append((rank, part))
        self._compared: dict[int, set[int]] = {rank: set() for rank in ledgers}

    def compare(self) -> Transfers:
        """Compare all of it."""
        damages = [*self._of_groups(), *self._of_pairs()]
        first = min(
            damages, key=lambda damage: (damage.received.number, damage.receiver), default=None
        )
        left: Counter[int] = Counter()
        for rank, ledger in self._ledgers.items():
            for call in ledger.calls:
                if self._is_asked(call) and call.number not in self._compared[rank]:
                    left[rank] += 1
        return Transfers(
            damage=first,
            compared={rank: len(numbers) for rank, numbers in self._compared.items()},
            left={rank: left[rank] for rank in self._ledgers},
        )

    def _is_asked(self, call: Call) -> bool:
        """Return whether it is one whose payload could be held against another rank's."""
        if call.operation in (SEND, RECEIVE):
            return call.peer is None or call.peer in self._ledgers
        members = call.group.ranks
        return (
            call.operation not in BARRIERS
            and len(members) > 1
            and all(member in self._ledgers for member in members)
        )

    def _side(self, rank: int, call: Call, side: str) -> list[CallPart]:
        """Return the parts of one side of a call; none where they are not all held."""
        parts = self._parts.get((rank, call.number, side), [])
        return parts if parts and len(parts) == parts[0].many else []

    def _of_pairs(self) -> Iterator[Damage]:
        """Yield what went wrong on each channel."""
        for channel in pairs_together(self._ledgers):
            for pair in channel:
                sent = self._side(pair.source, pair.send, "sent")
                received = self._side(pair.destination, pair.receive, "received")
                if not sent or not received:
                    continue
                self._compared[pair.source].add(pair.send.number)
                self._compared[pair.destination].add(pair.receive.number)
                if sent[0].digest != received[0].digest:
                    yield self._damage(pair, received[0])

    def _damage(self, pair: Pair, part: CallPart) -> Damage:
        return Damage(
            ranks=tuple(sorted((pair.source, pair.destination))),
            sender=pair.source,
            sent=pair.send,
            receiver=pair.destination,
            received=pair.receive,
            like=self._like(part.digest, near=pair.source, call=pair.send),
        )

    def _of_groups(self) -> Iterator[Damage]:
        """Yield what went wrong in each group, once a call."""
        for group in calls_together(self._ledgers):
            earlier: list[Mapping[int, Call]] = []
            for calls in group:
                first = next(iter(calls.values()))
                if first.operation in BARRIERS or len(calls) < len(first.group.ranks):
                    continue
                reduces = first.operation in SUMS or bool(first.reduction)
                # To its end, though the first damage is enough: it notes what it compared.
                if reduces:
                    damages = list(self._of_reduction(calls, earlier))
                else:
                    damages = list(self._of_transfer(calls))
                yield from damages[:1]
                earlier.append(calls)

    def _of_transfer(self, calls: Mapping[int, Call]) -> Iterator[Damage]:
        """Yield what each rank received, held against what the rank it came from sent."""
        wrong: list[tuple[int, int, CallPart]] = []
        whole = True
        expected = 0
        for rank, call in calls.items():
            for part in self._side(rank, call, "received"):
                expected += 1
                sent = None
                if part.whom is not None:
                    sent = self._sent(part.whom, to=rank, call=calls.get(part.whom))
                if sent is None:
                    whole = False
                elif part.whom is not None and sent.digest != part.digest:
                    wrong.append((part.whom, rank, part))
        if wrong or (whole and expected >= _receives(calls)):
            for rank, call in calls.items():
                self._compared[rank].add(call.number)
        # Where a rank got its own part wrong too, another one's end says more.
        for source, rank, part in sorted(wrong, key=lambda ends: ends[0] == ends[1])[:1]:
            got = {taker: held.digest for giver, taker, held in wrong if giver == source}
            others = set(calls) - {source}
            # What the sender has of it itself, or every other rank alike, went wrong where it came
            # from.
            is_senders = source in got or (
                len(others) > 1 and got.keys() == others and len(set(got.values())) == 1
            )
            yield Damage(
                ranks=(source,) if is_senders else tuple(sorted({source, rank})),
                sender=source,
                sent=calls[source],
                receiver=rank,
                received=calls[rank],
                like=self._like(part.digest, near=source, call=calls[source]),
            )

    def _sent(self, source: int, *, to: int, call: Call | None) -> CallPart | None:
        """Return what a rank sent to another one in a call; None where that is not held."""
        if call is None:
            return None
        return next(
            (part for part in self._side(source, call, "sent") if part.whom in (None, to)), None
        )

    def _of_reduction(
        self, calls: Mapping[int, Call], earlier: Sequence[Mapping[int, Call]]
    ) -> Iterator[Damage]:
        """Yield what each rank got, held against what all of them gave."""
        first = next(iter(calls.values()))
        results = {
            rank: parts[0]
            for rank, call in calls.items()
            if (parts := self._side(rank, call, "received"))
        }
        if len(results) < _receives(calls):
            return
        if first.reduction in EXACT and "scatter" not in first.operation:
            for rank, call in calls.items():
                self._compared[rank].add(call.number)
            usual, many = Counter(part.digest for part in results.values()).most_common(1)[0]
            odd = [rank for rank, part in results.items() if part.digest != usual]
            if odd:
                ranks = tuple(odd) if 2 * many > len(results) else tuple(results)
                yield _of_sum(ranks, odd[0], calls[odd[0]], "what the other ranks did not get")
            return
        if first.reduction != "sum":
            return
        sums: list[tuple[int, Sketch, Mapping[int, Sketch]]] = []
        for rank, part in results.items():
            given = self._given(calls, to=rank)
            if given is None or part.sketch is None:
                return  # nothing to hold against each other
            sums.append((rank, part.sketch, given))
        for rank, call in calls.items():
            self._compared[rank].add(call.number)
        for rank, result, sketches in sums:
            off = _off(result, sketches, dtype=first.dtype, elements=calls[rank].elements)
            if off is None:
                continue
            blamed = self._blamed(off, sketches, earlier, kind=_kind(calls), to=rank)
            like = blamed[1] if blamed else ""
            yield _of_sum((blamed[0],) if blamed else tuple(sorted(calls)), rank, calls[rank], like)
            return

    def _given(self, calls: Mapping[int, Call], *, to: int) -> dict[int, Sketch] | None:
        """Return the sketch of what each rank gave to one; None where one of them has none."""
        sketches = {}
        for rank, call in calls.items():
            part = self._sent(rank, to=to, call=call)
            if part is None or part.sketch is None:
                return None
            sketches[rank] = part.sketch
        return sketches

    def _blamed(
        self,
        off: _Off,
        sketches: Mapping[int, Sketch],
        earlier: Sequence[Mapping[int, Call]],
        *,
        kind: tuple[str, str, int],
        to: int,
    ) -> tuple[int, str] | None:
        """Return the only rank whose part explains a sum that is not right, and how; None where
        there is none, or several.
        """
        if off.tolerance * CLEARLY > abs(off.total):
            return None
        explained = []
        same = [calls for calls in reversed(earlier) if _kind(calls) == kind]
        before = (self._given(same[0], to=to) if same else None) or {}
        for rank, sketch in sketches.items():
            if off.is_by(-sketch.total):
                explained.append((rank, f"the sum without what rank {rank} gave"))
            if off.is_by(sketch.total):
                explained.append((rank, f"the sum with what rank {rank} gave twice"))
            if rank in before and off.is_by(before[rank].total - sketch.total):
                explained.append((rank, f"the sum with what rank {rank} gave in the call before"))
        return explained[0] if len(explained) == 1 else None

    def _like(self, digest: int, *, near: int, call: Call) -> str:
        """Return what was received in place of what was sent, if somebody sent that at all.

        The sender's own comes first.
        """
        known = [
            (rank, self._calls[rank][part.call])
            for rank, part in self._senders.get(digest, ())
            if part.call in self._calls[rank]
        ]
        if not known:
            return ""
        rank, other = min(
            known, key=lambda item: (item[0] != near, abs(item[1].number - call.number), item[0])
        )
        place = other.site.partition(" in ")[0] or "a place that is not known"
        return f"what rank {rank} sent in {other.operation} #{other.index} at {place}"


def _kind(calls: Mapping[int, Call]) -> tuple[str, str, int]:
    """Return what a call has in common with an earlier one whose payload could be sent in its
    place.
    """
    first = next(iter(calls.values()))
    return first.operation, first.dtype, first.elements


def _of_sum(ranks: tuple[int, ...], rank: int, call: Call, like: str) -> Damage:
    return Damage(ranks=ranks, sender=None, sent=None, receiver=rank, received=call, like=like)


def _receives(calls: Mapping[int, Call]) -> int:
    """Return how many parts are received in a call, by all its ranks together."""
    operation = next(iter(calls.values())).operation
    size = len(calls)
    if operation == "broadcast":
        return size - 1
    if operation == "reduce":
        return 1
    if operation in GATHERS or operation in SPLIT:
        return size * size
    return size


@dataclass(frozen=True, kw_only=True)
class _Off:
    """Distance of a sum from what it should be: a weighted float with its tolerance, or whole
    numbers modulo a power of two.
    """

    total: float | int
    tolerance: float
    modulus: int

    def is_by(self, other: float) -> bool:
        """Return whether it is by so much."""
        if self.modulus:
            return int(other) % self.modulus == self.total != 0
        return abs(self.total - other) <= self.tolerance < abs(other)


def _off(result: Sketch, given: Mapping[int, Sketch], *, dtype: str, elements: int) -> _Off | None:
    """Return by how much a result is off what its parts give; None where it is right."""
    if dtype in WHOLE_BITS:
        modulus = 1 << WHOLE_BITS[dtype]
        off = (int(result.total) - sum(int(sketch.total) for sketch in given.values())) % modulus
        return _Off(total=off, tolerance=0.0, modulus=modulus) if off else None
    unit = ROUNDING.get(dtype, 2.0**-8)
    terms = (len(given) - 1) * unit
    size = sum(sketch.size for sketch in given.values())
    # Higham, Accuracy and Stability of Numerical Algorithms, 4.2: any order of so many additions,
    # for each element.
    tolerance = size * (terms / (1 - terms) + 4 * (elements + len(given)) * OF_SKETCHES)
    total = result.total - sum(sketch.total for sketch in given.values())
    return None if abs(total) <= tolerance else _Off(total=total, tolerance=tolerance, modulus=0)
