"""A mapping of a file that people or programs write, as a closed model: what the file says, and nothing else."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Unknown keys are errors, nothing is converted, nothing changes afterwards."""

    # Built at first use: commands that read no such file should not wait for its validators.
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", defer_build=True)
