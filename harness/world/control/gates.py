"""Gates: ranks that wait inside an event until the harness has answered, and what goes with the answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping

from harness.forms.strict_json import JSON


class Gates:
    """The gates of one world. Ranks are answered only when every signal that was sent to one of them has landed.

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
        """Open the gates of these ranks, and of those still waiting, once every signal that was sent has landed."""
        self._waiting += ranks
        if not self._unlanded:
            for rank in self._waiting:
                orders = self._orders.pop(rank, [])
                text = json.dumps(orders, ensure_ascii=True, allow_nan=False, separators=(",", ":")) if orders else ""
                self._answer(rank, text.encode())
            self._waiting.clear()
