"""Ledgers of one world held against each other: the first call in which two ranks differ. Pure.

Members of a group make the same collectives in the same order, each with what the operation demands
to be alike: the type, the number of elements, the reduction, the root. How many elements one gives
another has to be what that one takes of it: the splits of an all-to-all, the parts of an uneven
gather. What may differ is not compared, such as where a call stands in the code. A send and a
receive between the same two ranks with the same tag belong together in their order.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from harness.forms.strict_json import JSON
from harness.ledger.call import (
    BUNDLES,
    RECEIVE,
    SEND,
    SPLIT,
    Call,
    CallGroup,
    ShareContradiction,
    contradiction,
)
from harness.ledger.file import Ledger


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two ranks that differ: its call, or where there was none the last it made."""

    rank: int
    call: Call | None
    last: Call | None = None

    def values(self) -> dict[str, JSON]:
        """Return the side as JSON."""
        if self.call is not None:
            return {"rank": self.rank, "call": self.call.values()}
        last = None if self.last is None else self.last.values()
        return {"rank": self.rank, "call": None, "last": last}


@dataclass(frozen=True, kw_only=True)
class LedgerDifference:
    """Two calls that belong together and are not alike.

    Attributes:
        ranks: those that differ from more than half of the group, ascending; all of it where there
            is no such half.
        one: a rank of the majority, or the first.
        other: a rank that differs from it.
        split: what one of them gives the other and that one takes of it, where they differ in that.
    """

    ranks: tuple[int, ...]
    one: Side
    other: Side
    split: ShareContradiction | None = None

    def values(self) -> dict[str, JSON]:
        """Return the difference as JSON."""
        values: dict[str, JSON] = {
            "ranks": list(self.ranks),
            "one": self.one.values(),
            "other": self.other.values(),
        }
        if self.split is not None:
            values["split"] = self.split.values()
        return values

    @property
    def order(self) -> tuple[int, int]:
        """Return what comes first in the ranks' own numbering."""
        sides = (self.one, self.other)
        return min((side.call.number, side.rank) for side in sides if side.call is not None)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Comparison of the ledgers of some ranks.

    Attributes:
        difference: the first; None where there is none.
        matched: rank to how many of its calls were held against another rank's.
    """

    difference: LedgerDifference | None
    matched: Mapping[int, int]


def agree(ledgers: Mapping[int, Ledger]) -> Agreement:
    """Hold the ledgers of some ranks against each other.

    Calls that a ledger holds no more are left out on both sides, and so is what was made with a
    rank that is not among them. A ledger of which calls are missing must not be given: what it
    lacks would be a difference.
    """
    matched: Counter[int] = Counter(dict.fromkeys(ledgers, 0))
    differences = [*_collectives(ledgers, matched), *_pairs(ledgers, matched)]
    first = min(differences, key=lambda difference: difference.order, default=None)
    return Agreement(difference=first, matched=dict(matched))


def calls_together(ledgers: Mapping[int, Ledger]) -> list[list[dict[int, Call]]]:
    """Of each group the calls that were made together, rank by rank, up to the first in which its
    ranks differ.
    """
    groups = []
    for steps in _steps(ledgers):
        alike = itertools.takewhile(lambda there: _difference(there, ledgers) is None, steps)
        groups.append(
            [{rank: call for rank, call in there.items() if call is not None} for there in alike]
        )
    return groups


def _collectives(
    ledgers: Mapping[int, Ledger], matched: Counter[int]
) -> Iterator[LedgerDifference]:
    """Yield the first difference of each group."""
    for steps in _steps(ledgers):
        for there in steps:
            if len(there) < 2:
                continue
            if difference := _difference(there, ledgers):
                yield difference
                break
            matched.update(there.keys())


def _steps(ledgers: Mapping[int, Ledger]) -> Iterator[Iterator[Mapping[int, Call | None]]]:
    """Yield of each group, call by call, what each member made.

    Those of which nobody knows are left out.
    """
    groups: defaultdict[CallGroup, dict[int, dict[int, Call]]] = defaultdict(dict)
    for rank, ledger in ledgers.items():
        for call in ledger.calls:
            if call.is_collective:
                groups[call.group].setdefault(rank, {})[call.index] = call
    for group, calls in groups.items():
        members = sorted(rank for rank in group.ranks if rank in ledgers)
        # Of a full ledger that holds none of the group's, nobody knows how many there were.
        if len(members) < 2 or any(
            ledgers[rank].overwritten and rank not in calls for rank in members
        ):
            continue
        yield _of_group(calls, members, ledgers)


def _of_group(
    calls: Mapping[int, Mapping[int, Call]], members: list[int], ledgers: Mapping[int, Ledger]
) -> Iterator[Mapping[int, Call | None]]:
    held = [min(calls[rank]) for rank in members if ledgers[rank].overwritten]
    last = max(index for of_rank in calls.values() for index in of_rank)
    for index in range(max(held, default=1), last + 1):
        yield {
            rank: calls.get(rank, {}).get(index)
            for rank in members
            # Of a record that was cut off nobody knows what call it was.
            if not ledgers[rank].torn or index in calls.get(rank, {})
        }


def _difference(
    there: Mapping[int, Call | None], ledgers: Mapping[int, Ledger]
) -> LedgerDifference | None:
    """Return how the calls of one index differ; None where they are alike."""
    # What one ledger could not hold is not known to differ.
    held = not any(call is not None and call.shares.unheld for call in there.values())
    facts = {rank: _demanded(call, bundled=held) for rank, call in there.items()}
    usual, many = Counter(facts.values()).most_common(1)[0]
    if many == len(facts):
        return _contradiction({rank: call for rank, call in there.items() if call is not None})
    # Without a majority nobody can say who is wrong: all of them differ, from the first rank on.
    first = min(facts)
    ranks = list(facts)
    if 2 * many > len(facts):
        first = next(rank for rank, fact in facts.items() if fact == usual)
        ranks = [rank for rank, fact in facts.items() if fact != usual]
    second = next(rank for rank, fact in facts.items() if fact != facts[first])
    return LedgerDifference(
        ranks=tuple(sorted(ranks)),
        one=Side(rank=first, call=there[first], last=_last(ledgers[first])),
        other=Side(rank=second, call=there[second], last=_last(ledgers[second])),
    )


def _contradiction(calls: Mapping[int, Call]) -> LedgerDifference | None:
    """Return how calls that are alike in all else differ in what ranks give each other."""
    split = contradiction(calls)
    if split is None or all(
        # Each contradicts itself, and was refused for it, alike on every rank: nothing went out.
        call.state == "failed" and contradiction({rank: call}) is not None
        for rank, call in calls.items()
    ):
        return None
    source = Side(rank=split.source, call=calls[split.source])
    destination = Side(rank=split.destination, call=calls[split.destination])
    return LedgerDifference(ranks=split.ranks, one=source, other=destination, split=split)


class Demanded(NamedTuple):
    """Facts of a collective that all members of the group have to state alike."""

    operation: str
    dtype: str
    elements: int
    reduction: str
    root: int | None
    parts: tuple[int, ...]


def _demanded(call: Call | None, *, bundled: bool) -> Demanded | None:
    if call is None:
        return None
    elements = 0 if call.operation in SPLIT else call.elements
    parts = call.shares.gives if bundled and call.operation in BUNDLES else ()
    return Demanded(call.operation, call.dtype, elements, call.reduction, call.peer, parts)


class PairChannel(NamedTuple):
    """Facts that a send and the receive that takes it have in common."""

    group: CallGroup
    source: int | None
    destination: int
    tag: int


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Send and the receive that took it."""

    source: int
    send: Call
    destination: int
    receive: Call


def pairs_together(ledgers: Mapping[int, Ledger]) -> list[list[Pair]]:
    """Of each channel the sends and receives that belong together, up to the first that are not
    alike.
    """
    sent, received = _channels(ledgers)
    channels = []
    for channel, source in _known_sources(sent, received):
        pairs = list[Pair]()
        for send, receive in _of_channel(channel, source, sent, received, ledgers):
            if send is None or receive is None or not _fit(send, receive):
                break
            pairs.append(
                Pair(source=source, send=send, destination=channel.destination, receive=receive)
            )
        channels.append(pairs)
    return channels


OfChannels = Mapping[PairChannel, Mapping[int, Call]]


def _pairs(ledgers: Mapping[int, Ledger], matched: Counter[int]) -> Iterator[LedgerDifference]:
    """Yield the first difference of each channel."""
    sent, received = _channels(ledgers)
    for wide in [channel for channel in received if channel.source is None]:
        yield from _from_anybody(wide, sent, received, ledgers, matched)
    for channel, source in _known_sources(sent, received):
        for send, receive in _of_channel(channel, source, sent, received, ledgers):
            if send is None or receive is None or not _fit(send, receive):
                yield _apart(source, send, channel.destination, receive, ledgers)
                break
            matched.update((source, channel.destination))


def _channels(ledgers: Mapping[int, Ledger]) -> tuple[OfChannels, OfChannels]:
    """Return the sends and the receives of each channel, by their index."""
    sent: defaultdict[PairChannel, dict[int, Call]] = defaultdict(dict)
    received: defaultdict[PairChannel, dict[int, Call]] = defaultdict(dict)
    for rank, ledger in ledgers.items():
        for call in ledger.calls:
            if call.operation == SEND and call.peer is not None and call.peer in ledgers:
                sent[PairChannel(call.group, rank, call.peer, call.tag)][call.index] = call
            elif call.operation == RECEIVE and (call.peer is None or call.peer in ledgers):
                received[PairChannel(call.group, call.peer, rank, call.tag)][call.index] = call
    return sent, received


def _known_sources(sent: OfChannels, received: OfChannels) -> list[tuple[PairChannel, int]]:
    """Return the channels of which it is known which send belongs to which receive, each with its
    source.
    """
    pooled = {channel for channel in received if channel.source is None}
    channels = sorted(sent.keys() | received.keys(), key=repr)
    return [
        (channel, channel.source)
        for channel in channels
        if channel.source is not None and channel._replace(source=None) not in pooled
    ]


def _of_channel(
    channel: PairChannel,
    source: int,
    sent: OfChannels,
    received: OfChannels,
    ledgers: Mapping[int, Ledger],
) -> Iterator[tuple[Call | None, Call | None]]:
    """Yield the send and the receive of a channel, one pair after the other.

    Those of which nobody knows are left out.
    """
    sends = sent.get(channel, {})
    receives = received.get(channel, {})
    ends = ((ledgers[source], sends), (ledgers[channel.destination], receives))
    if any(ledger.overwritten and not calls for ledger, calls in ends):
        return
    first = max((min(calls) for ledger, calls in ends if ledger.overwritten), default=1)
    for index in range(first, max(*sends, *receives, 0, 0) + 1):
        send = sends.get(index)
        receive = receives.get(index)
        if any(
            known is None and ledger.torn
            for known, (ledger, _) in zip((send, receive), ends, strict=True)
        ):
            continue  # of a record that was cut off nobody knows what call it was
        yield send, receive


def _fit(send: Call, receive: Call) -> bool:
    return (send.dtype, send.elements) == (receive.dtype, receive.elements)


def _from_anybody(
    wide: PairChannel,
    sent: OfChannels,
    received: OfChannels,
    ledgers: Mapping[int, Ledger],
    matched: Counter[int],
) -> Iterator[LedgerDifference]:
    """Count the calls of a rank that takes from whoever sends: which of them belong together nobody
    can say, how many there have to be all can.
    """
    members = [rank for rank in wide.group.ranks if rank in ledgers]
    if len(members) < len(wide.group.ranks) or any(ledgers[rank].overwritten for rank in members):
        return
    sends = [
        (channel.source, call)
        for channel, calls in sent.items()
        if channel.source is not None and channel._replace(source=None) == wide
        for call in calls.values()
    ]
    receives = [
        (wide.destination, call)
        for channel, calls in received.items()
        if channel._replace(source=None) == wide
        for call in calls.values()
    ]
    matched.update(rank for rank, _ in [*sends, *receives])
    if len(sends) == len(receives):
        return
    more = max(sends, receives, key=len)
    rank, call = max(more, key=lambda end: (end[1].begin, end[0]))
    if more is sends:
        yield _apart(rank, call, wide.destination, None, ledgers)
    else:
        source = next(member for member in members if member != wide.destination)
        yield _apart(source, None, wide.destination, call, ledgers)


def _apart(
    source: int,
    send: Call | None,
    destination: int,
    receive: Call | None,
    ledgers: Mapping[int, Ledger],
) -> LedgerDifference:
    """Return the two ends of a channel; the one that made a call comes first."""
    sides = [
        Side(rank=source, call=send, last=_last(ledgers[source])),
        Side(rank=destination, call=receive, last=_last(ledgers[destination])),
    ]
    if send is None:
        sides.reverse()
    return LedgerDifference(
        ranks=tuple(sorted({source, destination})), one=sides[0], other=sides[1]
    )


def _last(ledger: Ledger) -> Call | None:
    """Return where a rank stood that did not make a call: its last."""
    return ledger.standing() or (ledger.calls[-1] if ledger.calls else None)
