"""The space of a search is stated, the same everywhere, and walked by ordinary scenarios."""

from __future__ import annotations

import pytest

from harness.engines import offers
from harness.engines.models import MODELS
from harness.reason import Skip, SkipCode, VerdictCode, VerdictReason
from harness.record.facts import SOURCE_FOLDER, RepositoryFacts
from harness.scenario import parse_scenario
from harness.scenario.plan import cells, reference_of
from harness.series.search import plan
from harness.series.search.plan import CHUNK, STEPS, prompts
from harness.series.search.record import SearchFacts, _unlike, _word
from harness.series.series import Nothing
from harness.stats.verdict import CellVerdict

ARMS = ("candidate", "control")


def test_fifty_prompts_lie_around_the_boundaries() -> None:
    """One shorter than the chunk, as long, and longer, once and twice over.

    And none stands there twice.
    """
    found = prompts()
    assert len(found) == len({str(one) for one in found}) == 50
    lengths = {len(one) for one in found if isinstance(one, list)}
    assert {chunks * CHUNK + more for chunks in (1, 2, 3, 4) for more in (-1, 0, 1)} <= lengths
    assert found == prompts()


@pytest.mark.whole
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
        assert offers.refusal(engine, MODELS[model].config(), ranks=ranks) == ""


def test_a_part_is_an_ordinary_scenario() -> None:
    """It lints, asks its cells and no others, and shares one reference that is not told how the
    ranks go about it.
    """
    *_, part = plan.parts(["qwen2"])
    scenario = parse_scenario(plan.scenario(part), name="scenario.yaml")
    own = [(cell.axes["sharding"], cell.ranks) for cell in cells(scenario)]
    assert (
        own == [(one.sharding, one.ranks) for one in part.cells] == [("tensor", 2), ("pipeline", 3)]
    )
    references = [reference_of(scenario, cell) for cell in cells(scenario)]
    assert {one.place for one in references if one is not None} == {"reference"}
    assert not any("sharding" in one.arguments for one in references if one is not None)


def test_titles_and_questions_fit() -> None:
    """Lint accepts every part of the model with the longest name."""
    for part in plan.parts([max(MODELS, key=len)]):
        scenario = parse_scenario(plan.scenario(part), name="scenario.yaml")
        assert list(scenario.overlong()) == [], part.name


def test_what_a_search_says_of_a_part_is_what_its_scenario_asks() -> None:
    """Whoever signs counts no other run for it: another engine, fewer prompts, a wider margin,
    other code.
    """
    part, *_ = plan.parts(["qwen2"])
    text = plan.scenario(part)
    listed = {
        f"{SOURCE_FOLDER}/{arm}/{name}": one for arm in ARMS for name, one in plan.subject().items()
    }
    facts = SearchFacts(
        format=1,
        rankproof="0",
        id="x",
        made="",
        signer=None,
        source=RepositoryFacts(
            commit=None, tree=None, dirty=None, untracked=None, origin=None, scenario=None
        ),
        code="0" * 64,
        versions={},
        models={"qwen2": "0" * 64},
        prompts=prompts(),
        chunk=CHUNK,
        steps=STEPS,
        trials=plan.TRIALS,
        subject=plan.subject(),
        parts=[part],
    )

    def said(changed: bytes = text, files: dict[str, str] = listed, **other: object) -> str:
        named = part.model_copy(update=other)
        return _unlike(named, facts, parse_scenario(changed, name="s.yaml"), files)

    assert said() == ""
    assert "its engine" in said(library="mlx")
    assert "its model" in said(model="llama")
    assert "its prompts" in said(text.replace(b"- the quick brown", b"- the quick"))
    assert "its comparison" in said(
        text.replace(b"kind: equivalent", b"kind: equivalent\n  margin: 100.0")
    )
    assert "contains arrays" in said(
        text.replace(b"deadline: 300s", b"deadline: 300s\n  artefacts: 0B")
    )
    assert "the code of the control" in said(
        files=listed | {f"{SOURCE_FOLDER}/control/json.py": "0" * 64}
    )


def test_what_is_not_a_model_is_named() -> None:
    """With the one that was meant."""
    with pytest.raises(Nothing, match="did you mean qwen2"):
        plan.chosen(["qwen-2"])


@pytest.mark.parametrize(
    ("verdict", "reason", "word"),
    [
        ("SKIPPED", Skip(SkipCode.CELL_MODEL, "mlx-lm has no pipeline"), "REFUSED"),
        ("SKIPPED", Skip(SkipCode.MACHINE_NUMERIC, "no numpy"), "SKIPPED"),
        (
            "INCONCLUSIVE",
            VerdictReason(VerdictCode.REFERENCE_TOO_COARSE, "would not detect a defect"),
            "INCONCLUSIVE",
        ),
    ],
)
def test_a_cell_without_an_answer_is_not_equivalent(
    verdict: str, reason: Skip | VerdictReason, word: str
) -> None:
    """Whatever its trials gave."""
    cell = CellVerdict.model_validate(
        {
            "id": "ranks=2",
            "slug": "ranks-2",
            "ranks": 2,
            "backend": "gloo",
            "verdict": verdict,
            "reasons": [reason],
        }
    )
    assert _word(cell) == (word, str(reason))
