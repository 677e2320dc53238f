"""Rules about faults that span several keys: what could never land is said before a run, not by
void trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.events import is_name
from harness.faults.link import LinkFault
from harness.forms.problem import Problem, closest
from harness.scenario.lint.draft import ScenarioDraft

# Events about a rank, or its world, that its own process never emits: it cannot wait inside them.
NOT_THE_RANKS_OWN = (
    *(
        "rank.started",
        "rank.stopped",
        "rank.continued",
        "rank.exited",
        "rank.error",
        "rank.state",
        "rank.stack",
    ),
    *(
        "rank.measured",
        "rank.limited",
        "rank.crowded",
        "rank.covered",
        "rank.spoiled",
        "program.started",
    ),
    *(
        "world.begin",
        "world.start",
        "world.signalled",
        "world.deadline",
        "world.stopped",
        "world.still",
    ),
    *(
        "world.unproved",
        "world.survivors",
        "world.end",
        "gate.opened",
        "channel.closed",
        "harness.error",
    ),
    *("fault.planned", "fault.struck", "fault.undone", "hosts.made"),
    *("wire.struck", "wire.undone", "wire.counted", "wire.carried"),
)
# Events that the runtime of a rank of Python emits, beside its subject.
OF_THE_RUNTIME = ("rank.begin", "backend.ready", "subject.loaded", "subject.begin", "subject.end")


def strikes_at_an_event(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a fault strikes at an event that a rank can emit."""
    for index, fault in draft.faults.items():
        at = fault.event
        if at is None:
            continue
        if not is_name(at):
            message = (
                "is not a valid name of an event; use lower-case words joined by dots, like"
                " tokenizer.load.begin"
            )
            yield draft.problem(
                ("faults", index, "at"),
                message,
                suggestion=at.lower() if is_name(at.lower()) else None,
            )
        elif at in NOT_THE_RANKS_OWN:
            message = (
                "is emitted by the harness, not by a rank, so a fault cannot wait for it; use an"
                " event of the subject, or rank.begin, which comes before the rank joins its"
                " group"
            )
            yield draft.problem(("faults", index, "at"), message)
        elif at in OF_THE_RUNTIME and draft.has("subject", "program"):
            message = (
                "is emitted by the runtime of Python ranks, but this subject is a program; use an"
                " event that the program emits, such as ready"
            )
            yield draft.problem(("faults", index, "at"), message)


def faults_do_not_meet(draft: ScenarioDraft) -> Iterator[Problem]:
    """Two faults never strike the same rank in the same way: one would hide the other, and leave it
    without proof.
    """
    sizes = draft.sizes()
    first: dict[tuple[int, str, str, str], Any] = {}
    for index, fault in draft.faults.items():
        try:
            ranks = fault.ranks.of(sizes[-1]) if sizes else ()
        except ValueError:
            continue
        key, names, meeting = fault.place
        arms = ("candidate", "control") if fault.arm is None else (fault.arm,)
        # Processes of a service are others than ranks of the same number.
        where = key if fault.service is None else f"{key} of {fault.service}"
        places = [(rank, where, name, arm) for rank in ranks for name in names for arm in arms]
        met = next((first[place] for place in places if place in first), None)
        if met is not None:
            message = (
                f"conflicts with the fault {met.id}, which {meeting} on the same rank; choose"
                " different ranks or places"
            )
            yield draft.problem(("faults", index, key), message, at_key=True)
        for place in places:
            first.setdefault(place, fault)


def hubs_are_there(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a fault of the hub needs one, a hub serves an input, and nobody else says where
    the hub is.
    """
    served = draft.at("hub", "serve")
    if isinstance(served, str) and served not in draft.names("inputs"):
        message = (
            "is not an input of this scenario; add an input with this name that is a folder"
            " of repositories"
        )
        yield draft.problem(
            ("hub", "serve"), message, suggestion=closest(served, draft.names("inputs"))
        )
    for index, fault in draft.faults.items():
        if fault.properties.needs_a_hub and not draft.has("hub"):
            message = "needs a hub, but the scenario has none; add hub: {serve: INPUT}"
            yield draft.problem(("faults", index, "kind"), message)
    for index, check in draft.checks.items():
        if check.properties.needs_a_hub and not draft.has("hub"):
            yield draft.problem(
                ("checks", index, "kind"),
                "counts requests to a hub, but the scenario has none; add hub: {serve: INPUT}",
            )
    for index, row in draft.measure.items():
        if row.probe in ("requests", "received") and not draft.has("hub"):
            yield draft.problem(
                ("measure", index, "probe"),
                "is measured by a hub, but the scenario has none; add hub: {serve: INPUT}",
            )
    paths: list[tuple[str | int, ...]] = [("world", "env")]
    paths += [
        ("faults", index, fault.place.key)
        for index, fault in draft.faults.items()
        if fault.variables
    ]
    for path in paths if draft.has("hub") else ():
        if draft.has(*path, "HF_ENDPOINT"):
            message = "is set by the scenario's hub; remove one of them"
            yield draft.problem((*path, "HF_ENDPOINT"), message, at_key=True)


def claims_strike_both_arms(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a claim's control fails because its code is broken, not because something was
    done to it alone.
    """
    for index, fault in draft.faults.items():
        if fault.arm is not None and draft.role == "claim":
            message = (
                "limits the fault to one arm, but a claim's control must fail because of its code."
                " Remove it, or make this an upstream finding (role: upstream)"
            )
            yield draft.problem(("faults", index, "arm"), message, at_key=True)
        elif fault.arm == "control" and not draft.has("subject", "control"):
            yield draft.problem(
                ("faults", index, "arm"),
                "is control, but the scenario has no control; remove it, or add subject.control",
                at_key=True,
            )


def hosts_have_what_they_need(draft: ScenarioDraft) -> Iterator[Problem]:
    """Every rank has a host, and nothing is asked of test hosts that they cannot have."""
    matrix = draft.matrix
    if matrix is not None and matrix.hosts is not None and max(matrix.hosts) > 1:
        if draft.world is not None and draft.world.hosts > 1:
            message = (
                "spreads ranks over the machines of a hostfile, but world.hosts creates test"
                " hosts; keep one"
            )
            yield draft.problem(("matrix", "hosts"), message, at_key=True)
        for values in matrix.combinations():
            ranks = int(values["ranks"])
            hosts = int(values["hosts"])
            if ranks < hosts:
                message = (
                    f"has cells with {ranks} ranks on {hosts} machines, which would leave a"
                    " machine without a rank; exclude these cells"
                )
                yield draft.problem(("matrix", "hosts"), message, at_key=True)
                break
    if draft.world is None or draft.world.hosts == 1:
        return
    placed = draft.world.placement
    sizes = draft.sizes()
    if isinstance(placed, tuple) and sizes and len(placed) < sizes[-1]:
        message = (
            f"has no host for rank {len(placed)} in a world of {sizes[-1]}; list a host for each"
            " rank"
        )
        yield draft.problem(("world", "placement"), message)
    yield from _hosts_without_ranks(draft)
    for index, fault in draft.faults.items():
        is_of_ranks = isinstance(fault, LinkFault) and fault.service is None
        if is_of_ranks and fault.to is not None and len(fault.to) == 1:
            yield from _without_link(draft, index, fault, to=fault.to[0])


def _hosts_without_ranks(draft: ScenarioDraft) -> Iterator[Problem]:
    """Find a test host on which no world of the matrix has a rank: a slip of a number."""
    if draft.world is None:
        return
    placed: set[int] = set()
    for size in draft.sizes():
        try:
            placed |= set(draft.world.hosts_of(size) or ())
        except (IndexError, ValueError):
            return  # a placement that does not fit has a rule of its own
    empty = [host for host in range(draft.world.hosts) if host not in placed]
    if placed and empty:
        # A note: a run that is narrowed to fewer ranks (--set matrix.ranks) has such hosts on
        # purpose.
        message = f"leaves host {empty[0]} without ranks; use at most as many hosts as ranks"
        yield draft.problem(("world", "hosts"), message, kind="note")


def _without_link(
    draft: ScenarioDraft, index: int, fault: LinkFault, *, to: int
) -> Iterator[Problem]:
    """Demand that a host has no link to itself."""
    for size in draft.sizes():
        placed = draft.world.hosts_of(size) if draft.world is not None else None
        try:
            hosts = {placed[rank] for rank in fault.ranks.of(size)} if placed else set[int]()
        except (IndexError, ValueError):
            return  # ranks that are not there, or have no host, have rules of their own
        if to in hosts:
            message = (
                f"has no link to host {to} for this rank in a world of {size}; choose another host"
            )
            yield draft.problem(("faults", index, "to"), message)
            return


FAULT_RULES = (
    claims_strike_both_arms,
    strikes_at_an_event,
    hubs_are_there,
    faults_do_not_meet,
    hosts_have_what_they_need,
)
