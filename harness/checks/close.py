"""`close`: every rank asked reported numbers, each within a tolerance of what is expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from harness.checks.check import CheckProperties, FailsAt, ValueCheck
from harness.checks.finding import Finding, RankFinding, over_ranks
from harness.forms.draft import Draft
from harness.forms.problem import Problem, complaint
from harness.forms.strict_json import JSON
from harness.history import History
from harness.numeric.comparison import compare_values
from harness.numeric.tolerance import Tolerance


class CloseCheck(ValueCheck):
    """Every rank reports numbers, and each lies within the tolerance of the given ones, or of another rank's."""

    properties: ClassVar = CheckProperties(
        reports_a_value=True,
        of_an_end=False,
        compares_ranks=False,
        needs_an_event=True,
        needs_a_hub=False,
        wrong=FailsAt.EVENT,
        missing=FailsAt.RANK_END,
    )
    example: ClassVar = "{id: same-logits, kind: close, ranks: nonzero, value: score.logits, against: 0, atol: 1e-5}"

    kind: Literal["close"]
    to: JsonValue | None = Field(None, description="A number, or lists of numbers nested to one depth.")
    against: Annotated[int, Field(ge=0, le=63)] | None = Field(
        None, description="In place of to: the rank whose numbers are expected."
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
    empty: Literal["allowed"] | None = Field(None, description="allowed: lists without a number may be what is close.")

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
        if ("to" in self.model_fields_set) == ("against" in self.model_fields_set):
            raise complaint("state what the numbers are compared with: to, or against a rank, and not both", at="to")
        return self

    @property
    def tolerance(self) -> Tolerance:
        """What is allowed."""
        return Tolerance(atol=self.atol, rtol=self.rtol, ulp=self.ulp)

    def judge(self, history: History) -> Finding:
        """Each report counts, and is compared with the other rank's of the same place: the first too far is shown."""
        return over_ranks(self.id, self.kind, [self._rank(history, rank) for rank in self.ranks.of(history.size)])

    def _rank(self, history: History, rank: int) -> RankFinding:
        reports = history.values(rank, self.event, self.key)
        if not reports:
            return RankFinding(rank=rank, passed=False, reason=f"{self.value} was not reported", missing=True)
        expected: Sequence[JSON] = [self.to] * len(reports)
        if self.against is not None:
            expected = [value for value, _ in history.values(self.against, self.event, self.key)]
            if len(expected) != len(reports):
                many = f"{len(reports)} times, and rank {self.against} {len(expected)} times"
                return RankFinding(
                    rank=rank, passed=False, reason=f"{self.value} was reported {many}", line=reports[0][1]
                )
        shown: RankFinding | None = None
        for (value, line), other in zip(reports, expected, strict=True):
            part = self._compare(rank, value, other, line)
            if not part.passed:
                return part
            shown = shown or part
        return shown or RankFinding(rank=rank, passed=False, reason=f"{self.value} was not reported", missing=True)

    def _compare(self, rank: int, value: JSON, expected: JSON, line: int) -> RankFinding:
        try:
            comparison = compare_values(value, expected, self.tolerance)
        except TypeError as error:
            return RankFinding(rank=rank, passed=False, observed=value, reason=f"{self.value}: {error}", line=line)
        complaint = comparison.complaint(self.tolerance, empty=self.empty is not None)
        observed = f"{comparison.description()}; allowed: {self.tolerance}"
        reason = f"{self.value} is not close: {complaint}" if complaint else ""
        return RankFinding(rank=rank, passed=not reason, observed=observed, reason=reason, line=line)

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """The rank that others are compared with is there, and is not among them."""
        sizes: Any = draft.sizes()
        for index, check in checks.items() if sizes else ():
            place = ("checks", index, "against")
            if check.against is None:
                continue
            if check.against >= sizes[0]:
                message = f"is not a rank of the smallest world, which has {sizes[0]}; name one that is in every world"
                yield draft.problem(place, message)
            elif check.ranks.which == (check.against,):
                yield draft.problem(place, "is the only rank that is asked, which is always close to itself")
