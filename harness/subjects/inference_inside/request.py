"""What is asked of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BOUNDARY = "boundary-"
"""So begin the defects of a session, where a chunk of a prompt follows another; the others are an engine's."""
OWN = "own"
"""Where a run chooses by itself what is fed, or between which experts."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments that every ready subject of this folder takes, as `harness.subjects.inference` describes them."""

    model: str = "model"
    prompts: Sequence[Any] = ("the quick brown fox", "hello world")
    max_new_tokens: int = 8
    prefill_chunk: int = 0
    dtype: str = "float32"
    sampling: str = "greedy"
    seed: int = 0
    teacher: Sequence[Sequence[int]] = ()
    follow: str = OWN
    warm_up: int = 0
    tokenizer: str = "every-rank"
    routing: str = OWN
    envelope: str = "none"
    sensitivity: str = "none"
    hidden: str = "none"
    influence: str = "none"
    defect: str = "none"
