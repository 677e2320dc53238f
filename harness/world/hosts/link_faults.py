"""Faults of a link: what a wire can do to its packets, and the links it does it to.

Seeded, counted, and without a clock.

Each class is one thing that can be done. It is given a packet and when that is due, and gives back
what is to be delivered on which link and when: nothing where it is lost, more than one where it is
repeated.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.world.hosts.packets import RST, SYN, TCP, WORD, Streams, altered, resets, segment

LOG_LIMIT = 20


@dataclass(kw_only=True, eq=False)
class Link:
    """Way from one host to another.

    Attributes:
        source, target: numbers of the hosts.
        faults: what is done to its packets now, in the order it was begun.
        packets: that were sent on it, and their `size` in bytes.
        lost: packets that the target's kernel did not take.
        first: where the stream of each flow begins.
        streams: how far it has carried each stream.
        takes: whether the packet that passes now carries new payload of a rank, or begins a
            connection.
    """

    source: int
    target: int
    faults: list[PacketFault] = field(default_factory=list)
    packets: int = 0
    size: int = 0
    lost: int = 0
    first: dict[str, int] = field(default_factory=dict)
    streams: Streams = field(default_factory=Streams)
    takes: bool = False

    def count(self, packet: bytes) -> None:
        """Count a packet that was sent."""
        self.packets += 1
        self.size += len(packet)
        self.takes = self.streams.takes(packet)
        begins = packet[0] == 0x45 and packet[9] == TCP and len(packet) >= 40 and packet[33] & SYN
        if begins and (part := segment(packet)) is not None:
            self.first[part.flow] = (part.sequence + 1) % WORD

    def pass_through(self, packet: bytes, *, now: int) -> list[Passing]:
        """Return what becomes of a packet, after all that is done to it here."""
        passing: list[Passing] = [(now, self, packet)]
        for fault in self.faults:
            passing = [
                after
                for due, on, changed in passing
                for after in (
                    fault.act(changed, due, self) if on is self else ((due, on, changed),)
                )
            ]
        return passing

    def evidence(self) -> dict[str, int]:
        """Return what was counted."""
        return {
            "source": self.source,
            "target": self.target,
            "packets": self.packets,
            "bytes": self.size,
            "lost": self.lost,
        }


Passing = tuple[int, Link, bytes]
Links = Mapping[tuple[int, int], Link]


class PacketFault:
    """One thing that is done to packets, on some links, by one fault of the scenario.

    Attributes:
        does: the word for it in an order.
        pairs: the links, as source and target.
        matched: packets that passed while it was in force.
        struck: packets that it was done to, and their `size` in bytes.
        payload: those of them that carried new payload of a rank, or began a connection.
    """

    does: ClassVar[str]
    holds: ClassVar = False
    """Whether packets wait on the wire for a time."""
    kinds: ClassVar[dict[str, type[PacketFault]]] = {}

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.pairs = [(source, target) for source, target in order["links"]]
        self.matched = self.struck = self.size = self.payload = 0
        self._random = random.Random(order["seed"])  # noqa: S311 - to be repeated, not to be secret
        self._links: Links = {}

    def __init_subclass__(cls) -> None:
        cls.kinds[cls.does] = cls

    @staticmethod
    def of(order: Mapping[str, Any]) -> PacketFault:
        """Return what an order asks for."""
        return PacketFault.kinds[order["what"]](order)

    def act(self, packet: bytes, due: int, link: Link) -> Iterable[Passing]:
        """Do it to a packet, or let it pass."""
        self.matched += 1
        return self._act(packet, due, link)

    def _act(self, packet: bytes, due: int, link: Link) -> Iterable[Passing]:
        raise NotImplementedError

    def join(self, links: Links) -> None:
        """Know every link: some things are done on the way back too."""
        self._links = links

    def let_go(self) -> Iterable[Passing]:
        """Return what it keeps still: it is delivered when the fault is taken back."""
        return ()

    def evidence(self) -> dict[str, Any]:
        """Return what was counted."""
        return {
            "matched": self.matched,
            "struck": self.struck,
            "payload": self.payload,
            "bytes": self.size,
        }

    def _hit(self, packet: bytes, link: Link) -> None:
        self.struck += 1
        self.size += len(packet)
        self.payload += _takes(packet, link)


def _takes(packet: bytes, link: Link) -> bool:
    """Return whether a packet is of a rank and new: not one of ours, such as the resets that
    another fault has just made.
    """
    return link.takes and (packet[9] != TCP or not packet[(packet[0] & 15) * 4 + 13] & RST)


def on_links(fault: PacketFault, links: Links) -> None:
    """Put it in force."""
    fault.join(links)
    for pair in fault.pairs:
        links[pair].faults.append(fault)


class ByChance(PacketFault):
    """Done to the first packet with new payload, so that it meets the ranks' work at all, and to a
    share of all.
    """

    does = ""

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__(order)
        self._share: float = order["share"]

    def _is_hit(self, packet: bytes, link: Link) -> bool:
        hit = self._is_first(packet, link) or self._random.random() < self._share
        if hit:
            self._hit(packet, link)
        return hit

    def _is_first(self, packet: bytes, link: Link) -> bool:
        return not self.payload and _takes(packet, link)


class PacketLatency(PacketFault):
    """Every packet is later by a time, and by chance by up to another.

    None overtakes one of its link.
    """

    does = "latency"
    holds: ClassVar = True

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__(order)
        self._by = order["by_ns"]
        self._jitter = order["jitter_ns"]
        self._last: dict[tuple[int, int], int] = {}

    def _act(self, packet: bytes, due: int, link: Link) -> Iterable[Passing]:
        self._hit(packet, link)
        pair = link.source, link.target
        due += self._by + (self._random.randrange(self._jitter + 1) if self._jitter else 0)
        self._last[pair] = due = max(due, self._last.get(pair, 0))
        yield due, link, packet


class PacketBandwidth(PacketFault):
    """So many bytes pass in a second, one packet after the other."""

    does = "bandwidth"
    holds: ClassVar = True

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__(order)
        self._rate = order["bytes_per_second"]
        self._free: dict[tuple[int, int], int] = {}

    def _act(self, packet: bytes, due: int, link: Link) -> Iterable[Passing]:
        self._hit(packet, link)
        pair = link.source, link.target
        self._free[pair] = due = max(due, self._free.get(pair, 0)) + round(
            len(packet) * 1e9 / self._rate
        )
        yield due, link, packet


class PacketLoss(ByChance):
    """Packets are lost."""

    does = "loss"

    def _act(self, packet: bytes, due: int, link: Link) -> Iterable[Passing]:
        if not self._is_hit(packet, link):
            yield due, link, packet


class PacketDuplicate(ByChance):
    """Packets come twice."""

    does = "duplicate"

    def _act(self, packet: bytes, due: int, link: Link) -> Iterable[Passing]:
        yield due, link, packet
        if self._is_hit(packet, link):
            yield due, link, packet


class PacketReorder(ByChance):
    """Packets are held back, so that those after them come first.

    The first one is kept until another has come first, however long that takes: where each waits
    for the one before, what overtakes it is its own copy, when TCP sends it again.
    """

    does = "reorder"
    holds: ClassVar = True

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__(order)
        self._by = order["by_ns"]
        self._first: Passing | None = None
        self._until: dict[tuple[int, int], list[int]] = {}
        self.overtaken = 0

    def _act(self, packet: bytes, due: int, link: Link) -> Iterable[Passing]:
        held = self._until.setdefault((link.source, link.target), [])
        first = self._first if self._first is not None and self._first[1] is link else None
        is_first = self._is_first(packet, link)
        if first is None and self._is_hit(packet, link):
            if is_first:
                self._first = due + self._by, link, packet
                return
            held.append(due + self._by)
            yield due + self._by, link, packet
            return
        # This one comes before all that are held still; each of them is counted once.
        self.overtaken += sum(until > due for until in held)
        held.clear()
        yield due, link, packet
        if first is not None:
            self._first = None
            self.overtaken += 1
            yield max(due, first[0]), link, first[2]

    def let_go(self) -> Iterable[Passing]:
        first = self._first
        self._first = None
        return () if first is None else (first,)

    def evidence(self) -> dict[str, Any]:
        return {**super().evidence(), "overtaken": self.overtaken}


class PacketDrop(PacketFault):
    """No packet passes."""

    does = "drop"

    def _act(self, packet: bytes, due: int, link: Link) -> Iterable[Passing]:
        del due
        self._hit(packet, link)
        return ()


class PacketReset(PacketFault):
    """Every connection that ranks use is ended at both ends, as if each heard of it from the other.

    An acknowledgement of what was sent before the fault is no use of it: where that ended the
    connection, no work of a rank would have met the fault.
    """

    does = "reset"

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__(order)
        self._flows: dict[str, None] = {}
        self._begun: set[str] = set()

    def _act(self, packet: bytes, due: int, link: Link) -> Iterable[Passing]:
        part = segment(packet)
        if part is None or part.flags & SYN:
            if part is not None and link.takes:
                self._begun.add(part.flow)
            yield due, link, packet
            return
        takes = _takes(packet, link)
        is_used = takes or part.flow in self._begun or part.flow in self._flows
        if not is_used:
            yield due, link, packet
            return
        self._hit(packet, link)
        # A connection that a rank began meanwhile is ended by what follows its SYN, often before it
        # has any payload.
        if part.flow in self._begun:
            self._begun.remove(part.flow)
            self.payload += not takes
        self._flows[part.flow] = None
        there, here = resets(packet, part)
        yield due, link, there
        yield due, self._links[link.target, link.source], here

    def evidence(self) -> dict[str, Any]:
        return {
            **super().evidence(),
            "flows": list(self._flows)[:LOG_LIMIT],
            "connections": len(self._flows),
        }


@dataclass(frozen=True)
class Flipped:
    """Byte of a stream that was changed: it is changed again where TCP sends it again."""

    flow: str
    sequence: int
    mask: int


class PacketFlip(PacketFault):
    """Change of a byte in one segment's payload, with its checksum mended: nothing below the
    application can tell.
    """

    does = "flip"

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__(order)
        self._least = order["least"]
        self._most = order["most"]
        self._left: int = order["message"]
        self._at: int | None = order["byte"]
        self._mask: int = order["mask"]
        self._flipped: Flipped | None = None
        self._log: list[dict[str, Any]] = []

    def _act(self, packet: bytes, due: int, link: Link) -> Iterable[Passing]:
        yield due, link, self._changed(packet, link)

    def _changed(self, packet: bytes, link: Link) -> bytes:
        part = segment(packet)
        if part is None:
            return packet
        if (done := self._flipped) is not None:
            at = (done.sequence - part.sequence) % WORD
            return (
                self._flip(packet, at, link)
                if part.flow == done.flow and at < part.size
                else packet
            )
        # Of what TCP sends again the receiver may have had the first copy: a change of it would
        # change nothing.
        if (
            not link.takes
            or not self._least <= part.size <= self._most
            or (self._at or 0) >= part.size
        ):
            return packet
        self._left -= 1
        if self._left:
            return packet
        at = part.size // 2 if self._at is None else self._at
        self._flipped = Flipped(part.flow, (part.sequence + at) % WORD, self._mask)
        return self._flip(packet, at, link)

    def _flip(self, packet: bytes, at: int, link: Link) -> bytes:
        part = segment(packet)
        assert part is not None
        changed = altered(packet, part, at=at, mask=self._mask)
        self._hit(packet, link)
        if len(self._log) < LOG_LIMIT:
            begin = link.first.get(part.flow)
            place = part.payload + at
            self._log.append(
                {
                    "flow": part.flow,
                    # In the stream; null where its beginning was not seen.
                    "offset": None if begin is None else (part.sequence + at - begin) % WORD,
                    "payload": part.size,
                    "byte": at,
                    "before": packet[place],
                    "after": changed[place],
                }
            )
        return changed

    def evidence(self) -> dict[str, Any]:
        return {**super().evidence(), "flips": self._log}
