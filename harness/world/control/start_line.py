"""The event at which the ranks of one world wait for each other, and the gates at which each waits for the harness."""

from __future__ import annotations

from collections.abc import Callable

from harness.world.control.capture import Recorder
from harness.world.control.gates import Gates
from harness.world.control.launch import Launch
from harness.world.control.rank_states import RankStates


class StartLine:
    """Lets ranks through their gates; at the start line, with all the others."""

    def __init__(
        self, launch: Launch, recorder: Recorder, states: RankStates, gates: Gates, *, let_go: Callable[[], None]
    ) -> None:
        self._launch = launch
        self._recorder = recorder
        self._states = states
        self._gates = gates
        self._let_go = let_go
        self._released: set[int] = set()

    def let_through(self, rank: int, gate: str) -> None:
        """Let a rank through a gate, unless it is the start line, and others are still to come."""
        if gate in self._launch.gates:
            self._recorder.note("gate.opened", rank=rank, gate=gate)
        if gate != self._launch.start_line:
            self._gates.open(rank)
            return
        if rank in self._released:
            # A subject that says it again has waited once already.
            self._gates.open(rank)
        self._states.joined.add(rank)
        self.look()

    def look(self) -> None:
        """Let the ranks begin once all have joined, or once one has ended and the others cannot all join any more."""
        waiting = self._states.joined - self._released
        if waiting and (len(self._states.joined) == self._launch.size or self._states.exited or self._states.lost):
            self._released |= waiting
            self._recorder.note("world.start", ranks=sorted(waiting))
            self._let_go()
            self._gates.open(*sorted(waiting))
