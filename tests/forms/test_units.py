"""Quantities with units."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from harness.forms.units import age, duration, percent, size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200ms", 0.2),
        ("60s", 60.0),
        ("2min", 120.0),
        ("1h", 3600.0),
        ("1.5s", 1.5),
        ("0s", 0.0),
        ("7d", 604800.0),
    ],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    """A duration is exact to what its text says."""
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [("100B", 100), ("512KiB", 524288), ("20MiB", 20 << 20), ("2GiB", 2 << 30), ("0.5KiB", 512)],
)
def test_sizes_are_bytes(text: str, count: int) -> None:
    """A size is a whole number of bytes, in powers of two."""
    assert size(text) == count


@pytest.mark.parametrize(
    ("text", "fraction"), [("5%", 0.05), ("95%", 0.95), ("0.1%", 0.001), ("99.9%", 0.999)]
)
def test_percentages_are_fractions(text: str, fraction: float) -> None:
    """A percentage is the nearest float to its fraction, without an error of its own."""
    assert percent(text) == fraction


@pytest.mark.parametrize(
    ("read", "value", "meant"),
    [
        (duration, 60, "60s"),
        (duration, "60", "60s"),
        (duration, "60 s", "60s"),
        (duration, "5m", "5min"),
        (duration, "7days", "7d"),
        (duration, "010s", "10s"),
        (duration, "1.s", None),
        (age, 7, "7d"),
        (age, "0d", None),
        (duration, "5sec", "5s"),
        (duration, "5S", "5s"),
        (duration, True, None),
        (duration, None, None),
        (duration, "-5s", None),
        (duration, "5fortnights", None),
        (duration, "1e3s", None),
        (duration, "٥s", None),
        (duration, "9" * 5000 + "s", None),
        (size, "2GB", "2GiB"),
        (size, "2g", "2GiB"),
        (size, 2048, "2048B"),
        (size, "0.3B", None),
        (percent, "5", "5%"),
        (percent, 0.05, "5%"),
        (percent, 30, "30%"),
        (percent, "0%", None),
        (percent, "100%", None),
        (percent, "5s", None),
        (percent, "5k", None),
        (duration, "5k", None),
        (duration, "5%", None),
        (size, "5%", None),
    ],
)
def test_what_is_no_quantity_is_refused_with_advice(
    read: Any, value: Any, meant: str | None
) -> None:
    """A wrong quantity is never guessed at: it is an error, which names what was probably meant."""
    with pytest.raises(PydanticCustomError) as caught:
        read(value)
    assert caught.value.context is not None
    assert caught.value.context["message"]
    assert caught.value.context["suggestion"] == meant
