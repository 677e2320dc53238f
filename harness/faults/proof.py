"""Proof of a fault: what the events of a trial show of it.

Pure: whoever verifies a report proves it again.

Who says what decides what it is worth. The harness says that it struck and that it took the strike
back; the process that forked the rank says that it was forked, stopped, continued, or ended; the
rank says what it emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.history import History, Seen, ended

if TYPE_CHECKING:
    from harness.faults.fault import Fault

PLANNED = "fault.planned"
STRUCK = "fault.struck"
UNDONE = "fault.undone"
GATE = "fault.gate"
"""The harness notes this of a service's process: the event of a rank at which it is struck."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the events show of one fault on one rank.

    Attributes:
        proved: whether it took effect as it was meant to.
        description: what the events show, in words, where it is proved; why it is not, where it is
            not.
        lines: the lines of the trial's `events.jsonl` that show it, in order.
        ends: whether it is what ended the rank.
        overtaken: whether the trial failed before the fault could strike, or before it was over:
            the failure is the trial's own, and no fault of the harness.
        beside: other ranks that it ended with this one, where it strikes more than a rank.
    """

    proved: bool
    description: str
    lines: tuple[int, ...] = ()
    ends: bool = False
    overtaken: bool = False
    beside: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Landing:
    """Where a fault struck: the rank's event, and the harness' word that it struck there."""

    gate: Seen
    struck: Seen

    @property
    def lines(self) -> tuple[int, int]:
        """Lines of the two events."""
        return self.gate.line, self.struck.line


def not_proved(description: str, lines: tuple[int, ...] = ()) -> Proof:
    """Say why the events do not prove a fault."""
    return Proof(proved=False, description=description, lines=lines)


def landing(history: History, *, fault: str, at: str, rank: int) -> Landing | Proof:
    """Find where a fault struck at its event, or prove that it did not."""
    struck = noted(history, STRUCK, fault=fault, rank=rank)
    said = history.said(rank, at)
    if not said and (gate := noted(history, GATE, fault=fault, rank=rank)) is not None:
        said = [gate]
    if struck is None:
        return missed(
            history,
            rank=rank,
            what=f"the harness did not strike at {at}" if said else f"it never emitted {at}",
        )
    if not said or said[0].event.ns > struck.event.ns:
        return not_proved(f"the fault struck before it emitted {at}", (struck.line,))
    return Landing(gate=said[0], struck=struck)


def missed(history: History, *, rank: int, what: str) -> Proof:
    """Return the proof, not proved, of a fault that could not land, and why.

    A rank that returned had its chance.

    One that did not had failed before.
    """
    end = history.exit(rank)
    returned = history.said(rank, "subject.end")
    error = history.error(rank)
    if returned:
        return not_proved(f"{what}, and returned", (returned[0].line,))
    seen = error or end
    if error is not None:
        how = f": it raised {error.event.values.get('type')} before"
    elif stopped := _stopped(history, rank):
        how = ": it hung, or its world had failed, until it was stopped"
        seen = stopped
    elif end is not None:
        how = f": it had ended with {ended(end.event.values)}"
    else:
        how = ": its exit was not observed"
    return Proof(
        proved=False, description=f"{what}{how}", lines=(seen.line,) if seen else (), overtaken=True
    )


def _stopped(history: History, rank: int) -> Seen | None:
    for seen in history.noted("world.stopped"):
        ranks = seen.event.values.get("ranks")
        if isinstance(ranks, list | tuple) and rank in ranks:
            return seen
    return None


def cut_short(history: History, *, rank: int, description: str, lines: tuple[int, ...]) -> Proof:
    """Return the proof, not proved, of a fault that was not in force for as long as it was meant
    to.

    What failed meanwhile is why, if anything did.

    A rank that returned meanwhile did not fail: the fault came too late for it, and the scenario
    has to strike sooner. A signal tells nothing: whoever sent it may have been the harness.
    """
    if (stopped := _stopped(history, rank)) is not None:
        why = "its world had failed meanwhile, and was stopped"
        seen = stopped
    elif (error := history.error(rank)) is not None:
        why = f"it raised {error.event.values.get('type')} meanwhile"
        seen = error
    elif (
        (end := history.exit(rank)) is not None
        and end.event.values.get("code")
        and not history.returned(rank)
    ):
        why = f"it ended with {ended(end.event.values)} meanwhile"
        seen = end
    else:
        return not_proved(description, lines)
    return Proof(
        proved=False, description=f"{description}: {why}", lines=(*lines, seen.line), overtaken=True
    )


def noted(history: History, name: str, *, fault: str, rank: int | None = None) -> Seen | None:
    """Return the harness' first event of this name about this fault on this rank."""
    return next(
        (seen for seen in history.noted(name, rank) if seen.event.values.get("fault") == fault),
        None,
    )


def after(seen: Seen, moment: Seen) -> bool:
    """Tell whether something was not before a moment."""
    return seen.event.ns >= moment.event.ns


def first_after(found: Sequence[Seen], moment: Seen) -> Seen | None:
    """Return the first of these that is not before a moment."""
    return next((seen for seen in found if seen.event.ns >= moment.event.ns), None)


def said_between(history: History, rank: int, start: Seen, end: Seen) -> Seen | None:
    """Return what the rank said after `start` and before `end`, if anything."""
    for seen in history.seen:
        event = seen.event
        if (event.by, event.rank) == ("rank", rank) and start.event.ns < event.ns < end.event.ns:
            return seen
    return None


def next_of(history: History, rank: int, moment: Seen) -> Seen | None:
    """Return what is first heard of the rank after a moment: what it says, or its end."""
    for seen in history.seen:
        event = seen.event
        heard = event.by == "rank" or (event.by == "server" and event.name == "rank.exited")
        if heard and event.rank == rank and event.ns >= moment.event.ns and seen != moment:
            return seen
    return None


def lasted(start: Seen, end: Seen, *, seconds: float) -> bool:
    """Tell whether at least so many seconds lie between two events."""
    return end.event.ns - start.event.ns >= round(seconds * 1e9)


def milliseconds(start: Seen, end: Seen) -> str:
    """Write the time between two events for a reader."""
    return f"{(end.event.ns - start.event.ns) / 1e6:.1f} ms"


@dataclass(frozen=True, kw_only=True)
class Proved:
    """One fault on one rank in one trial: whether the harness struck, took it back, and what the
    events prove. Of a `service` the rank is the number of its process.
    """

    fault: str
    kind: str
    rank: int
    service: str | None = None
    struck: bool
    undone: bool
    proof: Proof


def prove(faults: Sequence[Fault], history: History) -> list[Proved]:
    """Prove every fault on every rank it is for. Pure.

    Raises:
        PluginFailed: a plug-in's proof raised.
    """
    proved: list[Proved] = []
    for fault in faults:
        of_what = history
        if fault.service is not None:
            # A service without events was never started, and no fault of it is proved.
            of_what = history.services.get(fault.service, History((), size=1))
        proved += [
            Proved(
                fault=fault.id,
                kind=fault.kind,
                rank=rank,
                service=fault.service,
                struck=noted(of_what, STRUCK, fault=fault.id, rank=rank) is not None,
                undone=noted(of_what, UNDONE, fault=fault.id, rank=rank) is not None,
                proof=_proof(fault, of_what, rank),
            )
            for rank in fault.ranks.of(of_what.size)
        ]
    return proved


def _proof(fault: Fault, history: History, rank: int) -> Proof:
    # The registry imports the kinds, which import this module.
    from harness.faults import KINDS

    with KINDS.guarded(fault.kind):
        # A plug-in may return anything.
        proof: object = fault.proof(history, rank=rank)
        if not isinstance(proof, Proof):
            raise TypeError(f"its proof of the fault {fault.id} is not a Proof")
        if fault.kind in KINDS.plugins and proof.proved and not proof.lines:
            raise ValueError(
                f"its proof of the fault {fault.id} does not name an event that shows that the fault"
                " took effect"
            )
        return proof
