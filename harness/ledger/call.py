"""Collective and point-to-point calls of a rank: the group of each, what it states, and how its
elements are shared out among the members of the group. Pure.

What one member gives another one is what that one takes from it: the splits of an all-to-all, the
lists of a gather or a scatter. And of several arrays in one call all members have to state the same
sizes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.forms.strict_json import JSON

BARRIERS = frozenset({"barrier", "monitored_barrier"})
"""Collectives that carry no payload."""
SUMS = frozenset(
    {
        "all_reduce",
        "all_reduce_coalesced",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
        "all_sum",
        "sum_scatter",
    }
)
"""Collectives that may add; MLX's `all_max` and `all_min` reduce and never add."""
GATHERS = frozenset({"all_gather", "all_gather_into_tensor", "all_gather_into_tensor_coalesced"})
SPLIT = frozenset({"all_to_all", "all_to_all_single"})
"""Collectives in which each rank's number of elements is its own."""
BUNDLES = frozenset(
    {
        "all_reduce_coalesced",
        "all_gather_coalesced",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter_tensor_coalesced",
    }
)
"""Collectives of several arrays."""
COLLECTIVES = frozenset(
    {
        *BARRIERS,
        *SUMS,
        *GATHERS,
        *SPLIT,
        *BUNDLES,
        "all_max",
        "all_min",
        "broadcast",
        "gather",
        "scatter",
    }
)
SEND = "send"
RECEIVE = "recv"
OPERATIONS = COLLECTIVES | {SEND, RECEIVE}
State = Literal["open", "ended", "failed", "started"]
STATES: tuple[State, ...] = ("open", "ended", "failed", "started")
SIZES = re.compile(r"(0|[1-9][0-9]{0,18})(,(0|[1-9][0-9]{0,18}))*")
UNHELD = 0x7FFF
"""In the place of a text: what was stated could not be held."""


class NotALedger(ValueError):
    """Bytes that are not a ledger; the message says why, as the end of a sentence."""


class NotShares(ValueError):
    """No statement of how elements are shared out; the message says why, as the end of a
    sentence.
    """


@dataclass(frozen=True)
class Shares:
    """Numbers of elements that one rank states in a collective.

    Attributes:
        gives: elements of what goes to each member, in their order in the group; one number where
            all get as many. Of several arrays, those of each. Empty where they follow from the
            elements of the call.
        takes: the same of what comes from each member.
        unheld: whether the ledger could not hold one of these.
    """

    gives: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()
    unheld: bool = False


NONE = Shares()


def packed(shares: Shares, number: Callable[[str], int]) -> int:
    """Return shares as they lie in a record: the number of the text of what is given, and above it
    that of what is taken.
    """
    gives, takes = (number(",".join(map(str, sizes))) for sizes in (shares.gives, shares.takes))
    if shares.unheld:
        # Which of the two was not held makes no difference: one that has no number stands for it.
        if not gives:
            gives = UNHELD
        elif not takes:
            takes = UNHELD
    return gives | takes << 16


def unpacked(held: int, text: Callable[[int], str], *, operation: str, members: int) -> Shares:
    """Read back what `packed` gave.

    Raises:
        NotShares: it cannot be.
    """
    if not held:
        return NONE
    if held < 0:
        raise NotShares(f"{held} does not refer to any texts")
    halves = (held & 0xFFFF, held >> 16)
    members = 0 if operation in BUNDLES else members
    gives, takes = (
        () if half in (0, UNHELD) else _read(text(half), members=members) for half in halves
    )
    return Shares(gives=gives, takes=takes, unheld=UNHELD in halves)


def _read(text: str, *, members: int) -> tuple[int, ...]:
    if not SIZES.fullmatch(text):
        raise NotShares(f"{text!r} is not a list of sizes")
    sizes = tuple(map(int, text.split(",")))
    if members and len(sizes) not in (1, members):
        raise NotShares(f"{text!r} is not a list of sizes for a group of {members}")
    return sizes


@dataclass(frozen=True)
class CallGroup:
    """Ranks that call together: the library that made the group, its name there, its members in the
    order of their numbers in it.
    """

    library: str
    name: str
    ranks: tuple[int, ...]

    def text(self) -> str:
        """Return the group as it stands in a ledger."""
        return f"{self.library}|{self.name}|{','.join(map(str, self.ranks))}"

    @classmethod
    def of(cls, text: str, *, size: int) -> CallGroup:
        """Read back what `text` gave.

        Raises:
            NotALedger: it is not a group of a world of `size`.
        """
        library, _, rest = text.partition("|")
        name, _, members = rest.rpartition("|")
        words = members.split(",")
        if not library or not all(
            word.isascii() and word.isdecimal() and len(word) < 6 for word in words
        ):
            raise NotALedger(f"{text!r} is not a group")
        ranks = tuple(map(int, words))
        if (
            len(set(ranks)) != len(ranks)
            or max(ranks) >= size
            or cls(library, name, ranks).text() != text
        ):
            raise NotALedger(f"{text!r} is not a valid group for world size {size}")
        return cls(library, name, ranks)

    def __str__(self) -> str:
        return f"group {self.name} of {self.library}"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a rank.

    Attributes:
        number: of the rank's calls, from 1.
        operation: one of `OPERATIONS`.
        group: the group it was made in.
        index: from 1, of the collectives that the rank made in this group; of a point-to-point
            call, of those with the same peer, direction and tag.
        peer: the root, or the other end of a point-to-point call, as a rank of the world; None
            where there is none, or a receive takes from anybody.
        tag: of a point-to-point call, else 0.
        shape: of the first tensor, such as `2x3`; empty where the ledger could not hold it.
        dtype: as the library calls it; empty for a barrier.
        elements: what all members of a collective have to state alike; of a point-to-point call,
            what is sent.
        reduction: such as `sum`, else empty.
        site: `file:line in function` of the caller; empty where the ledger could not hold it.
        thread: threads of the rank, numbered as they first called.
        begin: CLOCK_MONOTONIC in nanoseconds.
        end: the same; None where the call has not ended or its end was not observed.
        state: open (it had not come back), ended, failed (it raised), started (it came back, and
            its end is not observed).
        shares: how the elements of a collective are shared out, where it states that.
    """

    number: int
    operation: str
    group: CallGroup
    index: int
    peer: int | None
    tag: int
    shape: str
    dtype: str
    elements: int
    reduction: str
    site: str
    thread: int
    begin: int
    end: int | None
    state: State
    shares: Shares = NONE

    @property
    def is_collective(self) -> bool:
        """Return whether every member of the group has to make it."""
        return self.operation in COLLECTIVES

    def values(self) -> dict[str, JSON]:
        """Return the call as JSON, without what differs from run to run."""
        values: dict[str, JSON] = {
            "operation": self.operation,
            "index": self.index,
            "group": self.group.text(),
            "peer": self.peer,
            "tag": self.tag,
            "dtype": self.dtype,
            "shape": self.shape,
            "elements": self.elements,
            "reduction": self.reduction,
            "site": self.site,
            "call": self.number,
            "state": self.state,
        }
        if self.operation in BUNDLES and self.shares.gives:
            values["parts"] = list(self.shares.gives)
        return values


@dataclass(frozen=True, kw_only=True)
class ShareContradiction:
    """Two members that state something else of one transfer.

    Attributes:
        ranks: those that contradict themselves; else the one that contradicts more than half of its
            group, where all contradictions are with it; else all that contradict each other.
        source: the rank that gives.
        gives: how many elements.
        destination: the rank that takes.
        takes: how many.
    """

    ranks: tuple[int, ...]
    source: int
    gives: int
    destination: int
    takes: int

    def values(self) -> dict[str, JSON]:
        """As JSON."""
        return {
            "from": self.source,
            "gives": self.gives,
            "to": self.destination,
            "takes": self.takes,
        }


def contradiction(calls: Mapping[int, Call]) -> ShareContradiction | None:
    """Hold what the members of a group state of one call against each other; None where nobody
    contradicts another.

    Args:
        calls: rank to the call that it made; alike in all else. Of a member that is not among them
            it is not known what it states.
    """
    if all(call.shares == NONE for call in calls.values()):
        return None
    order = next(iter(calls.values())).group.ranks
    mismatches = list(_mismatches(calls, order))
    if not mismatches:
        return None
    partners: defaultdict[int, set[int]] = defaultdict(set)
    for source, _, destination, _ in mismatches:
        partners[source].add(destination)
        partners[destination].add(source)
    itself = [rank for rank in partners if rank in partners[rank]]
    single = [rank for rank, others in partners.items() if 2 * len(others) > len(order) > 2]
    blamed = list(partners)
    for ranks in (itself, single[:1]):
        if ranks and all(
            source in ranks or destination in ranks for source, _, destination, _ in mismatches
        ):
            blamed = ranks
            break
    # One between two ranks says more than one of a rank with itself.
    source, gives, destination, takes = min(mismatches, key=lambda ends: ends[0] == ends[2])
    return ShareContradiction(
        ranks=tuple(sorted(blamed)),
        source=source,
        gives=gives,
        destination=destination,
        takes=takes,
    )


def _mismatches(
    calls: Mapping[int, Call], order: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Each transfer of which both ends are known and differ: source, what it gives, destination,
    what it takes.
    """
    known = [(place, rank) for place, rank in enumerate(order) if rank in calls]
    for giver, source in known:
        for taker, destination in known:
            gives = _gives(calls[source], source, destination, place=taker, size=len(order))
            takes = _takes(calls[destination], source, destination, place=giver, size=len(order))
            if gives is not None and takes is not None and gives != takes:
                yield source, gives, destination, takes


def _gives(call: Call, source: int, destination: int, *, place: int, size: int) -> int | None:
    """Return how many elements a rank gives another; None where it gives it nothing, or does not
    say.
    """
    if call.operation == "gather":
        return call.elements if destination == call.peer else None
    if call.operation == "scatter" and source != call.peer:
        return None
    return _size(call, call.shares.gives, place=place, size=size)


def _takes(call: Call, source: int, destination: int, *, place: int, size: int) -> int | None:
    """Return how many elements a rank takes from another; None where it takes nothing, or does not
    say.
    """
    if call.operation == "scatter":
        return call.elements if source == call.peer else None
    if call.operation == "gather" and destination != call.peer:
        return None
    return _size(call, call.shares.takes, place=place, size=size)


def _size(call: Call, sizes: Sequence[int], *, place: int, size: int) -> int | None:
    if call.shares.unheld:
        return None
    if sizes:
        return sizes[place % len(sizes)]
    if call.operation in ("gather", "scatter"):
        return call.elements
    return call.elements // size if call.operation in ("all_gather", "reduce_scatter") else None
