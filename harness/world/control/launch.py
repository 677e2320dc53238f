"""Launch of a world: the order, and the description its keeper reads."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.backends import KINDS as BACKENDS
from harness.backends import Rendezvous
from harness.forms.strict_json import JSON
from harness.ledger.inside.book import DigestLevel
from harness.rank.artefacts import FOLDER as KEPT_FOLDER
from harness.rank.spec import SHARED, RankSpec
from harness.world.below.grip import WORK
from harness.world.below.preload import EVERYTHING, Preload
from harness.world.below.rank_start import BACKEND_FD, EVENTS_FD, GATES_FD
from harness.world.control.hang import Hang
from harness.world.control.names import ROOT
from harness.world.control.program import READY, command, variables
from harness.world.control.rank_environment import (
    compiled_recorder,
    is_import_time,
    launcher_environment,
    own_environment,
    rank_environment,
)
from harness.world.control.server_handle import BOOT, ServerHandle, interpreter
from harness.world.hosts.host import Hosts
from harness.world.machines.roll import Placed

# A rank begins its subject when every rank has joined the group, or when one has ended: else a rank
# that fails at once closes its sockets while its peers still connect, and they fail in a place that
# says nothing about the subject.
START_LINE = "backend.ready"


@dataclass(frozen=True, kw_only=True)
class SubjectLaunch:
    """Subject of a launch: its code, arguments and inputs.

    Attributes:
        entry: `module:function`.
        folder: the arm's staged code, as it is in the evidence; ranks import from a copy of it.
        arguments: the entry's keyword arguments.
        inputs: name to absolute path.
        seeds: 64-bit seed per rank.
        env: the scenario's variables.
        program: command line of a program that is every rank; then `entry` is empty, and nothing is
            forked warm.
        is_service: whether these are processes of a service: no launcher's variables are set, and
            their working folder links the inputs by name.
    """

    entry: str
    folder: Path
    arguments: Mapping[str, JSON]
    inputs: Mapping[str, str]
    seeds: Sequence[int]
    env: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ()
    is_service: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportLaunch:
    """Reports that ranks make beside what the subject emits.

    Attributes:
        distributions: what the arm's own environment names: its ranks report which versions they
            have.
        looks: the entry is imported and looked at, and not called.
        declared: normal names of the distributions that the arm's repository declares.
        differing: normal names of the distributions of which another release is in the other arm's
            environment.
        tells_environment: whether ranks report what they run in.
        observe: whether ranks write a ledger of their collective calls.
        digests: whether they digest what these send and receive, and whether MLX may be evaluated
            for it (`eager`).
    """

    distributions: tuple[str, ...] = ()
    looks: bool = False
    declared: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    tells_environment: bool = False
    observe: bool = False
    digests: DigestLevel = ""


@dataclass(frozen=True, kw_only=True)
class WatchLaunch:
    """Bounds and gates for those who watch the world from outside.

    Attributes:
        deadline: seconds from the request until a hang is found.
        after_failure: seconds the others get to end by themselves after the first failure.
        gates: names of events at which a rank waits for `on_gate`.
        probes: names of events, each a gate, at which a rank's memory, processor time and traffic
            are read.
        hang: the hang that is to be proved, where the arm is stated to hang.
    """

    deadline: float = 60.0
    after_failure: float = 2.0
    gates: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    hang: Hang | None = None


@dataclass(frozen=True, kw_only=True)
class StartLaunch:
    """Fork server of the ranks, and the room that they have.

    Attributes:
        warm: fork from a server that has imported torch and transformers; else a new interpreter
            per rank.
        python: the interpreter of the arm's own environment; None is the harness's own.
        shared_home: whether ranks have the user's home and temporary folder, instead of a room of
            their lane.
        home: files that the home folder of the room begins with, by their path there.
        preload: what a warm server holds before it forks these ranks.
    """

    warm: bool
    python: Path | None = None
    shared_home: bool = False
    home: Mapping[str, Path] = field(default_factory=dict)
    preload: Preload = EVERYTHING


@dataclass(frozen=True, kw_only=True)
class FaultLaunch:
    """Preparations of faults before any rank is forked.

    Attributes:
        variables: rank to variables that it alone gets.
        lateness: rank to the seconds it is forked later than the others; at least one rank is not
            in it.
        inside: kind of fault to the file in which it acts inside a rank.
        own_mounts: ranks that have mounts of their own.
        clock_ahead: rank to nanoseconds that its monotonic clock is ahead of the others', or of its
            host's.
    """

    variables: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    lateness: Mapping[int, float] = field(default_factory=dict)
    inside: Mapping[str, Path] = field(default_factory=dict)
    own_mounts: frozenset[int] = frozenset()
    clock_ahead: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PlaceLaunch:
    """Where the ranks are put.

    Attributes:
        hosts: the test hosts that they are on; None where all are on this machine.
        machines: the machines that they are on; None where all are on this one.
    """

    hosts: Hosts | None = None
    machines: Placed | None = None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Order to start a world, in parts by who reads them.

    Attributes:
        about: values of the `world.begin` event: which trial this is.
        size: world size.
        backend: name of the backend.
        collective_timeout: seconds after which a backend that has such a bound gives up; None is
            its own.
        subject: what the subject gets.
        start: what forks the ranks, and their room.
        watch: what those who watch the world need.
        reports: what ranks report beside the subject's events.
        faults: what faults prepare. A fault changes it by the methods below alone.
        places: where the ranks are put.
    """

    about: Mapping[str, JSON]
    size: int
    backend: str
    collective_timeout: float | None = None
    subject: SubjectLaunch
    start: StartLaunch
    watch: WatchLaunch = field(default_factory=WatchLaunch)
    reports: ReportLaunch = field(default_factory=ReportLaunch)
    faults: FaultLaunch = field(default_factory=FaultLaunch)
    places: PlaceLaunch = field(default_factory=PlaceLaunch)

    @property
    def start_line(self) -> str:
        """Return the event at which ranks wait for each other."""
        return READY if self.subject.program else START_LINE

    # -- what a fault may change of a launch

    def gated(self, *, at: str) -> Launch:
        """With the event `at` as a gate."""
        if at in self.watch.gates:
            return self
        return replace(self, watch=replace(self.watch, gates=(*self.watch.gates, at)))

    def with_variables(self, *, ranks: Collection[int], variables: Mapping[str, str]) -> Launch:
        """With variables of some ranks only.

        One that is read at import takes new interpreters for all ranks.
        """
        known = self.faults.variables
        changed = {rank: {**known.get(rank, {}), **variables} for rank in ranks}
        warm = self.start.warm and not any(map(is_import_time, variables))
        launch = self._faulted(variables={**known, **changed})
        return replace(launch, start=replace(self.start, warm=warm))

    def with_inside(self, *, kind: str, file: Path) -> Launch:
        """With a file that the ranks load, in which a kind of fault acts."""
        return self._faulted(inside={**self.faults.inside, kind: file})

    def with_own_mounts(self, *, ranks: Collection[int]) -> Launch:
        """With mount namespaces for some ranks."""
        return self._faulted(own_mounts=self.faults.own_mounts | {*ranks})

    def with_clock_ahead(self, *, ranks: Collection[int], seconds: float) -> Launch:
        """With monotonic clocks of some ranks' own."""
        ahead = dict.fromkeys(ranks, round(seconds * 1e9))
        return self._faulted(clock_ahead={**self.faults.clock_ahead, **ahead})

    def late(self, *, ranks: Collection[int], seconds: float) -> Launch:
        """With some ranks forked `seconds` after the others."""
        return self._faulted(lateness={**self.faults.lateness, **dict.fromkeys(ranks, seconds)})

    def _faulted(self, **changes: Any) -> Launch:
        return replace(self, faults=replace(self.faults, **changes))


PARTS: Mapping[str, Any] = {
    "subject": SubjectLaunch,
    "start": StartLaunch,
    "watch": WatchLaunch,
    "reports": ReportLaunch,
    "faults": FaultLaunch,
    "places": PlaceLaunch,
}
"""The parts of a launch by their names in it. No value of one has the name of another's."""


@dataclass(frozen=True, kw_only=True)
class WorldGround:
    """Server, folders and ports that a world is started on.

    Attributes:
        server: which forks the ranks.
        scratch: the world's folder.
        code: the folder that the ranks import from.
        rendezvous: what the backend prepared.
        port: leased for the subject's own use, as MASTER_PORT.
        world: the mark of this world.
    """

    server: ServerHandle
    scratch: Path
    code: Path
    rendezvous: Rendezvous
    port: int
    world: str


def describe(launch: Launch, ground: WorldGround, *, ranks: Sequence[int] | None = None) -> Path:
    """Write the world's description, and each rank's folder and spec.

    Return the description's path.

    Args:
        launch: what to start.
        ground: what it is started on.
        ranks: those of them that this server forks; None is all. Its keeper counts them from 0.

    Raises:
        OSError: no space, or no right to write there.
    """
    server = ground.server
    started = range(launch.size) if ranks is None else ranks
    specs, descriptors = zip(*(_spec(launch, rank, ground) for rank in started), strict=True)
    boot = BOOT.format(module="rank.lifecycle", arguments="sys.argv[1]")
    description = {
        "world": ground.world,
        "ranks": [asdict(spec) for spec in specs],
        "backend_fds": descriptors,
        "start": "warm" if launch.start.warm else "fresh",
        "python": [*interpreter(launch.start.python), "-c", boot, ROOT],
        "env": server.environment,
        "grace": launch.watch.after_failure,
        "own_mounts": [
            index for index, rank in enumerate(started) if rank in launch.faults.own_mounts
        ],
        "clock_ahead": [launch.faults.clock_ahead.get(rank, 0) for rank in started],
        "late": [launch.faults.lateness.get(rank) for rank in started],
    }
    if launch.places.hosts is not None:
        description["hosts"] = _hosts(launch, launch.places.hosts, ground)
    if launch.subject.program:
        search = server.environment.get("PATH", os.defpath)
        words = command(
            launch.subject.program,
            code=ground.code,
            arguments=launch.subject.arguments,
            path=search,
        )
        description |= {
            "program": words,
            "code": str(ground.code),
            "variables": [{**spec.env, **variables(spec)} for spec in specs],
        }
    (ground.scratch / SHARED).mkdir()
    path = ground.scratch / "world.json"
    path.write_text(json.dumps(description))
    return path


def _hosts(launch: Launch, hosts: Hosts, ground: WorldGround) -> dict[str, JSON]:
    """Return what `harness.world.hosts.wire.WireProcess` is given."""
    server = ground.server
    # What a rank reads, where it is below /tmp: the code and the rooms of its server, inputs, its
    # interpreter.
    needed = [
        str(server.scratch),
        ROOT,
        *launch.subject.inputs.values(),
        *sys.path,
        sys.prefix,
        sys.base_prefix,
    ]
    needed += server.environment.get("PATH", "").split(os.pathsep)
    needed += [
        server.environment[name]
        for name in ("HOME", "LD_LIBRARY_PATH")
        if name in server.environment
    ]
    if launch.start.python is not None:
        needed.append(str(launch.start.python.parent.parent))
    opened = [
        {"host": hosts.of[end.rank], "port": end.port, "backlog": end.backlog}
        for end in ground.rendezvous.opened
    ]
    return {
        "count": hosts.count,
        "of": list(hosts.of),
        "open": list(opened),
        "served": hosts.served,
        "kept": [path for path in needed if path.startswith(os.sep)],
        "temporary": str(server.room.temporary) if server.room is not None else None,
    }


def _spec(launch: Launch, rank: int, ground: WorldGround) -> tuple[RankSpec, list[int]]:
    """One rank's spec, and which of the backend's descriptors it gets (at BACKEND_FD and up)."""
    server = ground.server
    rendezvous = ground.rendezvous
    subject = launch.subject
    reports = launch.reports
    folder = ground.scratch / f"rank-{rank}"
    (folder / WORK).mkdir(parents=True)
    (folder / KEPT_FOLDER).mkdir()
    wanted: list[int] = []

    def take(value: JSON) -> JSON:
        if isinstance(value, dict) and set(value) == {"descriptor"}:
            wanted.append(value["descriptor"])
            return BACKEND_FD + len(wanted) - 1
        return [take(item) for item in value] if isinstance(value, list) else value

    values = {key: take(value) for key, value in rendezvous.ranks[rank].items()}
    env = launcher_environment(rank=rank, size=launch.size, port=ground.port)
    if subject.is_service:
        # A server that found them would look for peers.
        env = {}
        for name, path in subject.inputs.items():
            (folder / WORK / name).symlink_to(path)
    if (placed := launch.places.hosts or launch.places.machines) is not None:
        env = launcher_environment(
            rank=rank,
            size=launch.size,
            port=ground.port,
            local=placed.local(rank),
            master=placed.addresses[0],
        )
    if rendezvous.env:
        env |= rendezvous.env[rank]
    env |= rank_environment(subject.env)
    env |= own_environment(launch.faults.variables.get(rank, {}), requested=subject.env)
    spec = RankSpec(
        rank=rank,
        size=launch.size,
        backend=launch.backend,
        rendezvous=values,
        entry=subject.entry,
        folder=str(ground.code),
        arguments=subject.arguments,
        inputs=subject.inputs,
        seed=subject.seeds[rank],
        env=env,
        gates=(START_LINE, *launch.watch.gates),
        events_fd=EVENTS_FD,
        gates_fd=GATES_FD,
        scratch=str(folder),
        world=ground.world,
        # Every rank tells them: that the others see another value is a part of the proof.
        reported=tuple(
            sorted({name for variables in launch.faults.variables.values() for name in variables})
        ),
        distributions=reports.distributions if launch.start.python is not None else None,
        looks=reports.looks,
        declared=reports.declared,
        differing=reports.differing,
        begun=server.begun,
        tells_environment=reports.tells_environment,
        collective_timeout=launch.collective_timeout,
        observe=reports.observe,
        digests=reports.digests,
        recorder=compiled_recorder() if reports.observe else "",
        inside={kind: server.inside(file) for kind, file in launch.faults.inside.items()},
        group=server.inside(BACKENDS[launch.backend].inside_file),
        on_host=launch.places.hosts is not None,
    )
    if not launch.start.warm:
        (folder / "spec.json").write_text(json.dumps(asdict(spec)))
    return spec, wanted
