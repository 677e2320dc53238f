"""Which positions noise leaves to judge, where something is chosen."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from harness.numeric.array import NotAnArray
from harness.numeric.arrays import ArrayFile
from harness.numeric.parity import decided


def kept(array: Any) -> dict[int, ArrayFile]:
    """The margins of one prompt."""
    written = io.BytesIO()
    np.save(written, np.asarray(array, np.float32))
    return {0: ArrayFile("prefill.router.0.npy", written.getvalue())}


def of(gaps: Any, variant: Any) -> int:
    """How many positions are left."""
    return decided(kept(gaps), [kept(variant)], margin=2.0)[0]


def test_each_choice_is_held_against_its_own_noise() -> None:
    """A router is decided by little, and without noise.

    An indexer by more, and less than its scores move.
    """
    gaps = np.array([[0.01, 5.0]] * 8)
    gaps[5, 1] = 0.05
    moved = np.add(gaps, [0.0, 0.04])
    assert of(gaps, moved) == 5
    # The least of all choices is the router's everywhere, which hides it.
    assert of(gaps.min(1), moved.min(1)) == 8


def test_where_nothing_is_left_out_nothing_is_undecided() -> None:
    """Before there are more keys than are chosen, margins are infinite, and they are no noise that
    others have.
    """
    gaps = np.full((8, 1), np.inf)
    gaps[5:, 0] = 1.0
    assert of(gaps, gaps) == 8
    assert of(gaps, gaps + 0.6) == 5
    assert of(np.full((8, 2), np.inf), np.full((8, 2), np.inf)) == 8


def test_a_tie_is_one_without_any_noise() -> None:
    """Two scores that are the same number, as two that are both cut off at 0: who is taken is no
    matter of noise.
    """
    assert of([[1.0], [0.0], [1.0]], [[1.0], [0.0], [1.0]]) == 1


def test_a_choice_that_comes_up_in_a_variant_alone_is_undecided() -> None:
    """Nobody knows its noise."""
    gaps = np.ones((4, 1))
    assert of(gaps, np.concatenate([gaps, [[np.inf], [np.inf], [0.5], [0.5]]], 1)) == 2
    assert of(np.concatenate([gaps, np.full((4, 1), np.inf)], 1), gaps) == 4


@pytest.mark.parametrize("variant", [np.ones((3, 1)), np.ones((4, 1, 1))])
def test_other_positions_are_not_compared(variant: Any) -> None:
    """Nor is an array with an axis more."""
    with pytest.raises(NotAnArray, match=r"prefill\.router\.0"):
        of(np.ones((4, 1)), variant)
