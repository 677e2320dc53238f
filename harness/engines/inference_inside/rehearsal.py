"""Rehearsal of a rank: what it would do with a model, its own code on arrays without numbers.

Run in a process of its own, which imports the engine; nothing of it outlives that process, so what
it puts in place of the engine's functions harms nobody. Of a checkpoint only the headers are read.
What raises here raises in every rank.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

STEPS = (8, 8, 1)
"""Tokens of each step: a prompt in two chunks, and one that is generated."""
SECONDS = 120
"""Of computing; an engine takes three to be imported, whatever else the machine does meanwhile."""
IN_CHUNKS = "in_chunks"
"""What is asked of a whole model of transformers besides."""
LONGEST = 300
"""Characters of a reason: some libraries name every tensor."""


class RehearsedQuestion(TypedDict):
    """Message on stdin: which engine is to rehearse what.

    Attributes:
        engine: of `harness.engines.offers.ENGINES`.
        folder: of the model.
        dtype: of its weights.
        sizes: numbers of ranks.
    """

    engine: str
    folder: str
    dtype: str
    sizes: Sequence[int]


class Complaint(NamedTuple):
    """Reason why a model cannot be run.

    Attributes:
        why: what was raised, in a line, and where in the library.
        is_ours: whether the code of the ready subjects raised it, and not a library.
    """

    why: str
    is_ours: bool


def main() -> None:
    """Read from stdin what is asked, and print what is found."""
    # An engine that goes round in circles ends by itself, also where nobody waits for it.
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    # Libraries print while they load.
    print(f"\n{json.dumps(complaints(json.load(sys.stdin)))}")


def complaints(question: RehearsedQuestion) -> dict[int | str, Complaint | None]:
    """Return for each number of ranks why it cannot be; None where it can.

    Of whole models also why not in chunks.
    """
    folder = question["folder"]
    dtype = question["dtype"]
    library, _, sharding = question["engine"].partition("-")
    rehearse: Callable[..., None] = rehearse_mlx
    chunks: Callable[..., None] | None = None
    # Not above, because the harness reads this module without an engine; and not in an attempt,
    # because an engine that cannot be imported says nothing of a model.
    if library == "hf":
        from . import rehearsal_hf

        rehearse = rehearsal_hf.rehearse
        chunks = rehearsal_hf.in_chunks
    else:
        importlib.import_module(".mlx", __package__)
    given = partial(rehearse, folder, sharding, dtype=dtype)
    answers: dict[int | str, Complaint | None] = {
        size: complaint(partial(given, size=size)) for size in question["sizes"]
    }
    if sharding == "single" and answers[1] is None and chunks is not None:
        answers[IN_CHUNKS] = complaint(partial(chunks, folder, dtype=dtype))
    return answers


def complaint(attempt: Callable[[], None]) -> Complaint | None:
    """Return what an attempt raised; None where it raised nothing.

    Raises:
        MemoryError: this process may not have more.
    """
    try:
        attempt()
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever an engine raises is what is asked
        words = " ".join(str(error).split())
        if len(words) > LONGEST:
            words = words[:LONGEST].rpartition(" ")[0] + " …"
        named = f"{type(error).__name__}: {words}"
        raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        if raised_in.parent == Path(__file__).parent:
            return Complaint(words if isinstance(error, ValueError) else named, True)
        return Complaint(f"{named}{_place(error)}", False)
    return None


def _place(error: Exception) -> str:
    """Return the last line of a model's own file that an error came through.

    Empty where it came through none.
    """
    frames = traceback.extract_tb(error.__traceback__)
    of_models = [frame for frame in frames if "models" in Path(frame.filename).parts]
    return f" ({Path(of_models[-1].filename).name}: {of_models[-1].line})" if of_models else ""


def rehearse_mlx(folder: str, sharding: str, *, size: int, dtype: str) -> None:
    """Load a model of mlx-lm as each rank of so many would, and have it take a prompt in chunks and
    a token more.

    MLX is lazy, and what is never evaluated is neither read from a file nor computed nor sent.

    Raises:
        Exception: what MLX, mlx-lm or the rank's own code raises.
    """
    from .checkpoint import LoneGroup
    from .mlx import MlxLm

    _without_evaluation()
    is_whole = sharding == "single"
    size = 1 if is_whole else size
    for rank in range(size):
        group = None if is_whole else LoneGroup(rank, size)
        engine = MlxLm(rank=rank, size=size, sharding=sharding, group=group)
        engine.load(folder, dtype=dtype)
        engine.begin()
        for tokens in STEPS:
            logits = engine.step([0] * tokens)
            if logits.shape != (tokens, engine.rows):
                raise ValueError(
                    f"{tokens} tokens produced logits of shape {list(logits.shape)}, not"
                    f" {[tokens, engine.rows]}"
                )


def _without_evaluation() -> None:
    """Have MLX evaluate nothing, and have its collectives give what has the right shape and
    dtype.
    """
    import mlx.core

    mx: Any = mlx.core

    def given(array: Any, *_args: Any, **_named: Any) -> Any:
        return array

    def gathered(array: Any, group: Any = None, **_named: Any) -> Any:
        many = group.size() if group is not None else 1
        return mx.concatenate([array] * many) if array.ndim else mx.stack([array] * many)

    mx.eval = lambda *_arrays: None
    mx.async_eval = mx.eval
    for name in ("all_sum", "all_max", "all_min", "send", "recv_like"):
        setattr(mx.distributed, name, given)
    mx.distributed.all_gather = gathered
    mx.distributed.recv = lambda shape, dtype, *_args, **_named: mx.zeros(shape, dtype)


if __name__ == "__main__":
    main()
