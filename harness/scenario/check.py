"""The checks of a scenario: a positive fact about every rank of a set that is known beforehand."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from harness.forms.fields import Event, EventValue, Id
from harness.forms.model import Model
from harness.forms.problem import complaint
from harness.forms.ranks import Ranks
from harness.forms.units import Duration
from harness.hub.rules import Roles
from harness.scenario.kinds import CheckProperties, FailsAt

CHECK_ID = "Name of the check, unique among the checks."
CHECK_RANKS = "The ranks that are asked: every, nonzero, or a list."
VALUE = "An event and one of its keys joined by a dot, like decode.text; the key is what follows the last dot."


class ValueOf(Model):
    """A check that looks at one value of an event."""

    id: Id = Field(description=CHECK_ID)
    ranks: Ranks = Field(description=CHECK_RANKS)
    value: EventValue = Field(description=VALUE)
    level: Literal["exact", "token-exact", "numeric", "statistical"] = Field(
        "exact",
        description="How close the value must come when the run is reproduced: exact; token-exact (its whole numbers, "
        "in order); numeric (within rtol and atol); statistical (not compared trial by trial). No verdict asks it.",
    )
    rtol: Annotated[float, Field(ge=0, le=1)] = Field(1e-5, description="Relative tolerance of level: numeric.")
    atol: Annotated[float, Field(ge=0)] = Field(1e-8, description="Absolute tolerance of level: numeric.")

    @model_validator(mode="after")
    def _tolerance_is_asked_for(self) -> Self:
        if self.level != "numeric" and (given := self.model_fields_set & {"rtol", "atol"}):
            raise complaint("is of level: numeric only", at=min(given))
        return self

    @property
    def event(self) -> str:
        """Name of the event that carries the value."""
        return self.value.rpartition(".")[0]

    @property
    def key(self) -> str:
        """Key of the value inside its event."""
        return self.value.rpartition(".")[2]


class EventCheck(Model):
    """Every rank emits the event."""

    properties: ClassVar = CheckProperties(
        reports_a_value=False,
        of_an_end=True,
        compares_ranks=False,
        needs_an_event=True,
        needs_a_hub=False,
        wrong=None,
        missing=FailsAt.RANK_END,
    )
    id: Id = Field(description=CHECK_ID)
    kind: Literal["event"]
    ranks: Ranks = Field(description=CHECK_RANKS)
    event: Event = Field(description="The event that every rank must emit.")


class AgreeCheck(ValueOf):
    """Every rank reports the value, and it is the same on all of them."""

    properties: ClassVar = CheckProperties(
        reports_a_value=True,
        of_an_end=False,
        compares_ranks=True,
        needs_an_event=True,
        needs_a_hub=False,
        wrong=FailsAt.EVENT,
        missing=FailsAt.RANK_END,
    )
    kind: Literal["agree"]
    against: Annotated[int, Field(ge=0, le=7)] | None = Field(
        None,
        description="The rank whose value the others must have (default: the value that more than half of them have; "
        "where there is none, every rank differs).",
    )
    empty: Literal["allowed"] | None = Field(
        None, description="allowed: null, empty values and lists of nothing else may be what ranks agree on."
    )


class EqualCheck(ValueOf):
    """Every rank reports the value, and it equals the given one."""

    properties: ClassVar = CheckProperties(
        reports_a_value=True,
        of_an_end=False,
        compares_ranks=False,
        needs_an_event=True,
        needs_a_hub=False,
        wrong=FailsAt.EVENT,
        missing=FailsAt.RANK_END,
    )
    kind: Literal["equal"]
    to: JsonValue = Field(description="What the value must be, compared by type and content.")


class ExitCheck(Model):
    """Every rank ends with the exit code."""

    properties: ClassVar = CheckProperties(
        reports_a_value=False,
        of_an_end=True,
        compares_ranks=False,
        needs_an_event=False,
        needs_a_hub=False,
        wrong=FailsAt.RANK_END,
        missing=FailsAt.WORLD_END,
    )
    id: Id = Field(description=CHECK_ID)
    kind: Literal["exit"]
    ranks: Ranks = Field(description=CHECK_RANKS)
    code: Annotated[int, Field(ge=0, le=255)] = Field(0, description="The exit code, 0 to 255.")


class NoSurvivorsCheck(Model):
    """No process of the world is left after it ended."""

    properties: ClassVar = CheckProperties(
        reports_a_value=False,
        of_an_end=False,
        compares_ranks=False,
        needs_an_event=False,
        needs_a_hub=False,
        wrong=FailsAt.WORLD_END,
        missing=FailsAt.WORLD_END,
    )
    id: Id = Field(description=CHECK_ID)
    kind: Literal["no-survivors"]


class WithinCheck(Model):
    """On every rank the event follows another one within a time limit."""

    properties: ClassVar = CheckProperties(
        reports_a_value=True,
        of_an_end=False,
        compares_ranks=False,
        needs_an_event=True,
        needs_a_hub=False,
        wrong=FailsAt.EVENT,
        missing=FailsAt.RANK_END,
    )
    id: Id = Field(description=CHECK_ID)
    kind: Literal["within"]
    ranks: Ranks = Field(description=CHECK_RANKS)
    from_: Event = Field("rank.begin", alias="from", description="The event that starts the clock.")
    event: Event = Field(description="The event that stops the clock.")
    limit: Duration = Field(description="The longest time allowed between the two, with a unit: 200ms, 60s.")


class RequestsCheck(Model):
    """Every rank's process made so many requests to the scenario's hub, by the hub's own log."""

    properties: ClassVar = CheckProperties(
        reports_a_value=False,
        of_an_end=False,
        compares_ranks=False,
        needs_an_event=False,
        needs_a_hub=True,
        wrong=FailsAt.EVENT,
        missing=FailsAt.RANK_END,
    )
    id: Id = Field(description=CHECK_ID)
    kind: Literal["requests"]
    ranks: Ranks = Field(description=CHECK_RANKS)
    role: Roles = Field(("any",), description="Which requests count: model_info, tree, tokenizer.json, … or any.")
    at_least: Annotated[int, Field(ge=0)] = Field(0, description="The least number of them.")
    at_most: Annotated[int, Field(ge=0)] | None = Field(None, description="The greatest number of them.")

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.at_most is None and self.at_least == 0:
            raise complaint("holds for any number of requests; give at_most, or an at_least of 1 or more")
        if self.at_most is not None and self.at_most < self.at_least:
            raise complaint("is below at_least; no number is both", at="at_most")
        return self


Check = Annotated[
    EventCheck | AgreeCheck | EqualCheck | ExitCheck | NoSurvivorsCheck | WithinCheck | RequestsCheck,
    Field(discriminator="kind"),
]
