"""`distribution`: on every rank asked, logits are as likely as the expected ones, position by
position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from harness.checks.arrays import WHOM, AgainstCheck, Whom
from harness.checks.check import OF_A_VALUE
from harness.checks.finding import RankFinding, failed
from harness.forms.model import Event
from harness.forms.problem import Draft, Problem, complaint
from harness.forms.strict_json import JSON
from harness.history import ARTEFACT_KEPT, History, artefact_compared
from harness.numeric.arrays import ArrayFile
from harness.numeric.distribution import Distances, agrees, beyond, compare
from harness.numeric.needles import Needle


class DistributionCheck(AgainstCheck):
    """Every rank keeps logits, and their distributions are near those of the reference or of
    another rank.
    """

    properties: ClassVar = OF_A_VALUE
    example: ClassVar = (
        "{id: same-tokens, kind: distribution, ranks: every, artefact: logits, against: 0,"
        " kl: 1e-3}"
    )

    kind: Literal["distribution"]
    artefact: Event = Field(
        description="The name of an array that ranks keep; its last axis is the vocabulary."
    )
    against: Whom = Field(description=f"{WHOM[0].upper()}{WHOM[1:]}")
    kl: Annotated[float, Field(ge=0)] | None = Field(
        None,
        description=(
            "The largest allowed KL divergence from the expected distribution at any position, in"
            " nats."
        ),
    )
    top: Annotated[int, Field(ge=1, le=1000)] = Field(
        5, description="The number of best tokens that overlap is counted over."
    )
    overlap: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None,
        description="The minimum number of the expected top tokens that must be among the top"
        " tokens found.",
    )
    rank: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description=(
            "The expected best token must be among this many best tokens found; 1 requires the"
            " same token."
        ),
    )

    @model_validator(mode="after")
    def _says_how_near(self) -> Self:
        if not self.model_fields_set & {"kl", "overlap", "rank"}:
            raise complaint("is missing; give kl, overlap or rank", at="kl")
        if self.overlap is not None and self.overlap > self.top:
            raise complaint(
                f"must not be more than {self.top}, the number of best tokens that are compared"
                " (`top`)",
                at="overlap",
            )
        return self

    @property
    def event(self) -> str:
        """Name of the event that tells of the artefact."""
        return ARTEFACT_KEPT

    @property
    def allows(self) -> str:
        asked = [f"KL {_nats(self.kl)}"] if self.kl is not None else []
        asked += (
            [f"{self.overlap} of the {self.top} best tokens"] if self.overlap is not None else []
        )
        return ", ".join([*asked, *([f"rank {self.rank}"] if self.rank is not None else [])])

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """By the worst position."""
        return self.judge_array(history, rank)

    def compare(self, found: ArrayFile, expected: ArrayFile) -> dict[str, JSON]:
        """Position by position."""
        return compare(found, expected, k=self.top).values()

    @property
    def tolerates(self) -> bool:
        return True

    def needle(self, what: str, wrong: ArrayFile, expected: ArrayFile) -> Needle:
        """By how many of its positions are further than is asked."""
        found = beyond(
            wrong, expected, k=self.top, kl=self.kl, overlap=self.overlap, rank=self.rank
        )
        return Needle(what=what, telling=found.telling, beyond=found.beyond, passes=found.passes)

    def departure(self, history: History, rank: int) -> float | None:
        """By the KL divergence, in nats."""
        seen = artefact_compared(history, rank, self.id)
        values = seen.event.values.get("comparison") if seen is not None else None
        found = Distances.of(values) if isinstance(values, dict) else None
        return found.kl if found is not None and self._too_far(found) else None

    def agrees(self, stated: Mapping[str, JSON], again: Mapping[str, JSON]) -> bool:
        """But for the rounding of exp and log."""
        pair = Distances.of(stated), Distances.of(again)
        return pair[0] is not None and pair[1] is not None and agrees(pair[0], pair[1])

    def judge_comparison(self, rank: int, values: Mapping[str, JSON], line: int) -> RankFinding:
        """By the worst position of each measure that is asked."""
        distances = Distances.of(values)
        if distances is None:
            return failed(
                rank,
                f"{self.artefact} cannot be compared: the comparison is not valid",
                line,
                uncompared=True,
            )
        nothing = self._nothing_compared(distances)
        why = nothing or self._complaint(distances)
        reason = f"artefact {self.artefact} is not close: {why}" if why else ""
        observed = why or self._description(distances)
        part = RankFinding(
            rank=rank,
            passed=not reason,
            observed=observed,
            reason=reason,
            line=line,
            uncompared=bool(nothing),
            share=distances.kl / self.kl if self.kl and distances.kl is not None else None,
        )
        if not why or nothing:
            return part
        if distances.shape != distances.expected_shape:
            return part._replace(lacks="shape")
        # What is wrong at the other positions was compared.
        return part if self._too_far(distances) else part._replace(lacks="nonfinite")

    def _nothing_compared(self, found: Distances) -> str:
        """Why the two say nothing of how near they are.

        Empty where they do, or where their shapes differ.
        """
        if found.shape != found.expected_shape:
            return ""
        if contradiction := found.contradiction(k=self.top):
            return f"the comparison contradicts itself: {contradiction}"
        if not found.positions:
            return "it has no positions, which does not count as agreement"
        if found.undefined:
            return ""
        if (
            least := max(1, self.rank or 0, self.top if self.overlap is not None else 0)
        ) >= found.shape[-1]:
            few = (
                f"its shape is {found.shape}, with a vocabulary (the last axis) of"
                f" {found.shape[-1]}, so"
            )
            return f"{few} any logits would pass; {least + 1} tokens are needed"
        return ""

    def _complaint(self, found: Distances) -> str:
        if found.shape != found.expected_shape:
            return f"its shape is {found.shape}, but {found.expected_shape} was expected"
        if found.undefined:
            return (
                f"{found.undefined} of {found.positions} positions have a NaN, +infinity or no"
                " finite logit"
            )
        return self._too_far(found)

    def _too_far(self, found: Distances) -> str:
        """Say what is further than is asked at the positions that could be compared; empty where
        nothing is.
        """
        if found.undefined == found.positions:
            return ""
        if self.kl is not None and (found.kl is None or found.kl > self.kl):
            return (
                f"KL {_nats(found.kl)} at position {found.kl_at and found.kl_at.position}, allowed:"
                f" {self.kl:g}"
            )
        if self.overlap is not None and found.overlap < self.overlap:
            place = found.overlap_at.position if found.overlap_at else "?"
            return (
                f"{found.overlap} of the {self.top} best tokens at position {place}, required:"
                f" {self.overlap}"
            )
        if self.rank is not None and found.place > self.rank and found.place_at is not None:
            at = found.place_at
            tokens = f"expected token {at.token} (margin {at.margin:.4g}), found {at.found}"
            place = f"rank {found.place} at position {at.position}"
            return f"the expected token has {place}, allowed: {self.rank}; {tokens}"
        return ""

    def _description(self, found: Distances) -> str:
        overlap = f"{found.overlap} of {self.top} best tokens or more"
        return (
            f"KL {_nats(found.kl)} at most over {found.positions} positions, {overlap}, and rank"
            f" {found.place} at most"
        )

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Whom it compares with is there."""
        for index, check in checks.items():
            yield from check.lint_against(index, draft)


def _nats(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"
