"""Tensors of a checkpoint: which file holds each, which slices of it a parameter is made of, and
how a library's tensor parallelism shares them.

Engines read a folder each in its own way. transformers takes `model.safetensors` where it is there,
else what the index names; mlx-lm takes every `model*.safetensors`, in no order; its pipeline wants
the index. Where they would not read the same, the folder is refused.

Libraries rename, stack and join tensors as they load them: `blocks` says of which slices of the
checkpoint a parameter is made.

The plan by which ranks share a model is worked out beside the model: no rank, no group and no
numbers. The library's own code lays its plan on a model without numbers, over two ranks of which
none exists. This runs in the process of the reference, so that no rank that shares the model says
what it need not share.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypedDict

from .engine import LibraryPlan

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


class HeaderEntry(TypedDict):
    """Tensor in the header of a safetensors file."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


@dataclass(frozen=True)
class Stored:
    """Tensor as it lies in a file.

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
        """Return its bytes, in C order, little-endian."""
        with self.file.open("rb") as file:
            file.seek(self.begin)
            return bytearray(file.read(self.end - self.begin))


def has_tokenizer(folder: str) -> bool:
    """Return whether a tokenizer lies beside a model: what `save_pretrained` of a model alone
    writes has none.
    """
    return any(path.name.startswith(TOKENIZERS) for path in Path(folder).iterdir())


def dtypes_of(folder: str) -> list[str]:
    """Return in which dtypes a checkpoint keeps its tensors, as safetensors calls them.

    None of one of another format.
    """
    try:
        return sorted({tensor.dtype for tensor in stored(folder).values()})
    except ValueError:  # an adapter for another engine reads what it likes
        return []


def stored(folder: str) -> dict[str, Stored]:
    """Return every tensor of a checkpoint, by name.

    Raises:
        ValueError: no safetensors file, one that is missing, cut off or not of that format, a
            tensor in two files, or an index that does not name what the files hold.
    """
    place = Path(folder)
    named = _index(place / INDEX)
    files = sorted({*place.glob(PATTERN), *(place / name for name in set(named.values()))})
    if not files:
        raise ValueError(f"{place.name} contains no {PATTERN} files; convert the model first")
    if lost := [path.name for path in files if not path.is_file()]:
        raise ValueError(f"{INDEX} names {lost[0]}, which is missing; fetch it")
    tensors: dict[str, Stored] = {}
    for path in files:
        for name, tensor in header(path).items():
            if name in tensors:
                raise ValueError(
                    f"{name} is in both {tensors[name].file.name} and {path.name}; remove one of"
                    " them"
                )
            tensors[name] = tensor
    for name, file in named.items():
        if name not in tensors or tensors[name].file.name != file:
            raise ValueError(
                f"{INDEX} lists {name} in {file}, which does not contain it; fetch both from the"
                " same revision"
            )
    if named and (lost := sorted(tensors.keys() - named.keys())):
        raise ValueError(
            f"{INDEX} does not list {lost[0]}, which is in {tensors[lost[0]].file.name}; fetch"
            " both from the same revision"
        )
    if not named and place.joinpath("model.safetensors") not in files:
        raise ValueError(
            f"{place.name} has {files[0].name} but not the index {INDEX}; fetch the index too"
        )
    return tensors


def shapes(folder: str) -> dict[str, tuple[int, ...]]:
    """Return every tensor of a checkpoint with its shape. Raises ValueError, as `stored`."""
    return {name: tensor.shape for name, tensor in stored(folder).items()}


def demand_index(folder: str) -> None:
    """Demand the index, which mlx-lm's pipeline reads even where one file holds all.

    Raises:
        ValueError: it is not there.
    """
    if not Path(folder, INDEX).is_file():
        raise ValueError(
            f"mlx-lm's pipeline reads {INDEX}, which is not in {Path(folder).name}; convert the"
            " model"
        )


def _index(path: Path) -> dict[str, str]:
    """Tensor to file, as an index says; nothing where there is none."""
    if not path.is_file():
        return {}
    try:
        files = json.loads(path.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name} cannot be read ({error}); fetch it again") from None
    if not isinstance(files, dict) or not files or not all(map(_is_file_name, files.values())):
        raise ValueError(f"{path.name} does not map tensors to files in its folder; fetch it again")
    return files


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
            # What claims a longer header than the file is cut off, and is then not JSON.
            entries: dict[str, Any] = json.loads(file.read(min(size, many)))
        entries.pop("__metadata__", None)
        tensors = {name: _entry(path, entry, 8 + size) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{path.name} is not a readable safetensors file ({error}); fetch it again"
        ) from None
    for name, tensor in tensors.items():
        if tensor.end > many:
            raise ValueError(
                f"{path.name} is truncated: it has {many} bytes, but its header places {name} up to"
                f" byte {tensor.end}; fetch it again"
            )
        if (
            tensor.end - tensor.begin != math.prod(tensor.shape) * WIDTHS.get(tensor.dtype, 0)
            and tensor.dtype in WIDTHS
        ):
            raise ValueError(
                f"{path.name} has the wrong number of bytes for the shape of {name}; fetch it again"
            )
    return tensors


def _entry(path: Path, entry: HeaderEntry, data: int) -> Stored:
    """Return a tensor of a header behind which the data begins at that byte."""
    return Stored(
        path,
        str(entry["dtype"]),
        tuple(map(int, entry["shape"])),
        data + int(entry["data_offsets"][0]),
        data + int(entry["data_offsets"][1]),
    )


# How checkpoints call gate, up and down of an expert.
TRIPLES = (("w1", "w3", "w2"), ("gate_proj", "up_proj", "down_proj"))
Range = tuple[int, int]


@dataclass(frozen=True)
class ParameterBlock:
    """Box of a parameter as a rank holds it.

    Attributes:
        local: begin and end in each dimension of what the rank holds.
        tensor: the checkpoint's name.
        whole: begin and end in each dimension of that tensor.
    """

    local: tuple[Range, ...]
    tensor: str
    whole: tuple[Range, ...]


def blocks(
    name: str,
    shares: Sequence[Sequence[Range]],
    checkpoint: Mapping[str, tuple[int, ...]],
    *,
    base: str = "",
) -> Iterator[ParameterBlock]:
    """Yield the boxes that a parameter consists of.

    Args:
        name: of the parameter in the running model.
        shares: for each dimension, the parts of the whole parameter that the rank holds, in the
            order it holds them.
        checkpoint: tensors and shapes, as `checkpoint.shapes` gives them.
        base: prefix that the checkpoint may do without (GPT-2's `transformer.`).

    A parameter that nothing of the checkpoint goes by is told under its own name.
    """
    known = _known(name, checkpoint, base)
    if known is None and (stack := _experts(name, checkpoint)) is not None:
        yield from _stacked(stack, shares, checkpoint)
        return
    for local, whole in _boxes(shares):
        yield ParameterBlock(local, known or name, whole)


def whole_shape(
    name: str, checkpoint: Mapping[str, tuple[int, ...]], *, base: str = "", turned: bool = False
) -> tuple[int, ...] | None:
    """Return the shape of the whole parameter, of which a rank may hold a part; None where the
    checkpoint does not tell.

    With `turned` the model holds a matrix the other way round than the checkpoint; the rest is as
    for `blocks`.
    """
    if (known := _known(name, checkpoint, base)) is not None:
        return checkpoint[known][::-1] if turned else checkpoint[known]
    if (stack := _experts(name, checkpoint)) is None:
        return None
    prefix, matrices = stack
    number = sum(
        1
        for tensor in checkpoint
        if tensor.startswith(prefix) and tensor.endswith(f".{matrices[0]}.weight")
    )
    rows, columns = checkpoint[f"{prefix}0.{matrices[0]}.weight"]
    return number, rows * len(matrices), columns


def even_shares(here: Sequence[int], whole: Sequence[int], *, rank: int) -> list[list[Range]]:
    """Return for each dimension what a rank holds: all of it, or its part of as many even ones as
    there are ranks.
    """
    return [
        [(0, size)] if part == size else [(rank * part, (rank + 1) * part)]
        for part, size in zip(here, whole, strict=True)
    ]


def _known(name: str, checkpoint: Mapping[str, Any], base: str) -> str | None:
    tries = (
        name,
        name.removeprefix(base),
        name.replace(".mlp.", ".block_sparse_moe."),
        base + name,
    )
    return next((tensor for tensor in tries if tensor in checkpoint), None)


def _boxes(
    shares: Sequence[Sequence[Range]],
) -> Iterator[tuple[tuple[Range, ...], tuple[Range, ...]]]:
    """Yield every combination of the parts of each dimension: where it lies in the rank's array,
    and in the whole.
    """
    for box in product(*map(_placed, shares)):
        yield tuple(local for local, _ in box), tuple(whole for _, whole in box)


def _placed(parts: Sequence[Range]) -> Iterator[tuple[Range, Range]]:
    """Yield where each part lies in the rank's array, one after the other, and in the whole."""
    begin = 0
    for part in parts:
        end = begin + part[1] - part[0]
        yield (begin, end), part
        begin = end


def _experts(name: str, checkpoint: Mapping[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """Return the prefix of the experts that a stacked parameter holds, and the matrices that follow
    each other in its rows.
    """
    match = re.fullmatch(
        r"(.*\.)(?:experts|switch_mlp)\.(gate_up_proj|gate_proj|up_proj|down_proj)(?:\.weight)?",
        name,
    )
    if match is None:
        return None
    stem, which = match.groups()
    for place in (stem, stem.replace(".mlp.", ".block_sparse_moe.")):
        for gate, up, down in TRIPLES:
            if f"{place}experts.0.{gate}.weight" in checkpoint:
                held = {
                    "gate_up_proj": (gate, up),
                    "gate_proj": (gate,),
                    "up_proj": (up,),
                    "down_proj": (down,),
                }
                return f"{place}experts.", held[which]
    return None


def _stacked(
    stack: tuple[str, tuple[str, ...]],
    shares: Sequence[Sequence[Range]],
    checkpoint: Mapping[str, tuple[int, ...]],
) -> Iterator[ParameterBlock]:
    """Yield the boxes of a stack `[experts, rows, columns]` by expert and matrix."""
    prefix, matrices = stack
    rows = checkpoint[f"{prefix}0.{matrices[0]}.weight"][0]
    for local, whole in _boxes(shares):
        for offset, expert in enumerate(range(*whole[0])):
            for number, matrix in enumerate(matrices):
                begin = max(whole[1][0], number * rows)
                end = min(whole[1][1], (number + 1) * rows)
                if begin >= end:
                    continue
                at = local[1][0] + begin - whole[1][0]
                yield ParameterBlock(
                    (
                        (local[0][0] + offset, local[0][0] + offset + 1),
                        (at, at + end - begin),
                        local[2],
                    ),
                    f"{prefix}{expert}.{matrix}.weight",
                    ((begin - number * rows, end - number * rows), whole[2]),
                )


RANKS = 2
"""Ranks that share the model. How a parameter is placed does not depend on how many there are."""
Shape = tuple[int, ...]


def plan_of_transformers(model: Any, checkpoint: Mapping[str, Shape]) -> LibraryPlan | None:
    """Return the tensor-parallel plan of a whole model; None where this release has none for it, or
    lays none.

    Args:
        model: of transformers; only its class, its configuration and the names of its state are
            looked at.
        checkpoint: tensors and shapes.
    """
    try:
        planned, rules = _planned(model)
    except Exception:  # noqa: BLE001 - where it cannot be laid, ranks that share by it say why
        return None
    base = f"{model.base_model_prefix}."
    kept = model.state_dict().keys()
    shared = set[str]()
    whole = set[str]()
    for name, value in [*planned.named_parameters(), *planned.named_buffers()]:
        if name in kept:
            split = any(hasattr(place, "dim") for place in getattr(value, "placements", ()))
            (shared if split else whole).update(_tensors(name, value.shape, checkpoint, base=base))
    return LibraryPlan(engine="hf-tensor", rules=rules, whole=frozenset(whole - shared))


def plan_of_mlx_lm(
    folder: str, whole: Mapping[str, Shape], checkpoint: Mapping[str, Shape]
) -> LibraryPlan | None:
    """Return how mlx-lm shares the model of a folder.

    None where it does not split it, or calls its parts otherwise then.

    MLX is lazy: a model that is split and never evaluated has the shapes of a rank's share, and no
    weight is read.

    Args:
        folder: as `mlx_lm` loads it.
        whole: the shapes of the parameters of the whole model, by name.
        checkpoint: tensors and shapes.
    """
    try:
        here = dict(_shared(folder))
    except Exception:  # noqa: BLE001 - where it cannot be split, ranks that share it so say why
        return None
    if here.keys() != whole.keys():
        return None
    alike = set[str]()
    other = set[str]()
    for name, shape in whole.items():
        (alike if here[name] == shape else other).update(
            _tensors(name, shape, checkpoint, base="model.")
        )
    return LibraryPlan(engine="mlx-tensor", rules={}, whole=frozenset(alike - other))


class LoneGroup:
    """Stands for a group of MLX: whoever asks its rank and size need not have joined it."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size


def _tensors(name: str, shape: Shape, checkpoint: Mapping[str, Shape], *, base: str) -> set[str]:
    """Return the tensors of the checkpoint that a whole parameter is made of."""
    shares = [[(0, size)] for size in shape]
    return {block.tensor for block in blocks(name, shares, checkpoint, base=base)}


def _planned(model: Any) -> tuple[Any, dict[str, str]]:
    """Return a model of the same kind with its parameters as they are placed, and the rules by
    which they are.
    """
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from transformers import initialization
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    # The first of a mesh that nobody joins: no process group is made, and none that there is takes
    # part.
    mesh = DeviceMesh(
        "cpu", list(range(RANKS)), mesh_dim_names=("tp",), _init_backend=False, _rank=0
    )
    # As it loads: what is tied is placed apart.
    with torch.device("meta"), initialization.no_tie_weights():
        planned = type(model)(copy.deepcopy(model.config))
    config = DistributedConfig(tp_size=RANKS, tp_plan="auto")
    rules, *_ = planned._resolve_parallel_plans(config)  # noqa: SLF001 - no other name for it
    apply_tensor_parallelism(planned, mesh, rules)
    return planned, {name: str(style) for name, style in planned.tp_plan.items()}


def _shared(folder: str) -> Iterator[tuple[str, Shape]]:
    """Yield the parameters of the first rank's share of a model of mlx-lm, with their shapes."""
    from mlx.utils import tree_flatten
    from mlx_lm import utils

    model: Any = utils.load_model(Path(folder), lazy=True, strict=False)[0]
    model.shard(LoneGroup(0, RANKS))
    parameters: Any = tree_flatten(model.parameters())
    for name, value in parameters:
        yield name, tuple(value.shape)
