"""A prompt's answer: prefill in chunks, then decode.

And the same answer once more: in other orders of the same sums, with defects of known size, with a
share changed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from .engine import OWN, ROUTER, InferenceEngine, Request, SumOrder


@dataclass(frozen=True)
class PromptAnswer:
    """What came of a prompt.

    Attributes:
        prefill, decode: logits, None on a rank without.
        ids: the tokens that were chosen.
        fed: those that were fed.
        hidden: what left each layer while the prompt was read, and what its router chose the best
            of, by their names.
        decided: of each phase by how much routers and indexers were decided.
        routed: the experts of each token that was read, `[tokens, routers, experts for each
            token]`, or None.
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
    engine: InferenceEngine,
    request: Request,
    prompt: Sequence[int],
    *,
    steps: int,
    number: int,
    fed: Sequence[int] | None = None,
    chunk: int | None = None,
    quiet: bool = False,
    routing: Any = None,
) -> PromptAnswer:
    """Prefill and decode one prompt from an empty cache; with `routing` through these experts."""
    size = (request.prefill_chunk if chunk is None else chunk) or len(prompt)
    # What is drawn has to be the same again.
    dice = random.Random(f"{request.seed} {number}")  # noqa: S311
    reading = _Reading(context, engine, request, quiet=quiet, routing=routing)
    engine.begin()
    prefill, hidden = reading.prefill(prompt, size, number=number)
    given = list(fed) if fed is not None else None
    steps = steps if given is None else len(given)
    ids, decode = reading.decode(prefill, steps, at=len(prompt), given=given, dice=dice)
    taken = engine.together(reading.routed) if reading.routed[0] is not None else None
    return PromptAnswer(prefill, decode, ids, given or ids, hidden, reading.decided, taken)


class _Reading:
    """The steps of an engine through one prompt.

    Attributes:
        routed: of each step the experts of each token, or None.
        decided: of each phase by how much routers and indexers were decided.
    """

    def __init__(
        self, context: Any, engine: InferenceEngine, request: Request, *, quiet: bool, routing: Any
    ) -> None:
        self._context = context
        self._engine = engine
        self._request = request
        self._quiet = quiet
        self._routing = routing
        self.routed: list[Any] = []
        self.decided: dict[str, Any] = {}

    def prefill(
        self, prompt: Sequence[int], size: int, *, number: int
    ) -> tuple[Any, dict[str, Any]]:
        """Read the prompt in chunks: its logits, None on a rank without, and what is kept of the
        layers.
        """
        engine = self._engine
        if not self._quiet:
            self._context.emit("prefill.begin")
        parts = []
        layers = []
        for begin in range(0, len(prompt), size):
            behind = 0
            if begin and not self._quiet:
                self._context.emit("prefill.boundary", prompt=number, at=begin, size=size)
            if begin and self._request.defect == "boundary-position":
                engine.forget()
            elif begin and self._request.defect == "boundary-token":
                behind = 1
            chunk = prompt[begin - behind : begin + size - behind][: len(prompt) - begin]
            parts.append(self._step(chunk, begin - behind))
            layers.append(_told(engine, self._request))
        self._note("prefill")
        if not self._quiet:
            self._context.emit("prefill.end")
        prefill = engine.together(parts) if engine.has_logits else None
        return prefill, {
            layer: engine.together([chunk[layer] for chunk in layers]) for layer in layers[0]
        }

    def decode(
        self, prefill: Any, steps: int, *, at: int, given: Sequence[int] | None, dice: random.Random
    ) -> tuple[list[int], Any]:
        """Choose so many tokens, feeding each or what is given: the tokens, and the logits behind
        what was fed.
        """
        engine = self._engine
        ids = list[int]()
        rows = list[Any]()
        last = prefill
        while len(ids) < steps:
            chosen = (
                choose(engine.numbers(last[-1]), self._request.sampling, dice)
                if engine.has_logits
                else None
            )
            ids.append(engine.agree(chosen))
            if len(ids) == steps:
                break
            if not self._quiet:
                self._context.emit("decode.begin")
            last = self._step(
                [given[len(ids) - 1] if given is not None else ids[-1]], at + len(ids) - 1
            )
            rows.append(last)
            if not self._quiet:
                self._context.emit("decode.end")
        self._note("decode")
        return ids, engine.together(rows) if engine.has_logits and rows else None

    def _step(self, ids: Sequence[int], at: int) -> Any:
        self._engine.take(None if self._routing is None else self._routing[at : at + len(ids)])
        logits = self._engine.step(ids)
        self.routed.append(self._engine.routed() if self._request.routing != OWN else None)
        return logits

    def _note(self, phase: str) -> None:
        if self._request.envelope in ("keep", "unchunked"):
            gaps = self._engine.decided(routers=self._request.routing == OWN)
            if gaps is not None:
                self.decided[phase] = gaps


def _told(engine: InferenceEngine, request: Request) -> dict[str, Any]:
    """Return what is kept of the layers in the last step, each by its name."""
    left = engine.hidden() if request.hidden != "none" else {}
    found = {
        name: state for name, state in left.items() if request.hidden == "parts" or name.isdecimal()
    }
    if request.routing != OWN:
        found |= {f"{layer}.{ROUTER}": scores for layer, scores in engine.scores().items()}
    return found


def choose(logits: Any, sampling: str, dice: random.Random) -> int:
    """Return the next token: the best one (of equals the first), or one drawn by its
    probability.
    """
    import numpy as np

    if sampling == "greedy":
        return int(np.argmax(logits))
    weights = np.exp(logits - logits.max())
    return int(np.searchsorted(np.cumsum(weights), dice.random() * weights.sum()))


def keep(context: Any, name: str, values: Any) -> None:
    """Keep an array, where this rank has it."""
    if values is not None:
        context.keep(name, values)


SOME = 2
"""Orders in which a prompt is answered again where not all are asked.

The next prompt takes the next ones.
"""
LOUDER = 1.5
"""By this the share of a rank is changed, to show that it takes part."""


def envelope(
    context: Any,
    engine: InferenceEngine,
    request: Request,
    prompts: Sequence[Sequence[int]],
    fed: Sequence[Sequence[int]],
    *,
    routings: Sequence[Any],
) -> None:
    """PromptAnswer again in every order that is allowed, or in some.

    What differs is what rounding may do.

    Each order is set up once, for all prompts: some make copies of every matrix.
    """
    again = partial(answer, context, engine, request, steps=0, quiet=True)
    orders = list(engine.orders())
    ways = [asked(request, prompt, number, orders) for number, prompt in enumerate(prompts)]
    for order in (None, *orders):
        with nullcontext() if order is None else order.inside():
            for number, prompt in enumerate(prompts):
                for variant in ways[number]:
                    if variant.order is order:
                        other = again(
                            prompt,
                            number=number,
                            fed=fed[number],
                            chunk=variant.chunk,
                            routing=routings[number],
                        )
                        _variant(context, variant, other, number)


@dataclass(frozen=True)
class Variant:
    """One of the answers to a prompt that are made again.

    Attributes:
        count: which it is, among those of its prompt.
        words: what is other.
        order: of the engine; None is its own.
        chunk: tokens of the prompt at a time; None as is asked.
    """

    count: int
    words: str
    order: SumOrder | None
    chunk: int | None


def asked(
    request: Request, prompt: Sequence[int], number: int, orders: Sequence[SumOrder]
) -> list[Variant]:
    """Those of a prompt: other chunks, each order, and what may be in both."""
    half = max(1, len(prompt) // 2)
    chunks = sorted({1, half, len(prompt)} - {request.prefill_chunk or len(prompt)})
    if request.envelope == "unchunked":
        chunks = []  # where chunks are what is asked about, they are not what is allowed
    ways: list[tuple[str, SumOrder | None, int | None]] = [
        (f"prefill in chunks of {chunk}", None, chunk) for chunk in chunks
    ]
    for order in orders:
        ways.append((order.words, order, None))
        if order.chunked and chunks:
            ways.append((f"{order.words}, prefill in chunks of {half}", order, half))
    found = [
        Variant(count, words, order, chunk) for count, (words, order, chunk) in enumerate(ways)
    ]
    if request.envelope == "some":
        return [variant for variant in found if (variant.count - SOME * number) % len(found) < SOME]
    return found


def sensitivity(
    context: Any,
    engine: InferenceEngine,
    request: Request,
    prompts: Sequence[Sequence[int]],
    fed: Sequence[Sequence[int]],
    *,
    sizes: Sequence[float],
    routings: Sequence[Any],
) -> None:
    """PromptAnswer again with defects of known size: what a run like this could have seen."""
    again = partial(answer, context, engine, request, steps=0, quiet=True)
    for count, size in enumerate(sizes):
        with engine.scaled(-1, 1 + size):
            for number, prompt in enumerate(prompts):
                other = again(prompt, number=number, fed=fed[number], routing=routings[number])
                keep(context, f"sensitivity.{count}.prefill.logits.{number}", other.prefill)
                keep(context, f"sensitivity.{count}.decode.logits.{number}", other.decode)
                for layer, values in _of_last(other.hidden):
                    context.keep(f"sensitivity.{count}.hidden.{layer}.{number}", values)
        context.emit(
            "sensitivity", defect=count, size=size, what="the matrices of the last layer too large"
        )


def _of_last(hidden: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return what the last layer gave, and its parts."""
    last = max((int(name.partition(".")[0]) for name in hidden), default=0)
    return [
        (name, values)
        for name, values in sorted(hidden.items())
        if int(name.partition(".")[0]) == last
    ]


def influence(
    context: Any, engine: InferenceEngine, request: Request, prompt: Sequence[int], *, routing: Any
) -> None:
    """Read the first prompt once more for each rank, whose share is changed meanwhile, and no
    other's.
    """
    again = partial(answer, context, engine, request, steps=0, quiet=True)
    for rank in range(context.size):
        changed: AbstractContextManager[None] = nullcontext()
        if rank == context.rank:
            context.emit("perturbed", number=rank, layer=0, factor=LOUDER)
            changed = engine.scaled(0, LOUDER)
        with changed:
            found = again(prompt, number=0, fed=[], routing=routing)
        keep(context, f"influence.{rank}.prefill.logits.0", found.prefill)


def _variant(context: Any, variant: Variant, found: PromptAnswer, number: int) -> None:
    count = variant.count
    context.emit("envelope", number=count, prompt=number, order=variant.words)
    keep(context, f"envelope.{count}.prefill.logits.{number}", found.prefill)
    keep(context, f"envelope.{count}.decode.logits.{number}", found.decode)
    for phase, gaps in found.decided.items():
        context.keep(f"envelope.{count}.{phase}.router.{number}", gaps)
    for layer, values in sorted(found.hidden.items()):
        context.keep(f"envelope.{count}.hidden.{layer}.{number}", values)
