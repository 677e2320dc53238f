"""Packets: what is changed in them is taken by TCP, and only what was meant is changed."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from harness.world.hosts.link_faults import Link, LinkFault, on_links
from harness.world.hosts.packets import SYN, TCP, Segment, altered, checksum_holds, resets, segment

ACK = 0x10
PAYLOADS = st.binary(min_size=1, max_size=300)


def packet(payload: bytes, *, sequence: int = 1000, flags: int = ACK, source: int = 1, target: int = 2) -> bytes:
    """A packet from one host to another, with a right checksum, and four bytes of TCP options."""
    addresses = bytes((10, 77, 0, source, 10, 77, 0, target))
    tcp = struct.pack("!HHIIBBHHH4s", 4000, 20_000, sequence, 77, 6 << 4, flags, 512, 0, 0, b"\1\1\1\0") + payload
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


def a_fault(what: str, *, links: list[list[int]] | None = None, **options: object) -> tuple[LinkFault, Link]:
    """A fault in force on the link from host 0 to host 1."""
    wires = {pair: Link(source=pair[0], target=pair[1]) for pair in ((0, 1), (1, 0))}
    fault = LinkFault.of({"what": what, "links": links or [[0, 1]], "seed": "7", **options})
    on_links(fault, wires)
    return fault, wires[0, 1]


@given(PAYLOADS, st.data(), st.integers(1, 255))
def test_a_changed_byte_is_the_only_one_and_the_checksum_holds(payload: bytes, data: st.DataObject, mask: int) -> None:
    """Whichever byte is flipped by whichever bits: the receiver's TCP takes the packet, and all else is as it was."""
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
    """The byte of the stream that was flipped is flipped in each packet that holds it, and no other byte ever."""
    fault, link = a_fault("flip", least=100, most=65_535, message=2, byte=None, mask=64)
    link.count(packet(b"", sequence=899, flags=SYN))

    def passed(payload: bytes, sequence: int) -> bytes:
        ((_, _, changed),) = link.pass_through(packet(payload, sequence=sequence), now=0)
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
    """The first packet is lost for certain, of the others a share, and the same seed loses the same ones."""
    runs = []
    for _ in range(2):
        fault, link = a_fault("loss", share=0.25)
        runs.append([bool(link.pass_through(packet(b"x"), now=0)) for _ in range(400)])
        assert fault.struck == runs[-1].count(False)
    assert runs[0] == runs[1]
    assert not runs[0][0]
    assert 60 <= runs[0].count(False) <= 140


def test_delays_keep_the_order_and_a_narrow_link_its_rate() -> None:
    """No packet overtakes one that is late by chance; over a narrow link the last is late by the bytes of all."""
    _, link = a_fault("latency", by_ns=1000, jitter_ns=900)
    dues = [link.pass_through(packet(b"x"), now=now)[0][0] for now in range(0, 5000, 10)]
    assert dues == sorted(dues)
    assert all(1000 <= due - now <= 1900 + 900 for due, now in zip(dues, range(0, 5000, 10), strict=True))
    _, link = a_fault("bandwidth", bytes_per_second=1_000_000)
    one = packet(b"x" * 956)
    assert len(one) == 1000
    assert [link.pass_through(one, now=0)[0][0] for _ in range(3)] == [1_000_000, 2_000_000, 3_000_000]


def test_the_first_packet_waits_until_one_has_come_first() -> None:
    """However late the next one is: it overtakes. Taken back before, the fault lets go of what it keeps."""
    for share in (0.0, 1.0):
        fault, link = a_fault("reorder", share=share, by_ns=1000)
        assert link.pass_through(packet(b"1"), now=0) == []
        passed = link.pass_through(packet(b"2"), now=5000)
        assert [(due, one) for due, _, one in passed] == [(5000, packet(b"2")), (5000, packet(b"1"))]
        assert (fault.evidence()["overtaken"], list(fault.let_go())) == (1, [])
        assert [due for due, _, _ in link.pass_through(packet(b"3"), now=6000)] == [6000 + 1000 * share]
    fault, link = a_fault("reorder", share=0.5, by_ns=1000)
    link.pass_through(packet(b"1"), now=0)
    assert [one for _, _, one in fault.let_go()] == [packet(b"1")]


def test_faults_of_one_link_are_done_one_after_the_other() -> None:
    """What the first leaves goes through the second: twice, then each of the two is counted and late."""
    wires = {(0, 1): Link(source=0, target=1)}
    twice = LinkFault.of({"what": "duplicate", "links": [[0, 1]], "seed": "1", "share": 1.0})
    late = LinkFault.of({"what": "latency", "links": [[0, 1]], "seed": "1", "by_ns": 5, "jitter_ns": 0})
    for fault in (twice, late):
        on_links(fault, wires)
    passed = wires[0, 1].pass_through(packet(b"x"), now=0)
    assert [due for due, _, _ in passed] == [5, 5]
    assert (twice.matched, late.matched) == (1, 2)
