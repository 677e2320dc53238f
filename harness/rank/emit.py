"""Event channel, at the rank's end: one JSON line per event, and gates that block until the harness
has answered.

A rank in any language can do the same: write `{"event": NAME, "ns": CLOCK_MONOTONIC, "values":
{...}}` and a newline; at a gate, read one line. That line is empty, or holds a JSON list of the
orders of faults that strike there: of each its id and kind, the rank, the trial's seed, and what
the kind's `inside` gave. So nothing in a rank knows of a fault before it strikes.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping

from harness.events import is_name
from harness.forms.strict_json import JSON
from harness.rank.inside import alter_report, load

LINE_LIMIT = 256 * 1024


class Emitter:
    """Writer of the events of one rank. Several threads may call it."""

    def __init__(
        self,
        *,
        events_fd: int,
        gates_fd: int,
        gates: Iterable[str],
        inside: Mapping[str, str] | None = None,
    ) -> None:
        self._events_fd = events_fd
        self._gates_fd = gates_fd
        self._gates = frozenset(gates)
        self._inside = inside or {}
        # Held for a line and for the answer to its gate: lines of two threads must not mix.
        self._lock = threading.Lock()

    def emit(self, name: str, values: dict[str, JSON]) -> None:
        """Write one event; where `name` is a gate, wait until the harness has answered.

        Raises:
            ValueError: the name is not dotted lower-case words, or the values do not fit JSON or
                256 KiB.
            OSError: the channel is closed.
            Exception: what a fault of the scenario raises at this gate.
        """
        if not is_name(name):
            raise ValueError(
                f"{name!r} is not a valid event name; use dotted lower-case words such as"
                " 'tokenizer.ready'"
            )
        orders = b""
        values = alter_report(name, values)
        with self._lock:
            # Stamped inside the lock: while a gate holds the rank, none of its threads reports
            # anything.
            self._write(name, values)
            if name in self._gates:
                orders = self._wait()
        for order in json.loads(orders or b"[]"):
            load(self._inside[order["kind"]]).inside(order, self.emit)

    def _write(self, name: str, values: dict[str, JSON]) -> None:
        event = {"event": name, "ns": time.monotonic_ns(), "values": values}
        try:
            text = json.dumps(event, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise ValueError(f"event {name}: the values must be JSON: {error}") from None
        line = text.encode("ascii") + b"\n"
        if len(line) > LINE_LIMIT:
            raise ValueError(
                f"event {name} has {len(line)} bytes, but at most {LINE_LIMIT} are allowed; emit a"
                " digest, or write a file and emit its sha256"
            )
        while line:
            line = line[os.write(self._events_fd, line) :]

    def _wait(self) -> bytes:
        """Read the answer to a gate: one line.

        A closed descriptor is one too: the harness is ending the world.
        """
        order = bytearray()
        while (answer := os.read(self._gates_fd, 1)) not in (b"\n", b""):
            order += answer
        return bytes(order) if answer else b""
