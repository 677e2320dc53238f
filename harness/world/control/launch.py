"""What a world is started with: the order, and the description its keeper reads."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from harness.backends import KINDS as BACKENDS
from harness.backends import Rendezvous
from harness.forms.strict_json import JSON
from harness.rank.artefacts import FOLDER as KEPT_FOLDER
from harness.rank.spec import SHARED, Digests, RankSpec
from harness.world.below.grip import WORK
from harness.world.below.preload import EVERYTHING, Preload
from harness.world.below.rank_start import BACKEND_FD, EVENTS_FD, GATES_FD
from harness.world.control.hang import Hang
from harness.world.control.names import ROOT
from harness.world.control.program import READY, command, variables
from harness.world.control.rank_environment import (
    is_import_time,
    launcher_environment,
    own_environment,
    rank_environment,
)
from harness.world.control.recorder import compiled
from harness.world.control.server_handle import BOOT, Server, interpreter
from harness.world.hosts.host import Hosts
from harness.world.machines.placement import Placed


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What to start.

    Attributes:
        about: values of the `world.begin` event: which trial this is.
        size: world size.
        backend: name of the backend.
        warm: fork from a server that has imported torch and transformers; else a new interpreter per rank.
        entry: `module:function`.
        folder: the arm's staged code, as it lies in the evidence; ranks import from a copy of it.
        arguments: the entry's keyword arguments.
        inputs: name to absolute path.
        seeds: 64-bit seed per rank.
        env: the scenario's variables.
        deadline: seconds from the request until a hang is found.
        after_failure: seconds the others get to end by themselves after the first failure.
        gates: names of events at which a rank waits for `on_gate`.
        program: command line of a program that is every rank; then `entry` is empty, and nothing is forked warm.
        probes: names of events, each a gate, at which a rank's memory, processor time and traffic are read.
        variables: rank to variables that it alone gets.
        lateness: rank to the seconds it is forked later than the others; at least one rank is not in it.
        python: the interpreter of the arm's own environment; None is the harness's own.
        distributions: what the arm's own environment names: its ranks tell which versions they have.
        hang: the hang that is to be proved, where the arm is stated to hang.
        shared_home: whether ranks have the user's home and temporary folder, instead of a room of their lane.
        home: files that the home folder of the room begins with, by their path there.
        looks: the entry is imported and looked at, and not called.
        inside: kind of fault to the file in which it acts inside a rank.
        preload: what a warm server holds before it forks these ranks.
        declared: normal names of the distributions that the arm's repository declares.
        differing: normal names of the distributions of which another release is in the other arm's environment.
        hosts: the test hosts that the ranks are on; None where all are on this machine.
        machines: the machines that the ranks are on; None where all are on this one.
        own_mounts: ranks that have mounts of their own.
        clock_ahead: rank to nanoseconds that its monotonic clock is ahead of the others', or of its host's.
        tells_environment: whether ranks tell what they run in.
        collective_timeout: seconds after which a backend that has such a bound gives up; None is its own.
        observe: whether ranks write a ledger of their collective calls.
        digests: whether they digest what these send and receive, and whether MLX may be evaluated for it (`eager`).
    """

    about: Mapping[str, JSON]
    size: int
    backend: str
    warm: bool
    entry: str
    folder: Path
    arguments: Mapping[str, JSON]
    inputs: Mapping[str, str]
    seeds: Sequence[int]
    env: Mapping[str, str] = field(default_factory=dict)
    deadline: float = 60.0
    after_failure: float = 2.0
    gates: tuple[str, ...] = ()
    program: tuple[str, ...] = ()

    @property
    def start_line(self) -> str:
        """The event at which ranks wait for each other."""
        return READY if self.program else START_LINE

    probes: tuple[str, ...] = ()
    variables: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    lateness: Mapping[int, float] = field(default_factory=dict)
    python: Path | None = None
    distributions: tuple[str, ...] = ()
    hang: Hang | None = None
    shared_home: bool = False
    home: Mapping[str, Path] = field(default_factory=dict)
    looks: bool = False
    inside: Mapping[str, Path] = field(default_factory=dict)
    preload: Preload = EVERYTHING
    declared: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    hosts: Hosts | None = None
    machines: Placed | None = None
    own_mounts: frozenset[int] = frozenset()
    clock_ahead: Mapping[int, int] = field(default_factory=dict)
    tells_environment: bool = False
    collective_timeout: float | None = None
    observe: bool = False
    digests: Digests = ""

    # -- what a fault may change of a launch -------------------------------------------------------------------------

    def gated(self, *, at: str) -> Launch:
        """With the event `at` as a gate."""
        return self if at in self.gates else replace(self, gates=(*self.gates, at))

    def with_variables(self, *, ranks: Collection[int], variables: Mapping[str, str]) -> Launch:
        """With variables of some ranks only. One that is read at import takes new interpreters for all ranks."""
        known = {rank: {**self.variables.get(rank, {}), **variables} for rank in ranks}
        warm = self.warm and not any(map(is_import_time, variables))
        return replace(self, variables={**self.variables, **known}, warm=warm)

    def with_inside(self, *, kind: str, file: Path) -> Launch:
        """With a file that the ranks load, in which a kind of fault acts."""
        return replace(self, inside={**self.inside, kind: file})

    def with_own_mounts(self, *, ranks: Collection[int]) -> Launch:
        """With mount namespaces for some ranks."""
        return replace(self, own_mounts=self.own_mounts | {*ranks})

    def with_clock_ahead(self, *, ranks: Collection[int], seconds: float) -> Launch:
        """With monotonic clocks of some ranks' own."""
        return replace(self, clock_ahead={**self.clock_ahead, **dict.fromkeys(ranks, round(seconds * 1e9))})

    def late(self, *, ranks: Collection[int], seconds: float) -> Launch:
        """With some ranks forked `seconds` after the others."""
        return replace(self, lateness={**self.lateness, **dict.fromkeys(ranks, seconds)})


# A rank begins its subject when every rank has joined the group, or when one has ended: else a rank that fails at once
# closes its sockets while its peers still connect, and they fail in a place that says nothing about the subject.
START_LINE = "backend.ready"


def describe(
    launch: Launch,
    *,
    server: Server,
    scratch: Path,
    code: Path,
    rendezvous: Rendezvous,
    port: int,
    world: str,
    ranks: Sequence[int] | None = None,
) -> Path:
    """Write the world's description, and each rank's folder and spec, into `scratch`; return the description's path.

    Args:
        launch: what to start.
        server: which forks it.
        scratch: the world's folder.
        code: the folder that the ranks import from.
        rendezvous: what the backend prepared.
        port: leased for the subject's own use, as MASTER_PORT.
        world: the mark of this world.
        ranks: those of them that this server forks; None is all. Its keeper counts them from 0.

    Raises:
        OSError: no space, or no right to write there.
    """
    own = range(launch.size) if ranks is None else ranks
    specs, descriptors = zip(
        *(_spec(launch, rank, scratch, code, rendezvous, world, server=server, port=port) for rank in own),
        strict=True,
    )
    boot = BOOT.format(module="rank.lifecycle", arguments="sys.argv[1]")
    description = {
        "world": world,
        "ranks": [asdict(spec) for spec in specs],
        "backend_fds": descriptors,
        "start": "warm" if launch.warm else "fresh",
        "python": [*interpreter(launch.python), "-c", boot, ROOT],
        "env": server.environment,
        "grace": launch.after_failure,
        "own_mounts": [index for index, rank in enumerate(own) if rank in launch.own_mounts],
        "clock_ahead": [launch.clock_ahead.get(rank, 0) for rank in own],
        "late": [launch.lateness.get(rank) for rank in own],
    }
    if launch.hosts is not None:
        description["hosts"] = _hosts(launch, launch.hosts, server=server, rendezvous=rendezvous)
    if launch.program:
        search = server.environment.get("PATH", os.defpath)
        words = command(launch.program, code=code, arguments=launch.arguments, path=search)
        description |= {
            "program": words,
            "code": str(code),
            "variables": [{**spec.env, **variables(spec)} for spec in specs],
        }
    (scratch / SHARED).mkdir()
    path = scratch / "world.json"
    path.write_text(json.dumps(description))
    return path


def _hosts(launch: Launch, hosts: Hosts, *, server: Server, rendezvous: Rendezvous) -> dict[str, JSON]:
    """What `harness.world.hosts.wire_process.WireProcess` is given."""
    # What a rank reads, where it lies below /tmp: the code and the rooms of its server, inputs, its interpreter.
    needed = [str(server.scratch), ROOT, *launch.inputs.values(), *sys.path, sys.prefix, sys.base_prefix]
    needed += server.environment.get("PATH", "").split(os.pathsep)
    needed += [server.environment[name] for name in ("HOME", "LD_LIBRARY_PATH") if name in server.environment]
    needed += [str(launch.python.parent.parent)] if launch.python is not None else []
    opened = [{"host": hosts.of[one.rank], "port": one.port, "backlog": one.backlog} for one in rendezvous.opened]
    return {
        "count": hosts.count,
        "of": list(hosts.of),
        "open": list(opened),
        "served": hosts.served,
        "kept": [path for path in needed if path.startswith(os.sep)],
        "temporary": str(server.room.temporary) if server.room is not None else None,
    }


def _spec(
    launch: Launch,
    rank: int,
    scratch: Path,
    code: Path,
    rendezvous: Rendezvous,
    world: str,
    *,
    server: Server,
    port: int,
) -> tuple[RankSpec, list[int]]:
    """One rank's spec, and which of the backend's descriptors it gets (at BACKEND_FD and up)."""
    own = scratch / f"rank-{rank}"
    (own / WORK).mkdir(parents=True)
    (own / KEPT_FOLDER).mkdir()
    wanted: list[int] = []

    def take(value: JSON) -> JSON:
        if isinstance(value, dict) and set(value) == {"descriptor"}:
            wanted.append(value["descriptor"])
            return BACKEND_FD + len(wanted) - 1
        return [take(item) for item in value] if isinstance(value, list) else value

    values = {key: take(value) for key, value in rendezvous.ranks[rank].items()}
    env = launcher_environment(rank=rank, size=launch.size, port=port)
    if (placed := launch.hosts or launch.machines) is not None:
        local, master = placed.local(rank), placed.addresses[0]
        env = launcher_environment(rank=rank, size=launch.size, port=port, local=local, master=master)
    env |= rendezvous.env[rank] if rendezvous.env else {}
    spec = RankSpec(
        rank=rank,
        size=launch.size,
        backend=launch.backend,
        rendezvous=values,
        entry=launch.entry,
        folder=str(code),
        arguments=launch.arguments,
        inputs=launch.inputs,
        seed=launch.seeds[rank],
        env=env | rank_environment(launch.env) | own_environment(launch.variables.get(rank, {}), requested=launch.env),
        gates=(START_LINE, *launch.gates),
        events_fd=EVENTS_FD,
        gates_fd=GATES_FD,
        scratch=str(own),
        world=world,
        # Every rank tells them: that the others see another value is a part of the proof.
        reported=tuple(sorted({name for variables in launch.variables.values() for name in variables})),
        distributions=launch.distributions if launch.python is not None else None,
        looks=launch.looks,
        declared=launch.declared,
        differing=launch.differing,
        begun=server.begun,
        tells_environment=launch.tells_environment,
        collective_timeout=launch.collective_timeout,
        observe=launch.observe,
        digests=launch.digests,
        recorder=compiled() if launch.observe else "",
        inside={kind: server.inside(file) for kind, file in launch.inside.items()},
        group=server.inside(BACKENDS[launch.backend].inside_file),
        on_host=launch.hosts is not None,
    )
    if not launch.warm:
        (own / "spec.json").write_text(json.dumps(asdict(spec)))
    return spec, wanted
