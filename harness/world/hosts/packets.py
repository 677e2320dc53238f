"""IPv4 packets as they lie on a wire, and what can be changed of them so that their TCP still takes
them. Pure.

Sources: RFC 791 and 9293 for the headers, RFC 1624 for a checksum that is mended without summing
all up again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

TCP = 6
UDP = 17
SYN = 0x02
RST = 0x04
WORD = 2**32
UDP_HEADER = 8


@dataclass(frozen=True)
class Segment:
    """TCP segment: where in its packet what is.

    Attributes:
        flow: source and destination, `ADDRESS:PORT>ADDRESS:PORT`.
        sequence: number of its first byte in the stream, modulo 2**32.
        acknowledged: what it acknowledges.
        flags: TCP's.
        tcp: where its header begins in the packet.
        payload: where its payload begins.
        size: bytes of payload.
    """

    flow: str
    sequence: int
    acknowledged: int
    flags: int
    tcp: int
    payload: int
    size: int


def segment(packet: bytes) -> Segment | None:
    """Read a packet; None where it is not one of TCP, or not whole."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != TCP:
        return None
    tcp = (packet[0] & 15) * 4
    # A fragment has no header, or not the whole.
    if len(packet) < tcp + 20 or int.from_bytes(packet[6:8]) & 0x3FFF:
        return None
    source, target, sequence, acknowledged, offset, flags = struct.unpack_from(
        "!HHIIBB", packet, tcp
    )
    payload = tcp + (offset >> 4) * 4
    size = int.from_bytes(packet[2:4]) - payload
    if size < 0 or payload + size > len(packet):
        return None
    flow = f"{dotted(packet[12:16])}:{source}>{dotted(packet[16:20])}:{target}"
    return Segment(flow, sequence, acknowledged, flags, tcp, payload, size)


class Streams:
    """Reach of each TCP stream on one link: new payload differs from what was sent before."""

    def __init__(self) -> None:
        self._reached: dict[bytes, int] = {}

    def takes(self, packet: bytes) -> bool:
        """Return whether a packet takes a stream further than this link carried it: new payload, or
        a connection's begin.

        One fact decides: the sequence number of the packet's last byte, of which SYN is one and FIN
        is not. What only acknowledges, closes or resets, a keep-alive probe, and what TCP sends
        again all end where the stream was before. UDP has no sequence, so every datagram with data
        counts, and so does each of its fragments. Other protocols, such as ICMP, are spoken by
        kernels.
        """
        header = (packet[0] & 15) * 4
        whole = min(int.from_bytes(packet[2:4]), len(packet))
        fragment = int.from_bytes(packet[6:8]) & 0x1FFF
        if packet[9] == UDP:
            return whole > header + (0 if fragment else UDP_HEADER)
        if packet[9] != TCP or fragment or whole < header + 20:
            return False
        size = max(0, whole - header - (packet[header + 12] >> 4) * 4)
        begins = bool(packet[header + 13] & SYN)
        if not size and not begins:
            return False
        flow = packet[12:20] + packet[header : header + 4]
        sequence = int.from_bytes(packet[header + 4 : header + 8])
        end = (sequence + begins + size) % WORD
        reached = self._reached.get(flow)
        # Ports are used again: another connection begins at another number, higher or lower.
        is_new = reached != end
        if reached is not None and not begins:
            is_new = 0 < (end - reached) % WORD < WORD // 2
        if is_new:
            self._reached[flow] = end
        return is_new


def dotted(address: bytes) -> str:
    """Return an IPv4 address in words."""
    return ".".join(map(str, address))


def altered(packet: bytes, part: Segment, *, at: int, mask: int) -> bytes:
    """Return the packet with the bits of `mask` flipped in byte `at` of its payload, and its
    checksum mended.

    Only who looks at the data can tell.
    """
    changed = bytearray(packet)
    place = part.payload + at
    # The checksum is over words of two bytes, counted from where TCP's header begins.
    word = place - (place - part.tcp) % 2
    before = _word(changed, word, end=part.payload + part.size)
    changed[place] ^= mask
    after = _word(changed, word, end=part.payload + part.size)
    total = (
        (~int.from_bytes(packet[part.tcp + 16 : part.tcp + 18]) & 0xFFFF)
        + (~before & 0xFFFF)
        + after
    )
    struct.pack_into("!H", changed, part.tcp + 16, ~_folded(total) & 0xFFFF)
    return bytes(changed)


def resets(packet: bytes, part: Segment) -> tuple[bytes, bytes]:
    """Two packets that end the connection of a segment: for who was to receive it, and for who sent
    it.

    Each has the sequence number that its receiver awaits next, or it would not be taken for true
    (RFC 5961).
    """
    ours = packet[12:16]
    theirs = packet[16:20]
    source, target = struct.unpack_from("!HH", packet, part.tcp)
    return (
        _reset(ours, theirs, source, target, sequence=part.sequence),
        _reset(theirs, ours, target, source, sequence=part.acknowledged),
    )


def _reset(source: bytes, target: bytes, port: int, other: int, *, sequence: int) -> bytes:
    header = struct.pack("!HHIIBBHHH", port, other, sequence, 0, 5 << 4, RST, 0, 0, 0)
    pseudo = source + target + struct.pack("!BBH", 0, TCP, len(header))
    header = header[:16] + struct.pack("!H", _checksum(pseudo + header)) + header[18:]
    around = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(header), 0, 0, 64, TCP, 0, source, target
    )
    return around[:10] + struct.pack("!H", _checksum(around)) + around[12:] + header


def checksum_holds(packet: bytes, part: Segment) -> bool:
    """Return whether a receiver would take the segment for whole."""
    length = part.payload + part.size - part.tcp
    pseudo = packet[12:20] + struct.pack("!BBH", 0, TCP, length)
    return _checksum(pseudo + packet[part.tcp : part.tcp + length]) == 0


def _checksum(data: bytes) -> int:
    padded = data + b"\0" * (len(data) % 2)
    return ~_folded(sum(struct.unpack(f"!{len(padded) // 2}H", padded))) & 0xFFFF


def _word(data: bytearray, at: int, *, end: int) -> int:
    """Two bytes; behind the end stands a zero, as the checksum has it."""
    return data[at] << 8 | (data[at + 1] if at + 1 < end else 0)


def _folded(total: int) -> int:
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
