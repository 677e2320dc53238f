"""`torch-settings`: torch computes otherwise in some ranks: with other threads, or another default
dtype.

Proof: the rank tells what torch itself says before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from harness.faults import proof
from harness.faults.fault import FROM_INSIDE, FaultAtEvent
from harness.faults.proof import Landing, Proof, not_proved
from harness.faults.world_control import WorldControl
from harness.forms.problem import complaint
from harness.forms.strict_json import JSON
from harness.history import History

SET = "fault.torch-set"


class TorchSettingsFault(FaultAtEvent):
    """torch has other settings in the rank than in its peers."""

    does: ClassVar = (
        "sets torch's number of threads, its default dtype or both in the rank, from `at` to its"
        " end"
    )
    needs: ClassVar = (
        "an event of the subject to strike at, and a Python subject that has loaded torch by then"
    )
    properties: ClassVar = FROM_INSIDE
    effect: ClassVar = "silent"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: other-dtype, kind: torch-settings, ranks: [1], at: subject.loaded, dtype: float64}"
    )
    inside_file: ClassVar = Path(__file__).with_name("torch_settings_inside.py")

    kind: Literal["torch-settings"]
    threads: Annotated[int, Field(ge=1, le=256)] | None = Field(
        None, description="Number of threads that torch uses."
    )
    dtype: Literal["float16", "bfloat16", "float32", "float64"] | None = Field(
        None, description="The default dtype of tensors."
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.threads is None and self.dtype is None:
            raise complaint("sets nothing; give threads or dtype")
        return self

    @property
    def _wanted(self) -> dict[str, JSON]:
        given: dict[str, JSON] = {
            "threads": self.threads,
            "dtype": self.dtype and f"torch.{self.dtype}",
        }
        return {name: value for name, value in given.items() if value is not None}

    def description(self) -> str:
        return (
            f"torch's {', '.join(f'{name} {value}' for name, value in self._wanted.items())} from"
            f" {self.at} on"
        )

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """It is in force as long as the rank lives."""

    def inside(self) -> dict[str, JSON]:
        """Return the order that goes with the answer to the gate."""
        return {"wanted": self._wanted}

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, order, and what torch says it has now and had before."""
        reports = [
            seen for seen in history.said(rank, SET) if seen.event.values.get("fault") == self.id
        ]
        seen = proof.first_after(reports, landed.struck)
        if seen is None:
            return not_proved("nothing was set", landed.lines)
        lines = (*landed.lines, seen.line)
        before = seen.event.values.get("before")
        now = seen.event.values.get("now")
        if not isinstance(before, dict) or not isinstance(now, dict):
            return not_proved("the rank has not loaded torch", lines)
        for name, value in self._wanted.items():
            if now.get(name) != value or before.get(name) == value:
                return not_proved(
                    f"torch's {name} is {now.get(name)}, but was {before.get(name)}", lines
                )
        changes = ", ".join(
            f"{name} {before.get(name)} to {value}" for name, value in self._wanted.items()
        )
        return Proof(proved=True, description=f"torch's {changes} at {self.at}", lines=lines)
