"""What the validators of a stream cost for each token, beside a decode step of a model of 110
million parameters.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness._integrity.records import EnhancedTokenChunk, Level
from harness._integrity.sequence import SequenceIntegrityChecker
from harness._integrity.stream_validator import StreamValidator, ValidationBeside
from harness.world.control.pool import ServerPool
from tests.bench import ledger

# What the package's own tests make texts and ids with.
PACKAGE = Path(__file__).parents[2] / "packages" / "integrity"
sys.path += [str(PACKAGE / "src"), str(PACKAGE / "tests")]

from corpus import text  # noqa: E402 - found by the path above
from damage import decode, encode, spell, vocabulary  # noqa: E402

TOKENS, ROUNDS = 2000, 15


def measure(
    pool: ServerPool, folder: Path, *, rounds: int = ROUNDS, steps: int = ledger.STEPS
) -> dict[str, Any]:
    """Nanoseconds of CPU for each token, the median of `rounds` streams of 2,000 tokens of prose in
    many scripts.

    Returns:
        `token_nanoseconds` by what is done, and `share`: the same over the time of a decode step,
        measured in this run.
    """
    ids = _ids()
    chunks = _made(ids)
    jobs: dict[str, Callable[[], object]] = {
        "made, with checksum": lambda: _made(ids),
        "made, digests chained": lambda: _chained(ids),
        "offered to a thread": lambda: _offered(chunks),
    }
    for level in Level:
        jobs[f"checked, {level}"] = lambda level=level: _checked(
            chunks, level=level, token_bytes=spell
        )
    jobs["checked, full, by decode()"] = lambda: _checked(chunks, level=Level.FULL, decode=decode)
    jobs["the loop alone"] = lambda: _looped(chunks)
    took: dict[str, list[int]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            begin = time.thread_time_ns()
            job()
            took[name].append(time.thread_time_ns() - begin)
    each = {name: statistics.median(times) / len(ids) for name, times in took.items()}
    loop = each.pop("the loop alone")
    nanoseconds = {name: max(0.0, cost - loop) for name, cost in each.items()}
    step = ledger.measure(pool, folder, steps=steps, cases=("decode step",))["decode step"][
        "round_seconds"
    ]
    return {
        "token_nanoseconds": nanoseconds,
        "decode_step_seconds": step,
        "share": {name: cost * 1e-9 / step for name, cost in nanoseconds.items()},
    }


def _ids() -> list[int]:
    ids: list[int] = []
    for number in range(100):
        ids += encode(text("latin", number))
    return ids[:TOKENS]


def _made(ids: list[int]) -> list[EnhancedTokenChunk]:
    """As the last stage makes them: each with the text that is complete at it."""
    import codecs

    detokenizer = codecs.getincrementaldecoder("utf-8")("replace")
    return [
        EnhancedTokenChunk.sealed(
            token_id=one,
            sequence_position=position,
            source_device_rank=1,
            text=detokenizer.decode(spell(one)),
            stream="request",
        )
        for position, one in enumerate(ids)
    ]


def _chained(ids: list[int]) -> int:
    chain = SequenceIntegrityChecker(stream="request")
    for one in ids:
        chain.append(one)
    return chain.digest


def _checked(chunks: list[EnhancedTokenChunk], **options: Any) -> None:
    check = StreamValidator(tokens=vocabulary(), stream="request", **options).check
    for chunk in chunks:
        if check(chunk).error_type is not None:
            raise SystemExit("a clean stream was called corrupt: nothing was measured")


def _offered(chunks: list[EnhancedTokenChunk]) -> None:
    validator = StreamValidator(tokens=vocabulary(), stream="request", token_bytes=spell)
    with ValidationBeside(validator.check, capacity=TOKENS) as beside:
        for chunk in chunks:
            beside.offer(chunk)
    if not beside.close().is_valid:
        raise SystemExit("a clean stream was not validated: nothing was measured")


def _looped(chunks: list[EnhancedTokenChunk]) -> None:
    for chunk in chunks:
        if chunk is None:
            raise SystemExit


def show(found: dict[str, Any]) -> None:
    """Print the same for people."""
    step = found["decode_step_seconds"]
    print(
        f"the integrity library, CPU time for each token, beside a decode step of {step * 1e3:.1f}"
        " ms (110 M, 2 ranks)"
    )
    for name, cost in found["token_nanoseconds"].items():
        print(f"  {name:<28} {cost:8.0f} ns: {found['share'][name]:.4%}")
