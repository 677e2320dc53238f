"""Services of a scenario: processes of a world that are no ranks, such as a server under test.

A service has its own program, variables and processes. An arm may change them, so that the broken
server runs in the control and the ranks, which are its clients, stay the same.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from harness.forms.model import Listed, Model, Plain, Variable, form
from harness.forms.problem import complaint
from harness.forms.units import Duration

MOST_PROCESSES = 16
PORT = "{port}"
"""Word of a service's program that becomes the port that was leased for it."""
READY_WITHIN = 60.0

HTTPPath = Annotated[str, form(r"^/[!-~]*$", "must be the path of a URL, like /health", most=200)]


class Ready(Model):
    """When a service is ready: it answers a GET request with status 200."""

    http: HTTPPath = Field("/health", description="Path of the request.")
    within: Duration = Field(
        READY_WITHIN,
        description="The longest time that it may take to become ready, with a unit.",
        json_schema_extra={"default": "60s"},
    )


class ServiceChange(Model):
    """How a service differs in one arm."""

    program: Annotated[Listed[Plain], Field(min_length=1)] | None = Field(
        None, description="Command line in this arm, instead of the service's."
    )
    flags: Listed[Plain] = Field(
        (), description="Words that are added to the command line in this arm."
    )
    env: dict[Variable, Plain] = Field(
        default_factory=dict,
        description="Environment variables that are added or replaced in this arm, in quotes.",
    )


class Service(Model):
    """A server that the ranks are clients of.

    Its processes run in the environment of their arm. Their working folder holds the inputs, by
    name. Ranks find its address in the variable RANKPROOF_SERVICE_NAME.
    """

    program: Annotated[Listed[Plain], Field(min_length=1)] = Field(
        description=(
            "Command line of each of its processes. {port} becomes a free port, {NAME} an argument"
            " of the arm or an axis of the matrix."
        )
    )
    env: dict[Variable, Plain] = Field(
        default_factory=dict, description="Environment variables of its processes, in quotes."
    )
    processes: Annotated[int, Field(ge=1, le=MOST_PROCESSES)] = Field(
        1,
        description=(
            f"Number of its processes, 1 to {MOST_PROCESSES}; an axis of the matrix with the name"
            " processes overrides it."
        ),
    )
    backend: Literal["none", "gloo", "mlx-ring"] = Field(
        "none",
        description=(
            "How several processes find each other: gloo (MASTER_ADDR and the other variables that"
            " torchrun sets) or mlx-ring (MLX_RANK and MLX_HOSTFILE, as mlx.launch sets them)."
        ),
    )
    hosts: Annotated[int, Field(ge=1, le=MOST_PROCESSES)] = Field(
        1,
        description=(
            f"Number of test hosts for its processes, 1 to {MOST_PROCESSES}, which are dealt out in"
            " turn; 1 is this machine."
        ),
    )
    ready: Ready = Field(
        default_factory=Ready,
        description="When it is ready; no rank starts before that.",
    )
    keep: Literal["trial", "cell"] = Field(
        "trial",
        description=(
            "trial: each trial starts it again. cell: trials of one cell and arm share it, and the"
            " bound of the failure rate counts its starts."
        ),
    )
    starts: Annotated[int, Field(ge=1, le=1000)] = Field(
        1,
        description=(
            "With keep: cell, the number of starts among which the trials of an arm are divided."
        ),
    )

    @model_validator(mode="after")
    def _starts_are_kept(self) -> Self:
        if "starts" in self.model_fields_set and self.keep == "trial":
            raise complaint(
                "is only for keep: cell; with keep: trial, each trial has exactly one start",
                at="starts",
            )
        return self

    def changed(self, change: ServiceChange | None) -> Service:
        """Return the service as it is in an arm."""
        if change is None:
            return self
        program = (*(change.program or self.program), *change.flags)
        return self.model_copy(update={"program": program, "env": {**self.env, **change.env}})
