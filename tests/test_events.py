"""Events: one line each, exactly what was written, nothing that is not strict JSON."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.events import DEPTH_LIMIT, Event, EventError, Source, is_name, strict_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=15,
)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}([._-][a-z0-9]{1,4}){0,2}", fullmatch=True)
EVENTS = st.builds(
    Event,
    ns=st.integers(min_value=0),
    by=st.sampled_from(get_args(Source)),
    name=NAMES,
    rank=st.none() | st.integers(0, 7),
    pid=st.none() | st.integers(1, 2**22),
    values=st.dictionaries(st.text(), JSON, max_size=4),
)


@given(EVENTS)
def test_an_event_is_read_back_as_it_was_written(event: Event) -> None:
    """Any event survives its line, which is printable ASCII without a newline."""
    line = event.line()
    assert Event.parse(line) == event == Event.parse(line.encode())
    assert all(32 <= ord(letter) < 127 for letter in line)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_anything_else_is_refused_with_a_reason(text: bytes | str) -> None:
    """No text breaks the parser: it gives an event or an EventError."""
    with pytest.raises(EventError, match=r"^not "):
        Event.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"[-1e400]",
        b'"\xed\xa0\x80"',
        b"\xff",
        b"\xef\xbb\xbf1",
        '"a"'.encode("utf-16"),
        '"a"'.encode("utf-32-le"),
        b"9" * 5000,
        b"[" * 100_000,
        b"[" * (DEPTH_LIMIT + 1) + b"1" + b"]" * (DEPTH_LIMIT + 1),
        b'{"a":' * (DEPTH_LIMIT + 1) + b"1" + b"}" * (DEPTH_LIMIT + 1),
        b"",
        b"1 2",
    ],
)
def test_what_only_looks_like_json_is_refused(text: bytes) -> None:
    """Duplicate keys, numbers no double holds, other encodings and bottomless nesting are no JSON here."""
    with pytest.raises(EventError):
        strict_json(text)


def test_the_deepest_value_that_is_read_can_be_written() -> None:
    """Nesting up to the limit is fine, and so is a broad value with many brackets."""
    text = b"[" * DEPTH_LIMIT + b"1" + b"]" * DEPTH_LIMIT
    event = Event(ns=1, by="rank", name="a", values={"x": strict_json(text)})
    assert event.line()
    assert len(strict_json(b"[" + b"[],".join([b""] * 500) + b"[]]")) == 500


@pytest.mark.parametrize(
    "change", [{"rank": True}, {"ns": None}, {"ns": 1.0}, {"by": "me"}, {"name": "A"}, {"values": []}]
)
def test_a_wrong_type_is_refused(change: dict[str, object]) -> None:
    """Every key has one type, and true is no number."""
    import json

    whole = json.loads(Event(ns=1, by="rank", name="a").line())
    with pytest.raises(EventError):
        Event.parse(json.dumps(whole | change))
    with pytest.raises(EventError, match="the keys must be"):
        Event.parse(json.dumps(whole | {"more": 1}))


def test_names_are_dotted_lower_case_words() -> None:
    """What can name an event, and what cannot."""
    assert all(map(is_name, ["a", "tokenizer.ready", "a-b_c.d1", "a" * 100]))
    assert not any(map(is_name, ["", "A", "a.", ".a", "a..b", "1a", "a b", "a\n", "a" * 101, None, 1]))
