"""A rehearsal: what a rank would do with a model, its own code on arrays that have shapes and no
numbers.

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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

STEPS = (8, 8, 1)
"""Tokens of each step: a prompt in two chunks, and one that is generated."""
SECONDS = 120
"""Of computing; an engine takes three to be imported, whatever else the machine does meanwhile."""
IN_CHUNKS = "in_chunks"
"""What is asked of a whole model besides, and the function that answers it where a library's can be
followed.
"""
LONGEST = 300
"""Characters of a reason: some libraries name every tensor."""


class Complaint(NamedTuple):
    """Why a model cannot be run.

    Attributes:
        why: what was raised, in a line, and where in the library.
        own: whether the code of the ready subjects raised it, and not a library.
    """

    why: str
    own: bool


def main() -> None:
    """Read from stdin what is asked, and print what is found."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    # Libraries print while they load.
    print(f"\n{json.dumps(found(json.load(sys.stdin)))}")


def found(asked: dict[str, Any]) -> dict[int | str, Complaint | None]:
    """For each number of ranks why it cannot be; None where it can.

    Of whole models also why not in chunks.
    """
    engine = str(asked["engine"])
    sizes = [int(size) for size in asked["sizes"]]
    library, _, sharding = engine.partition("-")
    module = importlib.import_module(f".rehearsal_{library}", __package__)
    rehearse: Callable[..., None] = module.rehearse
    given = partial(rehearse, asked["folder"], sharding, dtype=asked["dtype"])
    answers: dict[int | str, Complaint | None] = {
        size: complaint(partial(given, size=size)) for size in sizes
    }
    if sharding == "single" and answers[1] is None and hasattr(module, IN_CHUNKS):
        answers[IN_CHUNKS] = complaint(
            partial(getattr(module, IN_CHUNKS), asked["folder"], dtype=asked["dtype"])
        )
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
        if (
            Path(traceback.extract_tb(error.__traceback__)[-1].filename).parent
            == Path(__file__).parent
        ):
            return Complaint(
                words if isinstance(error, ValueError) else f"{type(error).__name__}: {words}", True
            )
        return Complaint(f"{type(error).__name__}: {words}{_place(error)}", False)
    return None


def _place(error: Exception) -> str:
    """Return the last line of a model's own file that an error came through.

    Empty where it came through none.
    """
    frames = traceback.extract_tb(error.__traceback__)
    of_models = [frame for frame in frames if "models" in Path(frame.filename).parts]
    return f" ({Path(of_models[-1].filename).name}: {of_models[-1].line})" if of_models else ""


if __name__ == "__main__":
    main()
