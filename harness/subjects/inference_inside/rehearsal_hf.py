"""transformers rehearsed on tensors that have shapes and no numbers, whole or as stages; no process joins a group."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import fake_tensor

from . import checkpoint, stages
from .hf import Transformers
from .rehearsal import STEPS

# What says that an answer depends on numbers, or that such a tensor lacks an operation: nothing of the model.
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
    """Load a model as each rank of so many would, and have it take a prompt in chunks and a token more.

    Raises:
        Exception: what torch, transformers or the rank's own code raises.
    """
    # A mode is one thread's.
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    for rank in range(size):
        try:
            with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
                _rank(folder, sharding, rank=rank, size=size, dtype=dtype)
        except UNKNOWN:
            return


def _rank(folder: str, sharding: str, *, rank: int, size: int, dtype: str) -> None:
    import transformers

    stages.read = _read
    auto: Any = transformers.AutoModelForCausalLM
    auto.from_pretrained = _loader(auto)
    still: Any = Still()
    engine = Transformers(rank=rank, size=size, sharding=sharding, handover=still)
    engine.load(folder, dtype=dtype)
    # The faster products of experts want 16 bits where there are no numbers, and the slowest loops over numbers.
    model: Any = vars(engine)["_model"]
    vars(model.config.get_text_config())["_experts_implementation_internal"] = "batched_mm"
    engine.begin()
    for tokens in STEPS:
        logits = engine.step([0] * tokens)
        if logits is not None and tuple(logits.shape) != (tokens, engine.rows):
            raise ValueError(f"{tokens} tokens have logits of shape {list(logits.shape)}")


def _read(folder: str, *, skip: Callable[[str], bool]) -> dict[str, Tensor]:
    """As `stages.read`, of the headers alone."""
    found: dict[str, Tensor] = {}
    for name, one in checkpoint.stored(folder).items():
        if not skip(name):
            found[name] = torch.empty(one.shape, dtype=stages.DTYPES.get(one.dtype, torch.uint8))
    return found


def _loader(auto: Any) -> Callable[..., Any]:
    """What `from_pretrained` of a class does, its tensors read by `_read`."""

    def load(folder: str, **named: Any) -> Any:
        import transformers

        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        with torch.device("meta"):
            kind = type(auto.from_config(config))
        own = _read(folder, skip=lambda _name: False)
        return kind.from_pretrained(None, config=config, state_dict=own, **named)

    return load
