"""The half of `mlx-ring` inside a rank.

MLX makes the ring itself: every rank but the last listens, accepts, then connects to the next; the
last one connects to rank 0 and listens only then. Whoever connects to a rank that does not listen
yet sleeps a second inside MLX. `Turn` keeps that from happening (docs/adr/0007).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from os import _exit
from pathlib import Path
from typing import Any

from harness.rank.process import die_with_parent, inspect
from harness.rank.spec import RankSpec

# Between two looks at a port: an order below the time a rank needs to get there.
PAUSE = 0.0003
# What a rank on another machine may take to say who it is.
GREETED_WITHIN = 5.0


class NotTheRing(RuntimeError):
    """MLX made another group than this world: going on in it would mean collectives that do
    nothing.
    """


class RingGroup:
    """A group of MLX. `native` is its `mlx.core.distributed.Group`: what MLX's collectives take as
    `group`.
    """

    def __init__(self, native: Any) -> None:
        self.native: Any = native

    @property
    def rank(self) -> int:
        return int(self.native.rank())

    @property
    def size(self) -> int:
        return int(self.native.size())

    def barrier(self) -> None:
        import mlx.core as mx

        # MLX is lazy: without eval nothing would be sent.
        mx.eval(
            mx.distributed.all_sum(mx.array([1], dtype=mx.int32), group=self.native, stream=mx.cpu)
        )

    def all_gather(self, data: bytes) -> list[bytes]:
        import mlx.core as mx
        import numpy as np

        gathered = self._gather(mx.array([len(data)], dtype=mx.int64))
        lengths: list[int] = gathered.tolist()
        longest = max(1, *lengths)
        padded = np.frombuffer(data.ljust(longest, b"\0"), dtype=np.uint8)
        everyone = bytes(memoryview(self._gather(mx.array(padded))))
        return [everyone[rank * longest :][:length] for rank, length in enumerate(lengths)]

    def leave(self) -> None:
        """Nothing to do: MLX keeps its groups until the process ends, and the sockets close with
        it.
        """

    def _gather(self, mine: Any) -> Any:
        """Concatenate every rank's array, in rank order."""
        import mlx.core as mx

        gathered = mx.distributed.all_gather(mine, group=self.native, stream=mx.cpu)
        mx.eval(gathered)
        return gathered


class Turn:
    """The moment in which the last rank turns from connecting to listening, while the rank before
    it stands still.

    MLX connects and listens in one call that cannot be entered, so the rank before the last is
    stopped from outside by a child of its own, and goes on when the last rank listens. Over before
    any rank's subject begins. Linux only.
    """

    def __init__(self, spec: RankSpec) -> None:
        self._last = spec.rank == spec.size - 1
        self._places: Sequence[tuple[str, int]] = spec.rendezvous["places"]
        self._tables: Sequence[int] | None = spec.rendezvous["tables"]
        self._end = socket.socket(fileno=spec.rendezvous["turn"])

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Around joining, in the last rank and the one before it."""
        with self._end:
            if self._last:
                self._await_the_others()
                yield
                return
            child = _child(self._hold)
            # The last rank must see the child's end of the line closed when the child is gone.
            self._end.close()
            try:
                yield
            except BaseException:
                os.kill(child, signal.SIGKILL)
                raise
            finally:
                os.waitpid(child, 0)

    def _await_the_others(self) -> None:
        """Connect when all the others listen, and the one before has been stopped, or is gone."""
        for rank in range(len(self._places) - 1):
            while not self._listens(rank):
                time.sleep(PAUSE)
        with contextlib.suppress(OSError):
            self._end.sendall(b"?")
            self._end.recv(1)

    def _hold(self, parent: int) -> None:
        """In the child: stop the parent when the last rank asks, until that rank listens or is
        gone.
        """
        if not self._end.recv(1):
            return
        # By descriptor: should the parent be gone, nobody else is hit.
        process = os.pidfd_open(parent)
        if os.getppid() != parent:
            return
        signal.pidfd_send_signal(process, signal.SIGSTOP)
        try:
            while (found := inspect(parent)) is not None and found.state not in "TtZX":
                time.sleep(PAUSE)
            self._end.sendall(b"!")
            while not self._listens(-1) and not select.select([self._end], [], [], PAUSE)[0]:
                pass
        finally:
            signal.pidfd_send_signal(process, signal.SIGCONT)

    def _listens(self, rank: int) -> bool:
        address, port = self._places[rank]
        return (
            listens(address, port) if self._tables is None else is_listed(self._tables[rank], port)
        )


class TurnAcross:
    """The same where ranks are on several machines, of whose sockets a rank sees its own alone.

    Where the last rank is going to listen, it keeps a door open before: a child of every other rank
    comes to it once its parent listens, and that of the rank before the last has stopped its parent
    by then. When all have come the door is shut, and the last rank joins; a child of its own tells
    the one before when it listens. Linux only.
    """

    def __init__(self, spec: RankSpec) -> None:
        self._own = spec.rank, spec.size
        self._places: Sequence[tuple[str, int]] = spec.rendezvous["places"]
        self._door: int | None = spec.rendezvous.get("door")

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Around joining, in every rank."""
        rank, size = self._own
        if self._door is not None:
            before = self._await_the_others(socket.socket(fileno=self._door))
            child = _child(lambda _parent: self._tell_of_listening(before))
            before.close()
        else:
            child = _child(lambda parent: self._come(parent, stops=rank == size - 2))
        try:
            yield
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            os.waitpid(child, 0)

    def _await_the_others(self, door: socket.socket) -> socket.socket:
        """In the last rank: return when all others listen, with the line to the one before, which
        stands still.
        """
        rank, _ = self._own
        come: dict[int, socket.socket] = {}
        with door:
            while len(come) < rank:
                line, _ = door.accept()
                # A number of two bytes; who says anything else is none of the others, and is not
                # waited for.
                line.settimeout(GREETED_WITHIN)
                with contextlib.suppress(OSError):
                    said = line.recv(2, socket.MSG_WAITALL)
                    if len(said) == 2 and (other := int.from_bytes(said, "big")) < rank:
                        come[other] = line
            # Whoever else holds it, as the process that forked this one does, nobody listens any
            # more.
            door.shutdown(socket.SHUT_RDWR)
        before = come.pop(rank - 1)
        for line in come.values():
            line.close()
        before.settimeout(None)
        return before

    def _tell_of_listening(self, before: socket.socket) -> None:
        """In a child of the last rank: have the one before go on once its parent listens."""
        while not listens(*self._places[-1]):
            time.sleep(PAUSE)
        before.sendall(b"!")

    def _come(self, parent: int, *, stops: bool) -> None:
        """In a child of another rank: tell the last one that its parent listens.

        Stop it until that one does.
        """
        rank, _ = self._own
        process = os.pidfd_open(parent)
        while not listens(*self._places[rank]):
            time.sleep(PAUSE)
        with socket.create_connection(self._places[-1]) as line:
            if not stops:
                line.sendall(rank.to_bytes(2, "big"))
                line.recv(1)
                return
            signal.pidfd_send_signal(process, signal.SIGSTOP)
            try:
                while (found := inspect(parent)) is not None and found.state not in "TtZX":
                    time.sleep(PAUSE)
                line.sendall(rank.to_bytes(2, "big"))
                line.recv(1)
            finally:
                signal.pidfd_send_signal(process, signal.SIGCONT)


def _child(do: Callable[[int], None]) -> int:
    """Have a child of this process do something, which ends with it; its pid."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            die_with_parent(parent)
            do(parent)
        finally:
            _exit(0)
    return child


def is_listed(table: int, port: int) -> bool:
    """Return whether a socket listens on this port of a test host, by the host's table of TCP
    connections (Linux).
    """
    # Local address and port in hexadecimal, the remote ones, and the state: 0A is that of a socket
    # that listens.
    listening = re.compile(rb":%04X 0{8}:0000 0A " % port)
    found = b""
    place = 0
    while data := os.pread(table, 65536, place):
        found = found + data
        place = place + len(data)
    return listening.search(found) is not None


def listens(address: str, port: int) -> bool:
    """Return whether a socket listens on this port of this machine.

    Connecting would tell, and take the place of a rank.

    With SO_REUSEADDR on both sides, Linux lets an address be bound twice unless one of the two
    listens.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return True
    return False


def join(spec: RankSpec) -> RingGroup:
    """Join the ring; returns when every rank is there."""
    import mlx.core as mx

    hosts = Path(spec.scratch) / "mlx-hosts.json"
    hosts.write_text(
        json.dumps([[f"{address}:{port}"] for address, port in spec.rendezvous["places"]])
    )
    os.environ["MLX_HOSTFILE"] = str(hosts)
    turn: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if spec.rendezvous.get("across"):
        turn = TurnAcross(spec).taken()
    elif spec.rendezvous["turn"] is not None:
        turn = Turn(spec).taken()
    held = spec.rendezvous["held"]
    with socket.socket(fileno=held) if held is not None else contextlib.nullcontext(), turn:
        # Strict: else MLX answers a setting it cannot use with a group of one.
        group = RingGroup(mx.distributed.init(strict=True, backend="ring"))
    if (group.rank, group.size) != (spec.rank, spec.size):
        raise NotTheRing(
            f"MLX calls this rank {group.rank} of {group.size}; it was started as {spec.rank} of"
            f" {spec.size}: look for what sets MLX_RANK or MLX_HOSTFILE, or made a group before"
        )
    return group
