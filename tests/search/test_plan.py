"""The space of a search is stated, the same everywhere, and walked by ordinary scenarios."""

from __future__ import annotations

import pytest

from harness.models import MODELS, engines
from harness.reason import Skip, SkipCode, VerdictCode, VerdictReason
from harness.scenario import parse_scenario
from harness.scenario.plan import cells, reference_of
from harness.search import plan
from harness.search.prompts import CHUNK, changed, prompts
from harness.search.record import _word
from harness.stats.verdict import CellVerdict


def test_fifty_prompts_lie_around_the_boundaries() -> None:
    """One shorter than the chunk, as long, and longer, once and twice over; and none stands there twice."""
    found = prompts()
    assert len(found) == len({str(one) for one in found}) == 50
    lengths = {len(one) for one in found if isinstance(one, list)}
    assert {chunks * CHUNK + more for chunks in (1, 2, 3, 4) for more in (-1, 0, 1)} <= lengths
    assert found == prompts()
    differ = [(one, other) for one, other in zip(found, changed(), strict=True) if one != other]
    assert len(differ) == 25
    assert all(one[:-1] == other[:-1] for one, other in differ)


def test_the_space_is_four_models_in_every_sharding_of_both_engines() -> None:
    """None of its cells is one that an engine refuses."""
    walked = [
        (model, f"{library}-{sharding}", ranks)
        for model in plan.chosen([])
        for library, kinds in plan.CELLS.items()
        for _, own in kinds
        for sharding, ranks in own
    ]
    assert len({(model, engine) for model, engine, _ in walked}) == len(walked) == 4 * 6
    for model, engine, ranks in walked:
        assert engines.refusal(engine, MODELS[model].config(), ranks=ranks) == ""


def test_a_part_is_an_ordinary_scenario() -> None:
    """It lints, asks its cells and no others, and shares one reference that is not told how the ranks go about it."""
    *_, part = plan.parts(["qwen2"])
    scenario = parse_scenario(plan.scenario(part), name="scenario.yaml")
    own = [(cell.axes["sharding"], cell.ranks) for cell in cells(scenario)]
    assert own == [(one.sharding, one.ranks) for one in part.cells] == [("tensor", 2), ("pipeline", 3)]
    references = [reference_of(scenario, cell) for cell in cells(scenario)]
    assert {one.place for one in references if one is not None} == {"reference"}
    assert not any("sharding" in one.arguments for one in references if one is not None)


def test_what_is_not_a_model_is_named() -> None:
    """With the one that was meant."""
    with pytest.raises(plan.Nothing, match="did you mean qwen2"):
        plan.chosen(["qwen-2"])


@pytest.mark.parametrize(
    ("verdict", "reason", "word"),
    [
        ("SKIPPED", Skip(SkipCode.CELL_MODEL, "mlx-lm has no pipeline"), "REFUSED"),
        ("SKIPPED", Skip(SkipCode.MACHINE_NUMERIC, "no numpy"), "SKIPPED"),
        ("INCONCLUSIVE", VerdictReason(VerdictCode.REFERENCE_TOO_COARSE, "would not show a defect"), "INCONCLUSIVE"),
    ],
)
def test_a_cell_without_an_answer_is_not_equivalent(verdict: str, reason: Skip | VerdictReason, word: str) -> None:
    """Whatever its trials gave."""
    cell = CellVerdict.model_validate(
        {"id": "ranks=2", "slug": "ranks-2", "ranks": 2, "backend": "gloo", "verdict": verdict, "reasons": [reason]}
    )
    assert _word(cell) == (word, str(reason))
