"""A process group of which one rank alone is there, for a rehearsal: collectives give what has the right shape.

torch has such a backend for its own tests. What it works out about ranks with small tensors of its own needs numbers,
and is made outside of the mode in which tensors have none.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import torch
from torch._subclasses import fake_tensor

# Where a library looks for a function, and its name.
WITH_NUMBERS = (
    ("torch.distributed", "init_device_mesh"),
    ("torch.distributed.device_mesh:DeviceMesh", "__getitem__"),
    ("torch.distributed.device_mesh:DeviceMesh", "_flatten"),
    ("transformers.distributed.sharding_utils", "compute_local_shape_and_global_offset"),
)


@contextmanager
def group_alone(*, rank: int, size: int) -> Iterator[Any]:
    """The module torch.distributed, with a group joined in which nobody answers.

    Raises:
        NotImplementedError: this release of torch or transformers is arranged otherwise.
    """
    try:
        fake_pg = _arranged()
    except (ImportError, AttributeError) as error:
        raise NotImplementedError("no group can be joined alone") from error
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    distributed: Any = torch.distributed
    distributed.init_process_group("fake", rank=rank, world_size=size, store=fake_pg.FakeStore())
    try:
        yield distributed
    finally:
        distributed.destroy_process_group()


@cache
def _arranged() -> Any:
    """The module of torch's backend; what needs numbers has them from now on."""
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
