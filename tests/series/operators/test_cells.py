"""Cells: which are drawn, and which of two is simpler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.series.operators.catalogue import OF_MESHES, RANKS, operators
from harness.series.operators.cells import Library, Operator, is_possible
from harness.series.operators.ranks_inside.files import ROUND_TRIPS

LIBRARIES: tuple[Library, ...] = get_args(Library)


# One of each space: operators of one space have the same axes.
SPACES: Mapping[str, Operator] = {
    operator.space: operator
    for library, sizes in RANKS.items()
    for size in sizes
    for operator in operators(library, ranks=size)
}
CELLS = {space: operator.sample(60, seed="1") for space, operator in SPACES.items()}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_value_of_every_axis_is_tried(library: Library) -> None:
    """Also those that the usual cell cannot have: beside a second axis that changes."""
    for operator in SPACES.values():
        if operator.library == library:
            cells = operator.sample(1, seed="x")
            for axis, values in operator.axes.items():
                tried = {cell.axes[axis] for cell in cells}
                assert tried == {*values}, (operator.name, axis, {*values} - tried)


def test_the_same_seed_draws_the_same_cells_and_another_seed_others() -> None:
    """Whoever verifies a sweep draws its cells again."""
    (operator, *_) = operators("collectives", ranks=2)
    one = [cell.key for cell in operator.sample(150, seed="1")]
    assert len({*one}) == len(one) == 150
    assert one == [cell.key for cell in operator.sample(150, seed="1")]
    assert one != [cell.key for cell in operator.sample(150, seed="2")]


@pytest.mark.slow
def test_every_cell_is_possible_and_every_variant_differs_on_one_axis() -> None:
    """No cell is asked for a layout that its array cannot have."""
    for space, operator in SPACES.items():
        for cell in CELLS[space]:
            assert is_possible(cell), cell.key
            for variant in operator.variants(cell, most=2):
                changed = [axis for axis in cell.axes if cell.axes[axis] != variant.axes[axis]]
                assert len(changed) == 1
                assert is_possible(variant)


@given(st.data())
def test_fewer_elements_are_simpler_than_any_other_value(data: st.DataObject) -> None:
    """A smallest case has the fewest elements first."""
    space = data.draw(st.sampled_from(sorted(SPACES)))
    operator = SPACES[space]
    one = data.draw(st.sampled_from(CELLS[space]))
    other = data.draw(st.sampled_from(CELLS[space]))
    if operator.simplicity(one)[0] < operator.simplicity(other)[0]:
        assert operator.simplicity(one) < operator.simplicity(other)
    assert (operator.simplicity(one) == operator.simplicity(other)) == (one.key == other.key)


def test_every_round_trip_of_the_catalogue_can_be_made() -> None:
    """The catalogue names what the ranks can do, and all of it."""
    assert [operator.name for operator in operators("files", ranks=1)] == [*ROUND_TRIPS]


def test_names_of_operators_are_used_once_in_a_library() -> None:
    """Answers are kept by the operator's name and its axes."""
    for library, sizes in RANKS.items():
        for size in sizes:
            names = [operator.name for operator in operators(library, ranks=size)]
            assert len(names) == len({*names})
    assert OF_MESHES in RANKS["dtensors"]
