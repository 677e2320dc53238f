"""Line to one machine of a run: starts its node, asks, beats every second, and knows when the
machine is lost.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.forms.strict_json import strict_json
from harness.forms.text import printable
from harness.world.machines import agent, store
from harness.world.machines.agent_channel import ENDS_WITHIN, AgentChannel, Start, Unreachable
from harness.world.machines.roll import Hostile

BEAT = 1.0
# Beyond the lease, what an answer may take on a machine that is busy.
PATIENCE = 1.0
MOST_SAID = 4096
# Answers that nobody has taken yet; it is asked one thing after the other.
MOST_WAITING = 4
# Exchanges that the clock is compared by: the fastest of the latest.
EXCHANGES = 64
# What two clocks may part by within one world, in parts: no crystal is worse.
DRIFT = 1e-4


def told_here(ns: int, *, ahead: int, within: int, begun: int, now: int) -> int:
    """Return a time of a machine's clock by ours.

    Args:
        ns: CLOCK_MONOTONIC nanoseconds there.
        ahead: nanoseconds that its clock is ahead of ours.
        within: nanoseconds that this is right to within.
        begun: when the world began, here.
        now: the latest that it can be, here.

    Raises:
        Hostile: it lies outside this world by more than clocks can.
    """
    slack = within + round(DRIFT * (now - begun)) + 1_000_000
    here = ns - ahead
    if not begun - slack <= here <= now + slack:
        raise Hostile("its clock changed")
    return min(max(here, begun), now)


class MachineLine:
    """Line to one machine of a run.

    Attributes:
        index: of the machine in the hostfile.
        lost: why the machine is not reached any more; empty while it is.
        hears: takes what the machine says of a world, with the bytes that go with it.
        round_trip: seconds that the fastest exchange took.
    """

    # Eight arguments: a line is made at one place, from what the fleet knows of its machine.
    def __init__(
        self,
        index: int,
        command: Start,
        *,
        within: float,
        lease: float,
        demand: Callable[[Mapping[str, Any]], None],
        root: tuple[str, dict[str, Path]],
        run: str,
        stop: int | None = None,
    ) -> None:
        """Reach the machine, and have a node there.

        Args:
            index: of the machine in the hostfile.
            command: starts the agent there.
            within: seconds until the node has to be there.
            lease: seconds without a heartbeat after which the node ends its ranks.
            demand: is given the facts of the machine, and raises where no rank can run there.
            root: digest and files of the Rankproof that it is to run.
            run: names the run there.
            stop: readable when nobody waits for an answer any more.

        Raises:
            Unreachable: no agent or node answers.
            OSError: what starts it is not here.
        """
        self.index = index
        self.lost = ""
        self.hears: Callable[[MachineLine, dict[str, Any], bytes], None] | None = None
        self.loses: Callable[[MachineLine], None] | None = None
        self._lease = lease
        self._stop = stop
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        # Held while a message is written: another would end it in the middle.
        self._writing = threading.Lock()
        # Several threads may notice together that the machine is lost, and one reports it.
        self._losing = threading.Lock()
        self._exchanges: list[tuple[int, int]] = []
        self._walls: list[tuple[int, int]] = []
        self._said = b""
        self._rest = b""
        self._took = time.monotonic()
        channel = AgentChannel(command, within=within, lease=max(lease, within), stop=stop)
        try:
            self.facts = channel.ask("facts", within=within)
            demand(self.facts)
            channel.give(*root, within=within)
            self._process = channel.become(
                root[0], {"lease": lease, "run": run, "machine": index}, within=within
            )
        except BaseException:
            channel.close()
            raise
        streams = self._process.stdin, self._process.stdout, self._process.stderr
        self._writes, self._reads, self._errors = (
            stream.fileno() for stream in streams if stream is not None
        )
        self._heard = self._took = time.monotonic()
        self._reader = threading.Thread(target=self._read, daemon=True, name=f"machine-{index}")
        self._reader.start()
        self.beat()

    # -- what is said

    def send(self, message: Mapping[str, Any], content: bytes = b"") -> None:
        """Send something; a machine that takes nothing for as long as its lease is lost."""
        whole = agent.frame(message, content)
        with self._writing:
            # The rest of a heartbeat of which the pipe took a part goes first, or this message
            # would end it.
            data = memoryview(self._rest + whole)
            self._rest = b""
            poll = select.poll()
            poll.register(self._writes, select.POLLOUT)
            while data and not self.lost:
                if not poll.poll(1000 * self._lease):
                    self.lose(f"it did not read from its channel for {self._lease:g} s")
                    return
                try:
                    data = data[os.write(self._writes, data) :]
                except BlockingIOError:
                    continue
                except OSError:
                    self.lose("its channel is closed")

    def ask(self, what: str, *, content: bytes = b"", within: float, **more: Any) -> dict[str, Any]:
        """Ask one thing; its answer.

        Raises:
            Unreachable: the machine is lost, or says that it cannot.
        """
        self.send({"ask": what, **more}, content)
        answer = self._answer(within)
        if "error" in answer:
            raise Unreachable(f"it answered {printable(str(answer['error']), limit=500)}")
        return answer

    def give(self, digest: str, files: dict[str, Path], *, within: float) -> bool:
        """As `harness.world.machines.agent_channel.AgentChannel.give`.

        Returns whether it was lacking there.
        """
        if lacks := bool(self.ask("lacks", trees=[digest], within=within).get("lacks")):
            for parts, content in store.pieces(files):
                self.ask("put", tree=digest, parts=parts, content=content, within=within)
            self.ask("keep", tree=digest, within=within)
        return lacks

    def beat(self) -> None:
        """Send a heartbeat, and look at how long nothing was heard.

        Waits for nothing: other machines are beaten next.
        """
        now = time.monotonic()
        silent = now - self._heard
        if not self.lost and silent > self._lease + PATIENCE:
            self._lose_aside(f"it sent nothing for {silent:.1f} s")
        if not self._writing.acquire(blocking=False):
            return  # something is being sent, which says as much
        try:
            # `close` marks the line as lost before it takes this lock to close the descriptor. The
            # number may be another machine's by now, so it is not written to on an older look.
            if self.lost:
                return
            taken = self._beat()
        except OSError:
            self._lose_aside("its channel is closed")
            return
        finally:
            self._writing.release()
        if taken:
            self._took = now
        elif now - self._took > self._lease:
            self._lose_aside(f"it did not read from its channel for {now - self._took:.1f} s")

    def _beat(self) -> bool:
        """Write a heartbeat, or the rest of the last one, as far as the pipe takes it.

        Whether it took anything.
        """
        data = self._rest or agent.frame({"ask": "beat", "ns": time.monotonic_ns()})
        try:
            count = os.write(self._writes, data)
        except BlockingIOError:
            return False  # full: a heartbeat that was not begun can be left out
        self._rest = data[count:]
        return True

    def _lose_aside(self, why: str) -> None:
        """Lose the machine in a thread of its own: whoever is told of the loss may have to wait."""
        threading.Thread(target=self.lose, args=(why,), daemon=True, name="lost").start()

    def _answer(self, within: float) -> dict[str, Any]:
        end = time.monotonic() + within
        while not self.lost and not self._is_stopped() and (left := end - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=min(left, 0.2))
        why = "the run is over" if self._is_stopped() else f"it did not answer within {within:g} s"
        self.lose(why)  # what it may still say answers nothing any more
        raise Unreachable(self.lost)

    def _is_stopped(self) -> bool:
        if self._stop is None:
            return False
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        return bool(poll.poll(0))

    # -- its clock

    @property
    def ahead(self) -> int:
        """Nanoseconds that its monotonic clock is ahead of ours, at the fastest of the latest
        exchanges.
        """
        return min(self._exchanges)[1] if self._exchanges else 0

    @property
    def within(self) -> int:
        """Nanoseconds that this is right to within: half of what that exchange took."""
        return min(self._exchanges)[0] // 2 if self._exchanges else 0

    @property
    def round_trip(self) -> float:
        """Seconds that the fastest exchange took."""
        return min(self._exchanges)[0] / 1e9 if self._exchanges else 0.0

    def offset(self) -> dict[str, float]:
        """Seconds that its wall clock is ahead of ours, and to within how many that is right."""
        took, ahead = min(self._walls, default=(0, 0))
        return {"offset": ahead / 1e9, "offset_within": took / 2e9}

    # -- what is heard

    def lose(self, why: str) -> None:
        """Mark the machine as lost, once."""
        with self._losing:
            if self.lost:
                return
            self.lost = why
        if self.loses is not None:
            self.loses(self)

    def close(self) -> None:
        """End the line, and with it the node; after a moment, also what started it."""
        self.lose("the run is over")
        # Under the lock: a writer that still has this number would write to whoever gets it next.
        with self._writing, contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if threading.current_thread() is not self._reader:
            self._reader.join(ENDS_WITHIN)  # it has read the end by now
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        try:
            while True:
                self._take(*self._message())
        except EOFError:
            code = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(ENDS_WITHIN)
            said = self._said.decode("utf-8", "replace").strip().splitlines()[-1:]
            last = f": {printable(said[0], limit=200)}" if said else ""
            self.lose(f"its channel ended (exit code {code}){last}")
        except (ValueError, TypeError, KeyError) as error:
            self.lose(f"it sent invalid data: {printable(str(error), limit=200)}")
        except OSError as error:
            self.lose(f"the data that it sent cannot be stored on this machine: {error}")

    def _message(self) -> tuple[dict[str, Any], bytes]:
        words, size = agent.HEAD.unpack(self._exactly(agent.HEAD.size))
        if words > agent.MOST_JSON or size > agent.MOST_BYTES:
            raise ValueError("it sent data that is not a valid message")
        message = strict_json(self._exactly(words))
        content = self._exactly(size)
        if not isinstance(message, dict):
            raise TypeError("it sent data that is not a valid message")
        return message, content

    def _take(self, message: dict[str, Any], content: bytes) -> None:
        if message.get("is") == "beat":
            now = time.monotonic_ns()
            sent = message["echo"]
            there = message["ns"]
            if (
                type(sent) is not int
                or type(there) is not int
                or not 0 < sent <= now
                or not 0 <= there < 2**63
            ):
                raise ValueError("its clock is not valid")
            # Of the latest exchanges alone: clocks drift.
            self._exchanges = [
                *self._exchanges[1 - EXCHANGES :],
                (now - sent, there - sent - (now - sent) // 2),
            ]
            wall = message["wall"]
            if type(wall) is int and 0 <= wall < 2**63:
                self._walls = [
                    *self._walls[1 - EXCHANGES :],
                    (now - sent, wall - time.time_ns() + (now - sent) // 2),
                ]
        elif "world" in message:
            if self.hears is not None:
                self.hears(self, message, content)
        elif self._answers.qsize() >= MOST_WAITING:
            raise ValueError("it answered a request that was not made")
        else:
            self._answers.put(message)

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        poll = select.poll()
        poll.register(self._reads, select.POLLIN)
        if self._errors >= 0:
            poll.register(self._errors, select.POLLIN)
        while len(parts) < count:
            ready = dict(poll.poll())
            if self._errors in ready:
                with contextlib.suppress(BlockingIOError):
                    said = os.read(self._errors, MOST_SAID)
                    self._said = (self._said + said)[-MOST_SAID:]
                    if not said:
                        poll.unregister(self._errors)
                        self._errors = -1
            if self._reads in ready:
                with contextlib.suppress(BlockingIOError):
                    part = os.read(self._reads, min(count - len(parts), 2**20))
                    if not part:
                        raise EOFError
                    parts += part
                    self._heard = time.monotonic()
        return bytes(parts)
