"""The arms of a scenario: codes that differ from each other, and how the broken one has to fail."""

from __future__ import annotations

from pydantic import Field, JsonValue

from harness.forms.fields import Argument, Inside, Repo, Rev
from harness.forms.model import Model
from harness.scenario.environment import Environment
from harness.scenario.must_fail import MustFail


class Arm(Model):
    """One of the codes that a scenario runs: how it differs from the subject as it stands."""

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
