"""Packets: what is changed in them is taken by TCP, and only what was meant is changed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.world.hosts.link_faults import Link, PacketFault, Passing, on_links
from harness.world.hosts.packets import (
    RST,
    SYN,
    TCP,
    UDP,
    Segment,
    altered,
    checksum_holds,
    resets,
    segment,
)

ACK = 0x10
PAYLOADS = st.binary(min_size=1, max_size=300)


def packet(
    payload: bytes, *, sequence: int = 1000, flags: int = ACK, source: int = 1, target: int = 2
) -> bytes:
    """A packet from one host to another, with a right checksum, and four bytes of TCP options."""
    addresses = bytes((10, 77, 0, source, 10, 77, 0, target))
    tcp = (
        struct.pack(
            "!HHIIBBHHH4s", 4000, 20_000, sequence, 77, 6 << 4, flags, 512, 0, 0, b"\1\1\1\0"
        )
        + payload
    )
    padded = addresses + struct.pack("!BBH", 0, TCP, len(tcp)) + tcp
    padded += b"\0" * (len(padded) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    tcp = tcp[:16] + struct.pack("!H", ~total & 0xFFFF) + tcp[18:]
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, TCP, 0) + addresses + tcp


def read(data: bytes) -> Segment:
    """A segment that must be one."""
    found = segment(data)
    assert found is not None
    return found


def a_fault(
    what: str, *, links: list[list[int]] | None = None, **options: object
) -> tuple[PacketFault, Link]:
    """A fault in force on the link from host 0 to host 1."""
    wires = {pair: Link(source=pair[0], target=pair[1]) for pair in ((0, 1), (1, 0))}
    fault = PacketFault.of({"what": what, "links": links or [[0, 1]], "seed": "7", **options})
    on_links(fault, wires)
    return fault, wires[0, 1]


def sent(link: Link, data: bytes, *, now: int) -> list[Passing]:
    """A packet counted and passed on, as the wire does it."""
    link.count(data)
    return link.pass_through(data, now=now)


@given(PAYLOADS, st.data(), st.integers(1, 255))
def test_a_changed_byte_is_the_only_one_and_the_checksum_holds(
    payload: bytes, data: st.DataObject, mask: int
) -> None:
    """Whichever byte is flipped by whichever bits: the receiver's TCP takes the packet, and all
    else is as it was.
    """
    before = packet(payload)
    found = read(before)
    assert checksum_holds(before, found)
    at = data.draw(st.integers(0, len(payload) - 1))
    after = altered(before, found, at=at, mask=mask)
    assert checksum_holds(after, read(after))
    changed = [place for place in range(len(before)) if before[place] != after[place]]
    assert set(changed) <= {found.tcp + 16, found.tcp + 17, found.payload + at}
    assert after[found.payload + at] == payload[at] ^ mask


@given(st.binary(max_size=80))
def test_any_bytes_are_a_segment_or_none(data: bytes) -> None:
    """Whatever a host sends: it is read as a segment within the packet, or not at all."""
    found = segment(data)
    assert found is None or found.payload + found.size <= len(data)


def test_a_reset_is_what_each_end_awaits() -> None:
    """Both ends hear of it from the other, with the number they await next and a right checksum."""
    sent = packet(b"x" * 10)
    found = read(sent)
    there, here = resets(sent, found)
    for one, flow, sequence in (
        (there, "10.77.0.1:4000>10.77.0.2:20000", 1000),
        (here, "10.77.0.2:20000>10.77.0.1:4000", 77),
    ):
        end = read(one)
        assert (end.flow, end.sequence, end.size) == (flow, sequence, 0)
        assert checksum_holds(one, end)


def test_a_flip_is_made_again_where_tcp_sends_again() -> None:
    """The byte of the stream that was flipped is flipped in each packet that holds it, and no other
    byte ever.
    """
    fault, link = a_fault("flip", least=100, most=65_535, message=2, byte=None, mask=64)
    link.count(packet(b"", sequence=899, flags=SYN))

    def passed(payload: bytes, sequence: int) -> bytes:
        ((_, _, changed),) = sent(link, packet(payload, sequence=sequence), now=0)
        found = read(changed)
        assert checksum_holds(changed, found)
        return changed[found.payload :]

    assert passed(b"a" * 50, 900) == b"a" * 50  # too small
    assert passed(b"a" * 100, 950) == b"a" * 100  # the first
    flipped = b"a" * 50 + b"!" + b"a" * 49
    assert passed(b"a" * 100, 1050) == flipped
    assert passed(b"a" * 100, 1150) == b"a" * 100
    assert passed(b"a" * 60, 1090) == b"a" * 10 + b"!" + b"a" * 49  # sent again, cut otherwise
    values = fault.evidence()
    assert (values["matched"], values["struck"]) == (5, 2)
    first = {"flow": "10.77.0.1:4000>10.77.0.2:20000", "offset": 200, "payload": 100, "byte": 50}
    assert values["flips"][0] == {**first, "before": 97, "after": 33}


def test_what_is_done_by_chance_is_done_at_once_and_again_alike() -> None:
    """The first packet is lost for certain, of the others a share, and the same seed loses the same
    ones.
    """
    runs = []
    for _ in range(2):
        fault, link = a_fault("loss", share=0.25)
        runs.append([bool(sent(link, packet(b"x"), now=0)) for _ in range(400)])
        assert fault.struck == runs[-1].count(False)
    assert runs[0] == runs[1]
    assert not runs[0][0]
    assert 60 <= runs[0].count(False) <= 140


def test_delays_keep_the_order_and_a_narrow_link_its_rate() -> None:
    """No packet overtakes one that is late by chance.

    Over a narrow link the last is late by the bytes of all.
    """
    _, link = a_fault("latency", by_ns=1000, jitter_ns=900)
    dues = [sent(link, packet(b"x"), now=now)[0][0] for now in range(0, 5000, 10)]
    assert dues == sorted(dues)
    assert all(
        1000 <= due - now <= 1900 + 900 for due, now in zip(dues, range(0, 5000, 10), strict=True)
    )
    _, link = a_fault("bandwidth", bytes_per_second=1_000_000)
    one = packet(b"x" * 956)
    assert len(one) == 1000
    assert [sent(link, one, now=0)[0][0] for _ in range(3)] == [1_000_000, 2_000_000, 3_000_000]


def test_the_first_packet_waits_until_one_has_come_first() -> None:
    """However late the next one is: it overtakes.

    Taken back before, the fault lets go of what it keeps.
    """
    for share in (0.0, 1.0):
        fault, link = a_fault("reorder", share=share, by_ns=1000)
        assert sent(link, packet(b"1"), now=0) == []
        passed = sent(link, packet(b"2"), now=5000)
        assert [(due, one) for due, _, one in passed] == [
            (5000, packet(b"2")),
            (5000, packet(b"1")),
        ]
        assert (fault.evidence()["overtaken"], list(fault.let_go())) == (1, [])
        assert [due for due, _, _ in sent(link, packet(b"3"), now=6000)] == [6000 + 1000 * share]
    fault, link = a_fault("reorder", share=0.5, by_ns=1000)
    sent(link, packet(b"1"), now=0)
    assert [one for _, _, one in fault.let_go()] == [packet(b"1")]


def test_faults_of_one_link_are_done_one_after_the_other() -> None:
    """What the first leaves goes through the second: twice, then each of the two is counted and
    late.
    """
    wires = {(0, 1): Link(source=0, target=1)}
    twice = PacketFault.of({"what": "duplicate", "links": [[0, 1]], "seed": "1", "share": 1.0})
    late = PacketFault.of(
        {"what": "latency", "links": [[0, 1]], "seed": "1", "by_ns": 5, "jitter_ns": 0}
    )
    for fault in (twice, late):
        on_links(fault, wires)
    passed = sent(wires[0, 1], packet(b"x"), now=0)
    assert [due for due, _, _ in passed] == [5, 5]
    assert (twice.matched, late.matched) == (1, 2)


FIN, PUSH = 0x01, 0x08


def datagram(payload: bytes, *, protocol: int = UDP, fragment: int = 0) -> bytes:
    """A packet of UDP, or of another protocol.

    Of a fragment after the first, there is no header.
    """
    header = struct.pack("!HHHH", 4000, 20_000, 8 + len(payload), 0) if not fragment else b""
    body = header + payload
    around = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, fragment, 64, protocol, 0)
    return around + bytes((10, 77, 0, 1, 10, 77, 0, 2)) + body


def with_ip_options(data: bytes) -> bytes:
    """The packet with four bytes of IP options: TCP's header begins later."""
    whole = struct.pack("!H", len(data) + 4)
    return bytes((0x46,)) + data[1:2] + whole + data[4:20] + b"\1\1\1\0" + data[20:]


BEFORE = (packet(b"", sequence=999, flags=SYN), packet(b"a" * 100, sequence=1000))
NOT_WORK = {
    "acknowledgement": packet(b"", sequence=1100),
    "close": packet(b"", sequence=1100, flags=ACK | FIN),
    "reset": packet(b"", sequence=1100, flags=RST),
    "reset-and-acknowledgement": packet(b"", sequence=1100, flags=RST | ACK),
    "keep-alive-with-a-byte": packet(b"a", sequence=1099),
    "keep-alive-without": packet(b"", sequence=1099),
    "sent-again": packet(b"a" * 100, sequence=1000),
    "sent-again-in-part-with-fin": packet(b"a" * 40, sequence=1060, flags=ACK | FIN),
    "syn-again": packet(b"", sequence=1099, flags=SYN),
    "acknowledgement-with-ip-options": with_ip_options(packet(b"", sequence=1100)),
    "empty-datagram": datagram(b""),
    "icmp": datagram(b"x" * 56, protocol=1),
    "fragment-of-tcp": datagram(b"x" * 56, protocol=TCP, fragment=100),
}
WORK = {
    "two-bytes": packet(b"ab", sequence=1100),
    "data-with-fin": packet(b"ab", sequence=1100, flags=ACK | FIN | PUSH),
    "sent-again-and-more": packet(b"a" * 100 + b"b", sequence=1000),
    "another-connection": packet(b"", sequence=77, flags=SYN),
    "with-ip-options": with_ip_options(packet(b"a", sequence=1100)),
    "datagram": datagram(b"x"),
    "fragment-of-a-datagram": datagram(b"x", fragment=100),
}


@pytest.mark.parametrize("what", ["drop", "latency", "reset"])
@pytest.mark.parametrize("name", NOT_WORK)
def test_what_is_no_work_of_ranks_is_struck_and_does_not_count(name: str, what: str) -> None:
    """What acknowledges, closes, probes or comes again is struck like all packets, and counts as no
    payload.
    """
    before = BEFORE
    if name == "syn-again":
        before = (NOT_WORK[name],)
    fault, link = a_fault(what, by_ns=1000, jitter_ns=0)
    for one in before:
        link.count(one)
    for _ in range(8):
        sent(link, NOT_WORK[name], now=0)
    assert fault.payload == 0
    if what != "reset":
        assert fault.struck == 8


@pytest.mark.parametrize("name", WORK)
def test_new_payload_counts_once(name: str) -> None:
    """Two bytes that are new, a connection that begins, a datagram: each counts; TCP's, not when it
    comes again.
    """
    fault, link = a_fault("drop")
    for one in BEFORE:
        link.count(one)
    sent(link, WORK[name], now=0)
    assert (fault.struck, fault.payload) == (1, 1)
    if WORK[name][9] == TCP:
        sent(link, WORK[name], now=0)
        assert (fault.struck, fault.payload) == (2, 1)


def test_a_stream_whose_numbers_begin_anew_goes_on() -> None:
    """Beyond 4 GiB sequence numbers begin at 0 again: what comes then is new, and what came before
    is not.
    """
    fault, link = a_fault("drop")
    link.count(packet(b"", sequence=2**32 - 51, flags=SYN))
    sent(link, packet(b"a" * 100, sequence=2**32 - 50), now=0)
    assert fault.payload == 1
    sent(link, packet(b"a" * 100, sequence=50), now=0)
    assert fault.payload == 2
    sent(link, packet(b"a" * 100, sequence=2**32 - 50), now=0)
    assert fault.payload == 2


def test_resets_that_another_fault_made_are_no_work_of_ranks() -> None:
    """A reset on a link where latency is in force too: what is late is the harness's own packet,
    and counts as such.
    """
    wires = {pair: Link(source=pair[0], target=pair[1]) for pair in ((0, 1), (1, 0))}
    reset = PacketFault.of({"what": "reset", "links": [[0, 1]], "seed": "1"})
    late = PacketFault.of(
        {"what": "latency", "links": [[0, 1]], "seed": "1", "by_ns": 5, "jitter_ns": 0}
    )
    for fault in (reset, late):
        on_links(fault, wires)
    sent(wires[0, 1], packet(b"x"), now=0)
    assert (reset.payload, late.struck, late.payload) == (1, 1, 0)


def test_a_share_begins_with_a_packet_that_carries_payload() -> None:
    """However many acknowledgements come first: the first packet with new payload is lost, and so
    there is a proof.
    """
    fault, link = a_fault("loss", share=0.0)
    for one in BEFORE:
        link.count(one)
    for _ in range(8):
        assert sent(link, NOT_WORK["acknowledgement"], now=0)
    assert not sent(link, WORK["two-bytes"], now=0)
    assert (fault.struck, fault.payload) == (1, 1)


def test_a_flip_of_what_is_sent_again_is_not_made() -> None:
    """Whoever was struck after the data had passed: a second copy is left as it is, as the receiver
    has the first.
    """
    fault, link = a_fault("flip", least=1, most=65_535, message=1, byte=None, mask=64)
    for one in BEFORE:
        link.count(one)
    ((_, _, passed),) = sent(link, BEFORE[1], now=0)
    assert (passed, fault.struck) == (BEFORE[1], 0)


def test_an_acknowledgement_of_what_was_sent_before_resets_nothing() -> None:
    """On a busy machine it comes by after the fault: the connection is ended by the next payload,
    so that the work of a rank meets the fault.
    """
    fault, link = a_fault("reset")
    for one in BEFORE:
        link.count(one)
    for name in ("acknowledgement", "keep-alive-without", "sent-again"):
        assert [passed for _, _, passed in sent(link, NOT_WORK[name], now=0)] == [NOT_WORK[name]]
    assert (fault.matched, fault.struck, fault.payload) == (3, 0, 0)
    passed = [passed for _, _, passed in sent(link, WORK["two-bytes"], now=0)]
    assert WORK["two-bytes"] not in passed
    assert (fault.struck, fault.payload) == (1, 1)
    # The connection is gone: what still comes of it is answered like that.
    sent(link, NOT_WORK["acknowledgement"], now=0)
    assert (fault.struck, fault.payload) == (2, 1)


def test_a_reset_of_a_connection_that_began_meanwhile_counts() -> None:
    """A rank connects and is reset before it could send a byte: that is its work, and each
    connection counts once.
    """
    fault, link = a_fault("reset")
    sent(link, packet(b"", sequence=999, flags=SYN), now=0)
    assert (fault.struck, fault.payload) == (0, 0)
    for _ in range(2):
        sent(link, packet(b"", sequence=1000), now=0)
    assert (fault.struck, fault.payload) == (2, 1)
