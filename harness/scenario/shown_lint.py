"""What a run of a scenario will not show, as far as the file tells: notes, because a question may well be narrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from harness.forms.problem import Problem
from harness.forms.text import numbered
from harness.scenario.draft import Draft

OF_ONE = "in a world of one rank nothing distributed is tried"
# What a rank emits last; a fault that waits for it finds the work done.
LAST = "subject.end"


def unasked(checks: Iterable[Any], size: int) -> str:
    """Which ranks of a world no check asks about what they do, in words; empty where each is asked.

    How a rank ended is not an answer to what it did. A rank that others are compared with is asked too.
    """
    asked: set[int] = set()
    for check in checks:
        of_the_end_alone = check.properties.of_an_end and not check.properties.needs_an_event
        if not of_the_end_alone and hasattr(check, "ranks"):
            asked |= {*check.ranks.of(size), *(() if getattr(check, "against", None) is None else (check.against,))}
    left = [rank for rank in range(size) if rank not in asked]
    if not left:
        return ""
    return f"no check asks {numbered('rank', left)} of {size} for anything but how it ended"


def ranks_that_nobody_asks(draft: Draft) -> Iterator[Problem]:
    """A check that asks rank 0 alone says nothing about the others."""
    for size in draft.sizes() if len(draft.checks) == len(draft.at("checks") or ()) else ():
        try:
            words = unasked(draft.checks.values(), size)
        except ValueError:
            return  # ranks_exist has reported it
        if words:
            yield draft.problem(("checks",), words, at_key=True, kind="note")


def a_world_of_one(draft: Draft) -> Iterator[Problem]:
    """One rank meets nobody."""
    for index, size in enumerate(draft.axes().get("ranks", [])):
        if size == 1:
            yield draft.problem(("matrix", "ranks", index), OF_ONE, kind="note")


def faults_after_the_work(draft: Draft) -> Iterator[Problem]:
    """What strikes when the subject has returned disturbs nothing that a check looks at."""
    if any(getattr(check, "event", None) == LAST for check in draft.checks.values()):
        return
    for index, fault in draft.faults.items():
        if fault.event == LAST:
            message = (
                "comes when the subject has returned: no check asks for an event behind it, so nothing is disturbed"
            )
            yield draft.problem(("faults", index, "at"), message, kind="note")


SHOWN_RULES = (ranks_that_nobody_asks, a_world_of_one, faults_after_the_work)
