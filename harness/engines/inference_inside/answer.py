"""One prompt's answer: prefill in chunks, decode, and what came of both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .engine import ROUTER, Engine
from .request import OWN, Request


@dataclass(frozen=True)
class Answer:
    """What came of a prompt.

    Attributes:
        prefill, decode: logits, None on a rank without.
        ids: the tokens that were chosen.
        fed: those that were fed.
        hidden: what left each layer while the prompt was read, and what its router chose the best of, by their names.
        decided: of each phase by how much routers and indexers were decided.
        routed: the experts of each token that was read, `[tokens, routers, experts for each token]`, or None.
    """

    prefill: Any
    decode: Any
    ids: list[int]
    fed: list[int]
    hidden: dict[str, Any]
    decided: dict[str, Any]
    routed: Any


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
    routing: Any = None,
) -> Answer:
    """Prefill and decode one prompt from an empty cache; with `routing` through these experts."""
    size = (request.prefill_chunk if chunk is None else chunk) or len(prompt)
    dice = random.Random(f"{request.seed} {number}")  # noqa: S311 - what is drawn has to be the same again
    engine.begin()
    if not quiet:
        context.emit("prefill.begin")
    parts, layers, routed = [], list[dict[str, Any]](), list[Any]()

    def step(ids: Sequence[int], at: int) -> Any:
        engine.take(None if routing is None else routing[at : at + len(ids)])
        logits = engine.step(ids)
        routed.append(engine.routed() if request.routing != OWN else None)
        return logits

    decided = dict[str, Any]()

    def tell(phase: str) -> None:
        if request.envelope in ("keep", "unchunked"):
            decided[phase] = engine.decided(routers=request.routing == OWN)

    for begin in range(0, len(prompt), size):
        behind = 0
        if begin and not quiet:
            context.emit("prefill.boundary", prompt=number, at=begin, size=size)
        if begin and request.defect == "boundary-position":
            engine.forget()
        elif begin and request.defect == "boundary-token":
            behind = 1
        parts.append(step(prompt[begin - behind : begin + size - behind][: len(prompt) - begin], begin - behind))
        layers.append(_told(engine, request))
    tell("prefill")
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
        last = step([given[len(ids) - 1] if given is not None else ids[-1]], len(prompt) + len(ids) - 1)
        rows.append(last)
        if not quiet:
            context.emit("decode.end")
    tell("decode")
    decode = engine.together(rows) if engine.has_logits and rows else None
    decided = {phase: told for phase, told in decided.items() if told is not None}
    taken = engine.together(routed) if routed[0] is not None else None
    return Answer(prefill, decode, ids, given or ids, hidden, decided, taken)


def _told(engine: Engine, request: Request) -> dict[str, Any]:
    """What is kept of the layers in the last step, each by its name."""
    left = engine.hidden() if request.hidden != "none" else {}
    found = {name: state for name, state in left.items() if request.hidden == "parts" or name.isdecimal()}
    if request.routing != OWN:
        found |= {f"{layer}.{ROUTER}": scores for layer, scores in engine.scores().items()}
    return found


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
