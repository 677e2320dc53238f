"""`close`: every rank asked reported numbers, each within a tolerance of what is expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from harness.checks.check import OF_A_VALUE, VALUE, Check, ValueCheck
from harness.checks.finding import RankFinding
from harness.forms.draft import Draft
from harness.forms.fields import Event, EventValue
from harness.forms.problem import Problem, complaint
from harness.forms.strict_json import JSON
from harness.history import (
    ARTEFACT_KEPT,
    History,
    artefact_compared,
    artefact_found,
    artefact_was_changed,
    why_no_artefact,
)
from harness.numeric.comparison import Comparison, compare_values
from harness.numeric.tolerance import Tolerance


class CloseCheck(ValueCheck):
    """Every rank reports numbers, and each lies within the tolerance of the given ones, or of another rank's."""

    properties: ClassVar = OF_A_VALUE
    example: ClassVar = "{id: same-logits, kind: close, ranks: nonzero, value: score.logits, against: 0, atol: 1e-5}"

    kind: Literal["close"]
    value: EventValue | None = Field(None, description=VALUE)  # type: ignore[assignment]  # an artefact may be it
    artefact: Event | None = Field(None, description="In place of value: the name of an array that ranks keep.")
    to: JsonValue | None = Field(None, description="A number, or lists of numbers nested to one depth.")
    against: Annotated[int, Field(ge=0, le=63)] | Literal["reference"] | None = Field(
        None, description="In place of to: the rank whose numbers are expected, or reference for subject.reference's."
    )
    atol: Annotated[float, Field(ge=0)] = Field(
        0.0, description="Absolute tolerance: |found - expected| <= atol + rtol * |expected|."
    )
    rtol: Annotated[float, Field(ge=0)] = Field(0.0, description="Relative tolerance, of the expected number.")
    ulp: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Also close is what lies at most so many numbers of its dtype away (values: of float64)."
    )
    level: Literal["exact", "token-exact", "numeric", "statistical"] = Field(
        "numeric", description="How close the value must come when the run is reproduced: within rtol and atol."
    )
    empty: Literal["allowed"] | None = Field(None, description="allowed: what has no element may be what is close.")
    nonfinite: Literal["allowed"] | None = Field(
        None, description="allowed: NaN against NaN, and an infinity against the same one, count as equal (artefacts)."
    )
    dtype: Literal["any"] | None = Field(
        None, description="any: arrays of two dtypes may be close; else they are not (artefacts)."
    )

    @field_validator("to", mode="after")
    @classmethod
    def _numbers(cls, value: JsonValue) -> JsonValue:
        try:
            compare_values(value, value, Tolerance())
        except TypeError as error:
            raise complaint(
                str(error).replace("the value is", "must be a number or lists of numbers, and is")
            ) from None
        return value

    @model_validator(mode="after")
    def _tolerance_is_asked_for(self) -> Self:
        if not self.model_fields_set & {"atol", "rtol", "ulp"}:
            raise complaint("is missing: state atol, rtol or ulp (atol: 0 asks for the same number)", at="atol")
        if (self.value is None) == (self.artefact is None):
            raise complaint("state what is compared: a value or an artefact, and not both", at="value")
        if ("to" in self.model_fields_set) == ("against" in self.model_fields_set):
            raise complaint("state what the numbers are compared with: to, or against a rank, and not both", at="to")
        if self.artefact is not None and self.against is None:
            raise complaint("is for values; an artefact is compared with another rank's: against", at="to")
        if self.artefact is None and (given := self.model_fields_set & {"nonfinite", "dtype"}):
            raise complaint("is of artefacts only: a value has neither NaN nor a dtype", at=min(given))
        return self

    @property
    def tolerance(self) -> Tolerance:
        """What is allowed."""
        return Tolerance(atol=self.atol, rtol=self.rtol, ulp=self.ulp, nonfinite=self.nonfinite is not None)

    @property
    def event(self) -> str:
        """Name of the event that carries the value, or that tells of the artefact."""
        return super().event if self.artefact is None else ARTEFACT_KEPT

    @property
    def is_compared_again(self) -> bool:
        """Of an artefact only the digest could be, which says nothing of how close it is."""
        return self.artefact is None and super().is_compared_again

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Each report counts, and is compared with the other rank's of the same place: the first too far is shown."""
        if self.artefact is not None:
            return self._array(history, rank, self.artefact)
        reports = history.values(rank, self.event, self.key)
        if not reports:
            return RankFinding(rank=rank, passed=False, reason=f"{self.value} was not reported", missing=True)
        expected: Sequence[JSON] = [self.to] * len(reports)
        if self.against is not None:
            other, whose = self.other(history, rank=rank)
            expected = [value for value, _ in other.values(whose, self.event, self.key)] if other else []
            if len(expected) != len(reports):
                reason = f"{self.value} was reported {len(reports)} times, and by {self._whose} {len(expected)} times"
                return RankFinding(rank=rank, passed=False, reason=reason, line=reports[0][1])
        parts = [
            self._compare(rank, value, other, line) for (value, line), other in zip(reports, expected, strict=True)
        ]
        return next((part for part in parts if not part.passed), parts[0])

    def _compare(self, rank: int, value: JSON, expected: JSON, line: int) -> RankFinding:
        try:
            comparison = compare_values(value, expected, self.tolerance)
        except TypeError as error:
            return RankFinding(rank=rank, passed=False, observed=value, reason=f"{self.value}: {error}", line=line)
        return self._finding(rank, comparison, line)

    @property
    def _whose(self) -> str:
        return "the reference" if self.against == "reference" else f"rank {self.against}"

    def other(self, history: History, *, rank: int) -> tuple[History | None, int]:
        """The events in which what a rank is compared with is, if there are such, and the rank that has it."""
        if self.against == "reference":
            return history.reference, 0
        return history, rank if self.against is None else self.against

    def _array(self, history: History, rank: int, name: str) -> RankFinding:
        """By what the harness found the arrays to differ by, which anybody who has them can work out again."""
        digests = []
        other, whose = self.other(history, rank=rank)
        for events, one, word in ((history, rank, f"rank {rank}"), (other, whose, self._whose)):
            seen = artefact_found(events, one, name) if events else None
            if seen is None or events is None:
                why = why_no_artefact(events, one, name) if events else f"{name} was not kept"
                missing = events is history and one == rank
                reason = why if missing else f"{why}, by {word}"
                return RankFinding(rank=rank, passed=False, reason=reason, missing=missing)
            if artefact_was_changed(events, one, name):
                return RankFinding(rank=rank, passed=False, reason=f"{name} of {word} was changed after it was kept")
            digests.append(seen.event.values.get("sha256"))
        compared = artefact_compared(history, rank, self.id)
        if compared is None:
            return RankFinding(rank=rank, passed=False, reason=f"{name} was not compared")
        values = dict(compared.event.values)
        stated = [values.pop(key, None) for key in ("check", "found", "expected", "why")]
        comparison = Comparison.of(values)
        if stated[3] is not None or stated[1:3] != digests or comparison is None:
            reason = f"{name} cannot be compared: {stated[3] or 'what was compared is not what was kept'}"
            return RankFinding(rank=rank, passed=False, reason=reason, line=compared.line)
        return self._finding(rank, comparison, compared.line)

    def _finding(self, rank: int, comparison: Comparison, line: int) -> RankFinding:
        complaint = comparison.complaint(self.tolerance, dtype_matters=self.dtype is None, empty=self.empty is not None)
        observed = comparison.description(self.tolerance)
        reason = f"{self.value or self.artefact} is not close: {complaint}" if complaint else ""
        return RankFinding(rank=rank, passed=not reason, observed=observed, reason=reason, line=line)

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """The rank that others are compared with is there, and is not among them; so is the reference."""
        sizes: Any = draft.sizes()
        for index, check in checks.items() if sizes else ():
            place = ("checks", index, "against")
            if check.against == "reference" and not draft.has("subject", "reference"):
                yield draft.problem(place, "is not there: state subject.reference, what it is called with")
            if check.against is None or check.against == "reference":
                continue
            if check.against >= sizes[0]:
                message = f"is not a rank of the smallest world, which has {sizes[0]}; name one that is in every world"
                yield draft.problem(place, message)
            elif check.ranks.which == (check.against,):
                yield draft.problem(place, "is the only rank that is asked, which is always close to itself")


def compares_arrays(checks: Iterable[Check]) -> list[CloseCheck]:
    """The checks of a scenario for which the harness has to compare what ranks kept."""
    return [check for check in checks if isinstance(check, CloseCheck) and check.artefact is not None]
