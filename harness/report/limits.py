"""What a report does not show, generated from what was not run."""

from __future__ import annotations

from collections.abc import Iterable

from harness.forms.text import plural
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
)
from harness.report.words import percent
from harness.scenario.matrix import machines_of

WARM = (
    "Ranks were forked from a server that may have imported libraries before: races during import,"
    " the hash seed and cold memory are not exercised (start: fresh does)."
)
SHARED = (
    "The subject's code shares a process with what reports on it: pids, exit codes and resource use"
    " come from the process that forked the rank, every other event from the rank itself. All of"
    " them run as one user: a subject that sets out to deceive its harness is not defended against."
)
ROOM_OF_ALL = (
    "The bound takes trials as independent. Home folder, caches and temporary folder were laid out"
    " anew before each world. What a subject leaves elsewhere a later trial, of any arm, can read:"
    " at a path that it spells out, such as /tmp/name, in shared memory, in a service{kept}."
)
HOME_OF_ALL = (
    "The bound takes trials as independent, and the trials of all arms had the user's own home"
    " folder, caches and temporary folder (world.home: shared): what one left there, a later one"
    " could read."
)
LEFT_FOR_THE_OTHER = (
    "That also holds between {first} and {second}: where they agree, one may have read what the"
    " other left behind."
)
LOADED = (
    "Modules imported from the arm's folder are evidenced by their digest, packages by what their"
    " RECORD says, and other files by what the repository holds. Code that was loaded from no file"
    " of its own (text given to exec, native libraries, compiled copies that Python keeps, the"
    " interpreter itself) is not evidenced."
)
PROGRAMS = (
    "Ranks were programs: digests were taken of the arm's files before they were executed. Which"
    " code they loaded beyond that nobody tells."
)
CHILDREN = "Ranks started other processes ({names}): which code those loaded nobody tells."
OUTSIDE_LIMIT = 20
READY = (
    "The subject is Rankproof's own ready subject {use}: the result is about the libraries and the"
    " machine that it ran on, not about code of this repository."
)
COMPARED = (
    "B was compared with a: what both get wrong alike is not found. The defect changed what b"
    " reported or kept, not what it computed: whether b's code can make such a difference is not"
    " shown."
)
ONE_MACHINE = (
    "All ranks ran on one machine, over loopback: nothing is shown about networks, clocks or mixed"
    " machines."
)
TEST_HOSTS = (
    "The ranks were on {count} test hosts of one machine: networks, joined by a wire that is a"
    " process, host names, temporary folders and monotonic clocks were their own; processors, all"
    " other files and the clock on the wall were shared. Nothing is shown about network cards,"
    " their drivers, or machines that differ."
)
MACHINES = (
    "The ranks of a world were on {count}, of {listed} in the hostfile, reached by ssh: what one"
    " says of its ranks is its own word, within what can be true. Times of two machines are set by"
    " ours, to within half of the fastest round trip: no verdict rests on which of two was first."
)
TEST_MACHINES = (
    "These machines were made of one, as networks of their own with a real sshd each: they share"
    " its processors, its files and its clock on the wall, and nothing is shown about network"
    " cards, or machines that differ."
)
FARMED = (
    "Each trial ran on one machine, over loopback, and trials on several: nothing is shown about"
    " networks. Times and memory of different machines are not set beside each other, so nothing"
    " was measured. What a node says of its own world is believed as far as its events agree with"
    " each other; a node that was lost took its trials along, which are void and counted as"
    " failures in the second bound."
)
TIME = "Time in the signature is the signer's own claim."


def limits_section(record: Record) -> list[Block]:
    """Return the section, with what this very run leaves open first."""
    items: list[Part] = [
        Foreign(f"Cell {cell.id} was skipped: {'; '.join(map(str, cell.reasons))}")
        for cell in record.judgement.cells
        if cell.verdict == "SKIPPED"
    ]
    items += [Foreign(sentence) for sentence in record.judgement.unshown]
    worst = max(
        (cell.candidate.upper for cell in record.judgement.cells if cell.candidate), default=1.0
    )
    items.append(
        f"A failure that happens in fewer than {percent(worst)} of the trials is not excluded "
        f"(at {record.scenario.accept_confidence:.0%} confidence)."
    )
    sizes = sorted({cell.ranks for cell in record.judgement.cells if cell.candidate})
    backends = sorted({cell.backend for cell in record.judgement.cells if cell.candidate})
    if sizes:
        noun = "world size" if len(sizes) == 1 else "world sizes"
        items.append(f"Only {noun} {', '.join(map(str, sizes))} on {', '.join(backends)} were run.")
    if record.run.start == "warm":
        items.append(WARM)
    if record.run.source.dirty is not False:
        items.append(
            "The tree was changed since the commit, or git could not say: the commit does not"
            " identify what ran."
        )
    items += [
        Foreign(f"Input {given.name} is not the one the scenario pins, or none is pinned.")
        for given in record.run.inputs
        if not given.pinned
    ]
    if record.run.environment.gpu is None:
        items.append("nvidia-smi named no GPU.")
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
    return [Heading(2, "What this does not show"), BulletList(tuple(items)), *_printed(record)]


def _left_behind(record: Record) -> str:
    """Return what a trial can read that an earlier one left, of its own arm or of another."""
    room = record.run.room
    kept = [f"what compilers keep ({', '.join(room.compiled)})"] if room.compiled else []
    kept += [f"the user's folders of tools ({', '.join(room.kept)})"] if room.kept else []
    sentence = (
        HOME_OF_ALL
        if room.home == "shared"
        else ROOM_OF_ALL.format(kept="".join(f", in {place}" for place in kept))
    )
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
            f"Module {module} came from outside the arm's folder and the environment: its code is"
            " not in the evidence."
        )
        for module in outside
    ]
    if more := items[OUTSIDE_LIMIT:]:
        items = [*items[:OUTSIDE_LIMIT], f"{len(more)} more modules came from there."]
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


def _printed(record: Record) -> list[Block]:
    """Tracebacks of trials that passed: no check looks at what ranks print, so a reader has to."""
    section: list[Block] = []
    for excerpt in record.judgement.printed:
        who = Foreign(
            f"{excerpt.cell}, {record.scenario.arm('candidate')} {excerpt.index}, rank"
            f" {excerpt.rank}"
        )
        section += [
            Paragraph(
                "Printed in a trial that passed: ",
                Claim(who, (Evidence(excerpt.path, excerpt.line),)),
                ":",
            ),
            Verbatim(excerpt.text, "text"),
        ]
    return section
