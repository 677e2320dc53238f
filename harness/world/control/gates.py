"""Gates, where ranks wait until the harness has answered, and the start line, where they wait for
each other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping

from harness.forms.strict_json import JSON
from harness.world.control.capture import Recorder
from harness.world.control.launch import Launch
from harness.world.control.rank_states import RankStates


class Gates:
    """The gates of one world. Ranks are answered only when every signal that was sent to one of
    them has landed.

    Attributes:
        held: rank to the gate that it is kept at; empty text until it stands there.
    """

    def __init__(self, answer: Callable[[int, bytes], None]) -> None:
        """Begin with every gate shut; `answer` writes to a rank that waits."""
        self._answer = answer
        self.held: dict[int, str] = {}
        self._orders: dict[int, list[Mapping[str, JSON]]] = {}
        self._waiting: list[int] = []
        self._unlanded = 0
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a rank waits at a gate for the harness."""
        return bool(self.held or self._waiting or self._unlanded)

    def order(self, rank: int, order: Mapping[str, JSON]) -> None:
        """Send an order along with the next answer to this rank."""
        self._orders.setdefault(rank, []).append(order)

    def signalled(self) -> None:
        """A signal is about to be sent. Safe to call from another thread."""
        with self._lock:
            self._unlanded += 1

    def landed(self) -> None:
        """A signal has landed."""
        with self._lock:
            self._unlanded -= 1
        self.open()

    def open(self, *ranks: int) -> None:
        """Open the gates of these ranks, and of those still waiting, once every signal that was
        sent has landed.
        """
        self._waiting += ranks
        if not self._unlanded:
            for rank in self._waiting:
                orders = self._orders.pop(rank, [])
                text = (
                    json.dumps(orders, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
                    if orders
                    else ""
                )
                self._answer(rank, text.encode())
            self._waiting.clear()


class StartLine:
    """Lets ranks through their gates; at the start line, with all the others."""

    def __init__(
        self,
        launch: Launch,
        recorder: Recorder,
        states: RankStates,
        gates: Gates,
        *,
        let_go: Callable[[], None],
    ) -> None:
        self._launch = launch
        self._recorder = recorder
        self._states = states
        self._gates = gates
        self._let_go = let_go
        self._released: set[int] = set()

    def let_through(self, rank: int, gate: str) -> None:
        """Let a rank through a gate, unless it is the start line, and others are still to come."""
        if gate in self._launch.watch.gates:
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
        """Let the ranks begin once all have joined, or once one has ended and the others cannot all
        join any more.
        """
        waiting = self._states.joined - self._released
        if waiting and (
            len(self._states.joined) == self._launch.size
            or self._states.exited
            or self._states.lost
        ):
            self._released |= waiting
            self._recorder.note("world.start", ranks=sorted(waiting))
            self._let_go()
            self._gates.open(*sorted(waiting))
