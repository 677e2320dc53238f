"""Models that the project makes: small decoders of the architectures that matter, the same bytes on
every machine.

`files` gives the files of a model, `write` puts them into a folder, `cached` gives a folder of the
user's cache that holds them, made when it is missing or does not hold what it should. transformers
and mlx-lm load each of them.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.engines.inference_inside import checkpoint
from harness.engines.models.catalogue import MODELS, DrawnTensor, ModelError, Recipe
from harness.engines.models.vocabulary import as_json, tokenizer_files
from harness.forms import manifest
from harness.forms.digest import fold, sha256, sha256_of
from harness.forms.distribution import missing
from harness.forms.variables import cache_folder

__all__ = [
    "MODELS",
    "ModelError",
    "cached",
    "config_of",
    "describe",
    "digest",
    "draw",
    "files",
    "number_of",
    "safetensors",
    "write",
]

VARIABLE = "RANKPROOF_MODELS"
BITS = 24
"""Of a drawn number: as many as a float32 holds exactly."""
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
# As GPT-2, MPT and GPT-Neo call them.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")


def files(name: str) -> dict[str, bytes]:
    """Return the files of a model: path to bytes, some 2 to 6 MB.

    Raises:
        ModelError: no such model, or numpy is not here.
    """
    if name not in MODELS:
        raise ModelError(f"{name!r}: this model does not exist; the models are {', '.join(MODELS)}")
    if lacks := missing("numpy"):
        raise ModelError(f"creating the model {name} requires numpy, but {lacks}")
    recipe = MODELS[name]
    tensors = recipe.tensors()
    # mlx-lm reads which file holds a layer from the index, where it splits a model by layers.
    index = {"metadata": {}, "weight_map": dict.fromkeys(sorted(tensors), "model.safetensors")}
    return {
        "config.json": as_json(recipe.config()),
        "model.safetensors": _weights(name, recipe, tensors),
        "model.safetensors.index.json": as_json(index),
        **tokenizer_files(),
    }


def _weights(name: str, recipe: Recipe, tensors: Mapping[str, DrawnTensor]) -> bytes:
    if recipe.pinned is None:
        return safetensors(
            {key: draw(key, tensor, seed=recipe.seed) for key, tensor in tensors.items()}
        )
    path, pinned = recipe.pinned
    try:
        data = lzma.decompress(path.read_bytes())
    except lzma.LZMAError:
        data = b""
    if sha256(data) != pinned:
        raise ModelError(
            f"the weights of {name} ({path.name}) differ from the pinned weights; reinstall"
            " Rankproof"
        )
    return data


def digest(name: str) -> str:
    """Return what names a model: sha256 over its files, as an input of them is named.

    Raises:
        ModelError: as for `files`.
    """
    return fold({path: sha256(data) for path, data in files(name).items()})


def write(name: str, folder: Path) -> Path:
    """Write a model into a folder that is not there or empty; returns the folder.

    Raises:
        ModelError: as for `files`, or the folder holds something.
        OSError: it cannot be written.
    """
    content = files(name)
    if folder.exists() and any(folder.iterdir()):
        raise ModelError(f"{folder} already exists; remove it, or choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, data in content.items():
        (folder / path).write_bytes(data)
    return folder


def cached(name: str, *, cache: Path | None = None) -> Path:
    """Return a folder with a model, to be read and not to be changed.

    Made once, then found by digest and checked.

    Args:
        name: of the model.
        cache: where models are kept; default: what RANKPROOF_MODELS names, else among the user's
            caches.

    Raises:
        ModelError: as for `files`.
        OSError: the cache cannot be written.
    """
    if name not in MODELS:
        raise ModelError(f"{name!r}: this model does not exist; the models are {', '.join(MODELS)}")
    root = cache or cache_folder("models", variable=VARIABLE)
    place = root / f"{name}-{_made_by()[:16]}" / name
    if _is_whole(place):
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    from filelock import FileLock  # a scenario that names one of these is read without it

    # One process makes it; whoever needs it meanwhile waits here and finds it made.
    with FileLock(root / f"{place.parent.name}.lock"):
        if not _is_whole(place):  # another process may have been first
            # Made beside it and moved: whoever is killed leaves a folder that nobody takes for a
            # model.
            scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=".making-"))
            try:
                written = write(name, scratch / name)
                (place.parent / manifest.NAME).unlink(missing_ok=True)
                shutil.rmtree(place, ignore_errors=True)
                # Path.replace is the same; this names what must be atomic.
                os.replace(written, place)  # noqa: PTH105
                # Last: what has no manifest, or another one, is made anew.
                (place.parent / manifest.NAME).write_bytes(manifest.encode(_digests(place)))
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return place


def _made_by() -> str:
    """Return the digest of all that a model is made from: another version of Rankproof makes it
    anew.
    """
    here = Path(__file__).parent
    return fold({path.name: sha256_of(path) for path in sorted(here.glob("*.py"))})


def _is_whole(place: Path) -> bool:
    """Return whether a folder of the cache holds exactly what its manifest says."""
    try:
        return manifest.parse((place.parent / manifest.NAME).read_bytes()) == _digests(place)
    except (OSError, ValueError):
        return False


def _digests(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in paths}


def config_of(folder: Path) -> dict[str, Any]:
    """Return what stands in the config.json of a model.

    Raises:
        ModelError: there is none, or it is not a mapping in JSON.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{folder.name} has no readable config.json ({error}); pass the folder of a model"
        ) from None
    if not isinstance(config, dict):
        raise ModelError(f"{folder.name}/config.json is not a JSON object; pass a model folder")
    return config


def number_of(config: Mapping[str, Any], *names: str) -> int:
    """Return a number of a configuration by the first of its names that is there; 0 by none.

    Some configurations have one for each layer: then it is the largest.
    """
    value = stated(config, *names)
    if isinstance(value, list):
        return max((number for number in value if isinstance(number, int)), default=0)
    return int(value)


def stated(config: Mapping[str, Any], *names: str) -> Any:
    """Return what a configuration says by the first of its names that is there; 0 by none."""
    return next((config[name] for name in names if config.get(name)), 0)


def describe(folder: Path) -> dict[str, Any]:
    """Return architecture, sizes, tensors, parameters and the digest by which an input of this
    folder is pinned.

    Raises:
        ModelError: no config.json or no safetensors file, or one that is damaged.
    """
    config = config_of(folder)
    text = config.get("text_config") or config
    headers = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            headers.append(checkpoint.header(path))
        except OSError as error:
            raise ModelError(
                f"{path.name} is not a readable safetensors file ({error}); fetch it again"
            ) from None
        except ValueError as error:
            raise ModelError(str(error)) from None
    shapes = {name: tensor.shape for header in headers for name, tensor in header.items()}
    if not shapes:
        raise ModelError(f"{folder.name} contains no safetensors files; convert the model first")
    return {
        "architecture": (config.get("architectures") or [text.get("model_type")])[0],
        "layers": stated(text, *LAYERS),
        "heads": stated(text, *HEADS),
        "KV heads": stated(text, "num_key_value_heads", *HEADS),
        "experts": stated(text, *EXPERTS),
        "width": stated(text, "hidden_size", "n_embd"),
        "vocabulary": stated(text, "vocab_size"),
        "head": "tied" if text.get("tie_word_embeddings") else "untied",
        "tensors": len(shapes),
        "parameters": sum(math.prod(shape) for shape in shapes.values()),
        "sha256": fold(_digests(folder)),
        "config": config,
    }


def draw(name: str, tensor: DrawnTensor, *, seed: int) -> Any:
    """Draw uniform numbers, `[*tensor.shape]` float32.

    Every tensor of a model has a stream of its own.
    """
    import numpy as np

    digits = hashlib.shake_256(f"{seed}\0{name}".encode()).digest(4 * tensor.elements)
    whole = (np.frombuffer(digits, "<u4") >> np.uint32(32 - BITS)).astype(np.int32) - np.int32(
        1 << (BITS - 1)
    )
    # A uniform distribution from -w to w has the deviation w / sqrt(3).
    step = np.float32(tensor.deviation * math.sqrt(3) / (1 << (BITS - 1)))
    return (whole.astype(np.float32) * step + np.float32(tensor.middle)).reshape(tensor.shape)


def safetensors(arrays: Mapping[str, Any]) -> bytes:
    """Return a safetensors file of float32 arrays, in the order of their names.

    The format is stated at https://github.com/huggingface/safetensors#format. The library may lay
    one model out otherwise from release to release, and a digest is to hold for longer.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    begin = 0
    for name, array in sorted(arrays.items()):
        data = array.astype("<f4").tobytes()
        end = begin + len(data)
        shape = [int(size) for size in array.shape]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        parts.append(data)
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)
