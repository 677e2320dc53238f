"""What a report does not show, generated from what was not run."""

from __future__ import annotations

from collections.abc import Iterable

from harness.forms.text import listed, plural
from harness.record.facts import MachinesFacts
from harness.record.model import Record
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Evidence,
    Foreign,
    Heading,
    Paragraph,
    Part,
    Verbatim,
    with_code,
)
from harness.report.summary import UNSHOWN_SHOWN
from harness.scenario.matrix import machines_of

WARM = (
    "Ranks were forked from a server that may already have imported libraries, so import"
    " races, different hash seeds and cold starts were not tested (start: fresh tests them)."
)
SHARED = (
    "The subject's code shares a process with the code that reports on it. Pids, exit codes and"
    " resource use come from the process that forked the rank; every other event comes from the"
    " rank itself. All of these processes run as the same user, so a subject that is written to"
    " deceive the harness can do so."
)
ROOM_OF_ALL = (
    "The bound assumes independent trials. The home folder, caches and temporary folder were"
    " recreated before each world. A later trial of any arm can still read data that a subject"
    " leaves {places}."
)
HOME_OF_ALL = (
    "The bound assumes independent trials, but the trials of all arms shared the user's home"
    " folder, caches and temporary folder (world.home: shared), so a later trial could read data"
    " that an earlier trial left there."
)
LEFT_FOR_THE_OTHER = (
    "The same applies to {first} and {second}: if they agree, the reason may be that {second} read"
    " data that {first} left behind, or the reverse."
)
LOADED = (
    "The evidence identifies modules in the arm's folder by their digest, packages by their RECORD,"
    " and other files by the repository. It does not cover code without its own source file:"
    " strings passed to exec, native libraries, cached bytecode, and the interpreter."
)
PROGRAMS = (
    "Ranks were programs. The digests are those of the arm's files before they were executed. It is"
    " unknown which other code the programs loaded."
)
CHILDREN = (
    "Ranks started other processes ({names}). It is unknown which code these processes loaded."
)
OUTSIDE_LIMIT = 20
READY = (
    "The subject is Rankproof's ready-made subject {use}, so the result is about the libraries and"
    " the machine, not about code in this repository."
)
COMPARED = (
    "B was compared with a, so an error that both share would not show up. The defect changed"
    " values that b reported or kept, not its computation, so this run does not show that b's code"
    " can cause such a difference."
)
ONE_MACHINE = (
    "All ranks ran on one machine, over loopback, so networks, clocks and heterogeneous machines"
    " were not tested."
)
TEST_HOSTS = (
    "The ranks were on {count} test hosts on one machine. Each host had its own network (connected"
    " by a process that simulates the wire), host name, temporary folder and monotonic clock. The"
    " hosts shared processors, all other files and the wall clock. Network cards, network drivers"
    " and heterogeneous machines were not tested."
)
MACHINES = (
    "The ranks of a world were on {count} of {listed} in the hostfile, reached by ssh. We rely on"
    " each machine's own report of its ranks, as far as it is plausible. Times of other machines"
    " are converted to our clock, accurate to half the fastest round trip, so no verdict depends on"
    " which of two machines was first."
)
TEST_MACHINES = (
    "These are test machines on one host, each with its own network and a real sshd. They share its"
    " processors, files and wall clock, so network cards and heterogeneous machines were not"
    " tested."
)
FARMED = (
    "Each trial ran on one machine, over loopback, so networks were not tested. Different trials"
    " ran on different machines, whose times and memory cannot be compared, so nothing was"
    " measured. We rely on each node's own report of its world, as far as its events agree with"
    " each other. The trials of a lost node are void, and the second bound counts them as failures."
)
TIME = "The time of the run is the signer's own claim."


def limits_section(record: Record) -> list[Block]:
    """Return the section, with what this very run leaves open first."""
    items: list[Part] = [
        Foreign(f"Cell {cell.id} was skipped: {'; '.join(map(str, cell.reasons))}")
        for cell in record.judgement.cells
        if cell.verdict == "SKIPPED"
    ]
    # The first of them are on the first screen.
    items += [with_code(sentence) for sentence in record.judgement.unshown[UNSHOWN_SHOWN:]]
    if not any(cell.measured for cell in record.judgement.cells):
        items.append("Load time, memory, and bytes read and written were not measured.")
    if record.run.start == "warm":
        items.append(WARM)
    if record.run.environment.gpu is None:
        items.append("nvidia-smi found no GPU.")
    if record.scenario.called:
        items.append(COMPARED)
    if record.scenario.use is not None:
        items.append(READY.format(use=record.scenario.use))
    items += _of_code(record)
    hosts = record.scenario.hosts
    where = TEST_HOSTS.format(count=hosts) if hosts > 1 else ONE_MACHINE
    if record.run.farm is not None:
        where = FARMED
    elif (over := record.run.machines) is not None:
        placed = sorted(
            {(cell.ranks, cell.hosts) for cell in record.judgement.cells if cell.candidate}, key=str
        )
        where = MACHINES.format(count=_of_machines(over, placed), listed=len(over.machines))
    if record.run.machines is not None and record.run.machines.made_here:
        where = f"{where} {TEST_MACHINES}"
    items += [where, SHARED, LOADED, _left_behind(record), TIME]
    return [Heading(2, "Also not shown"), BulletList(tuple(items))]


def _left_behind(record: Record) -> str:
    """Return what a trial can read that an earlier one left, of its own arm or of another."""
    room = record.run.room
    places = ["at an absolute path such as /tmp/name", "in shared memory", "in a service"]
    places += [f"in a compiler cache ({', '.join(room.compiled)})"] if room.compiled else []
    places += [f"in one of the user's tool folders ({', '.join(room.kept)})"] if room.kept else []
    sentence = HOME_OF_ALL if room.home == "shared" else ROOM_OF_ALL.format(places=listed(places))
    if record.scenario.called:
        left = LEFT_FOR_THE_OTHER.format(first="a", second="b")
    elif "reference" in record.arms:
        left = LEFT_FOR_THE_OTHER.format(first="the reference", second="the ranks")
    else:
        return sentence
    return f"{sentence} {left}"


def _of_machines(over: MachinesFacts, placed: Iterable[tuple[int, int | None]]) -> str:
    """How many machines had ranks, by world size and `hosts`: a hostfile may have more room than a
    world has ranks.
    """
    slots = [machine.slots for machine in over.machines]
    used = [
        len(set(machines_of(over.placement, slots=slots, size=size, hosts=on) or ()))
        for size, on in placed
    ] or [0]
    return (
        plural(used[0], "machine") if len({*used}) == 1 else f"{min(used)} to {max(used)} machines"
    )


def _of_code(record: Record) -> list[Part]:
    """Return what ran beside the arm's folder, as far as nothing proves it."""
    outside = sorted({module for cell in record.judgement.cells for module in cell.outside})
    items: list[Part] = [
        Foreign(
            f"Module {module} came from outside the arm's folder and its environment, so the"
            " evidence does not contain its code."
        )
        for module in outside
    ]
    if more := items[OUTSIDE_LIMIT:]:
        items = [
            *items[:OUTSIDE_LIMIT],
            f"{len(more)} more modules came from outside the arm's folder and its environment.",
        ]
    if record.scenario.program:
        items.append(PROGRAMS)
    children = {
        name
        for cell in record.judgement.cells
        if cell.ran is not None
        for name in cell.ran.children
    }
    if children:
        items.append(Foreign(CHILDREN.format(names=", ".join(sorted(children)))))
    return items


def tracebacks(record: Record) -> list[Block]:
    """Tracebacks of trials that passed: no check looks at what ranks print, so a reader has to."""
    if not record.judgement.printed:
        return []
    section: list[Block] = [Heading(2, "Tracebacks in trials that passed")]
    for excerpt in record.judgement.printed:
        who = Foreign(
            f"{excerpt.cell}, {record.scenario.arm('candidate')} {excerpt.index}, rank"
            f" {excerpt.rank}"
        )
        section += [
            Paragraph(
                Claim(who, (Evidence(excerpt.path, excerpt.line),)),
                ":",
            ),
            Verbatim(excerpt.text, "text"),
        ]
    return section
