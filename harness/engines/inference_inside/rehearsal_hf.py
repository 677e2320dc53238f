"""transformers rehearsed on tensors that have shapes and no numbers, whole or as stages.

No process joins a group.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import fake_tensor

from . import checkpoint, stages
from .hf import Transformers, of_decoder
from .origins import ChunkOrigins, StageOrigins
from .rehearsal import STEPS

# What says that an answer depends on numbers, or that such a tensor lacks an operation: nothing of
# the model.
UNKNOWN = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedFakeTensorException,
    fake_tensor.UnsupportedOperatorException,
    NotImplementedError,
)


class Still:
    """Stands for what hands states on: it takes and gives nothing."""

    def begin(self, *, vocabulary: int) -> None:
        """See `handover.Handover`."""

    def send(self, state: Tensor) -> None:
        """See `handover.Handover`."""

    def receive(self, state: Tensor) -> None:
        """See `handover.Handover`."""


def rehearse(folder: str, sharding: str, *, size: int, dtype: str) -> None:
    """Load a model as each rank of so many would, and have it take a prompt in chunks and a token
    more.

    Raises:
        Exception: what torch, transformers or the rank's own code raises.
    """
    # A mode is one thread's.
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    if sharding == "tensor":
        attempts = [
            partial(_sharing, folder, rank=rank, size=size, dtype=dtype) for rank in (0, size - 1)
        ]
    else:
        attempts = [
            partial(_alone, folder, sharding, rank=rank, size=size, dtype=dtype)
            for rank in range(size)
        ]
    if sharding == "pipeline" and size > 1:
        attempts.append(partial(_followed, folder, size=size, dtype=dtype))
    for attempt in attempts:
        try:
            attempt()
        except UNKNOWN:
            return


def in_chunks(folder: str, *, dtype: str) -> None:
    """Follow what the whole model reads a second chunk of a prompt after.

    Raises:
        Forgetful: less than what it reads a single token after.
    """
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        engine = _loaded(folder, "single", rank=0, size=1, dtype=dtype)
        with ChunkOrigins(list(stages.layers_of(vars(engine)["_model"]))) as followed:
            _steps(engine, followed)
    followed.demand_memory()


def _alone(folder: str, sharding: str, *, rank: int, size: int, dtype: str) -> None:
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        _steps(_loaded(folder, sharding, rank=rank, size=size, dtype=dtype))


def _sharing(folder: str, *, rank: int, size: int, dtype: str) -> None:
    """One rank of those that share each layer: the first, or the last, which gets what is left."""
    with (
        group_alone(rank=rank, size=size) as group,
        fake_tensor.FakeTensorMode(allow_non_fake_inputs=True),
    ):
        _steps(_loaded(folder, "tensor", rank=rank, size=size, dtype=dtype, distributed=group))


def _followed(folder: str, *, size: int, dtype: str) -> None:
    """Follow the whole model: a stage that lacks something of another one may go on without an
    error.
    """
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        engine = _loaded(folder, "single", rank=0, size=1, dtype=dtype)
        model: Any = vars(engine)["_model"]
        layers = list(stages.layers_of(model))
        begins = [stages.share(len(layers), size=size, rank=rank)[0] for rank in range(size)]
        with StageOrigins(model.get_input_embeddings(), layers, begins):
            _steps(engine)


def _loaded(
    folder: str, sharding: str, *, rank: int, size: int, dtype: str, distributed: Any = None
) -> Transformers:
    import transformers

    stages.read = _read
    auto: Any = transformers.AutoModelForCausalLM
    auto.from_pretrained = _loader(auto)
    still: Any = Still()
    engine = Transformers(
        rank=rank, size=size, sharding=sharding, distributed=distributed, handover=still
    )
    engine.load(folder, dtype=dtype)
    # The faster products of experts want 16 bits where there are no numbers, and the slowest loops
    # over numbers.
    model: Any = vars(engine)["_model"]
    vars(model.config.get_text_config())["_experts_implementation_internal"] = "batched_mm"
    return engine


def _steps(engine: Transformers, followed: ChunkOrigins | None = None) -> None:
    engine.begin()
    for tokens in STEPS:
        if followed is not None:
            followed.step_from(vars(engine)["_cache"])
        logits = engine.step([0] * tokens)
        if logits is not None and tuple(logits.shape) != (tokens, engine.rows):
            raise ValueError(f"{tokens} tokens have logits of shape {list(logits.shape)}")


def _read(folder: str, *, skip: Callable[[str], bool]) -> dict[str, Tensor]:
    """As `stages.read`, of the headers alone."""
    found: dict[str, Tensor] = {}
    for name, tensor in checkpoint.stored(folder).items():
        if not skip(name):
            found[name] = torch.empty(
                tensor.shape, dtype=stages.DTYPES.get(tensor.dtype, torch.uint8)
            )
    return found


def _loader(auto: Any) -> Callable[..., Any]:
    """Return what `from_pretrained` of a class does, its tensors read by `_read`."""

    def load(folder: str, **named: Any) -> Any:
        import transformers

        config = of_decoder(transformers.AutoConfig.from_pretrained(folder, local_files_only=True))
        with torch.device("meta"):
            kind = type(auto.from_config(config))
        state = _read(folder, skip=lambda _name: False)
        return kind.from_pretrained(None, config=config, state_dict=state, **named)

    return load


# Where a library looks for a function, and its name.
WITH_NUMBERS = (
    ("torch.distributed", "init_device_mesh"),
    ("torch.distributed.device_mesh:DeviceMesh", "__getitem__"),
    ("torch.distributed.device_mesh:DeviceMesh", "_flatten"),
    ("transformers.distributed.sharding_utils", "compute_local_shape_and_global_offset"),
)


@contextmanager
def group_alone(*, rank: int, size: int) -> Iterator[Any]:
    """The module torch.distributed, with a group joined in which nobody answers, and collectives
    give the right shape.

    torch has such a backend for its own tests. What it works out about ranks with small tensors of
    its own needs numbers, and is made outside of the mode in which tensors have none.

    Raises:
        NotImplementedError: this release of torch or transformers is arranged otherwise.
    """
    try:
        fake_pg = _arranged()
    except (ImportError, AttributeError) as error:
        raise NotImplementedError("no group can be joined alone") from error
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
    }
    distributed: Any = torch.distributed
    distributed.init_process_group("fake", rank=rank, world_size=size, store=fake_pg.FakeStore())
    try:
        yield distributed
    finally:
        distributed.destroy_process_group()


@cache
def _arranged() -> Any:
    """Return the module of torch's backend; what needs numbers has them from now on."""
    fake_pg = importlib.import_module("torch.testing._internal.distributed.fake_pg")
    for where, name in WITH_NUMBERS:
        module, _, kind = where.partition(":")
        place: Any = importlib.import_module(module)
        place = getattr(place, kind) if kind else place
        setattr(place, name, _with_numbers(getattr(place, name)))
    return fake_pg


def _with_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def outside(*given: Any, **named: Any) -> Any:
        with fake_tensor.unset_fake_temporarily():
            return function(*given, **named)

    return outside
