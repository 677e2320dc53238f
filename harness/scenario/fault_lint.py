"""Rules about faults that span several keys: what could never land is said before a run, not by void trials."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

from harness.events import is_name
from harness.forms.problem import Problem, closest
from harness.scenario.draft import Draft

# Events about a rank that its own process never emits: it cannot wait inside them.
NOT_THE_RANKS_OWN = (
    "rank.started",
    "rank.stopped",
    "rank.continued",
    "rank.exited",
    "rank.error",
    "rank.state",
    "world.begin",
    "world.end",
    "fault.planned",
    "fault.struck",
    "fault.undone",
)


def strikes_at_an_event(draft: Draft) -> Iterator[Problem]:
    """A fault strikes at an event that a rank can emit."""
    for index, fault in draft.faults.items():
        at = getattr(fault, "at", None)
        if at is None:
            continue
        if not is_name(at):
            message = "is no event a rank can emit: lower-case words joined by dots, like tokenizer.load.begin"
            yield draft.problem(
                ("faults", index, "at"), message, suggestion=at.lower() if is_name(at.lower()) else None
            )
        elif at in NOT_THE_RANKS_OWN:
            message = "is told about a rank, not by it, so nothing can wait there; name an event of the subject"
            yield draft.problem(("faults", index, "at"), message)


def raises_what_there_is(draft: Draft) -> Iterator[Problem]:
    """A fault raises a built-in exception that can be made of a message."""
    for index, fault in draft.faults.items():
        if fault.kind == "raise" and not _is_raisable(fault.error):
            known = [name for name in dir(builtins) if _is_raisable(name)]
            message = "must be a built-in exception that is made of a message, like RuntimeError or TimeoutError"
            yield draft.problem(("faults", index, "error"), message, suggestion=closest(fault.error, known))


def _is_raisable(name: str) -> bool:
    kind = getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return False
    try:
        return str(kind("a message")) in ("a message", "'a message'")
    except TypeError:
        return False


def somebody_starts_in_time(draft: Draft) -> Iterator[Problem]:
    """A rank is late only beside one that is not."""
    sizes = draft.sizes()
    late = {index: fault for index, fault in draft.faults.items() if fault.kind == "start-late"}
    for size in sizes:
        try:
            ranks = {rank for fault in late.values() for rank in fault.ranks.of(size)}
        except ValueError:
            return  # ranks_exist has reported it
        if late and len(ranks) == size:
            message = f"leaves no rank that starts in time in a world of {size}; leave one out"
            yield draft.problem(("faults", max(late), "ranks"), message)
            return


def faults_do_not_meet(draft: Draft) -> Iterator[Problem]:
    """Two faults never strike the same rank in the same way: one would hide the other, and leave it without proof."""
    sizes = draft.sizes()
    first: dict[tuple[int, str, str, str], Any] = {}
    for index, fault in draft.faults.items():
        try:
            ranks = fault.ranks.of(sizes[-1]) if sizes else ()
        except ValueError:
            continue
        key, names = _places(fault)
        arms = ("candidate", "control") if fault.arm is None else (fault.arm,)
        places = [(rank, key, name, arm) for rank in ranks for name in names for arm in arms]
        met = next((first[place] for place in places if place in first), None)
        if met is not None:
            what = {"at": "strikes at the same event", "for": "is late too", "set": "sets the same variable"}[key]
            message = f"meets the fault {met.id}, which {what} on the same rank; give them other ranks or places"
            yield draft.problem(("faults", index, key), message, at_key=True)
        for place in places:
            first.setdefault(place, fault)


def hubs_are_there(draft: Draft) -> Iterator[Problem]:
    """A fault of the hub needs one, a hub serves an input, and nobody else says where the hub is."""
    served = draft.at("hub", "serve")
    if isinstance(served, str) and served not in draft.names("inputs"):
        message = "is no input of this scenario; a hub serves a folder of repositories that is one"
        yield draft.problem(("hub", "serve"), message, suggestion=closest(served, draft.names("inputs")))
    for index, fault in draft.faults.items():
        if fault.properties.needs_a_hub and not draft.has("hub"):
            message = "needs a hub that the scenario starts: add hub: {serve: INPUT}"
            yield draft.problem(("faults", index, "kind"), message)
    for index, check in draft.checks.items():
        if check.properties.needs_a_hub and not draft.has("hub"):
            yield draft.problem(("checks", index, "kind"), "counts requests to a hub: add hub: {serve: INPUT}")
    for index, row in draft.measure.items():
        if row.probe in ("requests", "received") and not draft.has("hub"):
            yield draft.problem(("measure", index, "probe"), "is told by a hub: add hub: {serve: INPUT}")
    paths: list[tuple[str | int, ...]] = [("world", "env")]
    paths += [("faults", index, "set") for index, fault in draft.faults.items() if fault.kind == "env"]
    for path in paths if draft.has("hub") else ():
        if draft.has(*path, "HF_ENDPOINT"):
            message = "is set by the scenario's hub; remove one of the two"
            yield draft.problem((*path, "HF_ENDPOINT"), message, at_key=True)


def _places(fault: Any) -> tuple[str, list[str]]:
    """Under which key a fault says where it strikes, and where."""
    if fault.kind == "env":
        return "set", list(fault.set)
    if fault.kind == "hub":
        return "id", []  # rules of one hub strike side by side, and the log tells them apart by their ids
    return ("for", [""]) if fault.kind == "start-late" else ("at", [fault.at])


def claims_strike_both_arms(draft: Draft) -> Iterator[Problem]:
    """A claim's control fails because its code is broken, not because something was done to it alone."""
    for index, fault in draft.faults.items():
        if fault.arm is not None and draft.role == "claim":
            message = (
                "strikes one arm only, and this is a claim: its control must fail for its code. Remove it, or make "
                "this an upstream finding (role: upstream)"
            )
            yield draft.problem(("faults", index, "arm"), message, at_key=True)
        elif fault.arm == "control" and not draft.has("subject", "control"):
            yield draft.problem(("faults", index, "arm"), "names the control, and there is none", at_key=True)


FAULT_RULES = (
    claims_strike_both_arms,
    strikes_at_an_event,
    raises_what_there_is,
    somebody_starts_in_time,
    hubs_are_there,
    faults_do_not_meet,
)
