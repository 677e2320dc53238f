"""One prompt's answer: prefill in chunks, decode, and what came of both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .engine import Engine
from .request import Request


@dataclass(frozen=True)
class Answer:
    """What came of a prompt: logits, None on a rank without; the tokens that were chosen, and those that were fed."""

    prefill: Any
    decode: Any
    ids: list[int]
    fed: list[int]
    hidden: dict[int, Any]
    decided: dict[str, Any]


def answer(
    context: Any,
    engine: Engine,
    request: Request,
    prompt: Sequence[int],
    *,
    steps: int,
    number: int,
    fed: Sequence[int] | None = None,
    chunk: int | None = None,
    quiet: bool = False,
) -> Answer:
    """Prefill and decode one prompt from an empty cache."""
    size = (request.prefill_chunk if chunk is None else chunk) or len(prompt)
    dice = random.Random(f"{request.seed} {number}")  # noqa: S311 - what is drawn has to be the same again
    engine.begin()
    if not quiet:
        context.emit("prefill.begin")
    parts, layers = [], list[dict[int, Any]]()
    gaps: dict[str, list[Any]] = {"prefill": [], "decode": []}
    for begin in range(0, len(prompt), size):
        behind = 0
        if begin and not quiet:
            context.emit("prefill.boundary", prompt=number, at=begin, size=size)
        if begin and request.defect == "boundary-position":
            engine.forget()
        elif begin and request.defect == "boundary-token":
            behind = 1
        parts.append(engine.step(prompt[begin - behind : begin + size - behind][: len(prompt) - begin]))
        layers.append(engine.hidden() if request.hidden == "keep" else {})
        gaps["prefill"].append(engine.decided() if request.envelope in ("keep", "unchunked") else None)
    if not quiet:
        context.emit("prefill.end")
    prefill = engine.together(parts) if engine.has_logits else None
    hidden = {layer: engine.together([one[layer] for one in layers]) for layer in layers[0]}
    ids, rows = list[int](), list[Any]()
    last: Any = prefill
    given = list(fed) if fed is not None else None
    steps = len(given) if given is not None else steps
    while len(ids) < steps:
        mine = choose(engine.numbers(last[-1]), request.sampling, dice) if engine.has_logits else None
        ids.append(engine.agree(mine))
        if len(ids) == steps:
            break
        if not quiet:
            context.emit("decode.begin")
        last = engine.step([given[len(ids) - 1] if given is not None else ids[-1]])
        rows.append(last)
        gaps["decode"].append(engine.decided() if request.envelope in ("keep", "unchunked") else None)
        if not quiet:
            context.emit("decode.end")
    decode = engine.together(rows) if engine.has_logits and rows else None
    decided = {phase: engine.together(told) for phase, told in gaps.items() if told and told[0] is not None}
    return Answer(prefill, decode, ids, given or ids, hidden, decided)


def choose(logits: Any, sampling: str, dice: random.Random) -> int:
    """The next token: the best one (of equals the first), or one drawn by its probability."""
    import numpy as np

    if sampling == "greedy":
        return int(np.argmax(logits))
    weights = np.exp(logits - logits.max())
    return int(np.searchsorted(np.cumsum(weights), dice.random() * weights.sum()))


def keep(context: Any, name: str, values: Any) -> None:
    """Keep an array, where this rank has it."""
    if values is not None:
        context.keep(name, values)
