"""Faults of one trial while it runs: who is struck when, and that everything is taken back.

It speaks to the evidence: `fault.planned` once per fault, `fault.struck` and `fault.undone` per
rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.events import Event
from harness.faults import KINDS, Fault
from harness.faults.proof import GATE, PLANNED, STRUCK, UNDONE
from harness.faults.world_control import L, WorldControl


class Strikes:
    """Strikes one world with a scenario's faults. Use once: give its methods to the world.

    Each of them raises PluginFailed where a plug-in's fault raised.
    """

    def __init__(self, faults: Sequence[Fault], *, size: int, seed: int = 0) -> None:
        """Strike ranks of a world of that size, by the seed of its trial."""
        self._seed = str(seed)  # JSON numbers do not hold 64 bits
        self._faults = [(fault, fault.ranks.of(size)) for fault in faults]
        self._struck: set[tuple[str, int]] = set()
        self._undone: set[tuple[str, int]] = set()
        self._world: WorldControl | None = None

    def prepare(self, launch: L) -> L:
        """Return the launch as the faults need it."""
        for fault, ranks in self._faults:
            with KINDS.guarded(fault.kind):
                launch = fault.prepare(launch, ranks=ranks)
            if fault.inside_file is not None:
                launch = launch.with_inside(kind=fault.kind, file=fault.inside_file)
        return launch

    def begin(self, world: WorldControl) -> None:
        """Tell what is planned, and strike ranks as they start."""
        self._world = world
        for fault, ranks in self._faults:
            world.note(PLANNED, fault=fault.id, kind=fault.kind, ranks=list(ranks), at=fault.event)
            for rank in ranks if not fault.properties.needs_a_gate else ():
                world.once("rank.started", rank=rank, do=partial(self._strike, world, fault, rank))

    def at_gate(self, world: WorldControl, event: Event) -> None:
        """Strike a rank that stands at a gate, the first time it does."""
        for fault, ranks in self._faults:
            if event.rank in ranks and event.name == fault.event:
                assert event.rank is not None
                self._strike(world, fault, event.rank)

    def at_event(self, client: WorldControl, event: Event) -> None:
        """Strike processes of a service where a rank of its clients emits an event, the first time.

        Args:
            client: the world of that rank, from whose thread this is called. The rank stays at the
                event until the service has been struck.
            event: of the rank.
        """
        due = [
            (fault, ranks)
            for fault, ranks in self._faults
            if ranks and event.name == fault.event and (fault.id, ranks[0]) not in self._struck
        ]
        world = self._world
        rank = event.rank
        if not due or world is None or rank is None:
            return
        client.hold(rank)

        def strike() -> None:
            for fault, ranks in due:
                for process in ranks:
                    world.note(GATE, rank=process, fault=fault.id, at=event.name, of=rank)
                    self._strike(world, fault, process)
            world.once_landed(lambda: client.call(lambda: client.release(rank)))

        world.call(strike)

    def end(self, world: WorldControl) -> None:
        """Take back what is still in force: the world is over, however it ended."""
        for fault, ranks in self._faults:
            for rank in ranks:
                self._undo(world, fault, rank)

    def _strike(self, world: WorldControl, fault: Fault, rank: int) -> None:
        if (fault.id, rank) in self._struck:
            return
        self._struck.add((fault.id, rank))
        world.note(STRUCK, rank=rank, fault=fault.id, kind=fault.kind)
        with KINDS.guarded(fault.kind):
            order = fault.inside()
        if order is not None:
            about = {"fault": fault.id, "kind": fault.kind, "rank": rank, "seed": self._seed}
            world.tell(rank, {**order, **about})
        if fault.properties.ends_rank:
            world.expect_end(rank)
        with KINDS.guarded(fault.kind):
            fault.strike(world, rank=rank, done=lambda: self._undo(world, fault, rank))

    def _undo(self, world: WorldControl, fault: Fault, rank: int) -> None:
        key = (fault.id, rank)
        if key in self._struck and key not in self._undone:
            self._undone.add(key)
            world.note(UNDONE, rank=rank, fault=fault.id)
            with KINDS.guarded(fault.kind):
                fault.undo(world, rank=rank)
