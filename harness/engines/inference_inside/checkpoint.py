"""The files of a checkpoint: which of them holds each tensor, and whether all of it is there.

Engines read a folder each in its own way. transformers takes `model.safetensors` where it is there,
else what the index names; mlx-lm takes every `model*.safetensors`, in no order; its pipeline wants
the index. Where they would not read the same, the folder is refused.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
# How the names of tokenizers' files begin, those of sentencepiece and tiktoken among them.
TOKENIZERS = ("tokenizer", "vocab", "merges", "spiece", "sentencepiece", "tekken", "qwen.tiktoken")
PATTERN = "model*.safetensors"
WIDTHS = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


@dataclass(frozen=True)
class Stored:
    """A tensor as it lies in a file.

    Attributes:
        file: which.
        dtype: as safetensors calls it.
        shape: of the whole tensor.
        begin, end: of its bytes in the file.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> bytearray:
        """Its bytes, in C order, little-endian."""
        with self.file.open("rb") as file:
            file.seek(self.begin)
            return bytearray(file.read(self.end - self.begin))


def has_tokenizer(folder: str) -> bool:
    """Return whether a tokenizer lies beside a model: what `save_pretrained` of a model alone
    writes has none.
    """
    return any(path.name.startswith(TOKENIZERS) for path in Path(folder).iterdir())


def dtypes_of(folder: str) -> list[str]:
    """In which dtypes a checkpoint keeps its tensors, as safetensors calls them.

    None of one of another format.
    """
    try:
        return sorted({tensor.dtype for tensor in stored(folder).values()})
    except ValueError:  # an adapter for another engine reads what it likes
        return []


def stored(folder: str) -> dict[str, Stored]:
    """Every tensor of a checkpoint, by name.

    Raises:
        ValueError: no safetensors file, one that is missing, cut off or not of that format, a
            tensor in two files, or an index that does not name what the files hold.
    """
    place = Path(folder)
    named = _index(place / INDEX)
    files = sorted({*place.glob(PATTERN), *(place / name for name in set(named.values()))})
    if not files:
        raise ValueError(f"{place.name} holds no {PATTERN} file: convert the model first")
    if lost := [path.name for path in files if not path.is_file()]:
        raise ValueError(f"{INDEX} names {lost[0]}, which is not there: fetch it")
    found: dict[str, Stored] = {}
    for path in files:
        for name, tensor in header(path).items():
            if name in found:
                raise ValueError(
                    f"{name} lies in {found[name].file.name} and in {path.name}: remove one of them"
                )
            found[name] = tensor
    for name, file in named.items():
        if name not in found or found[name].file.name != file:
            raise ValueError(
                f"{INDEX} says that {file} holds {name}, which it does not: fetch both of one"
                " revision"
            )
    if named and (lost := sorted(found.keys() - named.keys())):
        raise ValueError(
            f"{INDEX} does not name {lost[0]}, which {found[lost[0]].file.name} holds: fetch it"
            " again"
        )
    if not named and place.joinpath("model.safetensors") not in files:
        raise ValueError(
            f"{place.name} has {files[0].name} and no {INDEX}, which says what belongs to it:"
            " fetch it"
        )
    return found


def shapes(folder: str) -> dict[str, tuple[int, ...]]:
    """Every tensor of a checkpoint with its shape. Raises ValueError, as `stored`."""
    return {name: tensor.shape for name, tensor in stored(folder).items()}


def demand_index(folder: str) -> None:
    """Demand the index, which mlx-lm's pipeline reads even where one file holds all.

    Raises:
        ValueError: it is not there.
    """
    if not Path(folder, INDEX).is_file():
        raise ValueError(
            f"mlx-lm's pipeline reads {INDEX}, which is not in {Path(folder).name}: convert the"
            " model"
        )


def _index(path: Path) -> dict[str, str]:
    """Tensor to file, as an index says; nothing where there is none."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name} cannot be read ({error}): fetch it again") from None
    if not isinstance(found, dict) or not found or not all(map(_is_file_name, found.values())):
        raise ValueError(f"{path.name} maps no tensors to files beside it: fetch it again")
    return found


def _is_file_name(value: object) -> bool:
    return isinstance(value, str) and value == Path(value).name and value.endswith(".safetensors")


def header(path: Path) -> dict[str, Stored]:
    """Return what a safetensors file says of each of its tensors.

    Raises:
        ValueError: it is cut off, or not of that format.
    """
    many = path.stat().st_size
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            entries: dict[str, Any] = json.loads(file.read(min(size, many)))
        entries.pop("__metadata__", None)
        found = {
            name: Stored(
                path,
                str(entry["dtype"]),
                tuple(map(int, entry["shape"])),
                8 + size + int(entry["data_offsets"][0]),
                8 + size + int(entry["data_offsets"][1]),
            )
            for name, entry in entries.items()
        }
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{path.name} is not a safetensors file that can be read ({error}): fetch it again"
        ) from None
    for name, tensor in found.items():
        if tensor.end > many:
            raise ValueError(f"{path.name} ends within {name}: it was cut off; fetch it again")
        if (
            tensor.end - tensor.begin != math.prod(tensor.shape) * WIDTHS.get(tensor.dtype, 0)
            and tensor.dtype in WIDTHS
        ):
            raise ValueError(
                f"{path.name} holds {name} in another number of bytes than its shape: fetch it"
                " again"
            )
    return found
