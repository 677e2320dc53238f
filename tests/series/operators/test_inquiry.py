"""How failures are made small, parted by cause and asked again: against faults that are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.series.operators.cells import Operator, OperatorCell, is_possible
from harness.series.operators.inquiry import (
    REPETITIONS,
    SLICES,
    Ask,
    Findings,
    explains,
    inquire,
)
from harness.series.operators.judge import Outcome
from harness.series.operators.record import PartRecord, grouped

AXES = {
    "shape": ["1", "2", "2x2", "3x4"],
    "dtype": ["float32", "float64", "int64"],
    "call": ["sync", "async"],
    "op": ["sum", "max", "min"],
}
RIGHT = Outcome(word="RIGHT")
WRONG = Outcome(word="DEFECT", kind="result", ranks=[0], fact="wrong")
Fault = Callable[[OperatorCell], bool]


def an_operator(name: str = "all_reduce") -> Operator:
    return Operator(library="collectives", name=name, space="x", axes=AXES, usual={"shape": "3x4"})


def every_cell(operator: Operator) -> list[OperatorCell]:
    cells = [
        operator.cell(dict(zip(operator.axes, values, strict=True)))
        for values in itertools.product(*operator.axes.values())
    ]
    return [cell for cell in cells if is_possible(cell)]


def answer(ask: Ask, fault: Fault, *, blind: bool = False) -> list[Outcome]:
    """Answer as a library with a fault would; blind, needles are not seen."""
    return [WRONG if fault(cell) or (cell.needle and not blind) else RIGHT for cell in ask.cells]


def asked(
    fault: Fault, cells: Sequence[OperatorCell] | None = None, *, blind: bool = False
) -> tuple[Findings, list[Ask]]:
    operator = an_operator()
    inquiry = inquire([operator], operator.sample(40, seed="1") if cells is None else cells)
    asks = [next(inquiry)]
    while True:
        try:
            asks.append(inquiry.send(answer(asks[-1], fault, blind=blind)))
        except StopIteration as done:
            findings: Findings = done.value
            return findings, asks


@given(count=st.integers(1, 700))
def test_slices_of_an_ask_are_the_ask(count: int) -> None:
    """Every cell is in one slice, in order, and there are as many slices as worlds at most."""
    cells = [an_operator().cell({"shape": str(number)}) for number in range(count)]
    slices = Ask("sweep", cells).slices()
    assert [cell for one in slices for cell in one.cells] == cells
    assert len(slices) <= SLICES
    assert {one.purpose for one in slices} == {"sweep"}


@st.composite
def faults(draw: st.DrawFn) -> dict[str, list[str]]:
    """A fault: on some axes, the values with which it shows."""
    axes = draw(st.lists(st.sampled_from(sorted(AXES)), min_size=1, max_size=3, unique=True))
    return {
        axis: draw(
            st.lists(
                st.sampled_from(AXES[axis]),
                min_size=1,
                max_size=len(AXES[axis]) - 1,
                unique=True,
            )
        )
        for axis in axes
    }


def shows(fault: dict[str, list[str]]) -> Fault:
    return lambda cell: all(cell.axes[axis] in values for axis, values in fault.items())


@pytest.mark.slow
@given(faults())
def test_the_smallest_case_and_the_axes_of_a_fault_are_found(fault: dict[str, list[str]]) -> None:
    """Whatever the fault: its smallest cell of all, exactly its axes, and every failing cell."""
    operator = an_operator()
    everything = every_cell(operator)
    findings, _ = asked(shows(fault), everything)
    (cause,) = findings.causes
    failing = [cell for cell in everything if shows(fault)(cell)]
    assert cause.cell == min(failing, key=operator.simplicity)
    assert {axis: sorted(values) for axis, values in cause.needs.items()} == {
        axis: sorted(values) for axis, values in fault.items()
    }
    assert cause.failing == len(failing)
    assert findings.left == 0
    assert all(explains(cause, cell) == shows(fault)(cell) for cell in everything)
    assert cause.is_shown
    assert cause.times == REPETITIONS


@pytest.mark.slow
@given(faults(), faults())
def test_two_faults_are_parted_or_left_over_and_never_lost(
    one: dict[str, list[str]], other: dict[str, list[str]]
) -> None:
    """Every failing cell is counted to a cause, or named as left over."""
    both = [shows(one), shows(other)]
    findings, _ = asked(lambda cell: any(fault(cell) for fault in both))
    failing = findings.words.get("DEFECT", 0)
    assert sum(cause.failing for cause in findings.causes) + findings.left == failing


def test_where_nothing_is_wrong_nobody_is_accused() -> None:
    """And nothing more is asked than the sweep and its needles."""
    findings, asks = asked(lambda _: False)
    assert [ask.purpose for ask in asks] == ["sweep"]
    assert not findings.causes
    assert (findings.needles, findings.seen) == (1, 1)
    assert {*findings.words} == {"RIGHT"}


def test_a_comparison_that_sees_no_needle_shows_nothing() -> None:
    """A cause counts only where the eye was shown to work, and the sweep says that it was not."""
    findings, _ = asked(lambda cell: cell.axes["op"] == "max", blind=True)
    assert findings.seen == 0
    assert findings.causes
    assert not any(cause.is_shown for cause in findings.causes)


def test_a_cell_that_the_sweep_did_not_ask_may_be_a_control() -> None:
    """An operator that ends worlds is left, and what is right beside it is asked for later."""
    operator = an_operator()
    cells = operator.sample(40, seed="1")
    fault = shows({"op": ["sum"]})
    ask = next(inquiry := inquire([operator], cells))
    failing = next(cell for cell in cells if fault(cell))
    came = [WRONG if cell is failing else Outcome(word="NOT ASKED") for cell in ask.cells]
    while True:
        try:
            ask = inquiry.send(came)
        except StopIteration as done:
            (cause,) = done.value.causes
            assert cause.is_shown
            return
        came = answer(ask, fault)


def test_a_failure_that_does_not_come_again_is_not_counted() -> None:
    """0 of 3 in fresh worlds: seen, but not shown."""
    operator = an_operator()
    inquiry = inquire([operator], operator.sample(40, seed="1"))
    ask = next(inquiry)
    while True:
        fault = shows({"op": [] if ask.purpose == "confirm" else ["max"]})
        try:
            ask = inquiry.send(answer(ask, fault))
        except StopIteration as done:
            (cause,) = done.value.causes
            assert cause.times == 0
            assert not cause.is_shown
            return


def test_a_fault_without_a_right_cell_beside_it_has_no_control_and_is_not_counted() -> None:
    """Nothing shows that the operator works at all there."""
    findings, _ = asked(lambda _: True)
    assert findings.causes
    assert all(cause.control is None and not cause.is_shown for cause in findings.causes)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(faults(), min_size=1, max_size=3))
def test_equal_faults_of_two_operators_are_one_group(many: list[dict[str, list[str]]]) -> None:
    """Whatever other faults are found between them; and no failing cell is lost."""
    parts = []
    for number, fault in enumerate([*many, many[0]]):
        findings, _ = asked(shows(fault), every_cell(an_operator()))
        named = [
            cause.model_copy(update={"operator": f"operator-{number}"}) for cause in findings.causes
        ]
        parts.append(
            PartRecord(
                name=f"part-{number}",
                library="collectives",
                ranks=2,
                unasked="",
                seconds=1.0,
                findings=findings.model_copy(update={"causes": named}),
            )
        )
    groups = grouped(parts)
    assert sum(group.failing for group in groups) == sum(
        cause.failing for part in parts if part.findings for cause in part.findings.causes
    )
    first = next(group for group in groups if "operator-0" in group.operators)
    if {*many[0]} != {"shape"}:
        # The same fault in another operator.
        assert f"operator-{len(many)}" in first.operators
