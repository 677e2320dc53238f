"""The faults of a scenario: what is done to a world on purpose. Without proof of its effect a trial is void."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.forms.fields import Event, ExceptionName, Id, Line, Message, Plain, Variable
from harness.forms.model import Model
from harness.forms.ranks import Ranks
from harness.forms.units import Duration
from harness.hub import rules
from harness.scenario.kinds import FaultProperties

AT = "The event at which the fault strikes; emitting it blocks the rank until the fault has struck."
FOR = "How long, with a unit: 200ms, 60s."


class Struck(Model):
    """What all faults have."""

    id: Id = Field(description="Name of the fault, unique among the faults.")
    ranks: Ranks = Field(description="The ranks that are struck: every, nonzero, or a list.")
    arm: Literal["candidate", "control"] | None = Field(
        None,
        description="The only arm it strikes, for upstream findings and self-tests; a claim's arms are struck alike.",
    )


class PauseFault(Struck):
    """The rank's process is stopped and continued."""

    properties: ClassVar = FaultProperties(needs_a_gate=True, inside=False, ends_rank=False, needs_a_hub=False)
    kind: Literal["pause"]
    at: Event = Field(description=AT)
    for_: Duration = Field(alias="for", description=FOR)


class KillFault(Struck):
    """The rank's process gets a deadly signal."""

    properties: ClassVar = FaultProperties(needs_a_gate=True, inside=False, ends_rank=True, needs_a_hub=False)
    kind: Literal["kill"]
    at: Event = Field(description=AT)
    signal: Literal["KILL", "TERM", "ABRT", "SEGV"] = Field("KILL", description="The signal.")


class DelayFault(Struck):
    """The rank waits inside the event, its other threads go on."""

    properties: ClassVar = FaultProperties(needs_a_gate=True, inside=False, ends_rank=False, needs_a_hub=False)
    kind: Literal["delay"]
    at: Event = Field(description=AT)
    for_: Duration = Field(alias="for", description=FOR)


class EnvFault(Struck):
    """The rank starts with other environment variables than its peers."""

    properties: ClassVar = FaultProperties(needs_a_gate=False, inside=True, ends_rank=False, needs_a_hub=False)
    kind: Literal["env"]
    set: dict[Variable, Plain] = Field(min_length=1, description="Variables and their values, in quotes.")


class StartLateFault(Struck):
    """The rank starts later than its peers."""

    properties: ClassVar = FaultProperties(needs_a_gate=False, inside=False, ends_rank=False, needs_a_hub=False)
    kind: Literal["start-late"]
    for_: Duration = Field(alias="for", description=FOR)


class RaiseFault(Struck):
    """An exception is raised in the rank where it emits the event."""

    properties: ClassVar = FaultProperties(needs_a_gate=True, inside=True, ends_rank=True, needs_a_hub=False)
    kind: Literal["raise"]
    at: Event = Field(description=AT)
    error: ExceptionName = Field("RuntimeError", description="Name of a built-in exception type.")
    message: Message = Field("raised by a fault of the scenario", description="Message of the exception.")


class ExitFault(Struck):
    """The rank's process exits where it emits the event, without cleaning up."""

    properties: ClassVar = FaultProperties(needs_a_gate=True, inside=True, ends_rank=True, needs_a_hub=False)
    kind: Literal["exit"]
    at: Event = Field(description=AT)
    code: Annotated[int, Field(ge=0, le=255)] = Field(0, description="The exit code, 0 to 255.")


class HubFault(Struck):
    """The scenario's hub answers some requests of the rank otherwise than it should."""

    properties: ClassVar = FaultProperties(needs_a_gate=False, inside=False, ends_rank=False, needs_a_hub=True)
    kind: Literal["hub"]
    role: rules.Roles = Field(("any",), description="What is asked for: model_info, tree, tokenizer.json, … or any.")
    method: rules.Methods = Field(("HEAD", "GET"), description="The methods that are struck.")
    repository: Line | None = Field(None, description="The repositories that are struck; * stands for any text.")
    path: Line | None = Field(None, description="The files that are struck; * stands for any text.")
    answer: rules.WrongAnswer = Field(
        description="What the hub answers instead, as in a rules file of `rankproof hub`."
    )
    when: rules.When = Field(
        rules.When(), description="Which of the matching requests are struck; every one where nothing is said."
    )

    def rule(self, *, clients: tuple[str, ...] | None) -> rules.Rule:
        """The hub's rule for it, for these clients or for all."""
        return rules.Rule(
            id=self.id,
            role=self.role,
            method=self.method,
            repository=self.repository,
            path=self.path,
            clients=clients,
            answer=self.answer,
            when=self.when,
        )


Fault = Annotated[
    PauseFault | KillFault | DelayFault | EnvFault | StartLateFault | RaiseFault | ExitFault | HubFault,
    Field(discriminator="kind"),
]


def faults_of(faults: Sequence[Fault], arm: str) -> list[Fault]:
    """Return the faults that strike an arm."""
    return [fault for fault in faults if fault.arm in (None, arm)]
