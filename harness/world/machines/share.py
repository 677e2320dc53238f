"""Share of one world: its ranks on this machine, forked by its fork server, relayed to control,
ended with the lease.

Above the fork server nothing is new: the keeper forks and waits, pipes carry events and logs. What
is new is that all of it becomes messages, numbered from 1, which the machine's journal has too:
what control did not hear is in there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any

from harness.backends import Opened, Rendezvous
from harness.rank.artefacts import FOLDER as KEPT
from harness.rank.failure import FILE_NAME
from harness.rank.lifecycle import STACK_SIGNAL, STACKS
from harness.rank.process import inspect, lives_on
from harness.world.below.leftovers import remove
from harness.world.control import names
from harness.world.control.capture import read_stack
from harness.world.control.ending import QUIET, STACKS_EACH, STACKS_WITHIN, WRITTEN_WITHIN
from harness.world.control.hang import holding_back
from harness.world.control.launch import PARTS, Launch, WorldGround, describe
from harness.world.control.pipes import Pipes
from harness.world.control.ranks import probe
from harness.world.control.server_handle import ServerFailed, ServerHandle
from harness.world.control.waits import catches
from harness.world.machines.node_channel import (
    Inbox,
    Journal,
    Outbox,
    PreparedRendezvous,
    ShareOrder,
)
from harness.world.machines.roll import Placed
from harness.world.machines.store import PIECE, TreeStore

# What a rank may leave, in files, as at control.
MOST_FILES = 1024
GONE_WITHIN = 10.0
# What of a launch travels as it is; what stands for files of control's machine does not.
PLAIN = frozenset(
    {
        *("warm", "entry", "arguments", "seeds", "env", "deadline", "after_failure", "gates"),
        *(
            "program",
            "variables",
            "lateness",
            "probes",
            "shared_home",
            "looks",
            "declared",
            "differing",
        ),
        *("tells_environment", "observe", "digests"),
    }
)
# Made there from what travels beside it, or for control alone.
BROUGHT = frozenset({"folder", "inputs", "inside", "machines", "preload"})


class StackRound:
    """Round of stacks: asks once, and tells when all have answered or had their time."""

    def __init__(
        self, scratch: Path, *, say: Callable[..., None], signal: Callable[[int, int], None]
    ) -> None:
        self._scratch = scratch
        self._say = say
        self._signal = signal
        self._pids: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._held_back: dict[int, frozenset[int]] = {}
        self._since = 0.0
        self.is_asked = False

    def ask(self, living: Mapping[int, int], *, able: Collection[int]) -> None:
        """Ask.

        Args:
            living: rank to pid.
            able: ranks that have begun and are not programs: the signal would end the others.
        """
        self.is_asked = True
        self._since = time.monotonic()
        for rank, pid in living.items():
            process = inspect(pid)
            state = process.state if process else "gone"
            self._say({"is": "state", "rank": rank, "state": state})
            if rank in able and state not in ("T", "t", "Z", "gone") and catches(pid, STACK_SIGNAL):
                self._pids[rank] = pid
                self._sizes[rank] = -1
                self._held_back[rank] = holding_back(pid, STACK_SIGNAL)
                self._signal(STACK_SIGNAL, rank)

    def look(self) -> float:
        """Tell where they stand if they have said it; else after how many seconds to look again."""
        latest = self._since + STACKS_WITHIN + STACKS_EACH * len(self._sizes)
        quiet = self._is_quiet()
        now = time.monotonic()
        if not quiet and (now < latest or (now < latest + WRITTEN_WITHIN and self._writing())):
            return QUIET
        for rank in self._sizes:
            message: dict[str, Any] = {"is": "stack", "rank": rank}
            self._say(message, read_stack(self._scratch / f"rank-{rank}" / STACKS) or b"")
        self._say({"is": "stood"})
        self.is_asked = False
        return 0.0

    def _is_quiet(self) -> bool:
        quiet = True
        for rank in self._sizes:
            try:
                size = (self._scratch / f"rank-{rank}" / STACKS).stat().st_size
            except OSError:
                size = 0
            gone = inspect(self._pids[rank]) is None
            quiet = quiet and (gone or (size > 0 and size == self._sizes[rank]))
            self._sizes[rank] = size
        return quiet and not self._writing()

    def _writing(self) -> bool:
        return any(
            holding_back(pid, STACK_SIGNAL) - self._held_back[rank]
            for rank, pid in self._pids.items()
        )


def travels(launch: Launch) -> dict[str, Any]:
    """Return a launch as JSON, without what stands for files: the code, inputs, and what acts
    inside ranks.

    Raises:
        OSError: it has what machines are not given, as a plug-in's fault may ask for.
    """
    sent = {name: getattr(launch, name) for name in ("size", "backend", "collective_timeout")}
    for name in PARTS:
        part = getattr(launch, name)
        for value in fields(part):
            default = value.default if value.default_factory is MISSING else value.default_factory()
            if value.name not in PLAIN | BROUGHT and getattr(part, value.name) != default:
                raise OSError(
                    f"{value.name} is not supported for ranks on several machines; remove the"
                    " setting that requires it"
                )
        sent[name] = {
            value.name: getattr(part, value.name) for value in fields(part) if value.name in PLAIN
        }
    return sent


def arrived(sent: Mapping[str, Any], **brought: Any) -> Launch:
    """Return the launch that `travels` gave, with its files as they are on this machine.

    Args:
        sent: as JSON.
        **brought: the values that `BROUGHT` names, as far as ranks need them.
    """
    parts = {}
    for name, kind in PARTS.items():
        values = {
            **sent[name],
            **{value.name: brought[value.name] for value in fields(kind) if value.name in brought},
        }
        for key in ("variables", "lateness"):
            if key in values:
                # JSON has no keys but texts.
                values[key] = {int(rank): value for rank, value in values[key].items()}
        for key in ("gates", "program", "probes", "declared", "differing"):
            if key in values:
                values[key] = tuple(values[key])
        parts[name] = kind(**values)
    known = {name: value for name, value in sent.items() if name not in PARTS}
    return Launch(about={}, **known, **parts)


class MachineShare:
    """Share of one world. Use once."""

    def __init__(
        self,
        asked: ShareOrder,
        *,
        server: ServerHandle,
        store: TreeStore,
        inbox: Inbox,
        outbox: Outbox,
        journal: Journal,
    ) -> None:
        self._asked = asked
        self._server = server
        self._store = store
        self._inbox = inbox
        self._outbox = outbox
        self._journal = journal
        self._number = 0
        self.ranks = asked["ranks"]
        self._pids: dict[int, int] = {}
        self._ended: set[int] = set()
        # Of the signals that the keeper has not answered, whether each was this machine's own.
        self._asking: list[bool] = []
        self._gone = False
        self._last: dict[str, Any] = {}
        self._by: float | None = None
        self._standing: StackRound | None = None
        self._pipes: Pipes

    def say(self, message: dict[str, Any], content: bytes = b"") -> None:
        """Tell control something of this world."""
        self._number += 1
        numbered = {**message, "world": self._asked["world"], "n": self._number}
        self._journal.add(self._outbox.send(numbered, content))

    def run(self) -> bool:
        """Start the ranks, stay until they are gone, and hand over what they left.

        Whether nobody is left.
        """
        try:
            self._live(self._server)
        except (OSError, ServerFailed, ValueError) as error:
            self.say({"is": "failed", "type": type(error).__name__, "why": str(error)[:2000]})
        return self._gone

    def _live(self, server: ServerHandle) -> None:
        if server.room is not None:
            server.room.renew()
        scratch = Path(tempfile.mkdtemp(prefix="world-", dir=server.scratch))
        try:
            self._live_in(scratch, server)
        finally:
            remove(scratch)

    def _live_in(self, scratch: Path, server: ServerHandle) -> None:
        asked = self._asked
        staged = self._store.place(asked["code"])
        code = server.take_code(staged)
        machines = asked["machines"]
        placed = Placed(
            of=tuple(machines["of"]),
            called=tuple(machines["called"]),
            reached=tuple(machines["reached"]),
        )
        launch = arrived(
            asked["launch"],
            folder=staged,
            inputs={
                name: self._input(scratch, name, *named) for name, named in asked["inputs"].items()
            },
            inside={kind: Path(names.ROOT, name) for kind, name in asked["inside"].items()},
            machines=placed,
        )
        self.say(
            {
                "is": "begun",
                "names": names.telling(folder=code, room=server.room),
                "code": str(code),
            }
        )
        with (
            contextlib.ExitStack() as opened,
            Pipes(size=len(self.ranks), cancel=self._inbox.wake) as self._pipes,
        ):
            rendezvous, mine = self._rendezvous(asked["rendezvous"], placed, opened)
            handed = self._pipes.hand(mine)
            # From here on the pipes close them.
            opened.pop_all()
            ground = WorldGround(
                server=server,
                scratch=scratch,
                code=code,
                rendezvous=rendezvous,
                port=asked["port"],
                world=asked["world"],
            )
            description = describe(launch, ground, ranks=self.ranks)
            server.request(description, handed)
            # The ranks have them now. Held here too, a rank's closing of one would not be seen.
            self._pipes.handed()
            self._standing = StackRound(scratch, say=self.say, signal=self._signal)
            self._watch(time.monotonic() + asked["until"])
        for rank in self.ranks:
            self._hand_over(scratch / f"rank-{rank}", rank)
        server.give_code(staged, code)

    def _input(self, scratch: Path, name: str, digest: str, called: str) -> str:
        """Where an input lies here, under the name that it has at control: readers go by how files
        are called.
        """
        folder = scratch / "inputs" / name
        folder.mkdir(parents=True)
        (folder / Path(called).name).symlink_to(self._store.place(digest))
        return str(folder / Path(called).name)

    def _rendezvous(
        self, prepared: PreparedRendezvous, placed: Placed, half_done: contextlib.ExitStack
    ) -> tuple[Rendezvous, list[int]]:
        """Return what the backend prepared, with what has to be open on this machine, and of these
        the descriptors.
        """
        ranks = list(prepared["ranks"])
        mine = list[int]()
        for index, opening in enumerate(Opened(**opening) for opening in prepared["opened"]):
            if opening.rank not in self.ranks:
                continue
            listener = socket.create_server(
                (placed.addresses[opening.rank], opening.port or 0), backlog=opening.backlog
            )
            half_done.callback(os.close, descriptor := listener.detach())
            # Of this machine's descriptors, those that are open here count alone.
            ranks = [_renumbered(values, {index: len(mine)}) for values in ranks]
            mine.append(descriptor)
        return Rendezvous(ranks=ranks, env=prepared["env"]), mine

    # -- watching

    def _watch(self, until: float) -> None:
        while not self._gone:
            now = time.monotonic()
            if self._by is None and now >= until:
                self._end("the deadline has passed, but the run did not stop the ranks")
            if self._by is not None and now >= self._by:
                self._pipes.hang_up()
                raise ServerFailed(
                    f"the supervisor did not stop the ranks within {GONE_WITHIN:g} s"
                )
            due = [until if self._by is None else self._by]
            if self._standing is not None and self._standing.is_asked:
                due.append(now + self._standing.look())
            ready = self._pipes.ready(max(0.0, min(due) - now))
            kinds = {kind for kind, _, _ in ready}
            if "cancel" in kinds:
                self._heed()
            if "control" in kinds:
                self._listen()
            for kind, index, descriptor in ready:
                if kind in ("events", "log") and (index, descriptor) in self._pipes.open(kind=kind):
                    self._outbox.await_room()
                    self._read(kind, index, descriptor)
        for kind in ("events", "log"):
            for index, descriptor in self._pipes.open(kind=kind):
                self._pipes.drain(index, descriptor, partial(self._read, kind))
        self.say({"is": "keeper", "told": self._last})

    def _heed(self) -> None:
        """Do what control asks; end everybody when it is gone."""
        for asked, content in self._inbox.take():
            if asked.get("world") != self._asked["world"]:
                continue
            match asked["ask"]:
                case "order" if "probe" in asked["order"]:
                    rank = asked["order"]["rank"]
                    at = asked["order"]["probe"]["at"]
                    self.say(
                        {
                            "is": "measured",
                            "rank": rank,
                            "at": at,
                            "read": probe(self._pids.get(rank, -1)),
                        }
                    )
                case "order":
                    self._order(asked["order"])
                case "gate":
                    self._pipes.answer(self.ranks.index(asked["rank"]), content)
                case "stacks" if self._standing is not None:
                    living = {
                        rank: pid for rank, pid in self._pids.items() if rank not in self._ended
                    }
                    self._standing.ask(living, able=asked["able"])
                case "stop":
                    self._end("the run stopped this world")
        if self._inbox.lost:
            self._end(self._inbox.lost)

    def _end(self, why: str) -> None:
        if self._by is None:
            self._by = time.monotonic() + GONE_WITHIN
            living = [rank for rank in self._pids if rank not in self._ended]
            silent = round(time.monotonic() - self._inbox.heard, 3)
            self.say(
                {
                    "is": "ended",
                    "why": why,
                    "ranks": living,
                    "silent": silent,
                    "ns": time.monotonic_ns(),
                }
            )
            self._signal(signal.SIGKILL)

    def _signal(self, number: int, rank: int | None = None) -> None:
        """Of this machine's own accord: what the keeper answers is told to be nobody's order."""
        with contextlib.suppress(OSError):
            self._order({"rank": rank, "signal": int(number), "own": True})

    def _order(self, order: dict[str, Any]) -> None:
        keepers = {
            **order,
            "rank": None if order["rank"] is None else self.ranks.index(order["rank"]),
        }
        is_own = keepers.pop("own", False)
        if "signal" in keepers:
            self._asking.append(is_own)
        self._pipes.control.sendall(json.dumps(keepers).encode() + b"\n")

    def _listen(self) -> None:
        try:
            for message, _ in self._pipes.told.receive():
                self._hear(message)
        except EOFError:
            raise ServerFailed("this world's supervisor exited before its ranks did") from None

    def _hear(self, message: dict[str, Any]) -> None:
        message.pop("descriptors", None)
        kind = message["is"]
        if (index := message.get("rank")) is not None:
            message["rank"] = rank = self.ranks[index]
            if kind == "started":
                self._pids[rank] = message["pid"]
            elif kind == "exited":
                # Before its end is reported: what it emitted came first.
                for number, descriptor in self._pipes.open(rank=index, kind="events"):
                    self._pipes.drain(number, descriptor, partial(self._read, "events"))
                self._ended.add(rank)
        if kind == "signalled":
            # The keeper answers in the order in which it was asked.
            message["ranks"] = [self.ranks[index] for index in message["ranks"]]
            if self._asking.pop(0):
                message["own"] = True
        if kind == "gone":
            # Reported last, when all that ranks wrote has been.
            self._gone = True
            self._last = message
            return
        self.say({"is": "keeper", "told": message})

    def _read(self, kind: str, index: int, descriptor: int) -> int:
        data = self._pipes.read(descriptor)
        if data is None:
            rank = self.ranks[index]
            early = (
                {"early": True} if kind == "events" and lives_on(self._pids.get(rank, -1)) else {}
            )
            self.say({"is": "closed", "what": kind, "rank": rank, **early})
        elif data:
            self.say({"is": kind, "rank": self.ranks[index]}, data)
        return len(data or b"")

    # -- what ranks left

    def _hand_over(self, folder: Path, rank: int) -> None:
        """Hand over how a rank failed, where it stood, and what it kept.

        What is not a file is named alone.
        """
        for path in _left(folder):
            name = path.relative_to(folder).as_posix()
            try:
                descriptor = os.open(
                    path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                )
            except OSError:
                self.say({"is": "file", "rank": rank, "name": name, "odd": True})
                continue
            with os.fdopen(descriptor, "rb") as file:
                odd = not stat.S_ISREG(os.fstat(descriptor).st_mode)
                self.say({"is": "file", "rank": rank, "name": name, "odd": odd})
                while not odd and (part := file.read(PIECE)):
                    self._outbox.await_room()
                    self.say({"is": "part", "rank": rank, "name": name}, part)


def _left(folder: Path) -> Iterator[Path]:
    for name in (FILE_NAME, STACKS):
        if os.path.lexists(folder / name):
            yield folder / name
    with contextlib.suppress(OSError):
        if not (folder / KEPT).is_symlink():
            yield from sorted((folder / KEPT).iterdir())[:MOST_FILES]


def _renumbered(values: Mapping[str, Any], places: Mapping[int, int]) -> dict[str, Any]:
    """Return what a rank is told of a backend's descriptors, numbered as they are here."""

    def number(value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {"descriptor"}:
            return {"descriptor": places.get(value["descriptor"], value["descriptor"])}
        return [number(item) for item in value] if isinstance(value, list) else value

    return {key: number(value) for key, value in values.items()}
