"""Coded payloads: what must come of a call is what real arithmetic gives, exactly, in every type
and world.
"""

from __future__ import annotations

import itertools

import pytest

from harness.ledger import coded


def values(data: bytes, dtype: str) -> list[float]:
    step = coded.width(dtype)
    return [coded.decoded(data[at : at + step], dtype) for at in range(0, len(data), step)]


@pytest.mark.parametrize("dtype", sorted(coded.MOST))
def test_what_must_come_is_what_the_parts_make(dtype: str) -> None:
    """Sums, maxima, and each rank's own, from element 0 and across blocks.

    A part twice still has its number.
    """
    for size, elements in [
        *itertools.product((1, 3, 8), (0, 1, 7)),
        *([(3, 4100)] if dtype == "float32" else []),
    ]:
        known = {"size": size, "sequence": 9, "elements": elements, "dtype": dtype}
        given = [
            values(coded.given("all_reduce", rank=rank, **known), dtype) for rank in range(size)
        ]
        total = values(coded.expected("all_reduce", None, rank=0, **known), dtype)
        assert total == [sum(column) for column in zip(*given, strict=True)]
        most = values(coded.expected("all_reduce", None, rank=0, reduction="max", **known), dtype)
        assert most == [max(column) for column in zip(*given, strict=True)]
        assert all(
            one + max(column) <= coded.MOST[dtype]
            for one, column in zip(total, zip(*given, strict=True), strict=True)
        )
        rows = [
            values(coded.given("reduce_scatter", rank=rank, **known), dtype) for rank in range(size)
        ]
        part = values(coded.expected("reduce_scatter", None, rank=size - 1, **known), dtype)
        assert part == [
            sum(column)
            for column in zip(*(row[(size - 1) * elements :] for row in rows), strict=True)
        ]
        last = values(coded.expected("all_to_all", 0, rank=size - 1, **known), dtype)
        assert last == rows[0][(size - 1) * elements :]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_no_mistake_looks_right(dtype: str) -> None:
    """Another call, rank, order or half gives other elements: of one call before, each of them."""
    known = {"size": 4, "elements": 64, "dtype": dtype}
    right = coded.given("all_gather", rank=1, sequence=5, **known)
    for step in range(1, 4):
        stale = coded.given("all_gather", rank=1, sequence=5 - step, **known)
        assert all(a != b for a, b in zip(values(right, dtype), values(stale, dtype), strict=True))
    others = [coded.given("all_gather", rank=rank, sequence=5, **known) for rank in (0, 2, 3)]
    assert right not in others
    assert coded.halves_swapped(right, dtype) != right
    assert values(coded.halves_swapped(right[: 5 * coded.width(dtype)], dtype), dtype) == [
        values(right, dtype)[index] for index in (3, 4, 0, 1, 2)
    ]
