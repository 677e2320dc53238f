"""What one process says that every rank must have: values, layouts and tolerances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.series.operators.catalogue import EXPANDED
from harness.series.operators.ranks_inside.told import told

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from harness.series.operators.ranks_inside import collectives, dtensors
from harness.series.operators.ranks_inside.laid import BETWEEN, laid

DTENSOR = {
    "shape": "5x3",
    "dtype": "float32",
    "placement": "S0",
    "then": "{}",
    "gradient": "no",
}


@pytest.mark.parametrize("layout", EXPANDED)
def test_a_layout_has_the_values_and_a_buffer_whose_other_bytes_are_known(layout: str) -> None:
    """A view that reads as its values, in memory that holds nothing else of meaning."""
    dtype = torch.complex64 if layout == "conj" else torch.float32
    values = torch.arange(12).reshape(3, 4).to(dtype)
    if layout == "conj":
        values = values + 1j
    wanted = values[:1].expand(3, 4) if layout == "expanded" else values
    one = laid(values, layout)
    assert torch.equal(one.view, wanted)
    rest = [number for number in told(one.buffer)["values"] if number == BETWEEN]
    elements = one.buffer.numel()
    between = 0 if layout in ("conj", "expanded") else elements - values.numel()
    assert len(rest) == between
    assert (layout in ("contiguous", "offset", "conj")) == one.view.is_contiguous()


def test_a_boolean_is_true_or_false_and_every_special_value_is_told() -> None:
    """NaN, the infinities, the sign of a zero and both parts of a complex number."""
    two = torch.tensor([2, 0], dtype=torch.uint8).view(torch.bool)
    assert told(two)["values"] == [1, 0]
    special = torch.tensor([float("nan"), float("inf"), -0.0])
    assert list(map(str, told(special)["values"])) == ["nan", "inf", "-0.0"]
    assert told(torch.tensor([1 + 2j]).conj())["values"] == [1.0, -2.0]


@pytest.mark.parametrize("operator", sorted(collectives.CALLS))
@pytest.mark.parametrize("size", [2, 3])
def test_the_whole_names_nothing_that_a_rank_does_not_have(operator: str, size: int) -> None:
    """And says something of at least one rank."""
    axes = {
        "shape": "3x4",
        "dtype": "int64",
        "layout": "columns",
        "out": "rows",
        "values": "plain",
        "op": "sum",
        "root": "last",
    }
    right = collectives.whole(operator, axes, size)
    assert len(right) == size
    assert any(name.startswith("result") for named in right for name in named)
    if operator == "all_reduce":
        assert all(torch.equal(named["result-0"], right[0]["result-0"]) for named in right)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_an_average_may_be_rounded_otherwise_and_a_sum_may_not(dtype: str) -> None:
    """A third of a complex number is rounded in two ways; no sum of whole numbers is."""
    axes = {"shape": "3x4", "dtype": dtype, "values": "plain", "op": "avg"}
    (one, *_) = collectives.whole("all_reduce", axes, 3)
    tolerance = collectives.tolerances(axes, one)["result-0"]
    largest = float(one["result-0"].abs().max())
    assert 0 < tolerance < 0.05 * largest
    assert collectives.tolerances({**axes, "op": "sum"}, one) == {}


@given(st.permutations(range(15)), st.sampled_from(["x.sum()", "x.mean()", "x.norm()"]))
def test_another_order_of_sums_is_within_the_tolerance_and_a_lost_element_is_not(
    order: list[int], expression: str
) -> None:
    """What ranks may do to the last bits is allowed; what they may lose is not."""
    results, tolerances = dtensors.whole(expression, DTENSOR)
    x = dtensors.plain_inputs(DTENSOR)["x"].flatten()[list(order)]
    other = eval(expression, {"x": x})  # noqa: S307 - one of those above
    assert abs(float(other) - float(results["result-0"])) <= tolerances["result-0"]
    lost = eval(expression, {"x": x[1:]})  # noqa: S307 - likewise
    if abs(float(x[0])) > 2:
        assert abs(float(lost) - float(results["result-0"])) > tolerances["result-0"]


def test_a_whole_number_of_a_rounded_value_has_no_oracle() -> None:
    """The last bit would decide, and nobody promises it."""
    with pytest.raises(dtensors.RoundingDecides, match="depends on how its argument was rounded"):
        dtensors.whole("x.mean()", {**DTENSOR, "then": "{}.int()"})
    results, _ = dtensors.whole("x.any()", {**DTENSOR, "then": "{}.int()"})
    assert results["result-0"] == 1
