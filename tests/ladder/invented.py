"""`python -m tests.ladder.invented`: defects that are not among the ready ones, and what
`equivalent` says of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.checks.equivalent import EquivalentCheck, parity_of, smallest_seen
from harness.engines.inference_inside.stages import share
from tests.ladder.__main__ import doubt_of, grouped, offer, read, say
from tests.ladder.cases import CHUNK, CLEAN, LAYERS, asked, at, offered, prompts_each
from tests.ladder.drawn import BIASED, folder
from tests.ladder.sessions import CHECK, RankEnded, Session, Worlds, judged

ROTATED = ("rope-twice", "restarted-positions", "late-single-position")
OF_ANY = (
    "mask-at-border",
    "other-group",
    "rounded-message",
    "stale-slot",
    "norm-skipped",
    "vocabulary-order",
)
EPSILON = ("other-epsilon",)
INVENTED = {
    "hf-tensor": {
        BIASED: (
            *ROTATED,
            *OF_ANY,
            *EPSILON,
            "summed-twice",
            "gathered-in-another-order",
            "no-bias",
        ),
        "gemma2": ("other-gelu", "embedding-unscaled", "window-short", "norm-skipped"),
        "qwen3-moe": ("unweighted-experts",),
    },
    "hf-pipeline": {
        "qwen2": (*ROTATED, *OF_ANY, *EPSILON, "no-bias"),
        "gpt2": ("other-gelu", *EPSILON),
        "gemma2": ("other-gelu", "embedding-unscaled", "window-short", "norm-skipped"),
        "qwen3-moe": ("unweighted-experts",),
    },
    "mlx-tensor": {
        BIASED: (*ROTATED, *OF_ANY, *EPSILON, "summed-twice", "no-bias"),
        "qwen3-moe": ("unweighted-experts",),
    },
    "mlx-pipeline": {
        "qwen2": (*ROTATED, *OF_ANY, *EPSILON, "no-bias"),
        "qwen3-moe": ("unweighted-experts",),
    },
}
# In the code of every rank; the others are on the last one, or in its part of a sum.
EVERYWHERE = ("restarted-positions", "late-single-position")
# Rounding to 16 bits is no defect in 16 bits; the last of three stages has a layer without a
# window.
NONE = (("rounded-message", "bfloat16"), ("window-short", "hf-pipeline", 3))
AFTER = ("norm-skipped", "vocabulary-order", "gathered-in-another-order")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ladder.invented", description=__doc__)
    parser.add_argument("--engines", nargs="+", default=list(INVENTED), choices=list(INVENTED))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 3])
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"]
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=300, help="the first seed")
    parser.add_argument(
        "--folder",
        type=Path,
        required=True,
        help="models, references, and rows.jsonl: it is gone on",
    )
    parser.add_argument(
        "--table", action="store_true", help="run nothing: print what rows.jsonl holds"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    rows = given.folder / "rows.jsonl"
    if not given.table:
        with rows.open("a") as file:
            for row in soak(given, read(rows)):
                print(json.dumps(row), file=file, flush=True)
    print("\n".join(table(read(rows))))


def soak(given: argparse.Namespace, done: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows of every world that has none yet."""
    check = CHECK.validate_python(
        {
            "id": "same",
            "kind": "equivalent",
            "ranks": "every",
            "against": "reference",
            "middle": 1.25,
            "layers": 3,
        }
    )
    assert isinstance(check, EquivalentCheck)
    seeds = range(given.first, given.first + given.seeds)
    there = {tuple(row[key] for key in ("engine", "model", "dtype", "ranks")) for row in done}
    with Worlds() as worlds:
        for dtype in given.dtypes:
            for size in given.ranks:
                for engine in given.engines:
                    for model, names in INVENTED[engine].items():
                        key = (engine, model, dtype, size)
                        if key in there or not offered(engine, model, ranks=size, dtype=dtype):
                            continue
                        rung = {"engine": engine, "model": model, "dtype": dtype, "ranks": size}
                        for row in tried(
                            worlds, check, rung, names=names, seeds=seeds, below=given.folder
                        ):
                            yield {**rung, **row}


def tried(
    worlds: Worlds,
    check: EquivalentCheck,
    rung: dict[str, Any],
    *,
    names: tuple[str, ...],
    seeds: range,
    below: Path,
) -> Iterator[dict[str, Any]]:
    """What is said of each defect with the prompt of each seed."""
    engine, size, dtype = rung["engine"], rung["ranks"], rung["dtype"]
    wanted = [
        CLEAN,
        *(name for name in names if (name, dtype) not in NONE and (name, engine, size) not in NONE),
    ]
    model, given = folder(rung["model"], seeds.start, below), asked(seeds, rung["model"], dtype)
    family = engine.partition("-")[0]
    whole = {"number": 0, "model": str(model), "with": given | {"envelope": "keep"}}
    reference = worlds.reference(
        f"{family}-single", whole, file=below / f"{family}-{model.name}-{dtype}.reference"
    )
    offered_to_ranks = below / f"{family}-{model.name}-{dtype}-offered"
    offer(reference, offered_to_ranks)
    sessions = [
        {
            "number": number,
            "model": str(model),
            "inputs": {"reference": str(offered_to_ranks)},
            "with": given | {"prefill_chunk": CHUNK},
            "invented": None if name == CLEAN else name,
        }
        for number, name in enumerate(wanted)
    ]
    try:
        found = worlds.run(at(engine, size), size=size, sessions=sessions)
    except RankEnded as error:
        print(f"{rung}: {error}", file=sys.stderr, flush=True)
        return
    count = prompts_each(rung["model"], dtype)
    for place, seed in enumerate(seeds):
        own = range(place * count, (place + 1) * count)
        expected = reference.of(own)
        doubt = doubt_of(check, expected)
        for name, session in zip(wanted, found, strict=True):
            word, far = say(check, session.of(own), expected)
            yield {"defect": name, "seed": seed, "said": doubt or word, "far": far} | told(
                check, session.of(own), expected
            )


def told(check: EquivalentCheck, session: Session, reference: Session) -> dict[str, Any]:
    """What a report says beside the word: the smallest defect that would have been seen, and each
    rank's complaint.
    """
    seen = judged(check, session, reference)
    parity = parity_of(check, seen)
    assert parity is not None
    assert seen.reference is not None
    phases = [
        {
            phase: round(one.times(parity.phases[phase], check._slack), 3)
            for phase, one in rank.phases.items()
        }
        for rank in parity.ranks
        if rank.keeps
    ]
    reasons = [str(part.reason or part.observed) for part in check.judge(seen).ranks]
    return {"smallest": smallest_seen(seen.reference, parity), "times": phases, "reasons": reasons}


def expected_layer(engine: str, name: str, *, ranks: int) -> str:
    """Where a defect begins: a layer, or after all of them."""
    if name in AFTER:
        return "after the layers"
    if name in EVERYWHERE or engine.endswith("tensor") or name == "embedding-unscaled":
        return "in layer 0"
    begin, end = share(LAYERS, size=ranks, rank=0 if engine.startswith("mlx") else ranks - 1)
    return f"in layer {LAYERS - (end - begin)}"


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """How many seeds of each were DIVERGENT at the right place, and what was said of the others."""
    for (engine, model, dtype, ranks, name), own in grouped(
        rows, "engine", "model", "dtype", "ranks", "defect"
    ):
        right = (
            "clean" if name == CLEAN else f"DIVERGENT {expected_layer(engine, name, ranks=ranks)}"
        )
        words = Counter(
            "right" if row["said"] == right or (name == CLEAN and row["said"] in ("EQUIVALENT", "IDENTICAL"))
            else row["said"]
            for row in own
        )  # fmt: skip
        others = ", ".join(
            f"{many} x {word}" for word, many in words.most_common() if word != "right"
        )
        least = min(
            (max(one.values()) for row in own for one in [_worst(row["times"])] if one), default=0.0
        )
        start = f"{engine:12} {model:11} {dtype:8} {ranks} {name:26} {words['right']} of {len(own)}"
        yield f"{start}  worst rank at least {least:g} of the noise limit  {others}".rstrip()


def _worst(ranks: list[dict[str, float]]) -> dict[str, float]:
    return max(ranks, key=lambda one: max(one.values()), default={})


if __name__ == "__main__":
    main()
