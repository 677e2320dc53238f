"""mlx-lm rehearsed: MLX is lazy, and what is never evaluated is neither read from a file nor
computed nor sent.
"""

from __future__ import annotations

from typing import Any

import mlx.core

from .mlx import MlxLm
from .plan import LoneGroup
from .rehearsal import STEPS

mx: Any = mlx.core


def rehearse(folder: str, sharding: str, *, size: int, dtype: str) -> None:
    """Load a model as each rank of so many would, and have it take a prompt in chunks and a token
    more.

    Raises:
        Exception: what MLX, mlx-lm or the rank's own code raises.
    """
    _without_evaluation()
    for rank in range(size) if sharding != "single" else (0,):
        whole = sharding == "single"
        group = None if whole else LoneGroup(rank, size)
        engine = MlxLm(rank=rank, size=1 if whole else size, sharding=sharding, group=group)
        engine.load(folder, dtype=dtype)
        engine.begin()
        for tokens in STEPS:
            logits = engine.step([0] * tokens)
            if logits.shape != (tokens, engine.rows):
                raise ValueError(f"{tokens} tokens have logits of shape {list(logits.shape)}")


def _without_evaluation() -> None:
    """Have MLX evaluate nothing, and have its collectives give what has the right shape and
    dtype.
    """

    def given(array: Any, *_args: Any, **_named: Any) -> Any:
        return array

    def gathered(array: Any, group: Any = None, **_named: Any) -> Any:
        many = group.size() if group is not None else 1
        return mx.concatenate([array] * many) if array.ndim else mx.stack([array] * many)

    mx.eval = mx.async_eval = lambda *_arrays: None
    for name in ("all_sum", "all_max", "all_min", "send", "recv_like"):
        setattr(mx.distributed, name, given)
    mx.distributed.all_gather = gathered
    mx.distributed.recv = lambda shape, dtype, *_args, **_named: mx.zeros(shape, dtype)
