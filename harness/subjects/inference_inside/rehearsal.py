"""A rehearsal: what a rank would do with a model, its own code on arrays that have shapes and no numbers.

Run in a process of its own, which imports the engine; nothing of it outlives that process, so what it puts in place of
the engine's functions harms nobody. Of a checkpoint only the headers are read. What raises here raises in every rank.
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
from typing import Any

STEPS = (8, 8, 1)
"""Tokens of each step: a prompt in two chunks, and one that is generated."""
SECONDS = 120
"""Of computing; an engine takes three to be imported, whatever else the machine does meanwhile."""
LONGEST = 300
"""Characters of a reason: some libraries name every tensor."""


def main() -> None:
    """Read from stdin what is asked, and print for each number of ranks why it cannot be; empty where it can."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    asked: dict[str, Any] = json.load(sys.stdin)
    engine, sizes = str(asked["engine"]), [int(size) for size in asked["sizes"]]
    library, _, sharding = engine.partition("-")
    module = importlib.import_module(f".rehearsal_{library}", __package__)
    rehearse: Callable[..., None] = module.rehearse
    given = partial(rehearse, asked["folder"], sharding, dtype=asked["dtype"])
    found = {size: complaint(partial(given, size=size)) for size in sizes}
    # Libraries print while they load.
    print(f"\n{json.dumps(found)}")


def complaint(attempt: Callable[[], None]) -> str:
    """What an attempt raised, in a line, and where in the library; empty where it raised nothing.

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
        return f"{type(error).__name__}: {words}{_place(error)}"
    return ""


def _place(error: Exception) -> str:
    """The last line of a model's own file that an error came through; empty where it came through none."""
    frames = traceback.extract_tb(error.__traceback__)
    of_models = [one for one in frames if "models" in Path(one.filename).parts]
    return f" ({Path(of_models[-1].filename).name}: {of_models[-1].line})" if of_models else ""


if __name__ == "__main__":
    main()
