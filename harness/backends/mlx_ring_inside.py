"""Half of `mlx-ring` inside a rank.

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
from typing import Any, TypedDict, cast

from harness.rank.process import die_with_parent, inspect
from harness.rank.spec import RankSpec

# Between two looks at a port: an order below the time a rank needs to get there.
PAUSE = 0.0003
# What a rank on another machine may take to say who it is.
GREETED_WITHIN = 5.0


class RingRendezvous(TypedDict):
    """Part of one rank in the rendezvous that `mlx_ring.py` prepares, with its descriptors."""

    places: Sequence[tuple[str, int]]
    held: int | None
    turn: int | None
    tables: Sequence[int] | None
    across: bool
    door: int | None


class NotTheRing(RuntimeError):
    """MLX made another group than this world: going on in it would mean collectives that do
    nothing.
    """


class RingGroup:
    """Group of MLX. `native` is its `mlx.core.distributed.Group`: what MLX's collectives take as
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
    """Moment in which the last rank turns from connecting to listening, while the rank before
    it stands still.

    MLX connects and listens in one call that cannot be entered, so the rank before the last is
    stopped from outside by a child of its own, and goes on when the last rank listens. Over before
    any rank's subject begins. Linux only.
    """

    def __init__(self, spec: RankSpec) -> None:
        rendezvous = _rendezvous(spec)
        self._is_last = spec.rank == spec.size - 1
        self._places = rendezvous["places"]
        self._tables = rendezvous["tables"]
        self._line = socket.socket(fileno=rendezvous["turn"])

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Around joining, in the last rank and the one before it."""
        with self._line:
            if self._is_last:
                self._await_the_others()
                yield
                return
            child = _child(self._hold)
            # The last rank must see the child's end of the line closed when the child is gone.
            self._line.close()
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
        # An error means that the rank before is gone: MLX finds that out by itself.
        with contextlib.suppress(OSError):
            self._line.sendall(b"?")
            self._line.recv(1)

    def _hold(self, parent: int) -> None:
        """In the child: stop the parent when the last rank asks, until that rank listens or is
        gone.
        """
        if not self._line.recv(1):
            return
        # By descriptor: should the parent be gone, nobody else is hit.
        process = os.pidfd_open(parent)
        if os.getppid() != parent:
            return
        with _stopped(process, parent):
            self._line.sendall(b"!")
            while not self._listens(-1) and not select.select([self._line], [], [], PAUSE)[0]:
                pass

    def _listens(self, rank: int) -> bool:
        address, port = self._places[rank]
        return (
            listens(address, port) if self._tables is None else is_listed(self._tables[rank], port)
        )


class TurnAcross:
    """Turn where ranks are on several machines, of whose sockets a rank sees its own alone.

    Where the last rank is going to listen, it keeps a door open before: a child of every other rank
    comes to it once its parent listens, and that of the rank before the last has stopped its parent
    by then. When all have come the door is shut, and the last rank joins; a child of its own tells
    the one before when it listens. Linux only.
    """

    def __init__(self, spec: RankSpec) -> None:
        rendezvous = _rendezvous(spec)
        self._rank = spec.rank
        self._size = spec.size
        self._places = rendezvous["places"]
        self._door = rendezvous["door"]

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Around joining, in every rank."""
        if self._door is not None:
            before = self._await_the_others(socket.socket(fileno=self._door))
            child = _child(lambda _parent: self._tell_of_listening(before))
            before.close()
        else:
            is_before_last = self._rank == self._size - 2
            child = _child(lambda parent: self._come(parent, stops=is_before_last))
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
        come: dict[int, socket.socket] = {}
        with door:
            while len(come) < self._rank:
                line, _ = door.accept()
                # A number of two bytes; who says anything else is none of the others, and is not
                # waited for.
                line.settimeout(GREETED_WITHIN)
                with contextlib.suppress(OSError):
                    greeting = line.recv(2, socket.MSG_WAITALL)
                    other = int.from_bytes(greeting, "big")
                    if len(greeting) == 2 and other < self._rank:
                        come[other] = line
            # Whoever else holds it, as the process that forked this one does, nobody listens any
            # more.
            door.shutdown(socket.SHUT_RDWR)
        before = come.pop(self._rank - 1)
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
        # By descriptor: should the parent be gone, nobody else is hit.
        process = os.pidfd_open(parent)
        while not listens(*self._places[self._rank]):
            time.sleep(PAUSE)
        still = _stopped(process, parent) if stops else contextlib.nullcontext()
        with socket.create_connection(self._places[-1]) as line, still:
            line.sendall(self._rank.to_bytes(2, "big"))
            line.recv(1)


def _rendezvous(spec: RankSpec) -> RingRendezvous:
    return cast("RingRendezvous", spec.rendezvous)


def _child(do: Callable[[int], None]) -> int:
    """Have a child of this process do something, which ends with it; its pid.

    A process and no thread: what it does goes on while the parent, with all its threads, is
    stopped.
    """
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            die_with_parent(parent)
            do(parent)
        finally:
            # At once: what is registered for the end, and what is buffered, are the parent's.
            _exit(0)
    return child


@contextlib.contextmanager
def _stopped(process: int, pid: int) -> Iterator[None]:
    """Hold a process stopped meanwhile; begins when it stands still, or is gone.

    Args:
        process: its descriptor.
        pid: its number.
    """
    signal.pidfd_send_signal(process, signal.SIGSTOP)
    try:
        while (state := inspect(pid)) is not None and state.state not in "TtZX":
            time.sleep(PAUSE)
        yield
    finally:
        # Whatever happened: a rank that stays stopped would look like one that hangs.
        signal.pidfd_send_signal(process, signal.SIGCONT)


def is_listed(table: int, port: int) -> bool:
    """Return whether a socket listens on this port of a test host, by the host's table of TCP
    connections (Linux).
    """
    # Local address and port in hexadecimal, the remote ones, and the state: 0A is that of a socket
    # that listens.
    listening = re.compile(rb":%04X 0{8}:0000 0A " % port)
    text = b""
    # By place, and from the beginning: another look at the same descriptor must not go on where
    # this one ends.
    while data := os.pread(table, 65536, len(text)):
        text += data
    return listening.search(text) is not None


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

    rendezvous = _rendezvous(spec)
    hosts = Path(spec.scratch) / "mlx-hosts.json"
    hosts.write_text(json.dumps([[f"{address}:{port}"] for address, port in rendezvous["places"]]))
    os.environ["MLX_HOSTFILE"] = str(hosts)
    turn: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if rendezvous["across"]:
        turn = TurnAcross(spec).taken()
    elif rendezvous["turn"] is not None:
        turn = Turn(spec).taken()
    held = rendezvous["held"]
    with socket.socket(fileno=held) if held is not None else contextlib.nullcontext(), turn:
        # Strict: else MLX answers a setting it cannot use with a group of one.
        group = RingGroup(mx.distributed.init(strict=True, backend="ring"))
    if (group.rank, group.size) != (spec.rank, spec.size):
        raise NotTheRing(
            f"MLX reports that this is rank {group.rank} of {group.size}, but it was started as"
            f" rank {spec.rank} of {spec.size}; look for code that sets MLX_RANK or MLX_HOSTFILE,"
            " or that creates a group earlier"
        )
    return group
