"""What splitting a model costs: tokens per second of teacher-forced prefill and of decoding, over ranks and whole.

Whole and split are measured in turn, on the same cores and with one thread each; only their ratio says something, and
that on a quiet machine alone: beside other work four ranks get four shares of the cores, and the whole model one.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

from harness.history import History
from harness.models import cached
from tests.subjects.worlds import Worlds

MODEL, TOKENS, STEPS, PROMPTS = "llama", 256, 16, 6
CASES = (("hf-tensor", 4), ("hf-pipeline", 4))
WHOLE = "hf-single"


def measure(*, rounds: int = 3, prompts: int = PROMPTS) -> dict[str, dict[str, float]]:
    """Tokens per second of each phase of each case, and the ratio to the whole model's in the same rounds."""
    found: dict[str, dict[str, list[float]]] = {}
    with Worlds() as worlds:
        for _ in range(rounds):
            for engine, size in ((WHOLE, 1), *CASES):
                history = worlds.run(engine, size=size, model=cached(MODEL), **asked(prompts))
                for phase, tokens in (("prefill", TOKENS), ("decode", 1)):
                    speeds = [tokens / seconds for seconds in times(history, phase)]
                    found.setdefault(f"{engine}-{size}", {}).setdefault(phase, []).extend(speeds)
    whole = found[f"{WHOLE}-1"]
    figures = {}
    for name, phases in found.items():
        figures[name] = {f"{phase}_tokens_per_second": statistics.median(speeds) for phase, speeds in phases.items()}
        for phase, speeds in phases.items():
            figures[name][f"{phase}_ratio"] = statistics.median(speeds) / statistics.median(whole[phase])
    return figures


def asked(prompts: int) -> dict[str, Any]:
    """Prompts of one length, and what is fed after each."""
    ids = [[20 + (7 * place + 31 * number) % 500 for place in range(TOKENS)] for number in range(prompts)]
    return {"prompts": ids, "teacher": [one[:STEPS] for one in ids]}


def times(history: History, phase: str) -> list[float]:
    """Seconds from where the first rank began until the last one had ended; the first prompt warms up."""
    begins, ends = (
        [[seen.event.ns for seen in history.said(rank, f"{phase}.{end}")] for rank in range(history.size)]
        for end in ("begin", "end")
    )
    together = zip(zip(*begins, strict=True), zip(*ends, strict=True), strict=True)
    return [(max(last) - min(first)) / 1e9 for first, last in together][1:]


def show(figures: dict[str, dict[str, float]]) -> None:
    """Print it for people."""
    print(f"{MODEL}, prompts of {TOKENS} tokens, one thread each; tokens per second, and of the whole model's")
    print(f"  on {os.cpu_count()} cores at load {os.getloadavg()[0]:.1f}: above 4, others took part")
    for name, one in figures.items():
        speeds = {phase: one[f"{phase}_tokens_per_second"] for phase in ("prefill", "decode")}
        print(
            f"  {name:<14} "
            + ", ".join(f"{phase} {speed:.0f} ({one[f'{phase}_ratio']:.2f})" for phase, speed in speeds.items())
        )
