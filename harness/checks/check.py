"""Base classes of every kind of check: its options as the scenario gives them, its properties, and
its judgement of a trial.

A kind is a subclass with the field `kind: Literal["NAME"]`, in a file of this package or named by
an entry point. Its class docstring says what it demands of the ranks; its fields are its options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol, Self

from pydantic import Field, model_validator

from harness.checks.finding import Finding, RankFinding, failed, over_ranks
from harness.forms.model import EventValue, Id, Model, Ranks, RankSet
from harness.forms.problem import Draft, Problem, complaint
from harness.history import History

VALUE = (
    "An event and one of its keys joined by a dot, like decode.text; the key is the part after"
    " the last dot."
)


class FailsAt(StrEnum):
    """Moment at which a check fails on a rank."""

    EVENT = "at its event"
    RANK_END = "at the end of its rank"
    WORLD_END = "at the end of the world"


@dataclass(frozen=True, kw_only=True)
class CheckProperties:
    """What a kind of check is: rules ask for the property, never for the kind.

    None has a default: none is forgotten.

    Attributes:
        reports_a_value: judges what ranks report, so that a report that is missing is not a wrong
            value.
        compares: holds what ranks report against what it should be. What was not reported was not
            compared.
        of_an_end: fails for whatever keeps a rank from coming to its event or its end, a slip too.
        compares_ranks: says something only about two ranks or more.
        needs_an_event: judges events that the subject emits.
        needs_a_hub: judges what the scenario's hub logs.
        needs_the_environment: judges what the rank's own runtime tells of what it runs in, which it
            does only then.
        demands_an_error: holds where a rank ends with an error: such a rank need not have joined or
            returned.
        may_be_stopped: holds too where the harness had to stop the rank, and looks at when it did.
        wrong: the moment at which it fails by something that is there; None where nothing could be
            wrong.
        missing: the moment at which it fails because something is not there
            (`RankFinding.missing`).
    """

    reports_a_value: bool
    compares: bool
    of_an_end: bool
    compares_ranks: bool
    needs_an_event: bool
    needs_a_hub: bool
    needs_the_environment: bool
    demands_an_error: bool
    may_be_stopped: bool
    wrong: FailsAt | None
    missing: FailsAt

    def fails(self, *, missing: bool) -> FailsAt:
        """Return the moment at which a finding of this kind fails."""
        return self.missing if missing or self.wrong is None else self.wrong


# Of a check that looks at a value that ranks report.
OF_A_VALUE = CheckProperties(
    reports_a_value=True,
    compares=True,
    of_an_end=False,
    compares_ranks=False,
    needs_an_event=True,
    needs_a_hub=False,
    needs_the_environment=False,
    demands_an_error=False,
    may_be_stopped=False,
    wrong=FailsAt.EVENT,
    missing=FailsAt.RANK_END,
)
# Of one that looks at none.
NO_VALUE = replace(OF_A_VALUE, reports_a_value=False, compares=False, needs_an_event=False)


class OverTrials(Protocol):
    """What a check keeps over all trials of a cell, and may doubt the cell for."""

    def take(self, arm: str, finding: Finding, history: History) -> None:
        """Take one trial that is not void, with what the check found in it.

        Args:
            arm: `candidate` or `control`; all trials of the candidate come first.
            finding: of this check.
            history: the events of the trial.
        """
        ...

    def doubts(self) -> Iterable[str]:
        """Return why the cell cannot be PASS, a sentence each; it is INCONCLUSIVE then."""
        ...


class Check(Model):
    """One check of one scenario.

    Attributes:
        properties: what it is; every kind declares them.
        example: a check of this kind as a scenario writes it, in YAML; every kind has one.
    """

    properties: ClassVar[CheckProperties]
    example: ClassVar[str]

    id: Id = Field(description="Name of the check, unique among the checks.")
    if TYPE_CHECKING:
        kind: str
        ranks: RankSet  # a kind that asks about the world as a whole has none

    def judge(self, history: History) -> Finding:
        """Judge one trial. Pure, and never raises, whatever the events are."""
        raise NotImplementedError

    def is_answer(self, name: str) -> bool:
        """Tell whether ranks are compared with what the reference keeps under this name; none may
        read it.
        """
        del name
        return False

    def over_trials(self) -> OverTrials | None:
        """Return what keeps something over all trials of one cell, made anew for each cell.

        None where every trial stands for itself.
        """
        return None

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield the problems of a scenario's checks of this kind, by their place in the list."""
        del checks, draft
        yield from ()


class RankCheck(Check):
    """A check that asks one rank after the other."""

    ranks: Ranks = Field(description="The ranks that the check covers: every, nonzero, or a list.")

    def judge(self, history: History) -> Finding:
        """Judge every rank asked by `judge_rank`."""
        return over_ranks(
            self.id,
            self.kind,
            [self.judge_rank(history, rank) for rank in self.ranks.of(history.size)],
        )

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Judge one rank. Pure, and never raises."""
        raise NotImplementedError

    def uncompared(
        self, history: History, reason: str, line: int | None = None
    ) -> list[RankFinding]:
        """Fail on every rank asked, because nothing was compared."""
        ranks = self.ranks.of(history.size)
        return [failed(rank, reason, line, uncompared=True) for rank in ranks]


class ValueCheck(RankCheck):
    """A check that looks at one value of an event."""

    value: EventValue = Field(description=VALUE)
    level: Literal["exact", "token-exact", "numeric", "statistical"] = Field(
        "exact",
        description=(
            "How close the value must come when the run is reproduced: exact; token-exact (its"
            " whole numbers, in order); numeric (within rtol and atol); statistical (not compared"
            " trial by trial). It does not change a verdict."
        ),
    )
    rtol: Annotated[float, Field(ge=0, le=1)] = Field(
        1e-5, description="Relative tolerance of level: numeric."
    )
    atol: Annotated[float, Field(ge=0)] = Field(
        1e-8, description="Absolute tolerance of level: numeric."
    )

    @model_validator(mode="after")
    def _tolerance_is_asked_for(self) -> Self:
        if self.level != "numeric" and (given := self.model_fields_set & {"rtol", "atol"}):
            raise complaint("can only be used with level: numeric", at=min(given))
        return self

    @property
    def is_compared_again(self) -> bool:
        """Tell whether a reproduction compares the value trial by trial."""
        return self.level != "statistical"

    @property
    def event(self) -> str:
        """Name of the event that carries the value."""
        return self.value.rpartition(".")[0]

    @property
    def key(self) -> str:
        """Key of the value inside its event."""
        return self.value.rpartition(".")[2]
