"""`close`: every rank asked reported numbers, each within a tolerance of what is expected."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from harness.checks.arrays import WHOM, AgainstCheck, Whom
from harness.checks.check import OF_A_VALUE, VALUE, ValueCheck
from harness.checks.finding import RankFinding, failed
from harness.forms.model import Event, EventValue
from harness.forms.problem import Draft, Problem, complaint
from harness.forms.strict_json import JSON
from harness.history import ARTEFACT_KEPT, History, artefact_compared
from harness.numeric.arrays import ArrayFile
from harness.numeric.arrays import compare as compare_arrays
from harness.numeric.comparison import Comparison, Tolerance, compare_values
from harness.numeric.needles import Needle, telling


class CloseCheck(AgainstCheck, ValueCheck):
    """Every rank reports numbers, and each is within the tolerance of the given numbers or of
    another rank's numbers.
    """

    properties: ClassVar = OF_A_VALUE
    example: ClassVar = (
        "{id: same-logits, kind: close, ranks: nonzero, value: score.logits, against: 0,"
        " atol: 1e-5}"
    )

    kind: Literal["close"]
    # An artefact may be it.
    value: EventValue | None = Field(None, description=VALUE)  # type: ignore[assignment]
    artefact: Event | None = Field(
        None, description="Instead of value: the name of an array that ranks keep."
    )
    to: JsonValue | None = Field(
        None, description="A number, or nested lists of numbers, all of the same depth."
    )
    against: Whom | None = Field(None, description=f"Instead of to: {WHOM}")
    atol: Annotated[float, Field(ge=0)] = Field(
        0.0, description="Absolute tolerance: |found - expected| <= atol + rtol * |expected|."
    )
    rtol: Annotated[float, Field(ge=0)] = Field(
        0.0, description="Relative tolerance, of the expected number."
    )
    ulp: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description=(
            "The largest allowed distance in representable numbers of the dtype (for values,"
            " float64)."
        ),
    )
    level: Literal["exact", "token-exact", "numeric", "statistical"] = Field(
        "numeric",
        description=(
            "How close the value must come when the run is reproduced: within rtol and atol."
        ),
    )
    empty: Literal["allowed"] | None = Field(
        None, description="allowed: values without elements may be close."
    )
    nonfinite: Literal["allowed"] | None = Field(
        None,
        description=(
            "allowed: NaN against NaN, and an infinity against the same one, count as equal"
            " (artefacts)."
        ),
    )
    dtype: Literal["any"] | None = Field(
        None, description="any: arrays with different dtypes may be close (artefacts)."
    )

    @field_validator("to", mode="after")
    @classmethod
    def _numbers(cls, value: JsonValue) -> JsonValue:
        try:
            compare_values(value, value, Tolerance())
        except TypeError as error:
            raise complaint(
                str(error).replace(
                    "the value is", "must be a number or a (nested) list of numbers, but is"
                )
            ) from None
        return value

    @model_validator(mode="after")
    def _tolerance_is_asked_for(self) -> Self:
        if not self.model_fields_set & {"atol", "rtol", "ulp"}:
            raise complaint(
                "is missing; give atol, rtol or ulp (atol: 0 requires exact equality)", at="atol"
            )
        if (self.value is None) == (self.artefact is None):
            raise complaint("needs either value or artefact, not both", at="value")
        if ("to" in self.model_fields_set) == ("against" in self.model_fields_set):
            raise complaint(
                "needs either `to` or `against`, not both",
                at="to",
            )
        if self.artefact is not None and self.against is None:
            raise complaint(
                "can only be used with values; for an artefact, use the key `against`", at="to"
            )
        if self.artefact is None and (given := self.model_fields_set & {"nonfinite", "dtype"}):
            raise complaint(
                "can only be used with artefacts, because plain values have no dtype and cannot be"
                " NaN",
                at=min(given),
            )
        return self

    @property
    def tolerance(self) -> Tolerance:
        """Tolerance that is allowed."""
        return Tolerance(
            atol=self.atol, rtol=self.rtol, ulp=self.ulp, nonfinite=self.nonfinite is not None
        )

    @property
    def event(self) -> str:
        """Name of the event that carries the value, or that tells of the artefact."""
        return super().event if self.artefact is None else ARTEFACT_KEPT

    @property
    def is_compared_again(self) -> bool:
        """Of an artefact only the digest could be, which says nothing of how close it is."""
        return self.artefact is None and super().is_compared_again

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Each report counts, and is compared with the other rank's of the same place: the first
        too far is shown.
        """
        if self.artefact is not None:
            return self.judge_array(history, rank)
        reports = history.values(rank, self.event, self.key)
        if not reports:
            return failed(rank, f"{self.value} was not reported", missing=True)
        expected: Sequence[JSON] = [self.to] * len(reports)
        if self.against is not None:
            expected, uncompared = self.expected(history, rank, self.event, self.key, reports)
            if uncompared is not None:
                return uncompared
        parts = [
            self._compare(rank, value, other, line)
            for (value, line), other in zip(reports, expected, strict=True)
        ]
        return next((part for part in parts if not part.passed), parts[0])

    def _compare(self, rank: int, value: JSON, expected: JSON, line: int) -> RankFinding:
        try:
            comparison = compare_values(value, expected, self.tolerance)
        # An integer may be too large for a float.
        except (TypeError, OverflowError) as error:
            return failed(rank, f"{self.value}: {error}", line, observed=value, uncompared=True)
        return self._finding(rank, comparison, line)

    @property
    def allows(self) -> str:
        return str(self.tolerance) if self.atol or self.rtol or self.ulp else "no difference"

    def compare(self, found: ArrayFile, expected: ArrayFile) -> dict[str, JSON]:
        """Element by element."""
        return compare_arrays(found, expected, self.tolerance).values()

    @property
    def tolerates(self) -> bool:
        return bool(self.atol or self.rtol or self.ulp)

    def needle(self, what: str, wrong: ArrayFile, expected: ArrayFile) -> Needle:
        """By how many of its elements lie beyond the tolerance."""
        found = compare_arrays(wrong, expected, self.tolerance)
        passes = self._finding(0, found, 0).passed
        beyond = found.beyond - found.unbounded
        return Needle(what=what, telling=telling(wrong, expected), beyond=beyond, passes=passes)

    def departure(self, history: History, rank: int) -> float | None:
        """By the worst pair of the rank's arrays, or of the first of its values that is too far."""
        comparison = self._compared(history, rank)
        if (
            comparison is None
            or comparison.worst is None
            or comparison.beyond == comparison.unbounded
        ):
            return None
        return comparison.worst.difference if math.isfinite(comparison.worst.difference) else None

    def _compared(self, history: History, rank: int) -> Comparison | None:
        if self.artefact is not None:
            seen = artefact_compared(history, rank, self.id)
            values = seen.event.values.get("comparison") if seen is not None else None
            return Comparison.of(values) if isinstance(values, dict) else None
        for value, other in self.value_pairs(history, rank):
            with suppress(TypeError, OverflowError):
                if (found := compare_values(value, other, self.tolerance)).beyond:
                    return found
        return None

    def is_mostly_unbounded(self, history: History, rank: int) -> bool:
        """Tell whether a rank passes with more than half of its array NaN or infinite, as is
        expected.
        """
        found = self._compared(history, rank) if self.artefact is not None else None
        return found is not None and not found.beyond and 2 * min(found.nonfinite) > found.elements

    def value_pairs(self, history: History, rank: int) -> list[tuple[JSON, JSON]]:
        """Each report of a rank with what it is compared with; none where there are not as many."""
        reports = history.values(rank, self.event, self.key) if self.artefact is None else []
        if self.against is None:
            return [(value, self.to) for value, _ in reports]
        expected, uncompared = (
            self.expected(history, rank, self.event, self.key, reports) if reports else ([], None)
        )
        return (
            []
            if uncompared
            else [(value, other) for (value, _), other in zip(reports, expected, strict=True)]
        )

    def judge_comparison(self, rank: int, values: Mapping[str, JSON], line: int) -> RankFinding:
        """By the worst pair, and how many are beyond the tolerance."""
        if (comparison := Comparison.of(values)) is None:
            return failed(
                rank,
                f"{self.artefact} cannot be compared: the comparison is not valid",
                line,
                uncompared=True,
            )
        return self._finding(rank, comparison, line)

    def _finding(self, rank: int, comparison: Comparison, line: int) -> RankFinding:
        complaint = comparison.complaint(
            self.tolerance, dtype_matters=self.dtype is None, empty=self.empty is not None
        )
        observed = comparison.description(self.tolerance)
        name = f"value {self.value}" if self.value else f"artefact {self.artefact}"
        reason = f"{name} does not match: {complaint}" if complaint else ""
        found = RankFinding(
            rank=rank,
            passed=not reason,
            observed=observed,
            reason=reason,
            line=line,
            share=comparison.share,
        )
        if not reason:
            return found
        if comparison.shape != comparison.expected_shape:
            return found._replace(lacks="shape")
        # The same shape with nothing beyond the tolerance fails for its dtype, or because it is
        # empty or NaN alone.
        if not comparison.beyond or (
            self.dtype is None and comparison.dtype != comparison.expected_dtype
        ):
            return found._replace(uncompared=True)
        return (
            found if comparison.beyond > comparison.unbounded else found._replace(lacks="nonfinite")
        )

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Whom it compares with is there."""
        for index, check in checks.items():
            yield from check.lint_against(index, draft)
            if check.rtol >= 1:
                message = (
                    f"lets 0 pass for any number ({check.rtol:g} times its size); use a value less"
                )
                yield draft.problem(("checks", index, "rtol"), f"{message} than 1")
