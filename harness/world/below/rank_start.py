"""How a rank process starts: the keeper forks it, and it becomes a rank, Python or a program."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Iterable, Sequence

# A subject may replace os._exit, and a forked process must end here, whatever the subject did.
from os import _exit
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from harness.forms.digest import fold, sha256_of
from harness.forms.strict_json import JSON
from harness.rank.lifecycle import live
from harness.rank.process import die_with_parent, keep_private
from harness.rank.spec import RankSpec
from harness.world.below import isolation
from harness.world.below.grip import WORK
from harness.world.hosts.wire import HostsOrder, WireProcess

# Descriptors of a rank: 0 null, 1 and 2 its log, then these, and the backend's from 5 on.
EVENTS_FD = 3
GATES_FD = 4
BACKEND_FD = 5
# What the harness hands over for each rank: events, gates, log.
PER_RANK = 3
# Above every descriptor that a rank gets at a fixed number.
OUT_OF_THE_WAY = 300


class WorldOrder(TypedDict):
    """Order for one world, as the harness writes it into a file for the keeper.

    Attributes:
        world: its mark.
        ranks: the spec of each rank.
        backend_fds: of each rank, indices into the backend's descriptors.
        start: whether ranks are copies of the server or new interpreters.
        python: command line of a new interpreter that becomes a rank.
        env: environment of a new process.
        grace: seconds that descendants of ended ranks are given to go by themselves.
        own_mounts: ranks that have mounts of their own.
        clock_ahead: of each rank, nanoseconds that its clock is ahead.
        late: of each rank, how many seconds after the others it is forked, or nothing.
        hosts: its test hosts, where it has some.
        program: command line, where ranks are programs; `code` is their folder, and `variables`
            what each of them gets beside `env`.
    """

    world: str
    ranks: list[dict[str, Any]]
    backend_fds: list[list[int]]
    start: Literal["warm", "fresh"]
    python: list[str]
    env: dict[str, str]
    grace: float
    own_mounts: list[int]
    clock_ahead: list[int]
    late: list[float | None]
    hosts: NotRequired[HostsOrder]
    program: NotRequired[list[str]]
    code: NotRequired[str]
    variables: NotRequired[list[dict[str, str]]]


class RankStart:
    """Starts the ranks of one world, and holds their descriptors until the last one has them."""

    def __init__(self, world: WorldOrder, descriptors: list[int], *, baseline: set[int]) -> None:
        """Take the order for a world.

        Args:
            world: the order.
            descriptors: events, gates and log of each rank, then the backend's.
            baseline: descriptors of libraries that the server has loaded; warm ranks keep them.
        """
        pipes = PER_RANK * len(world["ranks"])
        self._world = world
        self._baseline = baseline
        self._handed = descriptors
        self._pipes = [descriptors[at : at + PER_RANK] for at in range(0, pipes, PER_RANK)]
        self._backend = descriptors[pipes:]
        self._wire: WireProcess | None = None

    def place_on(self, wire: WireProcess) -> None:
        """Start the ranks on these test hosts; the backend has opened descriptors there."""
        self._wire = wire
        self._backend = self._backend + wire.opened
        self._handed = self._handed + wire.opened

    def fork(self, index: int) -> int:
        """Fork a rank; return its pid.

        Raises:
            OSError: there are too many processes.
        """
        keeper = os.getpid()
        # The server and this keeper have one thread each, so no lock is held in the copy.
        pid = os.fork()
        if pid:
            return pid
        try:
            self._become(index, keeper)
        except BaseException:  # noqa: BLE001 - goes to the rank's log
            sys.excepthook(*sys.exc_info())
        finally:
            # Never back into the keeper's loop: two processes would speak in its place.
            _exit(70)

    def close(self) -> None:
        """Close the descriptors of ranks: their other ends must see it when a rank closes one."""
        for descriptor in self._handed:
            os.close(descriptor)
        self._handed = []

    def _become(self, index: int, keeper: int) -> None:
        """Turn the forked process into a rank; never returns."""
        spec = self._world["ranks"][index]
        # The keeper is private, because what it says is evidence; a rank is looked at from outside.
        keep_private(private=False)
        die_with_parent(keeper)
        # The keeper's alarm: an end of this rank's children would be written into its pipe.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # In a session of its own, what it sends to its group reaches nobody else.
        os.setsid()
        self._enter_host(index)
        # Let the kernel kill the rank when memory runs out, not the keeper that reports its death.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("500")
        self._enter_namespaces(index)
        # A process whose rights have changed on the way may have lost its death signal.
        die_with_parent(keeper)
        kept = self._take_descriptors(index)
        os.chdir(Path(spec["scratch"]) / WORK)
        is_fresh = self._world["start"] == "fresh"
        _close_all_but(kept if is_fresh else kept | self._baseline)
        if program := self._world.get("program"):
            # Python ignores these, and a program would inherit that; in a shell they end it.
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            variables = self._world["env"] | self._world["variables"][index]
            os.execve(program[0], program, variables)  # noqa: S606 - no shell
        if is_fresh:
            argv = [*self._world["python"], str(Path(spec["scratch"]) / "spec.json")]
            variables = self._world["env"] | spec["env"]
            os.execve(argv[0], argv, variables)  # noqa: S606 - a list, no shell
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        live(RankSpec.from_json(spec))

    def _enter_host(self, index: int) -> None:
        if self._wire is not None:
            self._wire.enter(index)
            # A change of rights makes a process private again.
            keep_private(private=False)

    def _enter_namespaces(self, index: int) -> None:
        if index in self._world["own_mounts"]:
            isolation.own_mounts()
        if ahead := self._world["clock_ahead"][index]:
            if self._wire is not None:
                # Its own clock namespace takes the place of the host's, so it is ahead by both.
                ahead += self._wire.clock_of(index)
            isolation.own_clock(ahead)

    def _take_descriptors(self, index: int) -> set[int]:
        """Put what this rank was handed at its fixed numbers; return all numbers that it keeps."""
        events, gates, log = self._pipes[index]
        backend = [self._backend[i] for i in self._world["backend_fds"][index]]
        # First up and out of the way, then down to its number: the two ranges may overlap.
        sources = [
            fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
            for number in (events, gates, *backend)
        ]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for offset, source in enumerate(sources):
            os.dup2(source, EVENTS_FD + offset)
        return {0, 1, 2, *range(EVENTS_FD, EVENTS_FD + len(sources))}


def open_descriptors() -> list[int]:
    """Return the open descriptors, and the closed one by which they were listed."""
    folder = Path("/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd")
    return [int(entry.name) for entry in folder.iterdir()]


def _close_all_but(kept: Iterable[int]) -> None:
    """Close the pipes of other ranks, whose ends would not be seen, and the keeper's socket."""
    for number in set(open_descriptors()).difference(kept):
        with contextlib.suppress(OSError):
            os.close(number)


def proof(argv: Sequence[str], *, code: Path) -> dict[str, JSON]:
    """Report what is about to be executed, from the process that executes it.

    Returns:
        `program` (its name without folders) and `sha256` of its file; `files`: the words of the
        command line that are files of the code; `folder`: one digest for all files of the code.
    """
    beginning = f"{code}{os.sep}"
    digests = {
        path.relative_to(code).as_posix(): sha256_of(path)
        for path in sorted(code.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
    words = [word[len(beginning) :] for word in argv if word.startswith(beginning)]
    is_staged = argv[0].startswith(beginning)
    return {
        "program": words[0] if is_staged else Path(argv[0]).name,
        "sha256": sha256_of(Path(argv[0])),
        "files": [
            {"file": name, "sha256": digests.get(name, "unreadable")}
            for name in dict.fromkeys(words)
        ],
        "folder": fold(digests),
    }
