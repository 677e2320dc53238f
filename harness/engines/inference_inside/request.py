"""What is asked of an engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from inspect import Parameter
from typing import Any

BOUNDARY = "boundary-"
"""So begin the defects of a session, where a chunk of a prompt follows another; the others are an engine's."""
OWN = "own"
"""Where a run chooses by itself what is fed, or between which experts."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments that every ready subject of this folder takes, as `harness.engines.inference` describes them."""

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


def takes_a_request(entry: Callable[..., None]) -> Callable[..., None]:
    """Name the arguments of a request among the parameters of an entry that takes them in `**`.

    So a slip in `with` is found before the first trial, and a report does not doubt that an argument was used.
    """
    own = [one for one in inspect.signature(entry).parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    named = {one.name for one in own}
    further = [Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default) for one in fields(Request)]
    found = [*own, *(one for one in further if one.name not in named)]
    entry.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    return entry


def demand_rows(prompts: Sequence[Sequence[int]], rows: int) -> None:
    """Demand an embedding for each token: MLX reads whatever lies beyond them, and says nothing.

    Raises:
        ValueError: a token has none.
    """
    for number, prompt in enumerate(prompts):
        if odd := [token for token in prompt if not 0 <= token < rows]:
            raise ValueError(
                f"prompt {number} has the token {odd[0]}, and the model has rows for {rows}: its tokenizer is another "
                "model's, or has tokens that were added without rows"
            )
