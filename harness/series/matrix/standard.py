"""What the matrix tries kinds of faults on: small subjects that work, and whose every result is
known beforehand.

This file is copied into both arms of each part of a matrix, and ranks import the copy. It needs the
backend's library and the standard library alone.
"""

import contextlib
import hashlib
import importlib
import mmap
import os
import time
import urllib.request
from pathlib import Path
from typing import Any

ELEMENTS = 16 * 1024
LARGE = 256 * 1024
SHARDS = 64
ADDENDS = 64
SPAN = 251


def payload(rank: int, number: int) -> bytes:
    """Return the bytes that a rank has for a round: each follows from rank, round and place."""
    pattern = bytes((rank * 31 + number * 17 + place) % SPAN for place in range(SPAN))
    return (pattern * (ELEMENTS // SPAN + 1))[:ELEMENTS]


def exchange(context: Any, *, rounds: int = 4, work: float = 0.0, defect: str = "") -> None:
    """Gather from every rank, again and again, and say of each round from whom what came was not
    what they have.

    Args:
        context: of the rank.
        rounds: how many.
        work: seconds of processor time to compute before each.
        defect: `stale` has rank 1 hand out what it had in the round before, in every round but the
            first.
    """
    context.emit("work.begin")
    wrong = []
    digest = hashlib.sha256()
    for number in range(rounds):
        context.emit("round", number=number)
        compute(work)
        had = number - 1 if defect == "stale" and context.rank == 1 and number else number
        for rank, found in enumerate(gather(context, payload(context.rank, had))):
            digest.update(found)
            if found != payload(rank, number):
                wrong.append([number, rank])
    context.emit("exchanged", wrong=wrong, digest=digest.hexdigest(), score=float(rounds))


def reduce(context: Any, *, rounds: int = 4, defect: str = "") -> None:
    """Add up over all ranks, again and again, numbers whose sum is known, and say which rounds gave
    another.

    Args:
        context: of the rank.
        rounds: how many; each ends with another call.
        defect: `stale` has rank 1 add what it had in the round before, in every round but the
            first.
    """
    context.emit("work.begin")
    wrong = []
    digest = hashlib.sha256()
    for number in range(rounds):
        context.emit("round", number=number)
        had = number - 1 if defect == "stale" and context.rank == 1 and number else number
        found = add(context, addends(context.rank, had))
        digest.update(repr(found).encode())
        expected = [
            sum(column)
            for column in zip(*(addends(rank, number) for rank in range(context.size)), strict=True)
        ]
        if found != expected:
            wrong.append(number)
        meet(context)
    context.emit("reduced", wrong=wrong, digest=digest.hexdigest())


def code(context: Any, *, rounds: int = 4) -> None:
    """Add up and gather payloads of which every element is known to whoever judges.

    Args:
        context: of the rank.
        rounds: how many; in each a sum, a gather, and another call.
    """
    library: Any = importlib.import_module("mlx.core" if context.backend == "mlx-ring" else "torch")
    context.emit("work.begin")
    coded = context.coded(library)
    for number in range(rounds):
        context.emit("round", number=number)
        call = coded.call("all_reduce", elements=ADDENDS, dtype="float32")
        call.received(summed(context, call.given))
        call = coded.call("all_gather", elements=ELEMENTS, dtype="int32")
        call.received(gathered(context, call))
        meet(context)
    coded.done()


def summed(context: Any, given: Any) -> Any:
    """Return the sum over all ranks."""
    if context.backend == "mlx-ring":
        import mlx.core as mx

        return mx.distributed.all_sum(given, group=context.group.native)
    context.group.native.all_reduce(given)
    return given


def gathered(context: Any, call: Any) -> Any:
    """Return what every rank gave, in the order of ranks."""
    if context.backend == "mlx-ring":
        import mlx.core as mx

        found = mx.distributed.all_gather(call.given, group=context.group.native)
        return mx.split(found, context.size)
    rows = [call.blank() for _ in range(context.size)]
    context.group.native.all_gather(rows, call.given)
    return rows


def meet(context: Any) -> None:
    """Wait for every rank, by another call than the sum: a barrier of the ring is a sum itself."""
    if context.backend == "mlx-ring":
        import mlx.core as mx

        mx.eval(mx.distributed.all_max(mx.array(context.rank), group=context.group.native))
    else:
        context.group.barrier()


def addends(rank: int, number: int) -> list[float]:
    """Return what a rank adds in a round: small whole numbers, which float32 adds without rounding,
    no two alike.
    """
    return [float(ADDENDS * (rank + 4 * number) + place) for place in range(ADDENDS)]


def add(context: Any, mine: list[float]) -> list[float]:
    """Add up over all ranks with the backend's own call."""
    if context.backend == "mlx-ring":
        import mlx.core as mx

        summed: Any = mx.distributed.all_sum(mx.array(mine), group=context.group.native).tolist()
        return list(summed)
    import torch

    values = torch.tensor(mine)
    context.group.native.all_reduce(values)
    found: list[float] = values.tolist()
    return found


def compute(seconds: float) -> None:
    """Use so much processor time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def gather(context: Any, mine: bytes) -> list[bytes]:
    """Gather as many bytes from every rank."""
    found: list[bytes] = context.group.all_gather(mine)
    return found


def store(context: Any) -> None:
    """Rank 1 writes a file and reads it; all ranks then say what they read of it."""
    context.emit("work.begin")
    place = Path(context.shared, "cache", "shard.bin")
    data = payload(1, 0) * (LARGE // ELEMENTS)
    if context.rank == 1:
        save(place, data)
    context.group.barrier()
    context.emit("stored")
    context.group.barrier()
    read = place.read_bytes()
    context.emit("read", size=len(read), digest=hashlib.sha256(read).hexdigest())


def save(place: Path, data: bytes) -> None:
    """Write a file the way caches do: into a folder that is made for it, through memory of its
    own.
    """
    place.parent.mkdir(exist_ok=True)
    held = bytearray(256 * LARGE)
    held[:: mmap.PAGESIZE] = b"\1" * (len(held) // mmap.PAGESIZE)  # taken, and not only asked for
    held[: len(data)] = data
    with contextlib.ExitStack() as shards:
        files = [
            shards.enter_context(place.with_suffix(f".{number}").open("wb"))
            for number in range(SHARDS)
        ]
        files[0].write(memoryview(held)[: len(data)])
        files[0].flush()
        os.fsync(files[0].fileno())
    place.with_suffix(".0").rename(place)


def fetch(context: Any) -> None:
    """Every rank fetches a file from the scenario's hub."""
    context.emit("work.begin")
    address = f"{os.environ['HF_ENDPOINT']}/rankproof/llama3/resolve/main/tokenizer_config.json"
    with urllib.request.urlopen(address) as answer:  # noqa: S310 - the scenario's own hub
        found = answer.read()
    context.emit("read", size=len(found), digest=hashlib.sha256(found).hexdigest())
