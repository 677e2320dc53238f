"""The subject of a scenario: the code under test, and the two arms it runs in."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from harness.forms.fields import Argument, Entry, Id, Inside, Listed, Plain, Relative, Repo, Rev
from harness.forms.model import Model, demand_one
from harness.scenario.environment import Environment
from harness.scenario.must_fail import MustFail
from harness.subjects import READY


class Arm(Model):
    """One of the two codes that a scenario runs: how it differs from the subject as it stands."""

    with_: dict[Argument, JsonValue] = Field(
        default_factory=dict,
        alias="with",
        description="Arguments for the subject's function. Matrix axes other than ranks and backend are added to them.",
    )
    file: Inside | None = Field(
        None, description="A file in the scenario's folder that takes the place of the module that entry names."
    )
    repo: Repo | None = Field(
        None,
        description="Path of the git repository that rev and patch refer to, relative to the scenario's folder "
        "(default: the one the scenario lies in).",
    )
    rev: Rev | None = Field(None, description="Revision of the repository that this arm runs (default: HEAD).")
    patch: Inside | None = Field(None, description="A patch in the scenario's folder, applied to the revision.")
    environment: Environment | None = Field(
        None, description="Interpreter and packages of this arm alone, in place of the subject's."
    )

    @property
    def is_laid_out(self) -> bool:
        """Whether its code comes from a repository's history, not from the folder as it stands."""
        return any(given is not None for given in (self.repo, self.rev, self.patch))


class Control(Arm):
    """The arm that is known to be broken, and how it has to fail."""

    must_fail: MustFail = Field(description="How the control has to fail for its failure to count.")


class Reference(Model):
    """What the arms are compared with: the candidate's code in one process, told that it is a world of one."""

    with_: dict[Argument, JsonValue] = Field(
        default_factory=dict,
        alias="with",
        description="Arguments of its function, in place of the candidate's. Further axes are added to them.",
    )
    entry: Entry | None = Field(None, description="module:function in the candidate's code (default: the subject's).")
    once: Literal["cell", "scenario"] = Field(
        "cell",
        description="Whether each cell has a reference of its own, or all share one (without further axes).",
    )


class Subject(Model):
    """The code under test. Exactly one of entry, program and use says what it is."""

    entry: Entry | None = Field(None, description="module:function, called in every rank process.")
    program: Annotated[Listed[Plain], Field(min_length=1)] | None = Field(
        None, description="Command line of a program that is started as every rank."
    )
    use: Id | None = Field(
        None,
        description="Name of a ready subject, whose code comes with Rankproof; `rankproof list --subjects` tells them.",
        json_schema_extra={"examples": list(READY)},
    )
    path: Relative = Field(".", description="Folder of the subject's code, relative to the scenario's folder.")
    of: Literal["installed"] | None = Field(
        None,
        description="installed: the subject is on purpose what is installed, not the repository's code (two released "
        "versions of a library, say). No gate takes it.",
    )
    environment: Environment | None = Field(None, description="Interpreter and packages of both arms.")
    candidate: Arm = Field(default_factory=Arm, description="The arm that the verdict is about.")
    control: Control | None = Field(
        None, description="The arm that is known to be broken. Required unless the role is upstream."
    )

    reference: Reference | None = Field(
        None,
        description="What checks compare with (against: reference); ranks find what it reported and kept in the folder "
        "context.inputs['reference'].",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        nothing = "says nothing about what to run; give one of entry, program or use"
        return demand_one(self, "entry", "program", "use", nothing=nothing)

    @property
    def function(self) -> str:
        """`module:function` that every rank calls, a ready subject's too; empty for a program."""
        return READY[self.use].entry if self.use is not None else self.entry or ""

    @property
    def arms(self) -> dict[str, Arm]:
        """The arms that there are, by name: the candidate first."""
        both = {"candidate": self.candidate, "control": self.control}
        return {name: arm for name, arm in both.items() if arm is not None}

    def environment_of(self, arm: Arm) -> Environment | None:
        """The environment an arm runs in: its own, else the subject's; None is the one that Rankproof runs in."""
        return arm.environment or self.environment
