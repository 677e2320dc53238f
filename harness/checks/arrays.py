"""Base of the checks that compare arrays, and the needles that try their tolerance.

A needle is a wrong array that the harness compares in place of a rank's own. Needles are tried in
the candidate's trials until one is refused, and told in events; whoever has the files tries them
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from harness.checks.check import Check, RankCheck
from harness.checks.finding import RankFinding, canonical, failed
from harness.forms.problem import Draft, Problem
from harness.forms.strict_json import JSON
from harness.history import (
    ARTEFACT_FOUND,
    NEEDLES_TRIED,
    History,
    artefact_compared,
    artefact_found,
    artefact_was_changed,
    why_no_artefact,
)
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

# What a comparison calls its reference.
A = "a"
Whom = Annotated[int, Field(ge=0, le=63)] | Literal["reference", "a"]
WHOM = (
    "the rank whose value is expected, reference for subject.reference, or a for subject.compare."
)


class AgainstCheck(RankCheck):
    """Check that compares each rank asked with another rank or with the reference, in arrays if it
    names one.

    A kind has the fields `against` and `artefact`; where it names no artefact, the harness compares
    nothing for it.
    """

    @property
    def allows(self) -> str:
        """How far apart the two may be, in words."""
        return f"what {self.kind} allows"

    @property
    def of(self) -> tuple[int | Literal["reference"] | None, str | None]:
        """Whom it compares with, and the artefact; each None where the scenario names none."""
        against: int | Literal["reference"] | None = getattr(self, "against", None)
        return "reference" if against == A else against, getattr(self, "artefact", None)

    def compare(self, found: ArrayFile, expected: ArrayFile) -> dict[str, JSON]:
        """Compare two arrays: what the event of the comparison holds. Needs NumPy.

        Raises:
            NotAnArray: one of them is not one, or they cannot be compared.
        """
        raise NotImplementedError

    def agrees(self, stated: Mapping[str, JSON], again: Mapping[str, JSON]) -> bool:
        """Tell whether a comparison that was worked out again is the one that is stated."""
        return dict(stated) == dict(again)

    def judge_comparison(self, rank: int, values: Mapping[str, JSON], line: int) -> RankFinding:
        """Judge a rank by what `compare` gave. Pure, and never raises, whatever the values are."""
        raise NotImplementedError

    @property
    def tolerates(self) -> bool:
        """Tell whether it allows a difference, so that wrong arrays are tried on it."""
        return False

    def needle(self, what: str, wrong: ArrayFile, expected: ArrayFile) -> Needle:
        """Compare a wrong array as if a rank had kept it. Needs NumPy.

        Raises:
            NotAnArray: one of them is not one, or they cannot be compared.
        """
        raise NotImplementedError

    def departure(self, history: History, rank: int) -> float | None:
        """Return how far off a failing rank is, in the units of the numbers, if that is finite.

        Pure, and never raises.
        """
        del history, rank
        return None

    def is_answer(self, name: str) -> bool:
        return self.of == ("reference", name)

    @property
    def whose(self) -> str:
        """Whom a rank is compared with, in words."""
        if self.of[0] == "reference":
            return A if getattr(self, "against", None) == A else "the reference"
        return f"rank {self.of[0]}"

    def other(self, history: History, *, rank: int) -> tuple[History | None, int]:
        """Return the events of whom a rank is compared with, if there are such, and that rank."""
        if self.of[0] == "reference":
            # One process that holds the whole, or a world like this one.
            alone = history.reference is None or history.reference.size == 1
            return history.reference, 0 if alone else rank
        return history, rank if self.of[0] is None else self.of[0]

    def expected(
        self, history: History, rank: int, event: str, key: str, reports: Sequence[tuple[JSON, int]]
    ) -> tuple[list[JSON], RankFinding | None]:
        """Return what a rank's reports are compared with, one for each.

        Or the finding that there are not as many.
        """
        other, whose = self.other(history, rank=rank)
        values = [value for value, _ in other.values(whose, event, key)] if other else []
        if len(values) == len(reports):
            return values, None
        reason = (
            f"{event}.{key} was reported {len(reports)} times, but {len(values)} times by"
            f" {self.whose}"
        )
        return values, failed(rank, reason, reports[0][1], uncompared=True)

    def judge_array(self, history: History, rank: int) -> RankFinding:
        """By what the harness found the arrays to differ by, which anybody who has them can work
        out again.
        """
        name = str(self.of[1])
        digests = []
        other, whose = self.other(history, rank=rank)
        for events, one, word in ((history, rank, f"rank {rank}"), (other, whose, self.whose)):
            seen = artefact_found(events, one, name) if events else None
            if seen is None or events is None:
                why = why_no_artefact(events, one, name) if events else f"{name} was not kept"
                missing = events is history and one == rank
                reason = why if missing else f"{why}, by {word}"
                return failed(rank, reason, missing=missing, uncompared=not missing)
            if artefact_was_changed(events, one, name):
                return failed(
                    rank, f"{name} of {word} was changed after it was kept", uncompared=True
                )
            digests.append(seen.event.values.get("sha256"))
        compared = artefact_compared(history, rank, self.id)
        if compared is None:
            return failed(rank, f"{name} was not compared", uncompared=True)
        values = compared.event.values
        fault = values.get("why")
        comparison = values.get("comparison")
        if [values.get("found"), values.get("expected")] != digests:
            fault = "the compared artefact differs from the saved one"
        if fault is not None or not isinstance(comparison, dict):
            return failed(
                rank,
                f"{name} cannot be compared: {fault or 'the comparison is missing'}",
                compared.line,
                uncompared=True,
            )
        return self.judge_comparison(rank, comparison, compared.line)

    def same_bits(self, history: History) -> bool:
        """Tell whether each rank asked has to the last bit what it is compared with, values or
        artefact.
        """
        return all(self._same_bits(history, rank) for rank in self.ranks.of(history.size))

    def _same_bits(self, history: History, rank: int) -> bool:
        other, whose = self.other(history, rank=rank)
        if other is None:
            return False
        sides = ((history, rank), (other, whose))
        if (name := self.of[1]) is not None:
            found = [artefact_found(events, one, name) for events, one in sides]
            digests = [seen.event.values.get("sha256") for seen in found if seen is not None]
        else:
            event = str(getattr(self, "event", ""))
            key = str(getattr(self, "key", ""))
            digests = [
                canonical([value for value, _ in events.values(one, event, key)])
                for events, one in sides
            ]
        return len(digests) == len(sides) and len(set(digests)) == 1

    def lint_against(self, index: int, draft: Draft) -> Iterator[Problem]:
        """Yield the problems of whom ranks are compared with."""
        sizes = draft.sizes()
        place = ("checks", index, "against")
        against = self.of[0]
        compares = draft.has("subject", "compare")
        is_a = getattr(self, "against", None) == A
        if against == "reference" and compares != is_a:
            what = "must be a in a comparison" if compares else "needs a subject.compare section"
            yield draft.problem(place, what, suggestion=A if compares else None)
        elif against == "reference" and not compares and not draft.has("subject", "reference"):
            yield draft.problem(place, "needs a subject.reference section")
        elif isinstance(against, int) and sizes and against >= sizes[0]:
            message = (
                f"is not a rank of the smallest world, which has {sizes[0]}; give a rank that is"
                " in every world"
            )
            yield draft.problem(place, message)
        elif isinstance(against, int) and 1 in sizes:
            yield draft.problem(
                place,
                "is the only rank of a world of one; leave 1 out of matrix.ranks, or compare"
                " with to",
            )
        elif isinstance(against, int) and self.ranks.which == (against,):
            yield draft.problem(
                place, "is the only rank that the check covers, which always equals itself"
            )


def compares_arrays(checks: Iterable[Check]) -> list[AgainstCheck]:
    """List the checks of a scenario for which the harness has to compare what ranks kept."""
    return [
        check for check in checks if isinstance(check, AgainstCheck) and check.of[1] is not None
    ]


File = Callable[[Mapping[str, JSON]], ArrayFile]
# What was made of arrays before, by check and digests: trials often keep the same.
Known = dict[tuple[str, ...], dict[str, JSON]]


def needled(checks: Iterable[Check]) -> list[AgainstCheck]:
    """List the checks of a scenario whose tolerance is tried with arrays."""
    return [check for check in compares_arrays(checks) if check.tolerates]


def note_needles(
    check: AgainstCheck, history: History, *, file: File, known: Known
) -> Iterator[dict[str, JSON]]:
    """Try the tolerance of a check in a trial; yield the values of the events that hold that.

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
    """Yield, for each rank that is compared, what it is compared with and what has a similar
    name.
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
    """Read the needles of an event; None where it holds none."""
    found = values.get("needles")
    return Needles.of(found) if isinstance(found, dict) else None


def needles_of(history: History, check: str) -> list[Needles]:
    """List what was tried in a trial for a check."""
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
