"""The sweep of shard rules: it leaves out what is refused and nothing else, and sees rules that are
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from harness.engines import offers
from harness.engines.models import MODELS
from harness.scenario import load_scenario
from harness.scenario.plan import cells
from tests.kit.commands import ROOT, Ran

FOLDER = ROOT / "scenarios" / "shard-rule-sweep"
ENGINES = ("hf-tensor", "hf-pipeline", "mlx-tensor", "mlx-pipeline")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_model_that_an_engine_splits_is_swept(engine: str) -> None:
    """Over 2, 3 and 4 ranks, but where the engine refuses."""
    scenario = load_scenario(FOLDER / f"{engine}.yaml").scenario
    swept = {(str(cell.axes["model"]), cell.ranks) for cell in cells(scenario)}
    offered = {
        (model, ranks)
        for model, ranks in product(MODELS, (2, 3, 4))
        if not offers.refusal(engine, MODELS[model].config(), ranks=ranks)
    }
    assert swept == offered
    made = {name: given.made for name, given in scenario.inputs.items()}
    assert made == {model: model for model, _ in swept}
    assert scenario.tags == ("on-demand",)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("engine", "model", "ranks", "rule"),
    [
        pytest.param("hf-tensor", "mixtral", 2, "plain", marks=pytest.mark.long),
        ("mlx-pipeline", "qwen2", 2, "gap"),
        ("hf-pipeline", "recall", 4, "gap"),
    ],
)
def test_a_wrong_rule_is_seen(
    rankproof: Callable[..., Ran], engine: str, model: str, ranks: int, rule: str
) -> None:
    """The engine's own rule covers the checkpoint.

    With one tensor cut plainly, or a layer left out, it does not.

    Of four layers every one is alone in its stage, and a stage without any would not load.
    """
    # Too few for a verdict, and enough for what is asked here.
    few = ("trials.candidate=1", "trials.control=1")
    sets = (
        f"matrix.model=[{model}]",
        f"matrix.ranks=[{ranks}]",
        f"subject.control.with.rule={rule}",
        *few,
    )
    options = [word for one in sets for word in ("--set", one)]
    ran = rankproof("run", str(FOLDER / f"{engine}.yaml"), "--unsigned", *options, *_all_of(engine))
    (cell,) = ran.record.judgement.cells
    assert cell.candidate is not None
    assert cell.control is not None
    assert (cell.candidate.failed, cell.control.as_stated) == (0, 1), ran.out + ran.err


def _all_of(engine: str) -> tuple[str, ...]:
    """What a file leaves out has to be put back where only one model is swept."""
    return ("--set", "matrix.exclude=[]") if engine.endswith("tensor") else ()
