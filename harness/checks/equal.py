"""`equal`: every rank asked reported the value, each time as stated, or as another rank or the
reference did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from harness.checks.agree import is_nothing
from harness.checks.arrays import WHOM, AgainstCheck, Whom
from harness.checks.check import OF_A_VALUE, ValueCheck
from harness.checks.finding import RankFinding, canonical, failed, same
from harness.forms.problem import Draft, Problem, complaint
from harness.forms.strict_json import JSON
from harness.history import History

SHOWN = 60


class EqualCheck(AgainstCheck, ValueCheck):
    """Every rank reports the value, and it equals the given value or that of another rank or of
    the reference.
    """

    properties: ClassVar = OF_A_VALUE
    example: ClassVar = (
        "{id: round-trip, kind: equal, ranks: every, value: decode.text, to: Hello world}"
    )

    kind: Literal["equal"]
    to: JsonValue = Field(None, description="What the value must be, compared by type and content.")
    against: Whom | None = Field(None, description=f"Instead of to: {WHOM}")
    empty: Literal["allowed"] | None = Field(
        None,
        description=("allowed: null, empty values, and lists of only these may be equal."),
    )

    @model_validator(mode="after")
    def _compared_with_one(self) -> Self:
        if ("to" in self.model_fields_set) == (self.against is not None):
            raise complaint(
                "needs either `to` or `against`, not both",
                at="to",
            )
        if self.empty is not None and self.against is None:
            raise complaint("cannot be combined with `to`; it requires `against`", at="empty")
        return self

    @property
    def allows(self) -> str:
        return "no difference"

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Each report counts: the first that differs is shown."""
        reports = history.values(rank, self.event, self.key)
        if not reports:
            return failed(rank, f"{self.value} was not reported", missing=True)
        if self.against is not None:
            return self._judge_against(history, rank, reports)
        wrong = [(value, line) for value, line in reports if not same(value, self.to)]
        value, line = wrong[0] if wrong else reports[0]
        required = f"{self.value} must be {_short(self.to)}, found {_short(value)}"
        reason = required if wrong else ""
        return RankFinding(rank=rank, passed=not wrong, observed=value, reason=reason, line=line)

    def _judge_against(
        self, history: History, rank: int, reports: Sequence[tuple[JSON, int]]
    ) -> RankFinding:
        expected, uncompared = self.expected(history, rank, self.event, self.key, reports)
        if uncompared is not None:
            return uncompared
        for (value, line), other in zip(reports, expected, strict=True):
            if is_nothing(value) and is_nothing(other) and self.empty is None:
                reason = (
                    f"{self.value} is empty, which does not count as agreement (to accept it, set"
                    " empty: allowed)"
                )
                return failed(rank, reason, line, observed=canonical(value), uncompared=True)
            if not same(value, other):
                place, found, wanted = first_difference(value, other)
                reason = (
                    f"{self.value} differs from {self.whose}{place}: expected {_short(wanted)},"
                    f" found {_short(found)}"
                )
                return failed(rank, reason, line, observed=value)
        value, line = reports[0]
        return RankFinding(rank=rank, passed=True, observed=value, line=line)

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Whom it compares with is there."""
        for index, check in checks.items():
            if check.against is not None:
                yield from check.lint_against(index, draft)


def first_difference(found: JSON, expected: JSON, place: str = "") -> tuple[str, JSON, JSON]:
    """Where two values that are not the same first differ, as the end of a sentence, and what is
    there in each.

    Of two lists of different lengths, or of mappings with different keys, the whole of both.
    """
    parts: list[tuple[object, JSON, JSON]] = []
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        parts = [(index, *pair) for index, pair in enumerate(zip(found, expected, strict=True))]
    elif isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        parts = [(key, found[key], expected[key]) for key in sorted(found)]
    for part, one, other in parts:
        if not same(one, other):
            return first_difference(one, other, f"{place}[{part}]")
    return f" at {place}" if place else "", found, expected


def _short(value: JSON) -> str:
    text = canonical(value)
    if isinstance(value, list) and len(text) > SHOWN:
        return f"{len(value)} elements"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
