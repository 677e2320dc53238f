"""The correct server as an engine: a process that rows can measure, stop and kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import harness
from harness.conformance.engine import EngineProcess, ServedEngine
from harness.world.control.pool import PortLease

NAME: Final = "our correct server"
# Its folder is named: an engine gets nothing of our environment.
PROGRAM: Final = (
    f"import sys; sys.path.insert(0, {str(Path(harness.__file__).parent.parent)!r});"
    " from harness.conformance.correct import serve; serve(int(sys.argv[1]))"
)
ENGINE: Final = ServedEngine(
    library="harness", arguments=("-c", PROGRAM, "{port}"), distributions=()
)


@contextmanager
def running_own(room: Path) -> Iterator[EngineProcess]:
    """Run it in a process of its own as long as this lasts.

    Raises:
        harness.conformance.engine.EngineError: it cannot be started here.
    """
    room.mkdir()
    with PortLease() as lease:
        process = EngineProcess(NAME, ENGINE, room, lease.take(1)[0], lambda _: None)
        try:
            process.start()
            yield process
        finally:
            process.stop()
