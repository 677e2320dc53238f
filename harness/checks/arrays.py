"""What checks of arrays share: whom a rank is compared with, and what the harness compared for
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from harness.checks.check import Check, RankCheck
from harness.checks.finding import RankFinding, canonical
from harness.forms.problem import Draft, Problem
from harness.forms.strict_json import JSON
from harness.history import (
    History,
    artefact_compared,
    artefact_found,
    artefact_was_changed,
    why_no_artefact,
)
from harness.numeric.arrays import ArrayFile
from harness.numeric.needles import Needle

A = "a"
"""What a comparison calls its reference."""
Whom = Annotated[int, Field(ge=0, le=63)] | Literal["reference", "a"]
WHOM = (
    "the rank whose value is expected, reference for subject.reference's, or a for that of"
    " subject.compare."
)


class AgainstCheck(RankCheck):
    """A check that compares each rank asked with another rank or with the reference, in arrays if
    it names one.

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
        """Whether a comparison that was worked out again is the one that is stated."""
        return dict(stated) == dict(again)

    def judge_comparison(self, rank: int, values: Mapping[str, JSON], line: int) -> RankFinding:
        """Judge a rank by what `compare` gave. Pure, and never raises, whatever the values are."""
        raise NotImplementedError

    @property
    def tolerates(self) -> bool:
        """Whether it allows a difference, so that wrong arrays are tried on it."""
        return False

    def needle(self, what: str, wrong: ArrayFile, expected: ArrayFile) -> Needle:
        """Compare a wrong array as if a rank had kept it. Needs NumPy.

        Raises:
            NotAnArray: one of them is not one, or they cannot be compared.
        """
        raise NotImplementedError

    def departure(self, history: History, rank: int) -> float | None:
        """How far a rank for which it fails is off, in the units of the numbers; None where that
        has no finite answer.

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
        """The events in which what a rank is compared with is, if there are such, and the rank that
        has it.
        """
        if self.of[0] == "reference":
            # One process that holds the whole, or a world like this one.
            alone = history.reference is None or history.reference.size == 1
            return history.reference, 0 if alone else rank
        return history, rank if self.of[0] is None else self.of[0]

    def expected(
        self, history: History, rank: int, event: str, key: str, reports: Sequence[tuple[JSON, int]]
    ) -> tuple[list[JSON], RankFinding | None]:
        """What a rank's reports are compared with, one for each.

        Or the finding that there are not as many.
        """
        other, whose = self.other(history, rank=rank)
        values = [value for value, _ in other.values(whose, event, key)] if other else []
        if len(values) == len(reports):
            return values, None
        reason = (
            f"{event}.{key} was reported {len(reports)} times, and by {self.whose} {len(values)}"
            " times"
        )
        return values, RankFinding(
            rank=rank, passed=False, reason=reason, line=reports[0][1], uncompared=True
        )

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
                return RankFinding(
                    rank=rank, passed=False, reason=reason, missing=missing, uncompared=not missing
                )
            if artefact_was_changed(events, one, name):
                return RankFinding(
                    rank=rank,
                    passed=False,
                    reason=f"{name} of {word} was changed after it was kept",
                    uncompared=True,
                )
            digests.append(seen.event.values.get("sha256"))
        compared = artefact_compared(history, rank, self.id)
        if compared is None:
            return RankFinding(
                rank=rank, passed=False, reason=f"{name} was not compared", uncompared=True
            )
        values = compared.event.values
        fault = values.get("why")
        comparison = values.get("comparison")
        if [values.get("found"), values.get("expected")] != digests:
            fault = "what was compared is not what was kept"
        if fault is not None or not isinstance(comparison, dict):
            reason = f"{name} cannot be compared: {fault or 'the comparison is missing'}"
            return RankFinding(
                rank=rank, passed=False, reason=reason, line=compared.line, uncompared=True
            )
        return self.judge_comparison(rank, comparison, compared.line)

    def same_bits(self, history: History) -> bool:
        """Whether each rank asked has to the last bit what it is compared with, be it values or an
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
        """The rank that others are compared with is there, and is not among them.

        So is the reference.
        """
        sizes = draft.sizes()
        place = ("checks", index, "against")
        against = self.of[0]
        compares = draft.has("subject", "compare")
        is_a = getattr(self, "against", None) == A
        if against == "reference" and compares != is_a:
            what = (
                "is called a in a comparison"
                if compares
                else "is for subject.compare, which is not there"
            )
            yield draft.problem(place, what, suggestion=A if compares else None)
        elif against == "reference" and not compares and not draft.has("subject", "reference"):
            yield draft.problem(
                place, "is not there: state subject.reference, what it is called with"
            )
        elif isinstance(against, int) and sizes and against >= sizes[0]:
            message = (
                f"is not a rank of the smallest world, which has {sizes[0]}; name one that is in"
                " every world"
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
                place, "is the only rank that is asked, which is always the same as itself"
            )


def compares_arrays(checks: Iterable[Check]) -> list[AgainstCheck]:
    """The checks of a scenario for which the harness has to compare what ranks kept."""
    return [
        check for check in checks if isinstance(check, AgainstCheck) and check.of[1] is not None
    ]
