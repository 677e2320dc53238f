"""Events: one line each, exactly what was written, nothing that is not strict JSON."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.events import SHORT, Event, EventError, Source, _as_written, is_name, parse_lines
from harness.forms.strict_json import DEPTH_LIMIT

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=15,
)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}([._-][a-z0-9]{1,4}){0,2}", fullmatch=True)
EVENTS = st.builds(
    Event,
    ns=st.integers(0, 2**63),
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
    "change",
    [{"rank": True}, {"ns": None}, {"ns": 1.0}, {"by": "me"}, {"name": "A"}, {"values": []}],
)
def test_a_wrong_type_is_refused(change: dict[str, object]) -> None:
    """Every key has one type, and true is not a number."""
    import json

    whole = json.loads(Event(ns=1, by="rank", name="a").line())
    with pytest.raises(EventError):
        Event.parse(json.dumps(whole | change))
    with pytest.raises(EventError, match="the keys must be"):
        Event.parse(json.dumps(whole | {"more": 1}))


def test_names_are_dotted_lower_case_words() -> None:
    """What can name an event, and what cannot."""
    assert all(map(is_name, ["a", "tokenizer.ready", "a-b_c.d1", "a" * 100]))
    assert not any(
        map(is_name, ["", "A", "a.", ".a", "a..b", "1a", "a b", "a\n", "a" * 101, None, 1])
    )


def one_by_one(text: bytes) -> list[Event] | None:
    """What `Event.parse` makes of each line; None where it refuses one, or where the last line has
    no end.
    """
    try:
        found = [Event.parse(line) for line in text.split(b"\n")[:-1]]
    except EventError:
        return None
    return found if not text or text.endswith(b"\n") else None


def at_once(text: bytes) -> list[Event] | None:
    """What `parse_lines` makes of the whole text, None where it refuses it."""
    try:
        return parse_lines(text)
    except EventError:
        return None


@pytest.mark.slow
@given(st.lists(EVENTS, max_size=5))
def test_lines_as_they_were_written_are_read_at_once(events: list[Event]) -> None:
    """A file of events takes the short way, whatever its events are, and the short way gives what
    was written.
    """
    text = b"".join(event.line().encode() + b"\n" for event in events)
    assert parse_lines(text) == events
    assert _as_written(text) == (events or None)


PIECES = [
    b"",
    b"\n",
    b"\r",
    b" ",
    b"0",
    b"-",
    b"1e9",
    b",",
    b'"',
    b"{",
    b"}",
    b'{"a":1,',
    b"\xff",
    b"null",
]


@pytest.mark.slow
@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_the_short_way_accepts_nothing_that_the_long_way_refuses(
    events: list[Event], data: st.DataObject
) -> None:
    """However a file is changed, reading it at once and reading it line by line come to the
    same.
    """
    text = b"".join(event.line().encode() + b"\n" for event in events)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 4)))
        text = (
            text[:start] + data.draw(st.sampled_from(PIECES) | st.binary(max_size=2)) + text[end:]
        )
    assert at_once(text) == one_by_one(text)


HEAD = '"ns":1,"by":"rank","rank":0,"pid":2,"name":"a.b","values":'


@pytest.mark.parametrize(
    "line",
    [
        f"x{{{HEAD}{{}}}}",
        f"{{{HEAD}{{}}}}x",
        f"{{{HEAD}{{}}}} {{{HEAD}{{}}}}",
        f'{{{HEAD}{{"a":1,"a":1}}}}',
        f'{{{HEAD}{{}},"values":{{}}}}',
        f'{{{HEAD}{{}},"more":{{}}}}',
        f'{{{HEAD}{{"a":NaN}}}}',
        f'{{{HEAD}{{"a":1e999}}}}',
        f'{{{HEAD}{{"a":{"[" * DEPTH_LIMIT}{"]" * DEPTH_LIMIT}}}}}',
        f'{{{HEAD}{{"a":"{"x" * SHORT}","a":1}}}}',
        f"{{{HEAD}[]}}",
        f"{{{HEAD.replace(':1,', ':01,')}{{}}}}",
        f"{{{HEAD.replace('a.b', 'a..b')}{{}}}}",
        f"{{{HEAD.replace('a.b', 'a' * 101)}{{}}}}",
        f"{{{HEAD.replace('rank', 'god', 1)}{{}}}}",
        f'{{{HEAD}{{"a":1}}\n}}',
    ],
)
def test_a_line_that_only_looks_written_is_refused(line: str) -> None:
    """The message names the line, and the lines before it do not make it good."""
    good = f"{{{HEAD}{{}}}}\n"
    with pytest.raises(EventError, match=r"^line 2: not "):
        parse_lines(f"{good}{line}\n{good}".encode())


def test_a_last_line_without_its_end_is_refused() -> None:
    """A file that was cut off is not read as if the rest had never been there."""
    line = Event(ns=1, by="rank", name="a").line().encode()
    assert parse_lines(b"") == []
    for text in (line, line + b"\n" + line):
        with pytest.raises(EventError, match="cut off"):
            parse_lines(text)
