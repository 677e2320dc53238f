"""mlx-lm over MLX's ring, shared as an argument says: whole in each rank, by tensors or by layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import session
from .mlx import MlxLm


def run(
    context: Any,
    *,
    sharding: str = "tensor",
    model: str = "model",
    prompts: Sequence[Any] = ("the quick brown fox", "hello world"),
    max_new_tokens: int = 8,
    prefill_chunk: int = 0,
    dtype: str = "float32",
    sampling: str = "greedy",
    seed: int = 0,
    teacher: Sequence[Sequence[int]] = (),
    follow: str = "own",
    warm_up: int = 0,
    tokenizer: str = "every-rank",
    envelope: str = "none",
    sensitivity: str = "none",
    hidden: str = "none",
    influence: str = "none",
    defect: str = "none",
    integrity: str = "off",
) -> None:
    """Entry: load, warm up, answer every prompt."""
    request = session.Request(
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        prefill_chunk=prefill_chunk,
        sampling=sampling,
        seed=seed,
        teacher=teacher,
        follow=follow,
        warm_up=warm_up,
        tokenizer=tokenizer,
        envelope=envelope,
        sensitivity=sensitivity,
        hidden=hidden,
        influence=influence,
        defect=defect,
    )
    engine = MlxLm(
        rank=context.rank, size=context.size, sharding=sharding, group=context.group.native, integrity=integrity
    )
    session.run(context, engine, request, folder=session.folder_of(context, model), dtype=dtype)
