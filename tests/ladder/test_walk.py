"""What a soak says of the attribution of a defect that it walked over the rungs."""

from __future__ import annotations

import pytest

from tests.ladder.walk import attributed

WRONG, RIGHT = "DIVERGENT in layer 3", "EQUIVALENT"


@pytest.mark.parametrize(
    ("defect", "walk", "said"),
    [
        ("dropped-layer", {1: RIGHT, 2: WRONG, 3: WRONG}, ""),
        ("scaled-layer", {1: WRONG, 2: WRONG}, ""),
        ("scaled-layer", {1: RIGHT, 2: WRONG}, "over 1 nothing is wrong"),
    ],
)
def test_a_walk_is_judged_by_the_harness_s_own_attribution(
    defect: str, walk: dict[int, str], said: str
) -> None:
    """The soak ended in an error where it should have told what it walked."""
    assert attributed(walk, defect) == said
