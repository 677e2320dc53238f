"""The section on where a run took place: machine, the harness' own environment, Nix's answer for
it, the arms' own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.forms.text import plural
from harness.record import facts
from harness.record.facts import (
    ArmEnvironmentFacts,
    EnvironmentFacts,
    MachineFacts,
    MachinesFacts,
    RunFacts,
    installed,
)
from harness.record.model import Record
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Evidence,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Table,
    Text,
    Verbatim,
)

RUN = Evidence(facts.PATH)
COMPUTING = ("torch", "transformers", "tokenizers", "mlx", "numpy")


def environment_section(record: Record) -> list[Block]:
    """Where the run took place, what identifies it, and what the arms ran in where that is their
    own.

    What only somebody who rebuilds the environment needs is in the appendix.
    """
    run = record.run
    here = run.environment
    machine = (
        f"{here.cpu}, {here.affinity} of {plural(here.cores, 'core')}, {here.memory / 2**30:.1f}"
        f" GiB, GPU: {here.gpu or 'none found'}; {here.system} {here.release} {here.machine}"
    )
    rows: list[tuple[str, Part]] = [
        ("environment", Foreign(made_by(here))),
        *nix_rows(here),
        *_packages(record),
        ("machine", Foreign(machine)),
    ]
    if record.scenario.hosts > 1:
        placed = f"{record.scenario.hosts}, ranks placed {record.scenario.placement}"
        rows.append(("test hosts", placed))
    if run.machines is not None:
        rows += _machines(run.machines)
    facts_of_run = [(name, Claim(fact, (RUN,))) for name, fact in rows]
    table = Table(("what", "this run"), (*scenario_in_words(record), *facts_of_run))
    return [
        Heading(2, "This run"),
        table,
        *nix_warnings(here),
        *_farm(run),
        *_own(record),
        *_inputs(run),
    ]


def _packages(record: Record) -> Iterator[tuple[str, Part]]:
    """Versions of the packages that compute, where the ranks saw those of the harness."""
    if not _is_seen(record):
        return
    versions = {
        package.name.lower(): package.version for package in record.run.environment.packages
    }
    shown = [f"{name} {versions[name]}" for name in COMPUTING if name in versions]
    what = "packages in the harness's environment" if record.run.environments else "packages"
    yield what, Foreign(", ".join(shown))


def _is_seen(record: Record) -> bool:
    """Tell whether ranks saw the packages of the harness: not where they were programs, or all had
    environments of their own.
    """
    return not record.scenario.program and set(record.run.environments) < set(record.arms)


def _machines(over: MachinesFacts) -> Iterator[tuple[str, Part]]:
    rule = over.placement if isinstance(over.placement, str) else f"rank by rank: {over.placement}"
    count = str(len(over.machines))
    of = f"{count} nodes of a Ray cluster" if over.starter == "ray" else count
    fleet = f"{of}, ranks placed {rule}, lease {over.lease:g} s, ready within {over.ready} s"
    yield "test machines" if over.made_here else "machines", fleet
    for machine in over.machines:
        yield "machine", Foreign(f"{machine.called}: {_machine(machine)}")


def _inputs(run: RunFacts) -> list[Block]:
    if not run.inputs:
        return []
    rows = tuple(
        (
            Verbatim(given.name),
            Foreign(given.given + (f" (revision {given.revision})" if given.revision else "")),
            Claim(Verbatim(given.digest), (RUN,)),
            "yes" if given.pinned else "NO",
        )
        for given in run.inputs
    )
    return [Table(("input", "given", "sha256", "pinned by the scenario"), rows)]


def environment_in_full(record: Record) -> list[Block]:
    """Every package and variable, the processes, and the folders of the ranks."""
    run = record.run
    here = run.environment
    servers = ", ".join(map(str, run.server_pids)) or "none"
    pids = "pids" if len(run.server_pids) > 1 else "pid"
    processes = f"harness pid {run.harness_pid}, fork server {pids} {servers}"
    rows: list[tuple[str, Part]] = [
        ("host", Text(Verbatim(here.host), " (digest of its boot id)")),
        *(("plug-in", Foreign(f"{plugin}, sha256 {plugin.sha256}")) for plugin in run.plugins),
        *(
            ("imported with it", Foreign(f"{package}, sha256 {package.sha256}"))
            for package in run.imported
        ),
    ]
    if here.start_files:
        rows.append(("files that Python may read at startup", Foreign(_start_files(here))))
    rows += [
        (
            "run",
            (
                f"{run.seconds} s, {plural(run.jobs, 'world')} at a time, {run.start} start of the"
                f" ranks; {processes}"
            ),
        ),
        ("home, caches and temporary folder", _room(run)),
    ]
    blocks: list[Block] = [
        Heading(2, "Environment in full"),
        Table(("what", "this run"), tuple((name, Claim(fact, (RUN,))) for name, fact in rows)),
    ]
    if run.environments:
        blocks += [
            Heading(3, "Packages of each arm, with their wheels"),
            Verbatim(_wheels(record) or "no packages"),
        ]
    count = plural(len(here.packages), "package")
    packages = "\n".join(f"{package.name}=={package.version}" for package in here.packages)
    seen = "" if _is_seen(record) else " (not used by the ranks)"
    variables = "\n".join(f"{name}={value}" for name, value in here.variables.items()) or "none"
    return [
        *blocks,
        Heading(3, f"{count} in the harness's environment{seen}"),
        Verbatim(packages),
        Heading(3, "Environment variables"),
        Verbatim(variables),
        Note(f"{here.other_variables} other environment variables are not recorded."),
    ]


def _machine(machine: MachineFacts) -> str:
    """Machine of a run, in words."""
    size = (
        f"{plural(machine.slots, 'slot')}, {plural(machine.cores, 'core')},"
        f" {machine.memory / 2**30:.1f} GiB"
    )
    clock = (
        f"wall clock {machine.offset:+.3f} s relative to this machine's, accurate to"
        f" {1e3 * machine.offset_within:.2f} ms"
    )
    return f"{machine.system}, Python {machine.python}, {size}; {clock}"


def _start_files(here: EnvironmentFacts | ArmEnvironmentFacts) -> str:
    return ", ".join(f"{file.name} (sha256 {file.sha256[:12]})" for file in here.start_files)


def _farm(run: RunFacts) -> list[Block]:
    """Nodes that made the trials, where others than this machine did."""
    if run.farm is None:
        return []
    rows = tuple(
        (
            Claim(
                str(node.number) if node.name is None else Foreign(f"{node.number}, {node.name}"),
                (RUN,),
            ),
            Verbatim(node.host),
            Foreign(
                f"{node.cpu}, {node.affinity} of {plural(node.cores, 'core')},"
                f" {node.memory / 2**30:.1f} GiB"
            ),
            Foreign(f"{node.system} {node.release}; GPU: {node.gpu or 'none found'}"),
            str(node.lanes),
            f"{node.harness_pid}; {', '.join(map(str, node.server_pids)) or 'none'}",
            "no" if node.lost is None else Foreign(node.lost),
        )
        for node in run.farm.nodes
    )
    head = (
        "node",
        "host",
        "processor, memory",
        "system",
        "worlds at a time",
        "our process; fork servers",
        "lost",
    )
    count = plural(len(rows), "node")
    hosts = plural(len({node.host for node in run.farm.nodes}), "machine")
    what = f"Every trial ran on one of {count} of a Ray cluster ({run.farm.version}), on {hosts}:"
    return [Paragraph(Claim(Foreign(what), (RUN,))), Table(head, rows)]


def _room(run: RunFacts) -> Text:
    """Return what ranks had for their own: one line, with what is shared on purpose."""
    room = run.room
    if room.home == "shared":
        return Text("the user's own, shared by all worlds (", Verbatim("world.home: shared"), ")")
    given = next(
        (given_input.given for given_input in run.inputs if given_input.name == facts.HOME_INPUT),
        None,
    )
    copy: tuple[Part, ...] = (
        () if given is None else ("; each world begins with a copy of ", Verbatim(given))
    )
    kept: tuple[Part, ...] = (
        (". The user's own folders are used for ", Verbatim(", ".join(room.kept)))
        if room.kept
        else ()
    )
    return Text(
        "separate for worlds that run in parallel, and emptied before each world starts",
        *copy,
        ". Shared on purpose: the compiler caches in ",
        Verbatim(", ".join(room.compiled)),
        *kept,
    )


def _own(record: Record) -> list[Block]:
    """Return what each arm ran in, where one of them had an environment of its own."""
    environments = record.run.environments
    if not environments:
        return []
    other = "reference" if "reference" in record.arms else "control"
    arms = [arm for arm in (other, "candidate") if arm in record.arms]
    called = [record.scenario.arm(arm) for arm in arms]
    sides = [installed(record.run, arm) for arm in arms]
    words = {True: "its own environment", False: "the environment of the harness"}
    rows: list[tuple[Part, ...]] = [("ran in", *(words[arm in environments] for arm in arms), "")]
    rows.append(_row("Python", [python for python, _ in sides]))
    names = sorted(
        set[str]().union(*(environment.versions for environment in environments.values()))
    )
    differ = [
        name
        for name in names
        if len({packages.get(name) for _, packages in sides}) > 1 or len(sides) == 1
    ]
    alike = len(names) - len(differ)
    rows += [_row(name, [packages.get(name) for _, packages in sides]) for name in differ]
    read = [_start_files(environments.get(arm, record.run.environment)) for arm in arms]
    if any(environment.start_files for environment in environments.values()):
        rows.append(
            _row("files that Python may read at startup", [files or "nothing" for files in read])
        )
    return [
        Paragraph("The environment of each arm's ranks:"),
        Table(("package", *called, "comparison"), tuple(rows)),
        (
            Paragraph(
                f"{plural(alike, 'other package')} {'has' if alike == 1 else 'have'} the same version"
                " in both arms."
            )
            if len(sides) > 1
            else Paragraph("The run has one arm.")
        ),
        Note(
            "When the environment was created, pip chose the package versions that the scenario does"
            " not pin."
        ),
        *_made_from(record),
    ]


def _wheels(record: Record) -> str:
    """Each package of the environments of the arms, with the sha256 of its wheel and its files."""
    return "\n".join(
        f"{record.scenario.arm(arm)}: {package.name}=={package.version} wheel"
        f" sha256:{package.wheel} files sha256:{package.record}"
        for arm, environment in sorted(record.run.environments.items())
        for package in environment.packages
    )


def _made_from(record: Record) -> list[Block]:
    """Return what the environments were made from that no index has, each with its file in the
    evidence.
    """
    items: list[Part] = []
    for arm, environment in sorted(record.run.environments.items()):
        folder = f"{facts.ENVIRONMENT_FOLDER}/{arm}"
        if environment.requirements is not None:
            kept = Evidence(f"{folder}/{facts.REQUIREMENTS}")
            items.append(
                Claim(
                    Text(
                        f"{arm}: every package from a requirements file, sha256 ",
                        Verbatim(environment.requirements),
                    ),
                    (kept,),
                )
            )
        for name, built in sorted(environment.checkouts.items()):
            kept = Evidence(f"{folder}/{built.wheel}")
            place = f"{built.repo}, {built.folder}" if built.folder else built.repo
            left = "; uncommitted changes were not included" if built.changed else ""
            words = (
                f"{arm}: {name} was built from {place} at {built.rev}: commit {built.commit}, tree"
                f" {built.tree}{left}"
            )
            items.append(Claim(Foreign(words), (kept,)))
    return [BulletList(tuple(items))] if items else []


def _row(name: str, versions: Sequence[str | None]) -> tuple[Part, ...]:
    same = ""
    if len(versions) > 1:
        same = "the same" if len(set(versions)) == 1 else "DIFFER"
    return (
        Foreign(name),
        *(Claim(Foreign(version or "not there"), (RUN,)) for version in versions),
        same,
    )


def made_by(here: EnvironmentFacts) -> str:
    """Who made the environment: Nix with its store path, or a lock with its sha256, or nobody
    knows.
    """
    lock = f"lock {here.lock}, sha256 {here.lock_sha256}" if here.lock else "made by hand, no lock"
    if here.nix is None:
        return f"no Nix: Python {here.python}, {lock}"
    how = "Nix shell" if here.nix.source is None else "nix run"
    return f"{how}, store path {here.nix.environment}; Python {here.python}, {lock}"


def nix_rows(here: EnvironmentFacts) -> list[tuple[str, Part]]:
    """Return what the environment was built from, where Nix built it: names and values of a
    table.
    """
    nix = here.nix
    if nix is None:
        return []
    parts: list[Part] = []
    if nix.flake_lock_sha256:
        parts += ["flake.lock sha256 ", Verbatim(nix.flake_lock_sha256), "; "]
    if nix.nixpkgs:
        parts += ["nixpkgs ", Verbatim(nix.nixpkgs), "; "]
    parts += ["wheels.json sha256 ", Verbatim(nix.wheels_sha256 or "unknown")]
    rows: list[tuple[str, Part]] = [("Nix built it from", Text(*parts))]
    if nix.shell:
        rows.append(("Nix shell, derivation", Foreign(nix.shell)))
    if nix.source:
        rows.append(("code, store path", Foreign(nix.source)))
    if here.variant == "cuda":
        rows.append(
            ("NVIDIA driver, from the system", Foreign(", ".join(nix.driver) or "none found"))
        )
    return rows


def nix_warnings(here: EnvironmentFacts) -> list[Block]:
    """Return what makes the environment another one than the commit and its flake.lock stand for.

    Empty where nothing does.
    """
    nix = here.nix
    if nix is None:
        return []
    doubts: list[Part] = []
    if nix.as_locked is not True:
        doubts.append(
            "The run did not use the nixpkgs in flake.lock."
            if nix.as_locked is False
            else "It is unknown whether the run used the nixpkgs in flake.lock."
        )
    if nix.stale:
        doubts.append(Foreign(f"Changed since the Nix shell was entered: {', '.join(nix.stale)}."))
    if nix.changed:
        doubts.append(
            Foreign(
                f"The flake is dirty, {plural(len(nix.changed), 'file')} changed:"
                f" {', '.join(nix.changed)}."
            )
        )
    if nix.untracked:
        doubts.append(
            Foreign(
                "Git does not track these source files, so Nix does not see them:"
                f" {', '.join(nix.untracked)}."
            )
        )
    if nix.source is None and nix.changed is None:
        doubts.append(
            "It is unknown whether the flake matches the commit, because git did not report its"
            " state."
        )
    if not doubts:
        return []
    return [
        Paragraph("The commit and flake.lock alone do not reproduce this environment:"),
        BulletList(tuple(doubts)),
    ]


def scenario_in_words(record: Record) -> list[tuple[str, Part]]:
    """Return what identifies the scenario and the run: names and values of a table."""
    run = record.run
    scenario = record.scenario
    asked = (Evidence(facts.SCENARIO_PATH),)
    rows: list[tuple[str, Part]] = [
        (
            "scenario",
            Claim(
                Text(
                    Verbatim(scenario.id),
                    f", role {scenario.role}, sha256 ",
                    Verbatim(scenario.sha256),
                ),
                asked,
            ),
        ),
        (
            "run",
            Text(
                Verbatim(run.id),
                ", root seed ",
                Verbatim(scenario.seed),
                ", rankproof ",
                Verbatim(run.rankproof),
            ),
        ),
    ]
    if run.reproduces is not None:
        rows.append(("reproduces", Claim(Verbatim(run.reproduces.report), (RUN,))))
    if scenario.use is not None:
        rows.append(("subject", Claim(Text("ready-made subject ", Verbatim(scenario.use)), asked)))
    if scenario.of is not None:
        rows.append(("subject is", Claim(f"the {scenario.of} code, not the repository's", asked)))
    if run.overrides:
        rows.append(("set on the command line", Claim(Verbatim("  ".join(run.overrides)), (RUN,))))
    if run.challenge is not None:
        rows.append(("challenge", Claim(Verbatim(run.challenge), (RUN,))))
    if scenario.expects:
        met = "as expected" if record.judgement.as_expected else "NOT as expected"
        rows.append(("expected verdict", Text(Verbatim(scenario.expects), f": {met}")))
    return rows
