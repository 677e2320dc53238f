"""A linear model whose weights lie in two halves on as many ranks, and the whole of it, for the
matrix.

This file is copied into both arms of a part, as `standard.py` is. It needs the backend's library
and the standard library alone: arrays are torch's or MLX's, and only what both have is asked of
them.
"""

import hashlib
import importlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

WIDTH = 64
VOCABULARY = 24
PROMPT = 16
STEPS = 4
# In the checkpoint: where its one tensor begins.
DATA = 128
LOUDER = 1.5


def library_of(backend: str) -> Any:
    """Return what arrays are made with."""
    return importlib.import_module("mlx.core" if backend == "mlx-ring" else "torch")


def drawn(library: Any, seed: str, rows: int, columns: int) -> Any:
    """Numbers between -1 and 1 as float32 [rows, columns], the same everywhere."""
    source = random.Random(seed)  # noqa: S311 - not a secret
    make = getattr(library, "tensor", None) or library.array
    return make([[source.uniform(-1, 1) for _ in range(columns)] for _ in range(rows)])


def content_of(array: Any) -> bytes:
    """Return the bytes of a float32 array, row by row."""
    return memoryview(array.numpy() if hasattr(array, "numpy") else array).tobytes()


def checkpoint(head: Any) -> bytes:
    """Return the weights as a safetensors file."""
    content = content_of(head)
    about = {"dtype": "F32", "shape": [WIDTH, VOCABULARY], "data_offsets": [0, len(content)]}
    return (
        (DATA - 8).to_bytes(8, "little")
        + json.dumps({"head": about}).encode().ljust(DATA - 8)
        + content
    )


def whole(context: Any, *, backend: str) -> None:
    """The reference: the logits of every position, and the same with the sum over the width in
    other orders.

    Args:
        context: of the one rank.
        backend: of the world that is compared with it.
    """
    library = library_of(backend)
    head = drawn(library, "head", WIDTH, VOCABULARY)
    states = drawn(library, "states", PROMPT + STEPS, WIDTH)
    context.keep("checkpoint", checkpoint(head))
    for number, parts in enumerate((1, 4, 8, 16)):
        size = WIDTH // parts
        bounds = [(part * size, (part + 1) * size) for part in range(parts)]
        logits = sum(states[:, begin:end] @ head[begin:end] for begin, end in bounds)
        series = f"envelope.{number}." if number else ""
        context.keep(f"{series}prefill.logits.0", logits[:PROMPT])
        context.keep(f"{series}decode.logits.0", logits[PROMPT:])
        if not number:
            context.emit("generated", prompt=0, ids=best(logits[PROMPT - 1 :]))


def score(context: Any) -> None:
    """Each rank loads its half, and the logits are summed up: of a prompt at once, then of one
    position after another.

    At last the prompt once more for each rank, with that rank's half made louder.
    """
    library = library_of(context.backend)
    size = WIDTH // context.size
    begin = context.rank * size
    end = (context.rank + 1) * size
    context.emit("work.begin")
    file = Path(context.shared, "cache", "model.safetensors")
    if context.rank == 0:
        file.parent.mkdir()
        shutil.copyfile(Path(context.inputs["reference"], "checkpoint.bin"), file)
    context.group.barrier()
    context.emit("stored")
    context.group.barrier()
    half = load(context, library, file, begin, end)
    states = drawn(library, "states", PROMPT + STEPS, WIDTH)
    context.emit("loaded")

    def logits(first: int, last: int, weights: Any) -> Any:
        return summed(context, library, states[first:last, begin:end] @ weights)

    prefill = logits(0, PROMPT, half)
    decode = [logits(place, place + 1, half) for place in range(PROMPT, PROMPT + STEPS)]
    context.keep("prefill.logits.0", prefill)
    context.keep(
        "decode.logits.0", (library.cat if hasattr(library, "cat") else library.concatenate)(decode)
    )
    context.emit("generated", prompt=0, ids=[best(rows)[-1] for rows in (prefill, *decode)])
    for rank in range(context.size):
        if rank == context.rank:
            context.emit("perturbed", number=rank, tensor="head", factor=LOUDER)
        changed = half * LOUDER if rank == context.rank else half
        context.keep(f"influence.{rank}.prefill.logits.0", logits(0, PROMPT, changed))


def load(context: Any, library: Any, file: Path, begin: int, end: int) -> Any:
    """Read rows of the weights, and tell which."""
    row = 4 * VOCABULARY
    content = file.read_bytes()[DATA + begin * row : DATA + end * row]
    bounds = [[begin, end], [0, VOCABULARY]]
    context.emit("shard", tensor="head", slices=bounds, sha256=hashlib.sha256(content).hexdigest())
    make = getattr(library, "tensor", None) or library.array
    numbers = memoryview(content).cast("f").tolist()
    return make(numbers).reshape(end - begin, VOCABULARY)


def summed(context: Any, library: Any, part: Any) -> Any:
    """Return the sum over all ranks."""
    if context.backend == "mlx-ring":
        total = library.distributed.all_sum(part, group=context.group.native)
        library.eval(total)
        return total
    context.group.native.all_reduce(part)
    return part


def best(rows: Any) -> list[int]:
    """Return the most likely token of each position."""
    return [max(range(VOCABULARY), key=row.__getitem__) for row in rows.tolist()]
