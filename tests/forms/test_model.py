"""Closed models read from strict JSON."""

from __future__ import annotations

import pytest

from harness.forms.model import Model, parse_json


class Point(Model):
    """A model to try with."""

    x: int
    y: float = 0.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"x": 1, "x": 1}', "the key 'x' appears twice"),
        (b'{"x": 1, "z": 1}', "z: Extra inputs are not permitted"),
        (b'{"x": "1"}', "x: Input should be a valid integer"),
        (b'{"x": 1, "y": NaN}', "NaN is not a JSON number"),
        (b"[]", "the whole: "),
    ],
)
def test_what_is_not_exactly_the_model_is_refused_with_its_place(text: bytes, reason: str) -> None:
    """Nothing is converted, left over, or said twice."""
    assert parse_json(Point, b'{"x": 1}') == Point(x=1)
    with pytest.raises(ValueError, match=reason):
        parse_json(Point, text)
