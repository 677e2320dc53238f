"""Pipes between the harness and the ranks of one world: events and log of each rank, and answers to
its gates, where a rank waits for the harness, or at the start line for the others.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import socket
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from harness.forms.strict_json import JSON
from harness.world.below.requests import Requests
from harness.world.control.capture import Recorder
from harness.world.control.launch import Launch
from harness.world.control.ranks import RankStates

# The keeper of an interrupted world SIGKILLs its ranks; this is how long the harness stays to see
# it.
ABANDON_WITHIN = 5.0
CHUNK = 256 * 1024
Kind = Literal["events", "log", "control", "cancel", "wake"]


class Pipes(contextlib.AbstractContextManager["Pipes"]):
    """Descriptors of one world. Leaving the `with` block closes the harness' ends, whatever
    happened.

    Attributes:
        control: socket to the keeper.
        told: what the keeper says there, with the descriptors that it hands over.
    """

    def __init__(self, *, size: int, cancel: int | None) -> None:
        """Open everything or nothing.

        Raises:
            OSError: too many open files.
        """
        self._ours = contextlib.ExitStack()
        self._theirs = contextlib.ExitStack()
        self._handed: list[int] = []
        self._gates: list[int] = []
        with contextlib.ExitStack() as half_done:
            half_done.callback(self.close)
            self._selector = self._ours.enter_context(selectors.DefaultSelector())
            control, theirs = socket.socketpair()
            self.control = self._ours.enter_context(control)
            self.told = Requests(control)
            self._hand(theirs.detach())
            self._watch(control.fileno(), "control", 0)
            for rank in range(size):
                for kind in ("events", "gates", "log"):
                    read, write = os.pipe()
                    mine, other = (write, read) if kind == "gates" else (read, write)
                    self._ours.callback(os.close, mine)
                    self._hand(other)
                    # A rank that does not read its answers, or a pipe that was drained meanwhile,
                    # must not hold the harness.
                    os.set_blocking(mine, False)
                    if kind == "gates":
                        self._gates.append(mine)
                    else:
                        self._watch(mine, "events" if kind == "events" else "log", rank)
            if cancel is not None:
                self._watch(cancel, "cancel", 0)
            woken, self._waker = os.pipe()
            for end in (woken, self._waker):
                self._ours.callback(os.close, end)
                os.set_blocking(end, False)
            self._watch(woken, "wake", 0)
            half_done.pop_all()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every end that is still open here."""
        self._theirs.close()
        self._ours.close()

    def hand(self, descriptors: Sequence[int]) -> list[int]:
        """Take over further descriptors for the ranks.

        Return all that are handed, in the keeper's order.
        """
        for descriptor in descriptors:
            self._hand(descriptor)
        return list(self._handed)

    def handed(self) -> None:
        """Close the ranks' ends here: what a rank closes must be seen closed."""
        self._theirs.close()

    def wake(self) -> None:
        """End a wait of another thread. A pipe that is full has woken it already."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"x")

    def ready(self, seconds: float) -> list[tuple[Kind, int, int]]:
        """Wait until something can be read: (what, rank, descriptor)."""
        return [(*key.data, key.fd) for key, _ in self._selector.select(seconds)]

    def open(self, *, rank: int | None = None, kind: Kind) -> list[tuple[int, int]]:
        """Pipes of a kind, of one rank or all, that have not ended: (rank, descriptor)."""
        return [
            (key.data[1], key.fd)
            for key in self._selector.get_map().values()
            if key.data[0] == kind and rank in (None, key.data[1])
        ]

    def read(self, descriptor: int) -> bytes | None:
        """Read what is there, at most 256 KiB: None when it has ended, nothing where nothing is
        there.
        """
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return b""
        if data:
            return data
        self._selector.unregister(descriptor)
        return None

    def waiting(self, descriptor: int) -> int:
        """How many bytes wait to be read right now.

        A child of a rank may write on for ever: this much is enough.
        """
        return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4), "little")

    def drain(self, rank: int, descriptor: int, read: Callable[[int, int], int]) -> None:
        """Read what was written so far, and no more: a child of the rank may hold the pipe and
        write on for ever.
        """
        waiting = self.waiting(descriptor)
        while waiting > 0 and (taken := read(rank, descriptor)):
            waiting -= taken
        if waiting <= 0 and not self.waiting(descriptor):
            read(rank, descriptor)

    def answer(self, rank: int, order: bytes = b"") -> None:
        """Open the gate a rank waits at.

        One that is gone, or does not read its answers, needs none.

        Args:
            rank: who waits.
            order: what the rank is to do before it goes on, one line without its newline; nothing
                for nothing.
        """
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._gates[rank], order + b"\n")

    def hang_up(self) -> None:
        """Leave a world that is not done: tell its keeper, and stay until it has ended everybody,
        or some seconds.
        """
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_WR)
            end = time.monotonic() + ABANDON_WITHIN
            while (left := end - time.monotonic()) > 0:
                self.control.settimeout(left)
                if not self.control.recv(CHUNK):
                    return

    def _hand(self, descriptor: int) -> None:
        self._theirs.callback(os.close, descriptor)
        self._handed.append(descriptor)

    def _watch(self, descriptor: int, kind: Kind, rank: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, (kind, rank))


class Gates:
    """Gates of one world. Ranks are answered only when every signal that was sent to one of them
    has landed.

    Attributes:
        held: rank to the gate that it is kept at; empty text until it stands there.
    """

    def __init__(self, answer: Callable[[int, bytes], None]) -> None:
        """Begin with every gate shut; `answer` writes to a rank that waits."""
        self._answer = answer
        self.held: dict[int, str] = {}
        self._orders: dict[int, list[Mapping[str, JSON]]] = {}
        self._waiting: list[int] = []
        self._then: list[Callable[[], None]] = []
        self._unlanded = 0
        # A fault may send a signal from a thread of its own, while this world hears of another.
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Return whether a rank waits at a gate for the harness."""
        return bool(self.held or self._waiting or self._unlanded)

    def order(self, rank: int, order: Mapping[str, JSON]) -> None:
        """Send an order along with the next answer to this rank."""
        self._orders.setdefault(rank, []).append(order)

    def signalled(self) -> None:
        """Count a signal that is about to be sent. Safe to call from another thread."""
        with self._lock:
            self._unlanded += 1

    def landed(self) -> None:
        """Count a signal that has landed."""
        with self._lock:
            self._unlanded -= 1
        self.open()

    def once_landed(self, do: Callable[[], None]) -> None:
        """Call `do` once every signal that was sent has landed."""
        self._then.append(do)
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
            then = self._then
            self._then = []
            for do in then:
                do()


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
