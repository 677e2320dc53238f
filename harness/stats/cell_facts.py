"""How many trials a cell had, or why it had none: what the verdict counts against.

Apart from the verdict, because whoever reads what a run knows does not judge it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from harness.forms.model import Model
from harness.reason import Skip

if TYPE_CHECKING:
    from harness.stats.outcome import Arm


class CellFacts(Model):
    """How many trials of a cell there are, or why there are none."""

    id: str
    skipped: Skip | None
    candidate: Annotated[int, Field(ge=0)]
    control: Annotated[int, Field(ge=0)]

    @property
    def trials(self) -> Mapping[Arm, int]:
        """How many there are, by arm."""
        return {"candidate": self.candidate, "control": self.control}
