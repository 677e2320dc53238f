"""The API key is masked in every spelling that docs/conformance.md lists, whatever is around it."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.conformance.secret import KeyMask

KEY = "sk-Zq7~tOpSeCrEt+v9/0xY"
PRINTABLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
KEYS = st.text(PRINTABLE, min_size=8, max_size=48)
NEAR = st.binary(max_size=5)


def in_json(text: str) -> str:
    """A text as it is written within another."""
    return json.dumps(text)[1:-1]


def as_json(character: str) -> str:
    return f"\\u{ord(character):04x}"


CHARACTERS = {
    "as it is": lambda character: character,
    "upper": lambda character: character.upper(),
    "lower": lambda character: character.lower(),
    "json": as_json,
    "JSON": lambda character: f"\\u{ord(character):04X}",
    "escaped": lambda character: f"\\{character}",
    "json in json": lambda character: in_json(as_json(character)),
    "json in json in json": lambda character: in_json(in_json(as_json(character))),
    "python": lambda character: f"\\x{ord(character):02x}",
    "percent": lambda character: f"%{ord(character):02X}",
    "percent twice": lambda character: quote(f"%{ord(character):02x}"),
    "html": lambda character: f"&#{ord(character)};",
    "html, hexadecimal": lambda character: f"&#x{ord(character):X};",
}
WHOLE = {
    "as it is": lambda _before, key, _after: key,
    "hexadecimal": lambda _before, key, _after: key.encode().hex(),
    "HEXADECIMAL": lambda _before, key, _after: key.encode().hex().upper(),
    "base64": lambda before, key, after: base64.b64encode(before + key.encode() + after).decode(),
    "base64 for URLs": lambda before, key, after: (
        base64.urlsafe_b64encode(before + key.encode() + after).decode().rstrip("=")
    ),
}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@example(key=KEY, form="base64", ways=["json"], around=(b"Bearer ", b""), beside=("", ""))
@given(
    key=KEYS,
    form=st.sampled_from(sorted(WHOLE)),
    ways=st.lists(st.sampled_from(sorted(CHARACTERS)), min_size=1, max_size=8),
    around=st.tuples(NEAR, NEAR),
    beside=st.tuples(st.text(PRINTABLE, max_size=4), st.text(PRINTABLE, max_size=4)),
)
def test_every_spelling_of_a_key_is_masked(
    key: str,
    form: str,
    ways: list[str],
    around: tuple[bytes, bytes],
    beside: tuple[str, str],
) -> None:
    """Each character as it is or as an escape, in any mixture, between any characters."""
    whole = WHOLE[form](around[0], key, around[1])
    if "base64" in form:
        # Its letters have a case.
        ways = ["as it is" if way in ("upper", "lower") else way for way in ways]
    written = "".join(
        CHARACTERS[ways[place % len(ways)]](character) for place, character in enumerate(whole)
    )
    data = f"{beside[0]}{written}{beside[1]}".encode()
    masked = KeyMask(key).masked(data)
    assert len(masked) == len(data)
    if "base64" not in form:
        assert masked[len(beside[0]) : len(data) - len(beside[1])].strip(b"*") == b""
        return
    # What is left holds no whole character of the key: that of its neighbours, and four bits.
    known = -(-len(around[0]) // 3) * 4
    last = (len(around[0]) + len(key)) // 3 * 4
    left = masked[len(beside[0]) :]
    for place, character in enumerate(whole):
        size = len(CHARACTERS[ways[place % len(ways)]](character))
        if known <= place < last:
            assert left[:size] == b"*" * size
        left = left[size:]


@settings(max_examples=30, deadline=None)
@given(data=st.binary(max_size=200))
def test_what_does_not_spell_the_key_stays(data: bytes) -> None:
    """Not a byte of another answer is changed."""
    assert KeyMask(KEY).masked(data) == data


@pytest.mark.slow
@pytest.mark.parametrize("part", ["\\", "%25", "&#0", "s", KEY[:-1], "u0", "7"])
def test_no_answer_is_slow_to_search(part: str) -> None:
    """The time grows with the length of an answer, also of one that was made for this."""
    mask = KeyMask(KEY)
    seconds = []
    for size in (50_000, 200_000):
        data = (part * size)[:size].encode()
        begun = time.thread_time()
        mask.masked(data)
        seconds.append(time.thread_time() - begun)
    assert seconds[1] < 8 * seconds[0] + 0.1
