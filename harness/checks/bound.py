"""Checks of a number against a limit: `at-most` and `at-least`."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from pydantic import Field

from harness.checks.check import OF_A_VALUE, ValueCheck
from harness.checks.finding import RankFinding, failed
from harness.forms.strict_json import JSON
from harness.history import History


class BoundCheck(ValueCheck):
    """Check of a number against a limit; the limit itself is allowed."""

    side: ClassVar[Literal["at most", "at least"]]

    to: int | float = Field(description="The limit; a value equal to it passes.")
    level: Literal["exact", "token-exact", "numeric", "statistical"] = Field(
        "statistical",
        description=(
            "How close the value must come when the run is reproduced. A measured value need not"
            " come close."
        ),
    )

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Each report counts: the first beyond the limit is shown, else the one that comes nearest
        to it.
        """
        shown: tuple[Fraction, RankFinding] | None = None
        for value, line in history.values(rank, self.event, self.key):
            if isinstance(value, bool) or not isinstance(value, int | float):
                return failed(
                    rank, f"{self.value} is not a number", line, observed=value, uncompared=True
                )
            room = self._room(value)
            reason = "" if room >= 0 else f"{self.value} must be {self.side} {self.to:g}"
            part = RankFinding(
                rank=rank,
                passed=not reason,
                observed=value,
                reason=reason,
                line=line,
                share=self._share(value),
            )
            if reason:
                return part
            if shown is None or room < shown[0]:
                shown = room, part
        reason = f"{self.value} was not reported"
        return shown[1] if shown else failed(rank, reason, missing=True)

    def _room(self, value: JSON) -> Fraction:
        """How far the value is from the limit, on the allowed side. Exact, whatever the size."""
        room = Fraction(self.to) - Fraction(value)
        return room if self.side == "at most" else -room

    def _share(self, value: float) -> float | None:
        """How much of the limit the value uses; None where the two are not both above zero."""
        # Whole numbers of JSON may be too large for a float.
        if self.to <= 0 or not 0 < value < 1e300:
            return None
        return value / self.to if self.side == "at most" else self.to / value


class AtMostCheck(BoundCheck):
    """Every rank reports a number, and it is at most the limit."""

    properties: ClassVar = OF_A_VALUE
    side: ClassVar = "at most"
    example: ClassVar = "{id: small-loss, kind: at-most, ranks: every, value: score.loss, to: 1.5}"

    kind: Literal["at-most"]


class AtLeastCheck(BoundCheck):
    """Every rank reports a number, and it is at least the limit."""

    properties: ClassVar = OF_A_VALUE
    side: ClassVar = "at least"
    example: ClassVar = (
        "{id: enough-tokens, kind: at-least, ranks: every, value: decode.count, to: 4}"
    )

    kind: Literal["at-least"]
