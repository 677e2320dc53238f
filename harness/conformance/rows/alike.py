"""Choices that are the same text where the model would sample several: a sample that was copied."""

from __future__ import annotations

from typing import Final

from harness.conformance.answer import Answer
from harness.conformance.exchange import HTTPRequest
from harness.conformance.rows.row import (
    LEAST_SAMPLED,
    Asking,
    Judged,
    honoured,
    one,
    shown,
)

SINGLES: Final = 4
"""Samples that are asked one by one, to measure whether the model repeats itself."""
PAIRS: Final = 2
"""Further pairs of choices before a server is accused."""


def demand_unlike(pair: HTTPRequest, single: HTTPRequest, answer: Answer) -> Asking[None]:
    """Demand that two sampled choices are not copies of each other.

    A model that is sure of its text says it twice. So where the choices are alike, the same sample
    is asked alone, and only a server whose single samples all differ is accused.

    Args:
        pair: asks for two choices.
        single: asks for one.
        answer: to `pair`.
    """
    if not _is_copied(answer):
        return
    singles: set[str] = set()
    for _ in range(SINGLES):
        singles.add((yield from one(single)).text)
    if len(singles) < SINGLES:
        return
    for _ in range(PAIRS):
        again = yield from honoured(pair)
        if not _is_copied(again):
            return
    mode = pair.label
    fact = (
        f"{mode}: both choices are the same text in {PAIRS + 1} requests, such as"
        f" {shown(answer.text)}, and {SINGLES} single samples all differ"
    )
    raise Judged("VIOLATES", "alike", fact, [pair] * (PAIRS + 1))


def _is_copied(answer: Answer) -> bool:
    texts = {choice.text for choice in answer.choices.values()}
    return len(texts) == 1 and len(answer.text) >= LEAST_SAMPLED
