"""The faults of one trial while it runs: who is struck when, and that everything is taken back.

It speaks to the evidence: `fault.planned` once per fault, `fault.struck` and `fault.undone` per rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.events import Event
from harness.faults import KINDS, Kind
from harness.faults.proof import PLANNED, STRUCK, UNDONE
from harness.faults.stage import L, Stage
from harness.scenario import Fault


class Strikes:
    """Strikes one world with a scenario's faults. Use once: give its methods to the world."""

    def __init__(self, faults: Sequence[Fault], *, size: int) -> None:
        self._faults: list[tuple[Fault, Kind, tuple[int, ...]]] = [
            (fault, KINDS[fault.kind](fault), fault.ranks.of(size)) for fault in faults
        ]
        self._struck: set[tuple[str, int]] = set()
        self._undone: set[tuple[str, int]] = set()

    def prepare(self, launch: L) -> L:
        """Return the launch as the faults need it."""
        for _, kind, ranks in self._faults:
            launch = kind.prepare(launch, ranks=ranks)
        return launch

    def begin(self, stage: Stage) -> None:
        """Tell what is planned, and strike ranks as they start."""
        for fault, kind, ranks in self._faults:
            at = getattr(fault, "at", None)
            stage.note(PLANNED, fault=fault.id, kind=fault.kind, ranks=list(ranks), at=at)
            for rank in ranks if not kind.properties.needs_a_gate else ():
                stage.once("rank.started", rank=rank, do=partial(self._strike, stage, fault, kind, rank))

    def at_gate(self, stage: Stage, event: Event) -> None:
        """Strike a rank that stands at a gate, the first time it does."""
        for fault, kind, ranks in self._faults:
            if event.rank in ranks and event.name == getattr(fault, "at", None):
                assert event.rank is not None
                self._strike(stage, fault, kind, event.rank)

    def end(self, stage: Stage) -> None:
        """Take back what is still in force: the world is over, however it ended."""
        for fault, kind, ranks in self._faults:
            for rank in ranks:
                self._undo(stage, fault, kind, rank)

    def _strike(self, stage: Stage, fault: Fault, kind: Kind, rank: int) -> None:
        if (fault.id, rank) in self._struck:
            return
        self._struck.add((fault.id, rank))
        stage.note(STRUCK, rank=rank, fault=fault.id, kind=fault.kind)
        if order := kind.inside(fault=fault.id):
            stage.tell(rank, order)
        if kind.properties.ends_rank:
            stage.expect_end(rank)
        kind.strike(stage, rank=rank, done=lambda: self._undo(stage, fault, kind, rank))

    def _undo(self, stage: Stage, fault: Fault, kind: Kind, rank: int) -> None:
        key = (fault.id, rank)
        if key in self._struck and key not in self._undone:
            self._undone.add(key)
            stage.note(UNDONE, rank=rank, fault=fault.id)
            kind.undo(stage, rank=rank)
