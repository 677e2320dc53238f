"""The record's own encoding is json's, only faster."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.record.model import _indented

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(VALUES)
def test_the_bytes_are_those_of_json(value: Any) -> None:
    """Any value is written exactly as `json.dumps` with an indent of one writes it."""
    assert _indented(value, depth=0) == json.dumps(
        value, ensure_ascii=True, allow_nan=False, indent=1
    )
