"""Findings of a check: for every rank it asked, whether it holds, what was observed, and where that
is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

from harness.forms.strict_json import JSON

# Why a check that compares could compare nothing: what was not there, of another shape, not finite,
# or anything else. Empty where it compared.
Want = Literal["", "missing", "shape", "nonfinite", "comparison"]
_CANONICAL = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")
)


# Named tuples, because a run makes tens of thousands of them, and they are made in a third of a
# dataclass' time.
class RankFinding(NamedTuple):
    """One rank's part.

    Attributes:
        rank: the rank.
        passed: whether the check holds there.
        observed: the value that was looked at, or None.
        reason: why it does not hold; empty where it does.
        line: line of the trial's `events.jsonl` that shows it, or None where nothing was emitted.
        missing: whether it fails because what it asks for was not there at all, in place of being
            wrong.
        uncompared: whether it fails because nothing was compared: the other side is not there, or
            cannot be compared with. That shows nothing of how far apart the two are.
        lacks: for what else nothing was compared: the shapes differ, or whatever differs is not
            finite. Neither says how far apart the two are, although both are differences.
        share: how much of what the check allows was used, where it allows a measured amount: 1 is
            the limit. None where there is no such scale, or the amount is not finite.
    """

    rank: int
    passed: bool
    observed: JSON = None
    reason: str = ""
    line: int | None = None
    missing: bool = False
    uncompared: bool = False
    lacks: Literal["", "shape", "nonfinite"] = ""
    share: float | None = None

    def want(self, *, compares: bool) -> Want:
        """For want of what it failed, where its check compares what ranks give.

        Empty where it was compared.
        """
        if self.lacks:
            return self.lacks
        if self.uncompared:
            return "comparison"
        return "missing" if self.missing and compares else ""


def failed(
    rank: int,
    reason: str,
    line: int | None = None,
    *,
    observed: JSON = None,
    missing: bool = False,
    uncompared: bool = False,
) -> RankFinding:
    """Make the part of a rank on which a check does not hold."""
    return RankFinding(
        rank=rank,
        passed=False,
        observed=observed,
        reason=reason,
        line=line,
        missing=missing,
        uncompared=uncompared,
    )


class Finding(NamedTuple):
    """One check's verdict on one trial.

    Attributes:
        check: the check's id.
        kind: its kind.
        ranks: one part per rank asked, ascending.
        reason: why it fails for the world as a whole; empty where it does not.
        line: line that shows the world's part.
    """

    check: str
    kind: str
    ranks: tuple[RankFinding, ...] = ()
    reason: str = ""
    line: int | None = None

    @property
    def passed(self) -> bool:
        """Holds on every rank asked, and for the world."""
        # Asked for every trial of a run, so in plain steps.
        if self.reason:
            return False
        for part in self.ranks:  # noqa: SIM110
            if not part.passed:
                return False
        return True

    @property
    def failed_ranks(self) -> tuple[int, ...]:
        """Ranks on which it does not hold."""
        return tuple(part.rank for part in self.ranks if not part.passed)


def over_ranks(check: str, kind: str, ranks: Iterable[RankFinding]) -> Finding:
    """Make a finding over a set of ranks.

    An empty set is a failure: a fact about nobody is not a fact.
    """
    parts = tuple(ranks)
    return Finding(
        check=check,
        kind=kind,
        ranks=parts,
        reason="" if parts else "the check covers no rank of this world",
    )


def finite(value: object) -> float | None:
    """Return a number of JSON as a float; None where it is no number, or too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def same(left: JSON, right: JSON) -> bool:
    """Equality of JSON: 1 is not true, and 1 is not 1.0."""
    return canonical(left) == canonical(right)


def canonical(value: JSON) -> str:
    """One text per JSON value, the same on every machine."""
    return _CANONICAL.encode(value)
