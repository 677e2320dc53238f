"""A server that rounds otherwise while another answer is computed, and who else changes a text."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from math import exp, log
from typing import Any

import pytest

from harness.conformance import correct
from harness.conformance.answer import read
from harness.conformance.defects import in_whole
from harness.conformance.exchange import HTTPExchange
from harness.conformance.proxy import ProxyDefect, proxied
from harness.conformance.rows import ROWS
from tests.conformance.asking import ask

SEED = 6
"""Of prompts that have a close decision."""
WITH_LOGPROBS = 51
"""The same, with texts of which our server gives the likeliest tokens throughout."""
NOISE = 0.03
LAG = 1.0
"""Seconds for which the answer to a client that left is still computed."""


class RoundingHandler(correct.CorrectHandler):
    """Answers as a server that computes in batches."""

    live = 0
    lock = threading.Lock()

    def do_POST(self) -> None:  # noqa: N802 - http.server calls it
        with self.lock:
            RoundingHandler.live += 1
        try:
            super().do_POST()
        finally:
            with self.lock:
                RoundingHandler.live -= 1

    def _stream(self, asked: Any) -> None:
        try:
            super()._stream(asked)
        except ConnectionError:
            time.sleep(LAG)
            raise


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    plain = correct._candidates

    def candidates(context: bytes) -> list[tuple[str, float]]:
        ranked = plain(context)
        if RoundingHandler.live < 2:
            return ranked
        digest = hashlib.sha256(context + b"batch").digest()
        moved = [
            (char, value + (digest[place] - 127.5) / 127.5 * NOISE)
            for place, (char, value) in enumerate(ranked)
        ]
        total = log(sum(exp(value) for _, value in moved))
        found = ((char, value - total) for char, value in moved)
        return sorted(found, key=lambda item: (-item[1], item[0]))

    monkeypatch.setattr(correct, "_candidates", candidates)
    with correct.serving(RoundingHandler) as base:
        yield base
        # The next test must not begin beside what this one left.
        until = time.monotonic() + 10 * LAG
        while RoundingHandler.live and time.monotonic() < until:
            time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [SEED, WITH_LOGPROBS])
def test_a_close_decision_after_a_client_left_accuses_nobody(rounding: str, seed: int) -> None:
    """The answer is computed beside that of the client that left, and rounded otherwise."""
    kept: list[HTTPExchange] = []
    found = ask("disconnect", rounding, seed=seed, kept=kept)
    assert (found.word, found.about) == ("CANNOT TELL", "close"), found.fact
    assert bool(read(kept[1]).logprobs) == (seed == WITH_LOGPROBS)


def _other_text(value: Any) -> None:
    value["choices"][0]["text"] += "!"


def _changes(after: str, *, times: int) -> ProxyDefect:
    """Return what changes the text of so many plain requests after one that has some field."""
    left = 0

    def ask_for(fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal left
        left = times if after in fields else left
        return fields

    def whole(body: bytes) -> bytes:
        nonlocal left
        left -= 1
        return in_whole(_other_text)(body) if left >= 0 else body

    return ProxyDefect(does="", ask=ask_for, whole=whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "times", "word"),
    [(SEED, 1, "CANNOT TELL"), (SEED, 9, "VIOLATES"), (WITH_LOGPROBS, 1, "VIOLATES")],
)
def test_a_text_that_stays_another_accuses(seed: int, times: int, word: str) -> None:
    """Without log probabilities a second answer decides; with them, whether the tokens explain it."""
    with correct.serving() as base, proxied(base, _changes("stream", times=times)) as broken:
        found = ask("disconnect", broken, seed=seed)
    assert found.word == word, found.fact


@pytest.mark.parametrize("seed", [SEED, WITH_LOGPROBS])
def test_what_another_prompt_leaves_behind_is_seen(seed: int) -> None:
    """Also where the same prompt gets its own text again when it is asked once more."""
    with correct.serving() as base, proxied(base, ROWS["order"].defect) as broken:
        found = ask("order", broken, seed=seed)
    assert (found.word, found.about) == ("VIOLATES", "order"), found.fact
