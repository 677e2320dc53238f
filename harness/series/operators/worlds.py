"""Worlds of a sweep: every ask in fresh ones."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from harness.backends import KINDS
from harness.events import Event
from harness.run.run import Interrupted, RunError
from harness.run.worlds import interruptible
from harness.series.operators.cells import BACKENDS, OperatorCell
from harness.series.operators.inquiry import SLICES, Ask
from harness.series.operators.judge import Outcome
from harness.series.operators.record import (
    VERSIONS,
    AskedWorld,
    AskEvidence,
    OperatorsFacts,
    OperatorsPart,
    PartEvidence,
    inquiry_of,
    judged,
)
from harness.world.below.preload import Preload
from harness.world.control.launch import Launch, StartLaunch, SubjectLaunch, WatchLaunch
from harness.world.control.pool import ServerPool, is_linux
from harness.world.control.server_handle import Cancelled
from harness.world.control.world import World

ENTRY: Final = "from harness.series.operators.ranks_inside.entry import walk, whole\n"
STANDS_STILL: Final = 10.0
"""Seconds after which a cell hangs: seconds in which its ranks used hardly any processor time."""
TIMEOUT: Final = 3600.0
"""Seconds that a collective may take: the ranks' own watchdog is faster, and says where."""
EACH: Final = 2.0
"""Seconds that a world may take for each cell, over what a hang takes."""
MODULES: Final = (
    *("numpy", "torch", "torch.distributed", "torch.distributed.tensor", "torch._dynamo"),
    *("torch.distributed.checkpoint", "mlx.core", "safetensors.torch", "safetensors.numpy"),
    "harness.series.operators.ranks_inside.entry",
)
LEFT_OUT: Final = frozenset({"subject.loaded", "world.begin"})
"""Events that say nothing of a cell."""


class OperatorWorlds:
    """Starts the worlds of a sweep, from one fork server."""

    def __init__(self, pool: ServerPool, cancel: int) -> None:
        self._pool = pool
        self._cancel = cancel
        inside = (KINDS[backend].inside_file for backend in sorted(set(BACKENDS.values())))
        self._start = StartLaunch(warm=is_linux(), preload=Preload(MODULES, tuple(inside)))

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[OperatorWorlds]:
        """Begin, and stop every process at the end. Raises Interrupted."""
        try:
            with interruptible() as interrupt, ServerPool(cancel=interrupt.descriptor) as pool:
                yield cls(pool, interrupt.descriptor)
        except (KeyboardInterrupt, Cancelled):
            raise Interrupted("interrupted") from None

    def ask_part(self, facts: OperatorsFacts, part: OperatorsPart) -> PartEvidence:
        """Ask about a part until nothing is left to ask."""
        begun = time.monotonic()
        inquiry = inquiry_of(facts, part)
        asks: list[AskEvidence] = []
        ask = next(inquiry)
        with ThreadPoolExecutor(max_workers=SLICES) as slices:
            while True:
                found: list[Outcome] = []
                cut = ask.slices()
                # All of them end, also where one raises: the worlds belong to the caller's pool.
                for one, kept in zip(
                    cut, slices.map(partial(self.ask, part=part), cut), strict=True
                ):
                    asks.append(kept)
                    found += judged(kept, one.cells, size=part.ranks)
                try:
                    ask = inquiry.send(found)
                except StopIteration:
                    seconds = round(time.monotonic() - begun, 1)
                    return PartEvidence(unasked="", seconds=seconds, asks=asks)

    def ask(self, ask: Ask, part: OperatorsPart) -> AskEvidence:
        """Ask the whole, and then the ranks until they came to every cell."""
        with tempfile.TemporaryDirectory(prefix="rankproof-operators-") as place:
            folder = Path(place).resolve()
            (folder / "code").mkdir()
            (folder / "code" / "sweep.py").write_text(ENTRY)
            cells = [cell.model_dump(mode="json") for cell in ask.cells]
            (folder / "cells.json").write_text(json.dumps(cells))
            whole = self._world(folder, ask.cells, "whole", {"ranks": part.ranks}, "none", 1)
            evidence = AskEvidence(
                purpose=ask.purpose,
                cells=[cell.key for cell in ask.cells],
                whole=_lines(whole),
                worlds=[],
            )
            begin = 0
            while begin < len(ask.cells):
                arguments = {"within": STANDS_STILL, "begin": begin}
                backend = BACKENDS[part.library]
                events = self._world(folder, ask.cells, "walk", arguments, backend, part.ranks)
                world = AskedWorld(begin=begin, events=_lines(events))
                evidence = evidence.model_copy(update={"worlds": [*evidence.worlds, world]})
                if not any(event.name == VERSIONS for event in events):
                    raise RunError(_why_nothing(events))
                begin = len(judged(evidence, ask.cells, size=part.ranks))
            return evidence

    def _world(
        self,
        folder: Path,
        cells: Sequence[OperatorCell],
        entry: str,
        arguments: dict[str, int] | dict[str, float],
        backend: str,
        size: int,
    ) -> Sequence[Event]:
        launch = Launch(
            about={},
            size=size,
            backend=backend,
            collective_timeout=TIMEOUT,
            subject=SubjectLaunch(
                entry=f"sweep:{entry}",
                folder=folder / "code",
                arguments=dict(arguments),
                inputs={"cells": str(folder / "cells.json")},
                seeds=[0] * size,
                # One thread each: the ranks share the processors.
                env={"OMP_NUM_THREADS": "1"},
            ),
            start=self._start,
            watch=WatchLaunch(deadline=60 + 2 * STANDS_STILL + EACH * len(cells)),
        )
        return World(launch, self._pool, cancel=self._cancel).run().events


def _lines(events: Sequence[Event]) -> list[str]:
    return [event.line() for event in events if event.name not in LEFT_OUT]


def _why_nothing(events: Sequence[Event]) -> str:
    said = [event.values for event in events if event.name in ("harness.error", "rank.error")]
    why = f"{said[0].get('type')}: {said[0].get('message')}" if said else "no rank reported why"
    return f"a world of the sweep did not finish its first cell: {why}"
