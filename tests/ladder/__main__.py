"""`python -m tests.ladder`: each defect of each engine, at several seeds and world sizes, and as many clean runs."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.checks.equivalent import EquivalentCheck, parity_of
from harness.subjects.inference import AT_ONE
from tests.ladder.drawn import BIASED, folder
from tests.ladder.sessions import CHECK, Session, Worlds, judged

# What each defect is tried with: the models that have what it is about.
DENSE = ("stale-position", "half-message", "swapped-heads", "dropped-layer", "rope-base", "scaled-layer")
CASES = {
    "hf-tensor": {BIASED: ("bias-per-rank", "fused-interleave", *DENSE), "minimax": ("norm-split", "other-router")},
    "hf-pipeline": {"qwen2": DENSE, "gpt2": ("fused-interleave",), "qwen3-moe": ("other-router",)},
    "mlx-tensor": {BIASED: ("bias-per-rank", "fused-interleave", *DENSE), "minimax": ("norm-split", "other-router")},
    "mlx-pipeline": {"qwen2": DENSE, "qwen3-moe": ("other-router",)},
}
OFFERED = {
    "hf-tensor": ("llama", "llama-tied", "qwen2", "gemma2", "mixtral", "qwen3-moe", "minimax"),
    "hf-pipeline": ("llama", "llama-tied", "gpt2", "qwen2", "gemma2", "mixtral", "qwen3-moe", "minimax"),
    "mlx-tensor": ("llama", "llama-tied", "qwen2", "qwen3-moe", "minimax"),
    "mlx-pipeline": ("qwen2", "qwen3-moe"),
}
LENGTHS, CHUNK, STEPS = (7, 8, 17), 8, 3
MANY = 5
"""Seeds whose prompts are asked of one model."""


def asked(seeds: range, dtype: str) -> dict[str, Any]:
    """What each seed asks: prompts around the chunk of the prefill, and what is fed after them."""
    prompts, teacher = [], []
    for seed in seeds:
        dice = random.Random(seed)
        prompts += [[dice.randrange(20, 520) for _ in range(length)] for length in LENGTHS]
        teacher += [[dice.randrange(20, 520) for _ in range(STEPS)] for _ in LENGTHS]
    return {"prompts": prompts, "teacher": teacher, "dtype": dtype, "hidden": "keep"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ladder", description=__doc__)
    parser.add_argument("--engines", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--models", nargs="+", help="of those that the engine offers (default: all)")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=100, help="the first seed")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--clean", action="store_true", help="every model that the engine offers, with no defect")
    given = parser.parse_args()
    check = CHECK.validate_python({"id": "same", "kind": "equivalent", "ranks": "every", "against": "reference"})
    assert isinstance(check, EquivalentCheck)
    with tempfile.TemporaryDirectory() as text, Worlds() as worlds:
        for engine in given.engines:
            cases = dict.fromkeys(OFFERED[engine], ()) if given.clean else CASES[engine]
            for model, defects in cases.items():
                if given.models and model not in given.models:
                    continue
                counts: dict[tuple[str, int], Counter[str]] = {}
                for begin in range(given.first, given.first + given.seeds, MANY):
                    seeds = range(begin, min(begin + MANY, given.first + given.seeds))
                    climbed = climb(
                        worlds,
                        check,
                        engine=engine,
                        model=folder(model, seeds.start, Path(text)),
                        defects=defects,
                        sizes=given.ranks,
                        seeds=seeds,
                        dtype=given.dtype,
                    )
                    for defect, size, word in climbed:
                        counts.setdefault((defect, size), Counter())[word] += 1
                for (defect, size), words in sorted(counts.items(), key=str):
                    row = {"engine": engine, "model": model, "dtype": given.dtype, "ranks": size, "defect": defect}
                    print(json.dumps({**row, **dict(words.most_common())}), flush=True)


def climb(
    worlds: Worlds,
    check: EquivalentCheck,
    *,
    engine: str,
    model: Path,
    defects: tuple[str, ...],
    sizes: list[int],
    seeds: range,
    dtype: str,
) -> Iterator[tuple[str, int, str]]:
    """What is said of each session: defect, world size, and a word with the layer that is named."""
    family, given = engine.partition("-")[0], asked(seeds, dtype)
    whole = {"number": 0, "model": str(model), "with": given | {"envelope": "keep"}}
    (reference,) = worlds.run(f"{family}-single", size=1, sessions=[whole])
    for size in sizes:
        plan = [defect for defect in ("none", *defects) if size > 1 or defect in ("none", *AT_ONE)]
        sessions = [
            {"number": number, "model": str(model), "with": given | {"prefill_chunk": CHUNK, "defect": defect}}
            for number, defect in enumerate(plan)
        ]
        for defect, session in zip(plan, worlds.run(engine, size=size, sessions=sessions), strict=True):
            for place, seed in enumerate(seeds):
                own = range(place * len(LENGTHS), (place + 1) * len(LENGTHS))
                word = say(check, session.of(own), reference.of(own))
                yield defect, size, word
                if defect == "none" and not word.startswith(("EQUIVALENT", "IDENTICAL")):
                    print(f"{engine} {model.name} {dtype} {size} seed {seed}: {word}", file=sys.stderr, flush=True)


def say(check: EquivalentCheck, session: Session, reference: Session) -> str:
    """The word of a session: INCONCLUSIVE where the reference cannot answer, else that of its worst rank."""
    again = judged(check, reference, reference, arm="reference")
    if doubts := list(check.doubts(again)):
        return f"INCONCLUSIVE: {doubts[0][1]}"
    seen = judged(check, session, reference)
    parts = check.judge(seen).ranks
    if any(part.uncompared or part.missing for part in parts):
        return f"UNCOMPARED: {next(part.reason for part in parts if part.uncompared or part.missing)}"
    bad = [part for part in parts if not part.passed]
    parity = parity_of(check, seen)
    assert parity is not None
    if bad:
        layers = sorted(one.layer.layer for one in parity.ranks if one.layer is not None)
        return f"DIVERGENT in layer {layers[0]}" if layers else "DIVERGENT after the layers"
    words = {str(part.observed).partition(":")[0] for part in parts}
    return "EQUIVALENT" if "EQUIVALENT" in words else "IDENTICAL"


if __name__ == "__main__":
    main()
