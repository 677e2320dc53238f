"""Answers to prompts: prefill in chunks, then decode.

And the same answers once more: in other orders of the same sums, with defects of known size, with a
share changed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from .engine import OWN, ROUTER, InferenceEngine, Request, SumOrder

SOME = 2
"""Orders in which a prompt is answered again where not all are asked.

The next prompt takes the next ones.
"""
LOUDER = 1.5
"""By this the share of a rank is changed, to show that it takes part."""


@dataclass(frozen=True, kw_only=True)
class AskedPrompt:
    """Prompt, and what is fed after it.

    Attributes:
        number: which of the session's prompts it is.
        ids: its tokens.
        fed: what is fed after it, whatever is chosen; None where it is what was chosen.
        routing: the experts that its tokens go through; None where the routers choose.
    """

    number: int
    ids: Sequence[int]
    fed: Sequence[int] | None = None
    routing: Any = None


@dataclass(frozen=True)
class PromptAnswer:
    """Logits and tokens that came of a prompt.

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
    fed: Sequence[int]
    hidden: dict[str, Any]
    decided: dict[str, Any]
    routed: Any


class PromptSession:
    """Session in which an engine answers prompts, once and again.

    Args:
        context: of the rank, which keeps and tells.
        engine: with its model loaded.
        request: what is asked of all prompts.
    """

    def __init__(self, context: Any, engine: InferenceEngine, request: Request) -> None:
        self._context = context
        self._engine = engine
        self._request = request

    def answer(
        self, prompt: AskedPrompt, *, steps: int, chunk: int | None = None, quiet: bool = False
    ) -> PromptAnswer:
        """Prefill and decode one prompt from an empty cache.

        Args:
            prompt: with the experts to go through, where it has them.
            steps: how many tokens are chosen, unless it has what is fed.
            chunk: tokens of the prompt at a time; None as the request has it.
            quiet: whether nothing is told.
        """
        engine = self._engine
        size = (self._request.prefill_chunk if chunk is None else chunk) or len(prompt.ids)
        # What is drawn has to be the same again.
        dice = random.Random(f"{self._request.seed} {prompt.number}")  # noqa: S311
        reading = _Reading(_Silence() if quiet else self._context, engine, self._request, prompt)
        engine.begin()
        prefill, hidden = reading.prefill(size)
        ids, decode = reading.decode(
            prefill, steps if prompt.fed is None else len(prompt.fed), dice=dice
        )
        taken = engine.together(reading.routed) if reading.routed[0] is not None else None
        return PromptAnswer(prefill, decode, ids, prompt.fed or ids, hidden, reading.decided, taken)

    def envelope(self, prompts: Sequence[AskedPrompt]) -> None:
        """Answer again in every order that is allowed, or in some.

        What differs is what rounding may do.

        Each order is set up once, for all prompts: some make copies of every matrix.
        """
        orders = list(self._engine.orders())
        variants = [asked(self._request, prompt, orders) for prompt in prompts]
        for order in (None, *orders):
            with nullcontext() if order is None else order.inside():
                for prompt, ways in zip(prompts, variants, strict=True):
                    for variant in ways:
                        if variant.order is order:
                            self._vary(prompt, variant)

    def _vary(self, prompt: AskedPrompt, variant: Variant) -> None:
        answer = self.answer(prompt, steps=0, chunk=variant.chunk, quiet=True)
        count = variant.count
        self._context.emit("envelope", number=count, prompt=prompt.number, order=variant.words)
        self.keep(answer, prompt.number, prefix=f"envelope.{count}.")

    def sensitivity(self, prompts: Sequence[AskedPrompt], *, sizes: Sequence[float]) -> None:
        """Answer again with defects of known size: what a run like this could have seen."""
        for count, size in enumerate(sizes):
            with self._engine.scaled(-1, 1 + size):
                for prompt in prompts:
                    answer = self.answer(prompt, steps=0, quiet=True)
                    of_last = replace(answer, hidden=dict(_of_last(answer.hidden)), decided={})
                    self.keep(of_last, prompt.number, prefix=f"sensitivity.{count}.")
            self._context.emit(
                "sensitivity",
                defect=count,
                size=size,
                what="relative error in the weights of the last layer",
            )

    def influence(self, prompt: AskedPrompt) -> None:
        """Read a prompt once more for each rank, whose share is changed meanwhile, and no
        other's.
        """
        for rank in range(self._context.size):
            changed: AbstractContextManager[None] = nullcontext()
            if rank == self._context.rank:
                self._context.emit("perturbed", number=rank, layer=0, factor=LOUDER)
                changed = self._engine.scaled(0, LOUDER)
            with changed:
                answer = self.answer(replace(prompt, fed=[]), steps=0, quiet=True)
            if answer.prefill is not None:
                self._context.keep(
                    f"influence.{rank}.prefill.logits.{prompt.number}", answer.prefill
                )

    def keep(self, answer: PromptAnswer, number: int, *, prefix: str = "") -> None:
        """Keep the arrays of an answer that this rank has."""
        for phase, logits in (("prefill", answer.prefill), ("decode", answer.decode)):
            if logits is not None:
                self._context.keep(f"{prefix}{phase}.logits.{number}", logits)
        for phase, gaps in answer.decided.items():
            self._context.keep(f"{prefix}{phase}.router.{number}", gaps)
        for layer, values in sorted(answer.hidden.items()):
            self._context.keep(f"{prefix}hidden.{layer}.{number}", values)


class _Silence:
    """Stands for a rank's context where nothing is told."""

    def emit(self, event: str, **values: object) -> None:
        """Tell nothing."""


class _Reading:
    """Steps of an engine through one prompt.

    Attributes:
        routed: of each step the experts of each token, or None.
        decided: of each phase by how much routers and indexers were decided.
    """

    def __init__(
        self,
        context: Any,
        engine: InferenceEngine,
        request: Request,
        prompt: AskedPrompt,
    ) -> None:
        self._context = context
        self._engine = engine
        self._request = request
        self._prompt = prompt
        self.routed: list[Any] = []
        self.decided: dict[str, Any] = {}

    def prefill(self, size: int) -> tuple[Any, dict[str, Any]]:
        """Read the prompt in chunks: its logits, None on a rank without, and what is kept of the
        layers.
        """
        engine = self._engine
        ids = self._prompt.ids
        self._context.emit("prefill.begin")
        parts = []
        layers = []
        for begin in range(0, len(ids), size):
            behind = 0
            if begin:
                self._context.emit(
                    "prefill.boundary", prompt=self._prompt.number, at=begin, size=size
                )
                if self._request.defect == "boundary-position":
                    engine.forget()
                elif self._request.defect == "boundary-token":
                    behind = 1
            chunk = ids[begin - behind : begin + size - behind][: len(ids) - begin]
            parts.append(self._step(chunk, begin - behind))
            layers.append(self._of_layers())
        self._note("prefill")
        self._context.emit("prefill.end")
        prefill = engine.together(parts) if engine.has_logits else None
        return prefill, {
            layer: engine.together([chunk[layer] for chunk in layers]) for layer in layers[0]
        }

    def decode(self, prefill: Any, steps: int, *, dice: random.Random) -> tuple[list[int], Any]:
        """Choose so many tokens, feeding each or what is given: the tokens, and the logits behind
        what was fed.
        """
        engine = self._engine
        fed = self._prompt.fed
        ids = list[int]()
        rows = list[Any]()
        last = prefill
        while len(ids) < steps:
            chosen = None
            if engine.has_logits:
                chosen = choose(engine.numbers(last[-1]), self._request.sampling, dice)
            ids.append(engine.agree(chosen))
            if len(ids) == steps:
                break
            self._context.emit("decode.begin")
            behind = len(ids) - 1
            last = self._step(
                [ids[-1] if fed is None else fed[behind]], len(self._prompt.ids) + behind
            )
            rows.append(last)
            self._context.emit("decode.end")
        self._note("decode")
        return ids, engine.together(rows) if engine.has_logits and rows else None

    def _step(self, ids: Sequence[int], at: int) -> Any:
        routing = self._prompt.routing
        self._engine.take(None if routing is None else routing[at : at + len(ids)])
        logits = self._engine.step(ids)
        self.routed.append(self._engine.routed() if self._request.routing != OWN else None)
        return logits

    def _note(self, phase: str) -> None:
        if self._request.envelope in ("keep", "unchunked"):
            gaps = self._engine.decided(routers=self._request.routing == OWN)
            if gaps is not None:
                self.decided[phase] = gaps

    def _of_layers(self) -> dict[str, Any]:
        """Return what is kept of the layers in the last step, each by its name."""
        asked_for = self._request.hidden
        states = self._engine.hidden() if asked_for != "none" else {}
        kept = {
            name: state
            for name, state in states.items()
            if asked_for == "parts" or name.isdecimal()
        }
        if self._request.routing != OWN:
            kept |= {f"{layer}.{ROUTER}": scores for layer, scores in self._engine.scores().items()}
        return kept


def choose(logits: Any, sampling: str, dice: random.Random) -> int:
    """Return the next token: the best one (of equals the first), or one drawn by its
    probability.
    """
    import numpy as np

    if sampling == "greedy":
        return int(np.argmax(logits))
    weights = np.exp(logits - logits.max())
    return int(np.searchsorted(np.cumsum(weights), dice.random() * weights.sum()))


@dataclass(frozen=True)
class Variant:
    """Another way to answer a prompt again.

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


def asked(request: Request, prompt: AskedPrompt, orders: Sequence[SumOrder]) -> list[Variant]:
    """Return the variants of a prompt: other chunks, each order, and what may be in both."""
    variants = [
        Variant(count, *way) for count, way in enumerate(_ways(request, len(prompt.ids), orders))
    ]
    if request.envelope != "some":
        return variants
    # Each prompt goes on where the one before it ended.
    many = len(variants)
    return [variant for variant in variants if (variant.count - SOME * prompt.number) % many < SOME]


def _ways(
    request: Request, length: int, orders: Sequence[SumOrder]
) -> Iterator[tuple[str, SumOrder | None, int | None]]:
    half = max(1, length // 2)
    chunks = sorted({1, half, length} - {request.prefill_chunk or length})
    if request.envelope == "unchunked":
        chunks = []  # where chunks are what is asked about, they are not what is allowed
    for chunk in chunks:
        yield f"prefill in chunks of {chunk}", None, chunk
    for order in orders:
        yield order.words, order, None
        if order.chunked and chunks:
            yield f"{order.words}, prefill in chunks of {half}", order, half


def _of_last(hidden: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what the last layer gave, and its parts."""
    numbers = {name: int(name.partition(".")[0]) for name in hidden}
    last = max(numbers.values(), default=0)
    return ((name, values) for name, values in hidden.items() if numbers[name] == last)
