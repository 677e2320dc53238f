"""What the soak tries: each defect with the models that have what it is about, and what should be
said of it.
"""

from __future__ import annotations

import random
from typing import Any

from harness.engines.inference_inside.engine import AT_ONE
from harness.engines.inference_inside.stages import share
from harness.engines.models.catalogue import MODELS
from harness.engines.offers import refusal
from tests.ladder.drawn import BIASED, WIDER, model_of

DENSE = (
    "stale-position",
    "half-message",
    "swapped-heads",
    "dropped-layer",
    "rope-base",
    "scaled-layer",
)
CASES = {
    "hf-tensor": {
        BIASED: ("bias-per-rank", "fused-interleave", *DENSE),
        "minimax": ("norm-split", "other-router"),
        WIDER: ("norm-split", "other-router"),
    },
    "hf-pipeline": {"qwen2": DENSE, "gpt2": ("fused-interleave",), "qwen3-moe": ("other-router",)},
    "mlx-tensor": {
        BIASED: ("bias-per-rank", "fused-interleave", *DENSE),
        "minimax": ("norm-split", "other-router"),
    },
    "mlx-pipeline": {"qwen2": DENSE, "qwen3-moe": ("other-router",)},
}
WITH_EXPERTS = ("mixtral", "qwen3-moe", "minimax", WIDER, "glm4-moe")
LENGTH, CHUNK, STEPS = 17, 8, 2
"""Of each seed's prompts: two chunks and a token more, so that the prefill goes on twice, and a
step of decoding.
"""
LAYERS = 4
"""Of every model of the catalogue."""
CLEAN = "none"
# Defects that are in the last layer, wherever it lies; and those of a message, which a pipeline has
# between stages.
LAST = ("swapped-heads", "dropped-layer", "scaled-layer")
OF_A_MESSAGE = ("stale-position", "half-message", "fused-interleave")


def prompts_each(model: str, dtype: str) -> int:
    """Prompts of a seed: where routers choose, a tie can take most positions of one, and too few
    are left to judge.
    """
    return 2 if model in WITH_EXPERTS and dtype == "float32" else 1


def asked(seeds: range, model: str, dtype: str) -> dict[str, Any]:
    """What each seed asks: prompts beyond the chunk of the prefill, and what is fed after them.

    In 16 bits noise alone makes a router choose another expert at most positions: it is told what
    to take.
    """
    prompts, teacher = [], []
    for seed in seeds:
        dice = random.Random(seed)
        prompts += [
            [dice.randrange(20, 520) for _ in range(LENGTH)]
            for _ in range(prompts_each(model, dtype))
        ]
        teacher += [
            [dice.randrange(20, 520) for _ in range(STEPS)]
            for _ in range(prompts_each(model, dtype))
        ]
    routing = "reference" if model in WITH_EXPERTS and dtype != "float32" else "own"
    return {
        "prompts": prompts,
        "teacher": teacher,
        "dtype": dtype,
        "hidden": "parts",
        "routing": routing,
    }


def refused(engine: str, model: str, *, ranks: int, dtype: str) -> str:
    """Why an engine does not run a model over so many ranks.

    The ring of one is the engine's whole model.
    """
    return refusal(at(engine, ranks), model_of(model)[1], ranks=ranks, dtype=dtype)


def offered(engine: str, model: str, *, ranks: int, dtype: str) -> bool:
    """Whether a cell is tried: the wider model in 16 bits, where the other is not split over every
    number of ranks.
    """
    return (model != WIDER or dtype != "float32") and not refused(
        engine, model, ranks=ranks, dtype=dtype
    )


def drawable() -> tuple[str, ...]:
    """The models of the catalogue that other numbers can be drawn for; a trained one cannot be."""
    return tuple(name for name, recipe in MODELS.items() if recipe.pinned is None)


def clean_models(engine: str) -> tuple[str, ...]:
    """Those that an engine offers over two ranks."""
    return tuple(name for name in drawable() if offered(engine, name, ranks=2, dtype="float32"))


def at(engine: str, ranks: int) -> str:
    """The subject of a rung."""
    return "mlx-single" if ranks == 1 and engine.startswith("mlx") else engine


def is_right(word: str, *, engine: str, defect: str, ranks: int) -> bool:
    """Whether that is what should be said of a defect on a rung."""
    if defect == CLEAN or (ranks == 1 and defect not in AT_ONE):
        return word in ("EQUIVALENT", "IDENTICAL")
    return word == f"DIVERGENT in layer {layer_of(engine, defect, ranks)}"


def layer_of(engine: str, defect: str, ranks: int) -> int:
    """The first layer that a defect makes another."""
    sharding = engine.partition("-")[2]
    if defect in LAST or (defect == "other-router" and sharding == "pipeline"):
        return LAYERS - 1
    if defect in OF_A_MESSAGE and sharding == "pipeline":
        # Where the last stage begins. The first ranks have the more layers, and rank 0 is mlx-lm's
        # last stage.
        begin, end = share(LAYERS, size=ranks, rank=0 if engine.startswith("mlx") else ranks - 1)
        return LAYERS - (end - begin)
    return 0
