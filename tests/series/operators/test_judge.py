"""What came of a cell, from what its ranks and the whole reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.events import Event, Source
from harness.series.operators.cells import OperatorCell
from harness.series.operators.judge import (
    DONE,
    HANG,
    MOST_ENDS,
    STOPPED,
    WHOLE,
    Outcome,
    WorldReading,
    compare,
    not_asked,
    outcome,
)
from harness.series.operators.ranks_inside.entry import wrong

Values = list[float | int | str]
NAN = "nan"


def cell(operator: str = "all_reduce", **axes: str) -> OperatorCell:
    return OperatorCell(library="collectives", operator=operator, axes={"shape": "2", **axes})


def array(values: Values, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [len(values)], "values": values}


def event(name: str, *, rank: int = 0, **values: Any) -> Event:
    by: Source = "server" if name == "rank.exited" else "rank"
    return Event(ns=1, by=by, rank=rank, pid=100 + rank, name=name, values=values)


def done(rank: int, values: Values, *, index: int = 0) -> Event:
    return event(DONE, rank=rank, index=index, got={"result-0": array(values)})


def raised(rank: int, *, index: int = 0) -> Event:
    return event(DONE, rank=rank, index=index, raised="ValueError: no")


def right(values: Values, *, index: int = 0, **more: Any) -> Event:
    ranks = [{"result-0": array(values)}]
    return event(WHOLE, index=index, ranks=ranks, tolerances={}, **more)


def judge(*events: Event, whole: Event | None = None, about: OperatorCell | None = None) -> Outcome:
    return outcome(
        about or cell(),
        0,
        whole=WorldReading([right([1.0, 2.0]) if whole is None else whole], size=1),
        world=WorldReading(events, size=2),
    )


SAME = (done(0, [1.0, 2.0]), done(1, [1.0, 2.0]))


def test_what_the_whole_says_on_every_rank_is_right() -> None:
    """Nothing else is."""
    assert judge(*SAME).word == "RIGHT"


@pytest.mark.parametrize("rank", [0, 1])
def test_one_wrong_element_on_one_rank_is_a_defect(rank: int) -> None:
    """And the rank is named."""
    found = judge(SAME[1 - rank], done(rank, [1.0, 3.0]))
    assert (found.word, found.kind, found.ranks) == ("DEFECT", "result", [rank])
    assert "first at 1: 3.0 instead of 2.0" in found.fact


def test_another_shape_and_a_missing_result_are_defects() -> None:
    """A result of another shape is never compared element by element."""
    assert judge(SAME[0], done(1, [1.0])).kind == "shape of result"
    assert judge(SAME[0], event(DONE, rank=1, index=0, got={})).word == "DEFECT"


def test_what_raises_is_refused_even_on_one_rank() -> None:
    """An error is not a silent wrong value."""
    assert judge(raised(0), raised(1)).word == "REFUSES"
    assert judge(raised(0), SAME[1]).word == "REFUSES"
    assert judge(raised(0), event(HANG, rank=1, index=0, at="a.py:1 x")).word == "REFUSES"


def test_a_refusal_after_which_the_next_sum_is_wrong_is_a_defect() -> None:
    """The error was raised, but the wrong sum after it was not."""
    stopped = [event(STOPPED, rank=rank, index=0, why="sum", total=1, wanted=3) for rank in (0, 1)]
    found = judge(raised(0), raised(1), *stopped)
    assert (found.word, found.kind) == ("DEFECT", "next call")
    other = [event(STOPPED, rank=rank, index=7, why="sum", total=1, wanted=3) for rank in (0, 1)]
    assert judge(raised(0), raised(1), *other).word == "REFUSES"


def test_a_rank_that_stands_still_is_a_hang_and_one_that_a_signal_ends_a_crash() -> None:
    """Each has a word of its own."""
    assert judge(SAME[0], event(HANG, rank=1, index=0, at="a.py:1 x")).word == "HANG"
    segfault = event("rank.exited", rank=1, code=None, signal="SIGSEGV")
    assert judge(SAME[0], segfault).word == "CRASH"
    assert judge(SAME[0], segfault).ranks == [1]
    # What a rank says of its own end is not asked.
    assert judge(SAME[0], segfault._replace(by="rank")).fact == "rank 1 exited without an answer"
    # A rank that the harness ended has not crashed. If it stood still it hangs; if it was still
    # computing, nobody knows.
    killed = event("rank.exited", rank=1, code=None, signal="SIGKILL")
    still = event(HANG, rank=1, index=0, at="a.py:1 x")
    assert judge(SAME[0], killed, still).word == "HANG"
    assert judge(SAME[0], killed).word == "NO ORACLE"
    assert judge(event(HANG, rank=0, index=0, at="a.py:1 x"), killed).word == "NO ORACLE"


def test_without_the_whole_there_is_no_verdict() -> None:
    """What one process cannot do accuses nobody."""
    nothing = event(WHOLE, index=0, raised="TypeError: no")
    assert judge(*SAME, whole=nothing).word == "NO ORACLE"
    assert judge(*SAME, whole=right([1.0], index=5)).word == "NO ORACLE"


def test_what_nobody_promises_differs_and_does_not_count() -> None:
    """NaN in a maximum, the sign of a zero, another dtype of the same values."""
    top = cell(op="max")
    nan = right([1.0, NAN])
    assert judge(*SAME, whole=nan, about=top).word == "DIFFERS"
    assert judge(*SAME, whole=nan, about=cell(op="sum")).word == "DEFECT"
    # A wrong number beside it counts.
    assert judge(SAME[0], done(1, [5.0, 2.0]), whole=nan, about=top).word == "DEFECT"
    zero = right([1.0, -0.0])
    assert judge(done(0, [1.0, 0.0]), done(1, [1.0, -0.0]), whole=zero).word == "DIFFERS"
    other = {"result-0": array([1.0, 2.0], "float64")}
    found = judge(SAME[0], event(DONE, rank=1, index=0, got=other))
    assert (found.word, found.kind) == ("DIFFERS", "dtype of result")


def test_a_nan_that_only_the_ranks_have_is_not_excused_by_what_follows() -> None:
    """The maximum of a result that has a NaN is a NaN: somebody made it, and not the maximum."""
    about = OperatorCell(library="dtensors", operator="F.l1_loss(x,y)", axes={"then": "{}.max()"})
    made = judge(done(0, [NAN]), done(1, [NAN]), whole=right([1.0]), about=about)
    assert made.word == "DEFECT"
    lost = judge(done(0, [1.0]), done(1, [1.0]), whole=right([NAN]), about=about)
    assert lost.word == "DIFFERS"


def test_a_world_reaches_the_cell_in_which_it_ended_and_none_after_it_stopped() -> None:
    """A world that dies costs one cell; the others are asked in the next one."""
    five = [done(rank, [1.0], index=index) for index in range(5) for rank in (0, 1)]
    assert WorldReading(five, size=2).reached(0, 5) == 5
    assert WorldReading(five[:5], size=2).reached(0, 5) == 3
    assert WorldReading(five[:4], size=2).reached(0, 5) == 3
    stopped = event(STOPPED, rank=0, index=1, why="x")
    assert WorldReading([*five[:4], stopped], size=2).reached(0, 5) == 2
    assert WorldReading([], size=2).reached(3, 5) == 4
    # The other rank was ended before it could report the cell: it is not asked for ever.
    alone = [raised(0, index=3), event(STOPPED, rank=0, index=3, why="this rank alone raised")]
    assert WorldReading(alone, size=2).reached(3, 5) == 4
    assert WorldReading([event(STOPPED, index="?")], size=2).reached(3, 5) == 3


def test_an_operator_that_keeps_ending_worlds_is_not_asked_further() -> None:
    """The cells of the next operator are."""
    cells = [cell(), cell("broken"), *[cell("broken")] * MOST_ENDS, cell("broken"), cell()]
    right_first = [Outcome(word="RIGHT")]
    ended = [Outcome(word="HANG" if at % 2 else "CRASH") for at in range(MOST_ENDS)]
    assert not not_asked(cells, [*right_first, *ended[:-1]], most=MOST_ENDS)
    skipped = not_asked(cells, [*right_first, *ended], most=MOST_ENDS)
    assert [one.word for one in skipped] == ["NOT ASKED"] * 2


numbers = st.one_of(
    st.integers(-(2**40), 2**40).map(float),
    st.floats(-1e6, 1e6, allow_nan=False, width=32),
    st.sampled_from([NAN, "inf", "-inf"]),
)


@given(
    st.lists(numbers, min_size=1, max_size=20),
    st.data(),
    st.floats(0.0, 16 * 2.0**-7, allow_nan=False),
)
def test_every_needle_is_refused_at_the_largest_tolerance(
    values: Values, data: st.DataObject, relative: float
) -> None:
    """The one wrong element that shows that the eye works is outside of every tolerance."""
    place = data.draw(st.integers(0, len(values) - 1))
    changed = [*values]
    changed[place] = wrong(values[place])
    # As the ranks set it: in roundings of the largest element, of bfloat16 at most.
    own = values[place]
    largest = abs(own) if not isinstance(own, str) else 1.0
    tolerance = relative * largest
    same = compare(cell(), "result-0", array(values), array(values), tolerance=tolerance)
    assert same is None
    found = compare(cell(), "result-0", array(values), array(changed), tolerance=tolerance)
    assert found is not None
    assert found.kind == "result"
    assert not found.excused


@given(st.integers(1, 2**20), st.floats(0.01, 10))
def test_a_tolerance_is_a_bound_and_not_a_hint(value: int, tolerance: float) -> None:
    """Just outside is refused, just inside is not."""
    wanted = array([float(value)])
    inside = array([value + 0.99 * tolerance])
    outside = array([value + 1.01 * tolerance + 1e-6])
    assert compare(cell(), "result-0", wanted, inside, tolerance=tolerance) is None
    assert compare(cell(), "result-0", wanted, outside, tolerance=tolerance) is not None
