"""One world whose ranks are on several machines, as worlds are known: the socket of a keeper, and
pipes of each rank.

What machines say is made into what one keeper would have said: times become those of this machine's
clock, an order to all is answered once all have, and the world is gone when all shares of it are.
What a machine may say is bounded, and who says something else is lost: nothing that it said is made
right.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.world.below.requests import send
from harness.world.control.names import Elsewhere
from harness.world.control.pipes import CHUNK
from harness.world.machines.agent_channel import Unreachable
from harness.world.machines.heartbeat import MachineLine, told_here
from harness.world.machines.roll import HandedOver, Hostile, Placed, Roll

COLLECTED_WITHIN = 60.0


class Relay:
    """Relay of one world. Use once, and close it.

    Attributes:
        elsewhere: rank to what is called otherwise on its machine.
        given: machine to what it said when its share was over.
        heard: machine to how many messages it sent.
        collected: machines that were lost, and whose journal came whole.
    """

    # Eight arguments: a relay is made at one place, from what its fleet and its world have.
    def __init__(
        self,
        lines: Mapping[int, MachineLine],
        placed: Placed,
        *,
        mark: str,
        run: str = "",
        begun: int,
        descriptors: Sequence[int],
        scratch: Path,
        reconnect: Callable[[int], MachineLine | None],
    ) -> None:
        """Begin to relay.

        Args:
            lines: of the machines that have ranks.
            placed: the machine of each rank.
            mark: of the world.
            run: by which machines know the run: what one writes down is found by it when the run is
                over.
            begun: CLOCK_MONOTONIC nanoseconds when it began.
            descriptors: the keeper's socket, then events, gates and log of each rank; they are
                copied.
            scratch: where ranks' folders are laid out from what they leave.
            reconnect: reaches a lost machine again, by its index; None where it does not come back
                in time.
        """
        self._lines = dict(lines)
        self._placed = placed
        self._mark = mark
        self._run = run
        self._begun = begun
        # Copies, because the world closes its own as soon as the ranks are asked for.
        duplicates = [os.dup(descriptor) for descriptor in descriptors]
        self._control = socket.socket(fileno=duplicates[0])
        self._pipes = [duplicates[1 + 3 * rank : 4 + 3 * rank] for rank in range(len(placed.of))]
        # One offset for the whole world, so that time goes one way within a machine.
        self.clocks = {index: (line.ahead, line.within) for index, line in lines.items()}
        self.elsewhere: dict[int, Elsewhere] = {}
        self.given: dict[int, dict[str, Any]] = {}
        self.heard: dict[int, int] = dict.fromkeys(lines, 0)
        self.collected: set[int] = set()
        # Each line has a thread, and so has what goes down. It is taken again by who holds it: to
        # look who is there, and to report.
        self._lock = threading.RLock()
        # Held while a rank's pipes are written to or closed, so that nothing is written to a number
        # that was closed and is another file's by now. Not `_lock`: a full pipe blocks its writer,
        # and others must be able to report meanwhile.
        self._writing = [threading.Lock() for _ in placed.of]
        self._roll = Roll(placed, mark=mark)
        self._left = HandedOver(scratch, size=len(placed.of))
        self._closed: set[tuple[int, str]] = set()
        self._gone: set[int] = set()
        self._lost: set[int] = set()
        self._survivors: dict[int, dict[str, Any]] = {}
        self._stood: set[int] = set()
        # An order to all, until everybody has answered: who has to, and what they said.
        self._awaited: list[tuple[set[int], dict[str, Any]]] = []
        self._over = threading.Condition(self._lock)
        self._is_told = False
        self._reconnect = reconnect
        self._returning: set[int] = set()
        # Closing the second end wakes the thread below, which waits in `poll`.
        self._wake, self._waker = os.pipe()
        for line in lines.values():
            line.hears = self.hear
            line.loses = self.lose
        self._thread = threading.Thread(target=self._listen, daemon=True, name="relay")
        self._thread.start()

    def close(self) -> None:
        """Stop relaying, and close what was copied."""
        for line in self._lines.values():
            line.hears = line.loses = None
        os.close(self._waker)
        self._thread.join()
        with self._lock:
            self._control.close()
        for pipes, writing in zip(self._pipes, self._writing, strict=True):
            # A writer that is blocked here ends: the world has closed the other ends before.
            with writing:
                for place, descriptor in enumerate(pipes):
                    if descriptor >= 0:
                        os.close(descriptor)
                    pipes[place] = -1
        os.close(self._wake)

    def await_over(self, seconds: float) -> bool:
        """Wait until every machine that is not lost has handed over what its ranks left.

        Whether they have.
        """
        with self._over:
            return self._over.wait_for(
                lambda: self._lost | self.given.keys() >= self._lines.keys(), seconds
            )

    @property
    def lost(self) -> set[int]:
        """Return the machines that were lost while this world had ranks or their files there."""
        return set(self._lost)

    # -- down

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        gates = {pipes[1]: rank for rank, pipes in enumerate(self._pipes)}
        for gate in gates:
            os.set_blocking(gate, False)
            poll.register(gate, select.POLLIN)
        text = b""
        while True:
            ready = dict(poll.poll())
            if self._wake in ready:
                return
            for gate in ready.keys() & gates.keys():
                data = b""
                with contextlib.suppress(BlockingIOError):
                    if not (data := os.read(gate, CHUNK)):
                        poll.unregister(gate)
                for answer in data.split(b"\n")[:-1]:
                    self._send(gates[gate], {"ask": "gate", "rank": gates[gate]}, answer)
            if self._control.fileno() in ready:
                try:
                    data = self._control.recv(CHUNK)
                except ConnectionError:
                    data = b""
                if not data:  # the world is left before its end
                    poll.unregister(self._control)
                    self._to_all({"ask": "stop"})
                *lines, text = (text + data).split(b"\n")
                for line in lines:
                    self._order(json.loads(line))

    def _order(self, order: dict[str, Any]) -> None:
        if order["rank"] is not None:
            self._send(order["rank"], {"ask": "order", "order": order})
        else:
            with self._lock:
                self._awaited.append((self._there(), {"signal": order["signal"], "ranks": []}))
            self._to_all({"ask": "order", "order": order})
            self._settle()

    def ask_stacks(self, ranks: Sequence[int]) -> None:
        """Have the machines ask these ranks where they stand.

        They tell of each, and that it was all.
        """
        with self._lock:
            self._stood = set()
        self._to_all({"ask": "stacks", "able": list(ranks)})

    def _send(self, rank: int, message: dict[str, Any], content: bytes = b"") -> None:
        line = self._lines[self._placed.of[rank]]
        if line.index in self._there():
            line.send({**message, "world": self._mark}, content)
        elif message["ask"] == "order":
            # Nobody there does it any more, and a gate may wait for the answer.
            order = message["order"]
            if "signal" in order:
                self._tell(
                    {
                        "is": "signalled",
                        "ns": time.monotonic_ns(),
                        "signal": order["signal"],
                        "ranks": [],
                    }
                )

    def _to_all(self, message: dict[str, Any]) -> None:
        for index in sorted(self._there()):
            self._lines[index].send({**message, "world": self._mark})

    def _there(self) -> set[int]:
        """Machines whose keeper is still there."""
        with self._lock:
            return {*self._lines} - self._gone - self._lost

    # -- up

    def hear(self, line: MachineLine, message: dict[str, Any], content: bytes) -> None:
        """Take what a machine says of this world; called by the thread of its line."""
        if message["world"] != self._mark:
            return
        if message.get("n") != self.heard[line.index] + 1:
            raise Hostile("its messages are out of sequence")
        self.heard[line.index] += 1
        self._roll.weigh(line.index, message)
        rank = message.get("rank")
        if rank is not None and not self._roll.has(line.index, rank):
            raise Hostile("it sent a message about a rank that was not placed on it")
        kind = message.get("is")
        if rank is not None:
            self._hear_rank(rank, kind, message, content)
        else:
            self._hear_machine(line, kind, message)

    def _hear_rank(
        self, rank: int, kind: object, message: Mapping[str, Any], content: bytes
    ) -> None:
        match kind:
            case "events" | "log":
                self._write(rank, kind, content)
            case "closed":
                self._close_pipe(rank, str(message.get("what")))
                if message.get("early") is True:
                    self._tell({"is": "silenced", "rank": rank})
            case "file":
                self._left.begin(rank, str(message.get("name")), odd=bool(message.get("odd")))
            case "part":
                self._left.add(rank, str(message.get("name")), content)
            case "state":
                self._tell({"is": "state", "rank": rank, "state": str(message.get("state"))[:8]})
            case "stack":
                self._left.stand(rank, content)
            case "measured":
                self._tell(
                    {
                        "is": "measured",
                        "rank": rank,
                        "at": message.get("at"),
                        "read": message.get("read"),
                    }
                )
            case _:
                raise Hostile("it sent an unknown message about a rank")

    def _hear_machine(self, line: MachineLine, kind: object, message: dict[str, Any]) -> None:
        match kind:
            case "keeper":
                self._hear_keeper(line, message.get("told"))
            case "begun":
                names = Elsewhere.from_message(message["names"], code=str(message["code"]))
                self.elsewhere |= dict.fromkeys(self._placed.ranks(line.index), names)
            case "stood":
                with self._lock:
                    self._stood.add(line.index)
                self._settle()
            case "ended":
                if type(message.get("ns")) is not int:
                    raise Hostile("it did not report the time at which it stopped its ranks")
                ended: dict[str, Any] = {
                    "why": str(message.get("why"))[:2000],
                    "ranks": self._roll.left(line.index),
                }
                if type(silent := message.get("silent")) is float and 0 <= silent < 1e6:
                    ended["silent"] = silent
                ns = self._here(line.index, message["ns"])
                self._tell({"is": "machine-ended", "machine": line.index, "ns": ns, **ended})
            case "failed":
                self._fail(line.index, str(message.get("why")))
            case "left":
                pass  # the end of a journal
            case "over":
                with self._over:
                    self.given[line.index] = message
                    self._over.notify_all()
            case _:
                raise Hostile("it sent an unknown message")

    def lose(self, line: MachineLine) -> None:
        """Take the loss of a machine; called from whichever thread notices it."""
        with self._over:
            if line.index in self._lost or line.index in self.given:
                return
            self._lost.add(line.index)
            self._returning.add(line.index)
            self._over.notify_all()
        ranks = self._roll.left(line.index)
        self._tell({"is": "machine-lost", "machine": line.index, "why": line.lost, "ranks": ranks})
        self._settle()
        threading.Thread(
            target=self._bring_back, args=(line.index,), daemon=True, name="collect"
        ).start()

    def _bring_back(self, index: int) -> None:
        """Collect what a lost machine wrote down, once it is reached again; or give up."""
        count = 0
        why = "it did not come back in time"
        if (line := self._reconnect(index)) is not None:
            self._tell({"is": "machine-back", "machine": index})
            line.hears = self.hear
            self._lines[index] = line
            before = self.heard[index]
            try:
                given = line.ask("collect", world=self._mark, after=before, within=COLLECTED_WITHIN)
                count = self.heard[index] - before
                why = (
                    "" if given.get("there") and given.get("whole") else "its journal is incomplete"
                )
                if not why:
                    self.collected.add(index)
            except Unreachable as error:
                why = str(error)
        late = {"messages": count, "why": why, **({"run": self._run} if why else {})}
        self._tell({"is": "machine-collected", "machine": index, "late": late})
        with self._lock:
            self._returning.discard(index)
        self._settle()

    def _hear_keeper(self, line: MachineLine, words: Any) -> None:
        message = self._roll.check(line.index, words)
        message["ns"] = self._here(line.index, message["ns"])
        match message["is"]:
            case "signalled" if not message.get("own"):
                self._answered(line.index, message)
            case "survivors":
                self._survivors[line.index] = message
            case "gone":
                with self._lock:
                    self._gone.add(line.index)
                self._settle()
            case "unable":
                self._fail(line.index, str(message.get("why")))
            case _:
                self._tell(message)

    def _answered(self, index: int, message: Mapping[str, Any]) -> None:
        """Take the answer of a machine to an order to all ranks, or to one of its own."""
        with self._lock:
            waiting = next(
                (
                    awaited
                    for awaited in self._awaited
                    if index in awaited[0] and awaited[1]["signal"] == message["signal"]
                ),
                None,
            )
            if waiting is not None:
                waiting[0].discard(index)
                waiting[1]["ranks"] += message["ranks"]
        if waiting is None:
            self._tell(dict(message))
        self._settle()

    def _fail(self, index: int, why: str) -> None:
        """Take the failure of a machine to have its ranks."""
        self._tell({"is": "lost", "why": f"machine {self._placed.called[index]}: {why[:2000]}"})
        with self._lock:
            self._gone.add(index)
        self._settle()

    def _settle(self) -> None:
        """Tell what all have answered, and when nobody of the world is left."""
        said: list[dict[str, Any]] = []
        now = time.monotonic_ns()
        with self._lock:
            there = self._there()
            for awaited in list(self._awaited):
                if not awaited[0] & there:
                    self._awaited.remove(awaited)
                    said.append({"is": "signalled", "ns": now, **awaited[1]})
            if self._stood and self._stood >= there:
                self._stood = set()
                said.append({"is": "stood", "ns": now})
            if not there and not self._returning and not self._is_told:
                self._is_told = True
                if self._survivors.keys() >= self._lines.keys():
                    processes = [
                        process
                        for report in self._survivors.values()
                        for process in report["processes"]
                    ]
                    count = sum(report["count"] for report in self._survivors.values())
                    said.append(
                        {"is": "survivors", "ns": now, "count": count, "processes": processes[:50]}
                    )
                said.append({"is": "gone", "ns": now})
        for message in said:
            self._tell(message)
        # After all else was reported: nothing can be sent any more.
        if any(message["is"] == "gone" for message in said):
            with contextlib.suppress(OSError):  # whoever left early waits for this
                self._control.shutdown(socket.SHUT_WR)

    def _tell(self, message: dict[str, Any]) -> None:
        """Report as the keeper of the whole world."""
        with self._lock, contextlib.suppress(OSError):
            send(self._control, {"ns": time.monotonic_ns(), **message})

    def _here(self, index: int, ns: int) -> int:
        """Return a time of a machine's clock by ours.

        One that lies outside this world by more than clocks can is refused.
        """
        ahead, within = self.clocks[index]
        return told_here(ns, ahead=ahead, within=within, begun=self._begun, now=time.monotonic_ns())

    # -- pipes

    def _write(self, rank: int, kind: str, content: bytes) -> None:
        if (rank, kind) in self._closed:
            raise Hostile("it sent more data from a pipe that was already closed")
        left = memoryview(content)
        with self._writing[rank], contextlib.suppress(OSError):
            descriptor = self._pipes[rank][0 if kind == "events" else 2]
            while left and descriptor >= 0:
                left = left[os.write(descriptor, left) :]

    def _close_pipe(self, rank: int, kind: str) -> None:
        place = {"events": 0, "log": 2}.get(kind)
        if place is None or (rank, kind) in self._closed:
            raise Hostile("it closed a pipe that was not open")
        self._closed.add((rank, kind))
        with self._writing[rank]:
            descriptor = self._pipes[rank][place]
            self._pipes[rank][place] = -1
            if descriptor >= 0:
                os.close(descriptor)
