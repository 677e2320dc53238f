"""The same answers once more: in other orders of the same sums, with defects of known size, with a share changed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from .answer import Answer, answer, keep
from .engine import Engine
from .request import Request

SOME = 2
"""Orders in which a prompt is answered again where not all are asked; the next prompt takes the next ones."""
LOUDER = 1.5
"""By this the share of a rank is changed, to show that it takes part."""


def envelope(
    context: Any, engine: Engine, request: Request, prompt: Sequence[int], *, number: int, first: Answer, routing: Any
) -> None:
    """Answer again in every order that is allowed, or in some; what differs is what rounding may do."""
    chunks = sorted({1, max(1, len(prompt) // 2), len(prompt)} - {request.prefill_chunk or len(prompt)})
    if request.envelope == "unchunked":
        chunks = []  # where chunks are what is asked about, they are not what is allowed
    orders: list[tuple[str, int | None, AbstractContextManager[Any]]] = [
        (f"prefill in chunks of {chunk}", chunk, nullcontext()) for chunk in chunks
    ]
    for order in engine.orders():
        orders.append((order.words, None, order.inside()))
        if order.chunked and chunks:
            half = max(1, len(prompt) // 2)
            orders.append((f"{order.words}, prefill in chunks of {half}", half, order.inside()))
    again = partial(answer, context, engine, request, steps=0, quiet=True)
    for count, (words, chunk, inside) in enumerate(orders):
        if request.envelope == "some" and (count - SOME * number) % len(orders) >= SOME:
            continue
        with inside:
            other = again(prompt, number=number, fed=first.fed, chunk=chunk, routing=routing)
        _variant(context, count, words, other, number)


def sensitivity(
    context: Any,
    engine: Engine,
    request: Request,
    prompts: Sequence[Sequence[int]],
    fed: Sequence[Sequence[int]],
    *,
    sizes: Sequence[float],
    routings: Sequence[Any],
) -> None:
    """Answer again with defects of known size: what a run like this could have seen."""
    again = partial(answer, context, engine, request, steps=0, quiet=True)
    for count, size in enumerate(sizes):
        with engine.scaled(-1, 1 + size):
            for number, prompt in enumerate(prompts):
                other = again(prompt, number=number, fed=fed[number], routing=routings[number])
                keep(context, f"sensitivity.{count}.prefill.logits.{number}", other.prefill)
                keep(context, f"sensitivity.{count}.decode.logits.{number}", other.decode)
                for layer, values in _of_last(other.hidden):
                    context.keep(f"sensitivity.{count}.hidden.{layer}.{number}", values)
        context.emit("sensitivity", defect=count, size=size, what="the matrices of the last layer too large")


def _of_last(hidden: dict[str, Any]) -> list[tuple[str, Any]]:
    """What the last layer gave, and its parts."""
    last = max((int(name.partition(".")[0]) for name in hidden), default=0)
    return [(name, values) for name, values in sorted(hidden.items()) if int(name.partition(".")[0]) == last]


def influence(context: Any, engine: Engine, request: Request, prompt: Sequence[int], *, routing: Any) -> None:
    """Read the first prompt once more for each rank, whose share is changed meanwhile, and no other's."""
    again = partial(answer, context, engine, request, steps=0, quiet=True)
    for rank in range(context.size):
        changed: AbstractContextManager[None] = nullcontext()
        if rank == context.rank:
            context.emit("perturbed", number=rank, layer=0, factor=LOUDER)
            changed = engine.scaled(0, LOUDER)
        with changed:
            found = again(prompt, number=0, fed=[], routing=routing)
        keep(context, f"influence.{rank}.prefill.logits.0", found.prefill)


def _variant(context: Any, count: int, words: str, found: Answer, number: int) -> None:
    context.emit("envelope", number=count, prompt=number, order=words)
    keep(context, f"envelope.{count}.prefill.logits.{number}", found.prefill)
    keep(context, f"envelope.{count}.decode.logits.{number}", found.decode)
    for phase, gaps in found.decided.items():
        context.keep(f"envelope.{count}.{phase}.router.{number}", gaps)
    for layer, values in sorted(found.hidden.items()):
        context.keep(f"envelope.{count}.hidden.{layer}.{number}", values)
