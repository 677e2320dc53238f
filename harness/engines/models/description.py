"""What a model is, by its files: architecture, sizes, tensors, digest. No engine is needed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from harness.engines.models.catalogue import ModelError
from harness.engines.offers import config_of
from harness.forms.digest import fold, sha256_of

MOST_HEADER = 100 * 2**20


def describe(folder: Path) -> dict[str, Any]:
    """Architecture, sizes, tensors, parameters and the digest by which an input of this folder is
    pinned.

    Raises:
        ModelError: no config.json or no safetensors file, or one that is damaged.
    """
    config = config_of(folder)
    text = config.get("text_config") or config
    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        shapes |= _header(path)
    if not shapes:
        raise ModelError(f"{folder.name} holds no safetensors file: convert the model first")
    files = {
        path.relative_to(folder).as_posix(): sha256_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    names = {
        "layers": ("num_hidden_layers", "n_layer"),
        "heads": ("num_attention_heads", "n_head"),
        "KV heads": ("num_key_value_heads", "num_attention_heads", "n_head"),
        "experts": ("num_local_experts", "num_experts"),
        "width": ("hidden_size", "n_embd"),
        "vocabulary": ("vocab_size",),
    }
    return {
        "architecture": (config.get("architectures") or [text.get("model_type")])[0],
        **{
            what: next((text[name] for name in keys if text.get(name)), 0)
            for what, keys in names.items()
        },
        "head": "tied" if text.get("tie_word_embeddings") else "untied",
        "tensors": len(shapes),
        "parameters": sum(math.prod(shape) for shape in shapes.values()),
        "sha256": fold(files),
        "config": config,
    }


def _header(path: Path) -> dict[str, list[int]]:
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            # What claims a longer header than any model has is cut off, and is then not JSON.
            header = json.loads(file.read(min(size, MOST_HEADER)))
        return {
            name: list(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path.name} is not a safetensors file that can be read ({error}): fetch it again"
        ) from None
