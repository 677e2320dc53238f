"""The event channel reads anything: events or garbage, never an exception, however it is cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from harness.events import Event
from harness.world.control import ranks
from harness.world.control.ranks import RankChannel

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}(\.[a-z0-9]{1,4}){0,2}", fullmatch=True)
VALUES = st.dictionaries(
    st.text(max_size=5),
    st.integers() | st.text(max_size=9) | st.floats(allow_nan=False, allow_infinity=False),
    max_size=3,
)
GOOD = st.builds(
    lambda name, values: json.dumps({"event": name, "ns": 5, "values": values}).encode(),
    NAMES,
    VALUES,
)
LINES = st.lists(GOOD | st.binary(max_size=30) | st.just(b"  ") | st.just(b"x" * 400), max_size=20)


def _read(pieces: Iterable[bytes]) -> list[tuple[str, str | None, object]]:
    channel = RankChannel(1, not_before=0)
    events: list[Event] = []
    for piece in pieces:
        events += channel.feed(piece)
    events += channel.close()
    for event in events:
        assert Event.parse(event.line()) == event
        assert event.rank == 1
    return [(event.by, event.name, dict(event.values)) for event in events]


def _cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_any_bytes_give_events_or_garbage(pieces: list[bytes]) -> None:
    """No byte string breaks the channel, and what comes out can be written down."""
    assert all(by == "harness" or name for by, name, _ in _read(pieces))


@given(LINES, st.lists(st.integers(min_value=0), max_size=12), st.booleans())
def test_the_cut_does_not_matter(lines: list[bytes], places: list[int], ended: bool) -> None:
    """The same bytes give the same events in whatever pieces they come, beyond every limit too."""
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    limits = ranks.BYTES_LIMIT, ranks.EVENTS_LIMIT, ranks.LINE_LIMIT
    ranks.BYTES_LIMIT, ranks.EVENTS_LIMIT, ranks.LINE_LIMIT = 900, 6, 200
    try:
        whole = _read([data])
        assert _read(_cut(data, places)) == whole
        assert _read(data[i : i + 1] for i in range(len(data))) == whole
    finally:
        ranks.BYTES_LIMIT, ranks.EVENTS_LIMIT, ranks.LINE_LIMIT = limits


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6))
def test_good_lines_arrive_as_they_were_sent(sent: list[tuple[str, dict[str, object]]]) -> None:
    """What a rank emits is what is read, in its order."""
    lines = b"".join(
        json.dumps({"event": name, "ns": 5, "values": values}).encode() + b"\n"
        for name, values in sent
    )
    assert _read([lines]) == [("rank", name, values) for name, values in sent]


def test_limits_are_exact() -> None:
    """The last event within the limit counts, the next one is the overflow, said once."""
    line = b'{"event":"a"}\n'
    found = _read([line * (ranks.EVENTS_LIMIT + 5)])
    assert [name for _, name, _ in found] == ["a"] * ranks.EVENTS_LIMIT + ["channel.overflow"]
    found = _read([b" " * 1000 + b"\n"] * (ranks.BYTES_LIMIT // 1001 + 2))
    assert [name for _, name, _ in found] == ["channel.overflow"]


def test_garbage_is_told_twenty_times() -> None:
    """Evidence of garbage is bounded, and so is each sample."""
    found = _read([b"\xff" * 500 + b"\n"] * 100)
    assert len(found) == ranks.GARBAGE_LIMIT
    assert all(
        len(values["sample"]) == 4 * ranks.SAMPLE
        for _, _, values in found
        if isinstance(values, dict)
    )
