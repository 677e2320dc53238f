"""One world: its ranks started, watched, and stopped if need be."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sched
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.backends import prepare
from harness.events import Event
from harness.forms.digest import mark
from harness.forms.kernel import signal_name
from harness.forms.strict_json import JSON
from harness.rank.process import lives_on
from harness.world.below.grip import PRESSED
from harness.world.below.leftovers import remove
from harness.world.control.capture import Capture, Recorder
from harness.world.control.ending import Ending
from harness.world.control.hang import HangWatch
from harness.world.control.launch import Launch, WorldGround, describe
from harness.world.control.pipes import Gates, Pipes, StartLine
from harness.world.control.places import HostControl, MachineControl
from harness.world.control.pool import Pool, PortLease
from harness.world.control.ranks import RankChannel, RankStates, probe
from harness.world.control.room import RoomNotEmpty
from harness.world.control.server_handle import Cancelled, ServerFailed, ServerHandle
from harness.world.machines.machine_server import MachineServer

__all__ = ["Cancelled", "World"]

# What a keeper says that is an event as it is.
TOLD = {kind: f"rank.{kind}" for kind in ("started", "stopped", "continued", *PRESSED.values())}
TOLD |= {"executed": "program.started", "survivors": "world.survivors"}


class KeeperGone(ServerFailed):
    """Keeper of a world that ended before its ranks did; its server may be well."""


class World:
    """One start of one set of ranks. Use once: `World(...).run()`.

    Its `mark` says which it is, as ranks are told.
    """

    # Nine arguments: most are hearers, one for each stage of a world, given by name.
    def __init__(
        self,
        launch: Launch,
        pool: Pool,
        *,
        cancel: int | None = None,
        on_gate: Callable[[World, Event], None] | None = None,
        on_begin: Callable[[World], None] | None = None,
        on_hosts: Callable[[World, list[int]], None] = lambda _world, _descriptors: None,
        on_left: Callable[[World, Path], None] | None = None,
        on_end: Callable[[World], None] | None = None,
        keeps_waiting: Callable[[], str] | None = None,
    ) -> None:
        self._launch = launch
        self._pool = pool
        self._cancel = cancel
        self._on_gate = on_gate
        self._on_begin = on_begin
        self._on_hosts = on_hosts
        self._on_left = on_left
        self._on_end = on_end
        self._keeps_waiting = keeps_waiting
        given = [dict(launch.subject.arguments), dict(launch.subject.env)]
        self._recorder = Recorder(
            size=launch.size, code=launch.subject.folder, python=launch.start.python, given=given
        )
        # In the order in which they came, as yet.
        self.events: Sequence[Event] = self._recorder.events
        self._begun = 0
        self.mark = ""
        self._states = RankStates(size=launch.size)
        self._hosts = HostControl(launch, self._recorder, self._states)
        self._machines = MachineControl(launch, self._recorder, self._states)
        self._channels: dict[int, RankChannel] = {}
        # Not there yet.
        self._gates = Gates(lambda rank, order: self._pipes.answer(rank, order))  # noqa: PLW0108
        self._line = StartLine(
            launch, self._recorder, self._states, self._gates, let_go=self._let_go
        )
        self._expected: set[int] = set()
        self._awaited: dict[tuple[str, int], list[Callable[[], None]]] = {}
        self._timers = sched.scheduler(time.monotonic)
        self._over = False
        self._scratch: Path | None = None
        self._gone = False
        self._ordering = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake: Callable[[], None] | None = None
        self._pipes: Pipes
        self._ending: Ending
        self._hang: HangWatch | None = None

    # -- what a fault may do to a world

    @property
    def pids(self) -> Mapping[int, int]:
        """Rank to pid, of the ranks that were started."""
        return self._states.started

    def signal(self, number: int, *, rank: int | None = None) -> None:
        """Send a signal to a rank, or to all that live.

        The keeper sends it, so that no reused pid is ever hit.

        It evidences it by `world.signalled`. A gate that is answered after this opens only when the
        signal has landed. Safe to call from another thread. Does nothing once the world is over.
        """
        self._order(rank, signal=int(number))

    def press(self, rank: int, what: str, **order: JSON) -> None:
        """Have the keeper do something to a rank from outside: a method of
        `harness.world.below.grip.Grip`.
        """
        self._order(rank, **{what: order})

    def _order(self, rank: int | None, **order: JSON) -> None:
        if not self._over:
            # A fault may order from a thread of its own: no line is written into another.
            with self._ordering, contextlib.suppress(OSError):
                # Counted before it is sent: an answer that is faster would open the gates too soon.
                self._gates.signalled()
                self._pipes.control.sendall(json.dumps({"rank": rank, **order}).encode() + b"\n")

    def wire(self, order: Mapping[str, JSON]) -> None:
        """Tell the wire between the test hosts what to do.

        It says `wire.struck` or `wire.undone` when that is so.
        """
        if self._hosts.is_there:
            self._order(None, wire=self._hosts.order(order))

    def cut_off(self, rank: int, *, fault: str) -> None:
        """Pull the cable of the rank's machine out, where it is a test machine."""
        self._machines.cut_off(rank, fault=fault)

    def join(self, rank: int, *, fault: str) -> None:
        """Put it in again, if this fault pulled it; also once the world is over."""
        self._machines.join(rank, fault=fault)

    def note(self, name: str, *, rank: int | None = None, **values: JSON) -> None:
        """Add an event of the harness."""
        self._recorder.note(name, rank=rank, **values)

    def add(self, event: Event) -> None:
        """Add an event of the harness that happened at another moment than now."""
        self._recorder.add(event)

    def hold(self, rank: int) -> None:
        """Keep a rank at the gate it stands at, until `release`. To be called from `on_gate`."""
        self._gates.held[rank] = ""

    def release(self, rank: int) -> None:
        """Let a rank that is held go on.

        Nothing happens where it is not held, has ended, or the world is over.
        """
        if (gate := self._gates.held.pop(rank, None)) and not self._over:
            self._line.let_through(rank, gate)

    def tell(self, rank: int, order: Mapping[str, JSON]) -> None:
        """Send an order along with the next answer to a gate of this rank: what `harness.rank.emit`
        does there.
        """
        self._gates.order(rank, order)

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Call `do` in this world's thread when so much time has passed, unless the world is over
        before.
        """
        self._timers.enter(seconds, 0, do)

    def once_landed(self, do: Callable[[], None]) -> None:
        """Call `do` in this world's thread once every signal and order that was sent has landed."""
        self._gates.once_landed(do)

    def call(self, do: Callable[[], None]) -> None:
        """Call `do` in this world's thread; at once where the world is over, and orders nothing.

        Safe to call from another thread, and before the world runs.
        """
        with self._ordering:
            is_over = self._over
            if not is_over:
                self._calls.put(do)
            if self._wake is not None:
                self._wake()
        if is_over:
            do()

    def once(self, name: str, *, rank: int, do: Callable[[], None]) -> None:
        """Call `do` when the keeper next tells `name` of a rank, such as `rank.stopped`, or
        `wire.struck FAULT`.
        """
        self._awaited.setdefault((name, rank), []).append(do)

    def expect_end(self, rank: int) -> None:
        """Take the end of this rank, however it ends, as meant: the others keep their time until
        the deadline.
        """
        self._expected.add(rank)

    # -- life

    def run(self) -> Capture:
        """Start the ranks, stay until nothing of them is left, and return what they left.

        An error of the harness itself (no port, no space, the server gone) becomes the event
        `harness.error`. Before a rank has begun it makes the trial void, afterwards it fails it:
        docs/adr/0006.

        Raises:
            Cancelled: the run was interrupted.
        """
        launch = self._launch
        program = {"program": True} if launch.subject.program else {}
        placed = {**self._hosts.about(), **self._machines.about()}
        about = {
            **launch.about,
            **program,
            **placed,
            "size": launch.size,
            "backend": launch.backend,
        }
        begun = Event(
            ns=time.monotonic_ns(),
            by="harness",
            name="world.begin",
            values={**about, "harness_pid": os.getpid()},
        )
        self.add(begun)
        self.mark = mark(begun.line().encode("ascii"))
        server: ServerHandle | MachineServer | None = None
        usable = over = False
        try:
            if self._on_begin is not None:
                self._on_begin(self)
            server = self._pool.take(
                warm=launch.start.warm,
                env=launch.subject.env,
                python=launch.start.python,
                shared_home=launch.start.shared_home,
                preload=launch.start.preload,
            )
            usable = True
            self._run(server)
            over = True
        except ServerFailed as error:
            self._recorder.failed("ServerFailed", error)
            usable = isinstance(error, KeeperGone)
        except OSError as error:
            self._recorder.failed(type(error).__name__, error)
            usable = usable and not isinstance(error, RoomNotEmpty)
        finally:
            # First: a fault that orders something from now on finds no keeper.
            with self._ordering:
                self._over = True
            # Of other threads, where the world ended before it took any.
            self._make_calls()
            if self._on_end is not None:
                self._on_end(self)
            if server is not None:
                # The next world has the same room. A keeper's last word is that nobody is left;
                # without it, the server is asked.
                usable = over or (usable and server.is_well())
                if self._scratch is not None:
                    # Not before: a rank that is being ended may still write into it.
                    remove(self._scratch)
                if usable:
                    self._pool.give(server)
                else:
                    self._pool.discard(server)
        self.note("world.end")
        return self._recorder.capture(self._states)

    def _run(self, server: ServerHandle | MachineServer) -> None:
        if server.room is not None:
            self._recorder.room = server.room
            server.room.renew(self._launch.start.home)
        scratch = Path(tempfile.mkdtemp(prefix="world-", dir=server.scratch))
        self._scratch = scratch
        with (
            PortLease() as ports,
            Pipes(size=self._launch.size, cancel=self._cancel) as self._pipes,
        ):
            self._recorder.code = server.take_code(self._launch.subject.folder)
            self._start(server, scratch, ports)
            try:
                self._take_calls(self._pipes.wake)
                self._watch()
            except BaseException:
                # While the pipes are open: the keeper has to hear it and end its ranks.
                self._pipes.hang_up()
                raise
            finally:
                self._take_calls(None)
                self._make_calls()
            if isinstance(server, MachineServer):
                server.finish()
            self._recorder.collect(
                scratch, states=self._states, begun=self._begun, stacks=self._ending.took_stacks
            )
            if self._on_left is not None:
                self._on_left(self, scratch)
            server.give_code(self._launch.subject.folder, self._recorder.code)

    def _start(self, server: ServerHandle | MachineServer, scratch: Path, ports: PortLease) -> None:
        launch = self._launch
        self._begun = time.monotonic_ns()
        self._channels = self._hosts.channels(not_before=self._begun)
        addresses = self._hosts.addresses()
        over = self._machines.over(server)
        rendezvous = prepare(
            launch.backend, size=launch.size, ports=ports, addresses=addresses, over=over
        )
        handed = self._pipes.hand(rendezvous.descriptors)
        self._ending = self._machines.ending(self, scratch)
        if launch.watch.hang is not None:
            self._hang = HangWatch(
                launch.watch.hang,
                world=self,
                states=self._states,
                deadline=self._ending.deadline,
                busy=self._busy,
                served=os.getpid() if self._keeps_waiting is not None else None,
            )
            self._ending.prove(self._hang)
        if isinstance(server, MachineServer):
            self._machines.start(
                server,
                handed,
                rendezvous,
                scratch,
                self._channels,
                begun=self._begun,
                world=self.mark,
            )
        else:
            ground = WorldGround(
                server=server,
                scratch=scratch,
                code=self._recorder.code,
                rendezvous=rendezvous,
                port=ports.take(1)[0],
                world=self.mark,
            )
            server.request(describe(launch, ground), handed)
        self._pipes.handed()

    def _take_calls(self, wake: Callable[[], None] | None) -> None:
        """Begin to take calls of other threads, or end it with None: the world is over then."""
        with self._ordering:
            self._wake = wake
            self._over = wake is None
        if wake is not None:
            # For calls that were made before.
            wake()

    # -- watching

    def _watch(self) -> None:
        while not self._gone:
            due = [max(0.0, timer.time - time.monotonic()) for timer in self._timers.queue[:1]]
            ready = self._pipes.ready(min([self._ending.patience(), *due]))
            kinds = {kind for kind, _, _ in ready}
            if "cancel" in kinds:
                raise Cancelled
            if "control" in kinds:
                self._listen()
            for kind, rank, descriptor in ready:
                if kind == "wake":
                    self._pipes.read(descriptor)
                    self._make_calls()
                # The keeper's news may have brought this pipe to its end already.
                if (rank, descriptor) in self._pipes.open(kind=kind):
                    if kind == "events":
                        self._read_events(rank, descriptor)
                    elif kind == "log":
                        self._read_log(rank, descriptor)
            if not self._gone:
                self._timers.run(blocking=False)
                self._ending.judge()
        for rank, descriptor in self._pipes.open(kind="events"):
            self._pipes.drain(rank, descriptor, self._read_events)
        for rank, descriptor in self._pipes.open(kind="log"):
            self._pipes.drain(rank, descriptor, self._read_log)

    def _make_calls(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()()

    def _listen(self) -> None:
        try:
            for message, descriptors in self._pipes.told.receive():
                self._hear(message, descriptors)
        except EOFError:
            raise KeeperGone("this world's supervisor exited before its ranks did") from None

    def _hear(self, message: dict[str, Any], descriptors: list[int]) -> None:
        kind = message.pop("is")
        ns = message.pop("ns")
        message.pop("descriptors", None)
        name = f"rank.{kind}"
        rank = message.pop("rank", None)
        pid = message.pop("pid", None)
        if kind in TOLD:
            self._states.told(kind, rank, pid)
            self._recorder.add(
                Event(ns=ns, by="server", rank=rank, pid=pid, name=TOLD[kind], values=message)
            )
        match kind:
            case _ if kind in PRESSED.values():
                self._gates.landed()
            case "exited":
                self._hear_exit(rank, pid, ns, message)
            case "hosts":
                self._hosts.made(ns, message, self._channels)
                self._on_hosts(self, descriptors)
            case "wire":
                name, is_answer = self._hosts.said(ns, rank, message)
                if is_answer:
                    self._gates.landed()
            case "signalled":
                values = {"signal": signal_name(message["signal"]), "ranks": message["ranks"]}
                self._recorder.add(Event(ns=ns, by="server", name="world.signalled", values=values))
                if "own" not in message:  # a machine's own doing, which nobody waits for
                    self._gates.landed()
            case "unable" | "lost":
                raise KeeperGone(
                    ("the ranks could not be forked: " if kind == "unable" else "") + message["why"]
                )
            case "gone":
                self._gone = True
            case _ if self._machines.hear(kind, {**message, "rank": rank, "ns": ns}):
                self._gates.landed()
        for do in self._awaited.pop((name, rank), ()):
            do()

    def _hear_exit(self, rank: int, pid: int, ns: int, values: dict[str, JSON]) -> None:
        # Before its end is recorded: what it emitted came first.
        for _, descriptor in self._pipes.open(rank=rank, kind="events"):
            self._pipes.drain(rank, descriptor, self._read_events)
        self._states.exited[rank] = ns
        if self._hang is not None:
            self._hang.heard()
        self._recorder.add(
            Event(ns=ns, by="server", rank=rank, pid=pid, name="rank.exited", values=values)
        )
        self._gates.held.pop(rank, None)
        if self._launch.subject.program and values["code"] == 0:
            self._states.finished.add(rank)  # a program has no other way to say that it is done
        if (
            values["code"] != 0 or rank not in self._states.finished
        ) and rank not in self._expected:
            self._ending.failed(rank)
        self._line.look()

    def _read_events(self, rank: int, descriptor: int) -> int:
        channel = self._channels[rank]
        data = self._pipes.read(descriptor)
        for event in channel.close() if data is None else channel.feed(data):
            self._take(event)
        # Every channel closes when its rank ends; where the rank runs on, the subject closed it. Of
        # ranks on other machines these say so.
        if (
            data is None
            and self._launch.places.machines is None
            and lives_on(self._states.started.get(rank, -1))
        ):
            self._recorder.note("channel.closed", rank=rank)
        return len(data or b"")

    def _read_log(self, rank: int, descriptor: int) -> int:
        data = self._pipes.read(descriptor)
        self._recorder.logs[rank].feed(data or b"")
        return len(data or b"")

    def _take(self, event: Event) -> None:
        self._recorder.add(event)
        if event.by != "rank" or event.rank is None:
            return
        self._hosts.heard(event.rank)
        if self._hang is not None:
            self._hang.heard()
        if event.name == "rank.begin":
            self._states.begun.add(event.rank)
        elif event.name == "subject.end":
            self._states.finished.add(event.rank)
        if event.name in self._launch.watch.probes and self._machines.are_there:
            self._order(event.rank, probe={"at": event.name})
        elif event.name in self._launch.watch.probes and (
            reading := probe(self._states.started.get(event.rank, -1))
        ):
            # The rank stands at the gate: it is read as it is at this event.
            self.note("rank.measured", rank=event.rank, at=event.name, **reading)
        if (
            event.name in self._launch.watch.gates
            and event.rank not in self._gates.held
            and self._on_gate is not None
        ):
            self._on_gate(self, event)
        if event.name in (self._launch.start_line, *self._launch.watch.gates):
            if event.rank in self._gates.held:
                self._gates.held[event.rank] = event.name
            else:
                self._line.let_through(event.rank, event.name)

    def _let_go(self) -> None:
        if self._hang is not None:
            self._hang.begin()

    def _busy(self) -> str:
        """Why it is the harness that keeps a rank waiting: a world that waits for it does not
        hang.
        """
        if self._gates.is_busy:
            return "a rank waits for the harness to let it continue"
        if not self._timers.empty():
            return "a fault is still active"
        if len(self._states.started) < self._launch.size:
            return "a rank has not started yet"
        return self._hosts.keeps_waiting() or (
            self._keeps_waiting() if self._keeps_waiting is not None else ""
        )
