"""Models of the catalogue with other numbers, a folder for each seed.

Two of them as the catalogue has none.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.engines import models
from harness.engines.models import draw, safetensors
from harness.engines.models.catalogue import MODELS, DrawnTensor

BIASED = "llama-bias"
"""A Llama with a bias wherever it may be."""
WIDER = "minimax-wide"
"""With experts twice as wide: in 16 bits transformers splits those of the catalogue over 2 or 3
ranks, not over 4.
"""
LIKE = {BIASED: "llama", WIDER: "minimax"}


def model_of(name: str) -> tuple[dict[str, DrawnTensor], dict[str, Any]]:
    """The tensors and the configuration of a model."""
    recipe = MODELS[LIKE.get(name, name)]
    tensors, config = dict(recipe.tensors()), recipe.config()
    if name == BIASED:
        config |= {"attention_bias": True, "mlp_bias": True}
        weights = [one for one in tensors if one.endswith("_proj.weight")]
        tensors |= {
            one.replace(".weight", ".bias"): DrawnTensor(
                shape=tensors[one].shape[:1], deviation=0.3
            )
            for one in weights
        }
    if name == WIDER:
        width = config["intermediate_size"]
        config |= {"intermediate_size": 2 * width}
        experts = {one: tensor for one, tensor in tensors.items() if ".experts." in one}
        tensors |= {
            one: replace(
                tensor, shape=tuple(2 * size if size == width else size for size in tensor.shape)
            )
            for one, tensor in experts.items()
        }
    return tensors, config


def folder(name: str, seed: int, below: Path) -> Path:
    """A folder with a model drawn from a seed, made where it is missing."""
    place = below / f"{name}-{seed}"
    if place.exists():
        return place
    tensors, config = model_of(name)
    content = models.files(LIKE.get(name, name))
    arrays = {one: draw(one, tensor, seed=seed) for one, tensor in tensors.items()}
    index = {"metadata": {}, "weight_map": dict.fromkeys(sorted(tensors), "model.safetensors")}
    content |= {
        "config.json": json.dumps(config).encode(),
        "model.safetensors": safetensors(arrays),
        "model.safetensors.index.json": json.dumps(index).encode(),
    }
    place.mkdir(parents=True)
    for file, data in content.items():
        (place / file).write_bytes(data)
    return place
