"""The section on where a run took place: the machine, the harness' own environment, and those of the arms."""

from __future__ import annotations

from collections.abc import Sequence

from harness.forms.text import plural
from harness.record import facts
from harness.record.arm_environment import installed
from harness.record.facts import RunFacts
from harness.record.model import Record
from harness.report.blocks import (
    Block,
    Claim,
    Details,
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
from harness.report.nix import made_by, nix_rows, nix_warnings

RUN = Evidence(facts.PATH)


def environment_section(record: Record) -> list[Block]:
    """Where the run took place, and what the arms that have an environment of their own ran in."""
    run, here = record.run, record.run.environment
    versions = {package.name.lower(): package.version for package in here.packages}
    shown = [
        f"{name} {versions[name]}"
        for name in ("torch", "transformers", "tokenizers", "mlx", "numpy")
        if name in versions
    ]
    rows: list[tuple[Part, ...]] = [
        ("environment", Claim(Foreign(made_by(here)), (RUN,))),
        *nix_rows(here),
        ("packages of the harness" if run.environments else "packages", Claim(Foreign(", ".join(shown)), (RUN,))),
        ("system", Claim(Foreign(f"{here.system} {here.release} {here.machine}"), (RUN,))),
        (
            "processor, memory",
            Claim(
                Foreign(f"{here.cpu}, {plural(here.affinity, 'core')} of {here.cores}, {here.memory / 2**30:.1f} GiB"),
                (RUN,),
            ),
        ),
        ("GPU", Claim(Foreign(here.gpu or "none answers"), (RUN,))),
        ("host", Claim(Text(Verbatim(here.host), " (digest of its boot id)"), (RUN,))),
        *(("plug-in", Claim(Foreign(f"{one}, sha256 {one.sha256}"), (RUN,))) for one in run.plugins),
        (
            "run",
            Claim(
                f"{run.seconds} s, {plural(run.jobs, 'world')} at a time, ranks started {run.start}; harness pid "
                f"{run.harness_pid}, fork server pid {', '.join(map(str, run.server_pids)) or 'none'}",
                (RUN,),
            ),
        ),
    ]
    if run.room is not None:
        rows.append(("home, caches, temporary folder", Claim(_room(run), (RUN,))))
    section: list[Block] = [Heading(2, "Environment"), Table(("what", "this run"), tuple(rows)), *nix_warnings(here)]
    section += _own(record)
    if run.inputs:
        section.append(
            Table(
                ("input", "given", "sha256", "pinned by the scenario"),
                tuple(
                    (
                        Verbatim(given.name),
                        Foreign(given.given + (f" (revision {given.revision})" if given.revision else "")),
                        Claim(Verbatim(given.digest), (RUN,)),
                        "yes" if given.pinned else "NO",
                    )
                    for given in run.inputs
                ),
            )
        )
    variables = "\n".join(f"{name}={value}" for name, value in here.variables.items()) or "none"
    packages = "\n".join(f"{package.name}=={package.version}" for package in here.packages)
    section.append(
        Details(
            f"{len(here.packages)} packages, {plural(len(here.variables), 'variable')}",
            (
                Verbatim(packages),
                Verbatim(variables),
                Note(f"{here.other_variables} other environment variables are not recorded."),
            ),
        )
    )
    return section


def _room(run: RunFacts) -> Text:
    """What ranks had for their own: one line, with what is shared on purpose."""
    room = run.room
    if room.home == "shared":
        return Text("the user's own, shared by all worlds (", Verbatim("world.home: shared"), ")")
    given = next((one.given for one in run.inputs if one.name == facts.HOME_INPUT), None)
    copy: tuple[Part, ...] = () if given is None else (", beginning with a copy of ", Verbatim(given))
    kept: tuple[Part, ...] = ("; as the user has them: ", Verbatim(" ".join(room.kept))) if room.kept else ()
    shared = "; shared on purpose: what compilers keep in "
    return Text("a room per lane, emptied before each world", *copy, shared, Verbatim(" ".join(room.compiled)), *kept)


def _own(record: Record) -> list[Block]:
    """What each arm ran in, where one of them had an environment of its own."""
    made = record.run.environments
    if not made:
        return []
    arms = [arm for arm in ("control", "candidate") if arm in record.arms]
    sides = [installed(record.run, arm) for arm in arms]
    words = {True: "an environment of its own", False: "the environment of the harness"}
    rows: list[tuple[Part, ...]] = [("made as", *(words[arm in made] for arm in arms), "")]
    rows.append(_row("Python", [python for python, _ in sides]))
    names = sorted(set[str]().union(*(one.versions for one in made.values())))
    differ = [name for name in names if len({packages.get(name) for _, packages in sides}) > 1 or len(sides) == 1]
    rows += [_row(name, [packages.get(name) for _, packages in sides]) for name in differ]
    wheels = "\n".join(
        f"{arm}: {package.name}=={package.version} wheel sha256:{package.wheel} RECORD sha256:{package.record}"
        for arm in arms
        if arm in made
        for package in made[arm].packages
    )
    return [
        Paragraph("What the ranks of each arm ran in:"),
        Table(("package", *arms, "the arms"), tuple(rows)),
        Paragraph(f"{plural(len(names) - len(differ), 'other package')} of the same version in both.")
        if len(sides) > 1
        else Paragraph("The run has one arm."),
        Note("Versions that the scenario does not name are those that pip chose when the environment was made."),
        Details("every package of these environments, with its wheel", (Verbatim(wheels or "no packages"),)),
    ]


def _row(name: str, versions: Sequence[str | None]) -> tuple[Part, ...]:
    same = "" if len(versions) < 2 else "the same" if len(set(versions)) == 1 else "DIFFER"
    return (Foreign(name), *(Claim(Foreign(version or "not there"), (RUN,)) for version in versions), same)
