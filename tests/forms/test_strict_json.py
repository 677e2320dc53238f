"""Strict JSON: text with one meaning."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.forms.strict_json import DEPTH_LIMIT, NotStrict, strict_json


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
    """Duplicate keys, numbers no double holds, other encodings and bottomless nesting are not JSON
    here.
    """
    with pytest.raises(NotStrict):
        strict_json(text)


def test_the_deepest_value_that_is_read_can_be_written() -> None:
    """Nesting up to the limit is fine, and so is a broad value with many brackets."""
    text = b"[" * DEPTH_LIMIT + b"1" + b"]" * DEPTH_LIMIT
    assert json.dumps(strict_json(text)).encode() == text
    assert len(strict_json(b"[" + b"[],".join([b""] * 500) + b"[]]")) == 500


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5)
        ),
        max_leaves=20,
    )
)
def test_json_survives(value: object) -> None:
    """What is JSON is read as it is."""
    assert strict_json(json.dumps(value).encode()) == value


def test_constants_are_read_where_the_caller_allows_them() -> None:
    """Published model configurations hold NaN and Infinity.

    A key that appears twice is refused there too, by name.
    """
    assert math.isnan(strict_json(b'{"a": NaN}', constants=True)["a"])
    assert strict_json("[-Infinity, 1e999]", constants=True) == [-math.inf, math.inf]
    with pytest.raises(NotStrict, match="the key 'k' appears twice"):
        strict_json(b'{"k": 1, "k": NaN}', constants=True)
