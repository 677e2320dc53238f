"""What checks say of needles: wrong arrays that the harness compares in place of the ranks' own, to
try the tolerance.

They are tried in the candidate's trials until one is refused, and told in events; whoever has the
files tries them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from harness.checks.arrays import AgainstCheck, compares_arrays
from harness.checks.check import Check
from harness.forms.strict_json import JSON
from harness.history import ARTEFACT_FOUND, NEEDLES_TRIED, History, artefact_found
from harness.numeric.array import NotAnArray
from harness.numeric.arrays import ArrayFile
from harness.numeric.needles import (
    LEAST,
    Needle,
    Needles,
    extent,
    places_like,
    unmasked,
    wrong_ones,
)

File = Callable[[Mapping[str, JSON]], ArrayFile]
Known = dict[tuple[str, ...], dict[str, JSON]]
"""What was made of arrays before, by check and digests: trials often keep the same."""


def needled(checks: Iterable[Check]) -> list[AgainstCheck]:
    """The checks of a scenario whose tolerance is tried with arrays."""
    return [check for check in compares_arrays(checks) if check.tolerates]


def note_needles(
    check: AgainstCheck, history: History, *, file: File, known: Known
) -> Iterator[dict[str, JSON]]:
    """The values of the events that tell what a check makes of needles in a trial.

    The last is of the first refused.

    Args:
        check: whose tolerance is tried.
        history: of the trial, with what it kept and its reference's events.
        file: gives an artefact by the values of the event that tells of it.
        known: takes what was made of them.
    """
    noted: set[tuple[str, ...]] = set()
    for expected, others in sides_of(check, history):
        digests = {name: values["sha256"] for name, values in others.items()}
        key = (check.id, str(expected["sha256"]), *map(str, digests.values()))
        if key in noted:
            continue
        noted.add(key)
        if key not in known:
            known[key] = {
                "check": check.id,
                "expected": expected["sha256"],
                "others": dict(digests),
            }
            try:
                found = _try(
                    check, file(expected), {name: file(values) for name, values in others.items()}
                )
                known[key] |= {"needles": found.values()}
            except NotAnArray as error:
                known[key] |= {"why": str(error)}
        yield dict(known[key])
        if (needles := needles_in(known[key])) is not None and needles.is_refused:
            return


def sides_of(
    check: AgainstCheck, history: History
) -> Iterator[tuple[Mapping[str, JSON], dict[str, Mapping[str, JSON]]]]:
    """Of each rank that is compared: what it is compared with, and what is there under such names
    beside it.
    """
    name = str(check.of[1])
    for rank in check.ranks.of(history.size):
        other, whose = check.other(history, rank=rank)
        expected = artefact_found(other, whose, name) if other is not None else None
        if other is None or expected is None or artefact_found(history, rank, name) is None:
            continue
        kept = {
            str(seen.event.values["artefact"]): seen.event.values
            for seen in other.noted(ARTEFACT_FOUND, whose)
            if "artefact" in seen.event.values
        }
        yield expected.event.values, {one: kept[one] for one in places_like(name, kept)}


def needles_in(values: Mapping[str, JSON]) -> Needles | None:
    """What an event tells of needles; None where it does not."""
    found = values.get("needles")
    return Needles.of(found) if isinstance(found, dict) else None


def needles_of(history: History, check: str) -> list[Needles]:
    """All that was tried in a trial for a check."""
    noted = [
        seen.event.values
        for seen in history.noted(NEEDLES_TRIED)
        if seen.event.values.get("check") == check
    ]
    return [found for values in noted if (found := needles_in(values)) is not None]


def _try(check: AgainstCheck, expected: ArrayFile, others: Mapping[str, ArrayFile]) -> Needles:
    """Compare an array with wrong ones, until one is refused.

    One that differs by its mask alone says nothing.
    """
    right = unmasked(expected)
    found = extent(right)
    tried: list[Needle] = []
    known = (
        {name: unmasked(other) for name, other in others.items()} if found.elements >= LEAST else {}
    )
    for what, wrong in wrong_ones(right, known) if found.elements >= LEAST else ():
        needle = check.needle(what, wrong, right)
        if not needle.telling:
            continue
        tried.append(needle)
        if needle.is_refused:
            break
    return Needles(**found._asdict(), tried=tried)
