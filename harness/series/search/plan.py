"""The space of a search: models, engines, shardings and prompts, and the ordinary scenarios by
which it is walked.

What goes wrong in inference over ranks goes wrong at a boundary: of a chunk of the prefill, of a
window, of a character, of the vocabulary. So the lengths of prompts lie around multiples of the
chunk, texts have characters of several bytes, and tokens are special ones, the first and the last.
The 50 prompts are the same for every model, worked out from nothing but this file.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from typing import Any, Literal

from harness.engines.models import MODELS
from harness.engines.models.vocabulary import BEGIN, END, PAD, SPECIAL
from harness.engines.models.vocabulary import SIZE as VOCABULARY
from harness.forms.digest import sha256
from harness.forms.problem import closest
from harness.forms.text import plural
from harness.scenario.load import scenario_text
from harness.series.search.record import CHECK, NOT_INSTALLED, Asked, Library, SearchPart
from harness.series.series import Nothing
from harness.subjects import READY

Sharding = Literal["single", "tensor", "pipeline"]
SPACE = ("qwen2", "qwen3-moe", "ministral3", "glm4-moe")
"""The models: of those that are made here, the ones of which both engines offer every sharding."""
LIBRARIES: tuple[Library, ...] = ("hf", "mlx")
BACKENDS = {"hf": "gloo", "mlx": "mlx-ring"}
# A world of one is not a ring: there a whole model runs in both ranks of two that have joined one.
# That is a part of its own, because whole models that lie on two ranks lie there twice, which no
# part that is split may do.
CELLS: dict[Library, tuple[tuple[str, tuple[tuple[Sharding, int], ...]], ...]] = {
    "hf": (("every", (("single", 1), ("tensor", 2), ("pipeline", 3))),),
    "mlx": (("whole", (("single", 2),)), ("split", (("tensor", 2), ("pipeline", 3)))),
}
WHOLE = "whole"
SIZE = 0.01
"""The size of defect that a cell must be able to show: of the weights of a layer in the middle."""
SEED = "rankproof-search"
TRIALS = 5
RELEASES = ("transformers", "mlx-lm", "torch", "mlx")
# What every rank may hold: per engine, and what it does not split.
REPLICATED = {
    "hf": ["*norm*", "*embed_tokens*", "*.mlp.gate.*"],
    "mlx": ["*norm*", "*embed_tokens*", "lm_head.weight", "*.mlp.gate.*"],
}
CHUNK = 8
"""Tokens of a prompt that are read at a time."""
STEPS = 3
"""Tokens that are generated after each prompt."""
LENGTHS = (1, 2, 3, 7, 8, 9, 10, 15, 16, 17, 18, 23, 24, 25, 31, 32, 33)
TWICE = (1, 2, 7, 8, 9, 15, 16, 17)
TEXTS = (
    "the quick brown fox jumps over the lazy dog",
    "",
    " ",
    "\n\n\n",
    "你好世界",
    "日本語 model",
    "مرحبا",
    "🙂🙂",
    "e\u0301 is not é",
    "a\u00a0b\u200dc",
    "<s>hello</s>",
    "<|im_start|>user\nhello world<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|><|endoftext|>",
    "<|im_start",
)


def chosen(models: Sequence[str]) -> list[str]:
    """Return the models of a search, all of the space where none is named.

    Raises:
        Nothing: one is not a model that is made here.
    """
    for model in models:
        if model not in MODELS:
            hint = f"; did you mean {near}?" if (near := closest(model, list(MODELS))) else "."
            raise Nothing(
                f"--model {model}: this version cannot make that model{hint} Run `rankproof models"
                " list` to list the models"
            )
    return list(dict.fromkeys(models)) or list(SPACE)


def parts(models: Sequence[str], *, arrays: bool = True) -> list[SearchPart]:
    """Return the parts of a search, in the order in which they are made."""
    planned = []
    for model, library in product(models, LIBRARIES):
        for kind, cells in CELLS[library]:
            part = SearchPart(
                name=f"{model}-{library}-{kind}",
                model=model,
                library=library,
                cells=[Asked(sharding=sharding, ranks=ranks) for sharding, ranks in cells],
                arrays=arrays,
                scenario="0" * 64,
            )
            planned.append(part.model_copy(update={"scenario": sha256(scenario(part))}))
    return planned


def scenario(part: SearchPart) -> bytes:
    """Return the scenario of a part: ordinary YAML, the same bytes everywhere."""
    asked: dict[str, Any] = {"prompts": prompts(), "max_new_tokens": STEPS}
    given = {"prefill_chunk": CHUNK, "follow": "reference"}
    how = [f"{cell.sharding} over {plural(cell.ranks, 'rank')}" for cell in part.cells]
    shardings = [cell.sharding for cell in part.cells]
    worlds = sorted({cell.ranks for cell in part.cells})
    chosen = {(cell.sharding, cell.ranks) for cell in part.cells}
    others = [
        {"sharding": sharding, "ranks": ranks}
        for sharding, ranks in product(shardings, worlds)
        if (sharding, ranks) not in chosen
    ]
    checks: list[dict[str, Any]] = [
        {
            "id": CHECK,
            "kind": "equivalent",
            "ranks": "every",
            "against": "reference",
            "middle": 1.25,
            "sees": SIZE,
        }
    ]
    if not part.name.endswith(WHOLE):
        cover: dict[str, Any] = {
            "id": "covers",
            "kind": "shards-cover",
            "ranks": "every",
            "against": "reference",
        }
        checks.append(cover | {"replicated": REPLICATED[part.library]})
    tree = {
        "schema": 1,
        "id": f"search-{part.name}",
        "title": f"{part.model} by {part.library} ({', '.join(shardings)}) gives the right logits",
        "question": (
            f"Does {part.model} ({', '.join(how)}) give the logits of the unsharded model, within"
            " the noise of its own arithmetic?"
        ),
        "role": "claim",
        "needs": {"memory": "4GiB"},
        "inputs": {"model": {"made": part.model}},
        "subject": {
            "use": f"{part.library}-sharded",
            "candidate": {"with": {**asked, **given}},
            # Where a chunk of a prompt follows another one, every rank begins a token too early.
            "control": {
                "with": {**asked, **given, "defect": "boundary-token"},
                "must_fail": {"check": CHECK, "ranks": "every"},
            },
            "reference": {
                "with": {**asked, "envelope": "some", "sensitivity": "keep"},
                "once": "scenario",
            },
        },
        "matrix": {
            "ranks": worlds,
            "backend": [BACKENDS[part.library]],
            "sharding": shardings,
            **({"exclude": others} if others else {}),
        },
        "world": {
            "start": "warm",
            "deadline": "300s",
            **({} if part.arrays else {"artefacts": "0B"}),
        },
        "seed": SEED,
        # As few as tell the control from chance (5 and 2): a search is not about races.
        "trials": {
            "candidate": TRIALS,
            "control": 2,
            "accept": {"failure_rate_below": "50%"},
            "max_voids": 1,
        },
        "checks": [
            *checks,
            {"id": "all-finished", "kind": "exit", "ranks": "every", "code": 0},
            {"id": "nobody-left", "kind": "no-survivors"},
        ],
    }
    return scenario_text(tree, width=110).encode()


def subject() -> dict[str, str]:
    """Return the code of the ranks: file to sha256."""
    return {name: sha256(data) for name, data in READY["hf-sharded"].files().items()}


def versions() -> dict[str, str]:
    """Return the releases that are searched, as they are installed here."""
    releases = {}
    for name in RELEASES:
        try:
            releases[name] = version(name)
        except PackageNotFoundError:
            releases[name] = NOT_INSTALLED
    return releases


def prompts() -> list[str | list[int]]:
    """Texts, and lists of token ids."""
    asked: list[str | list[int]] = [
        _drawn(length, seed) for seed, lengths in enumerate((LENGTHS, TWICE)) for length in lengths
    ]
    asked += [text for text in TEXTS if text]
    asked += [
        [BEGIN],
        [END],
        [PAD] * CHUNK,
        [BEGIN, END] * CHUNK,
        list(range(len(SPECIAL))),
        [VOCABULARY - 1],
        [VOCABULARY - 1, 0] * 4 + [VOCABULARY - 1],
        [40] * (2 * CHUNK + 1),
        [40] * CHUNK + [41],
        list(range(100, 100 + 2 * CHUNK)),
        list(range(300, 300 - 2 * CHUNK - 1, -1)),
        [*_drawn(CHUNK, 7), END, *_drawn(CHUNK, 8)],
    ]
    return asked


def _drawn(length: int, seed: int) -> list[int]:
    """Ordinary tokens, drawn."""
    dice = random.Random(f"{seed} {length}")  # noqa: S311 - what is drawn has to be the same again
    return [dice.randrange(len(SPECIAL), VOCABULARY) for _ in range(length)]
