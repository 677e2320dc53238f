"""`python -m tests.ladder`: each defect of each engine, at several seeds and world sizes, and as
many clean runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.checks.equivalent import EquivalentCheck, parity_of
from harness.engines.inference_inside.session import ROUTING
from harness.history import History
from harness.stats.rates import upper_bound
from tests.ladder.cases import (
    CASES,
    CHUNK,
    CLEAN,
    asked,
    at,
    clean_models,
    drawable,
    is_right,
    offered,
    prompts_each,
    refused,
)
from tests.ladder.drawn import folder
from tests.ladder.sessions import CHECK, RankEnded, Session, Worlds, judged
from tests.ladder.walk import walks

CELL = ("engine", "model", "dtype", "ranks", "defect")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ladder", description=__doc__)
    parser.add_argument("--engines", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument(
        "--models", nargs="+", help="of those that the engine offers (default: all)"
    )
    parser.add_argument(
        "--ranks", nargs="+", type=int, default=[1, 2], help="1: the same code in a world of one"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--each", type=int, default=5, help="how many prompts are asked of one model"
    )
    parser.add_argument("--first", type=int, default=100, help="the first seed")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument(
        "--clean", action="store_true", help="every model that the engine offers, with no defect"
    )
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
        soak(given, rows)
    print(table(read(rows)))
    print("\nWhat the attribution is, of seeds that were walked from a world of one:")
    print("\n".join(walks(read(rows))))
    print("\nAll of it:")
    print("\n".join(summary(read(rows))))
    print("\nWhat was refused:")
    print("\n".join(refusals(read(rows))))


def soak(given: argparse.Namespace, rows: Path) -> None:
    """Run what has no row yet."""
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
    done = {key_of(row) for row in read(rows)}
    end = given.first + given.seeds
    with Worlds() as worlds, rows.open("a") as file:
        for size in given.ranks:
            for engine in given.engines:
                cases = dict.fromkeys(clean_models(engine), ()) if given.clean else CASES[engine]
                for model, defects in cases.items():
                    if given.models and model not in given.models:
                        continue
                    if not offered(engine, model, ranks=size, dtype=given.dtype):
                        continue
                    step = max(1, given.each // prompts_each(model, given.dtype))
                    for seeds in (
                        range(at, min(at + step, end)) for at in range(given.first, end, step)
                    ):
                        rung = {
                            "engine": engine,
                            "model": model,
                            "dtype": given.dtype,
                            "ranks": size,
                        }
                        due = [
                            defect
                            for defect in (CLEAN, *defects)
                            if any(
                                key_of({**rung, "defect": defect, "seed": seed}) not in done
                                for seed in seeds
                            )
                        ]
                        if not due:
                            continue
                        climbed = climb(
                            worlds, check, rung, defects=due, seeds=seeds, below=given.folder
                        )
                        for defect, seed, word, far in climbed:
                            row = {**rung, "defect": defect, "seed": seed, "said": word, "far": far}
                            if key_of(row) not in done:
                                print(json.dumps(row), file=file, flush=True)


def climb(
    worlds: Worlds,
    check: EquivalentCheck,
    rung: dict[str, Any],
    *,
    defects: list[str],
    seeds: range,
    below: Path,
) -> Iterator[tuple[str, int, str, list[float]]]:
    """What is said of each session: defect, seed, a word with the layer that is named, and how far
    off it was.
    """
    engine, size = rung["engine"], rung["ranks"]
    model, given = (
        folder(rung["model"], seeds.start, below),
        asked(seeds, rung["model"], rung["dtype"]),
    )
    family = engine.partition("-")[0]
    whole = {"number": 0, "model": str(model), "with": given | {"envelope": "keep"}}
    reference = worlds.reference(
        f"{family}-single",
        whole,
        file=below / f"{family}-{model.name}-{len(seeds)}-{rung['dtype']}.reference",
    )
    offered_to_ranks = below / f"{family}-{model.name}-{rung['dtype']}-offered"
    offer(reference, offered_to_ranks)
    sessions = [
        {
            "number": number,
            "model": str(model),
            "inputs": {"reference": str(offered_to_ranks)},
            "with": given | {"prefill_chunk": CHUNK, "defect": defect},
        }
        for number, defect in enumerate(defects)
    ]
    count = prompts_each(rung["model"], rung["dtype"])
    own = [range(place * count, (place + 1) * count) for place in range(len(seeds))]
    references = [reference.of(prompts) for prompts in own]
    doubts = [doubt_of(check, one) for one in references]
    try:
        found = worlds.run(at(engine, size), size=size, sessions=sessions)
    except RankEnded as error:
        print(f"{rung} {seeds}: {error}", file=sys.stderr, flush=True)
        yield from ((defect, seed, "ENDED", []) for defect in defects for seed in seeds)
        return
    for defect, session in zip(defects, found, strict=True):
        for place, seed in enumerate(seeds):
            word, far = say(check, session.of(own[place]), references[place])
            yield defect, seed, doubts[place] or word, far


def offer(reference: Session, place: Path) -> None:
    """Lay out what ranks may read of a reference: through which experts each prompt goes."""
    place.mkdir(exist_ok=True)
    for name, file in reference.kept[0].items():
        if name.startswith(ROUTING):
            (place / f"{name}.npy").write_bytes(file.content)


def doubt_of(check: EquivalentCheck, reference: Session) -> str:
    """Why a reference cannot answer; empty where it can."""
    found = list(check.doubts(judged(check, reference, reference, arm="reference")))
    return f"INCONCLUSIVE: {found[0][1]}" if found else ""


def say(check: EquivalentCheck, session: Session, reference: Session) -> tuple[str, list[float]]:
    """The word of a session's worst rank, and the middle and largest distance of its prefill in the
    envelope's.
    """
    seen: History = judged(check, session, reference)
    parts = check.judge(seen).ranks
    if any(part.uncompared or part.missing for part in parts):
        return (
            f"UNCOMPARED: {next(part.reason for part in parts if part.uncompared or part.missing)}",
            [],
        )
    bad = [part for part in parts if not part.passed]
    parity = parity_of(check, seen)
    assert parity is not None
    far, limits = (
        [one.phases["prefill"] for one in parity.ranks if one.keeps],
        parity.phases["prefill"],
    )
    shares = [
        max((getattr(one, name) or 0.0) / (getattr(limits, name) or 1.0) for one in far)
        for name in ("half", "most")
    ]
    shares = [
        round(share, 3)
        for share in (*shares, max(99.0 if one.near is None else one.near for one in parity.ranks))
    ]
    if bad:
        layers = sorted(one.layer.layer for one in parity.ranks if one.layer is not None)
        return f"DIVERGENT in layer {layers[0]}" if layers else "DIVERGENT after the layers", shares
    words = {str(part.observed).partition(":")[0] for part in parts}
    return "EQUIVALENT" if "EQUIVALENT" in words else "IDENTICAL", shares


def read(rows: Path) -> list[dict[str, Any]]:
    """What was seen so far."""
    return [json.loads(line) for line in rows.read_text().splitlines()] if rows.is_file() else []


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*CELL, "seed"))


def table(rows: list[dict[str, Any]]) -> str:
    """How many of how many were right in each cell, and what was said instead."""
    lines = []
    for (engine, model, dtype, ranks, defect), own in grouped(rows, *CELL):
        right = (is_right(row["said"], engine=engine, defect=defect, ranks=ranks) for row in own)
        words = Counter(
            "right" if good else row["said"] for row, good in zip(own, right, strict=True)
        )
        others = ", ".join(
            f"{many} x {word}" for word, many in words.most_common() if word != "right"
        )
        start = f"{engine:12} {model:11} {dtype:8} {ranks} {defect:16}"
        lines.append(f"{start} {words['right']:3} of {words.total():3} {others}".rstrip())
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Of each engine, dtype and world size, as a table: defects with the fewest seeds of one, and
    healthy runs.
    """
    yield (
        "| engine | dtype | ranks | defects, seeds of each | identified correctly | healthy | right | at"
        " least | furthest |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for (engine, dtype, ranks), own in grouped(rows, "engine", "dtype", "ranks"):
        right = [
            is_right(row["said"], engine=engine, defect=row["defect"], ranks=ranks) for row in own
        ]
        healthy = [good for row, good in zip(own, right, strict=True) if row["defect"] == CLEAN]
        # 1 % lies inside the noise of 16 bits.
        seen = [
            row["defect"] not in (CLEAN, *(("scaled-layer",) if dtype != "float32" else ()))
            for row in own
        ]
        defects = [good for good, shown in zip(right, seen, strict=True) if shown]
        each = Counter(
            (row["model"], row["defect"]) for row, shown in zip(own, seen, strict=True) if shown
        )
        below = (
            1 - upper_bound(healthy.count(False), len(healthy), confidence=0.95) if healthy else 0.0
        )
        furthest = max(
            (row["far"][0] for row in own if row["defect"] == CLEAN and row["far"]), default=0.0
        )
        many = f"{len({name for _, name in each})}, {min(each.values(), default=0)}"
        yield (
            f"| {engine} | {dtype} | {ranks} | {many} | {sum(defects)} of {len(defects)} |"
            f" {len(healthy)} | {sum(healthy)} | {below:.1%} | {furthest:.2f} |"
        )


def grouped(
    rows: list[dict[str, Any]], *names: str
) -> list[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    """Rows with the same values of these names, in order."""
    found: defaultdict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return sorted(found.items())


def refusals(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Of every world size and dtype that an engine was asked, the models that it does not run like
    that, and why.
    """
    for engine, dtype, ranks in sorted(
        {(row["engine"], row["dtype"], row["ranks"]) for row in rows}
    ):
        why: defaultdict[str, list[str]] = defaultdict(list)
        for model in dict.fromkeys((*drawable(), *CASES[engine])):
            why[refused(engine, model, ranks=ranks, dtype=dtype)].append(model)
        for reason, models in sorted(why.items()):
            if reason:
                yield f"{engine:12} {dtype:8} {ranks} {', '.join(models)}: {reason}"


if __name__ == "__main__":
    main()
