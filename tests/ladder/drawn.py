"""Models of the catalogue with other numbers, a folder for each seed; and a Llama with a bias wherever it may be."""

from __future__ import annotations

import json
from pathlib import Path

from harness import models
from harness.models.catalogue import MODELS
from harness.models.weights import Tensor, draw, safetensors

BIASED = "llama-bias"
SPLIT = ("o_proj", "down_proj")


def folder(name: str, seed: int, below: Path) -> Path:
    """A folder with a model drawn from a seed, made where it is missing."""
    place = below / f"{name}-{seed}"
    if place.exists():
        return place
    recipe = MODELS["llama" if name == BIASED else name]
    tensors, config = dict(recipe.tensors()), recipe.config()
    if name == BIASED:
        config |= {"attention_bias": True, "mlp_bias": True}
        weights = [one for one in tensors if one.endswith("_proj.weight")]
        tensors |= {
            one.replace(".weight", ".bias"): Tensor(shape=tensors[one].shape[:1], deviation=0.3) for one in weights
        }
    content = models.files("llama" if name == BIASED else name)
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
