"""Finding that a scenario states about a released library, in the words of its author.

What the run itself shows is worked out from the run: which version was there, whether the control
failed as stated, and how the script ended.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from harness.forms.model import Listed, Model, Paragraph, Plain, form
from harness.forms.problem import complaint

Distribution = Annotated[
    str, form(r"^[A-Za-z0-9][A-Za-z0-9._-]*$", "must be the name of a distribution", most=100)
]
Report = Annotated[
    str,
    form(r"^[\w.-]+/[\w.-]+#[1-9][0-9]*$", "must be of the form owner/repository#number", most=200),
]
Script = Annotated[
    str, form(r"^[A-Za-z0-9_]+\.py$", "must be the name of a Python file in this folder", most=100)
]
Harm = Literal[
    "wrong-values",
    "wrong-text",
    "server-down",
    "hang",
    "lost-data",
    "wrong-exit-code",
    "leak",
    "ignored-parameter",
]


class StatedDefect(Model):
    """Defect of a released library, as the author of the scenario states it."""

    library: Distribution = Field(description="Distribution with the defect, such as mlx-lm.")
    label: Literal["DEFECT", "DIFFERS"] = Field(
        "DEFECT",
        description=(
            "DIFFERS: the correct behaviour is not defined, but the library differs from others."
        ),
    )
    harm: Harm = Field(description="The effect on a user.")
    happens: Paragraph = Field(description="Actual behaviour.")
    should: Paragraph = Field(description="Expected behaviour, and the source for it.")
    cause: Paragraph | None = Field(
        None, description="File and function of the library, where they are known."
    )
    at_fault: Annotated[Listed[Plain], Field(min_length=1)] = Field(
        description="Versions with the defect that the author ran, in quotes."
    )
    right: Plain | None = Field(
        None, description="First later version without the defect that the author ran, in quotes."
    )
    reports: Listed[Report] = Field(
        (), description=("Existing reports of the defect, such as ml-explore/mlx#4319.")
    )
    searched: Paragraph | None = Field(
        None, description="Searches for existing reports and their dates, if none was found."
    )
    script: Script = Field(
        "standalone.py",
        description=(
            "Script in the scenario's folder that shows the defect without Rankproof. With the"
            " defect, it exits with 1 and prints a line that begins with DEFECT:. Without the"
            " defect, it exits with 0."
        ),
    )

    @model_validator(mode="after")
    def _reported_or_searched(self) -> Self:
        if not self.reports and self.searched is None:
            raise complaint(
                "lists no existing report of the defect; add it under `reports`, or describe under"
                " `searched` where you looked"
            )
        return self
