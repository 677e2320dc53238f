"""`truncated`: a file is cut off on disk, as by a download or a save that was interrupted.

Proof: see `harness.faults.folder.FileFault`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.condition import FROM_OUTSIDE
from harness.faults.folder import FileFault
from harness.forms.units import Size


class TruncatedFault(FileFault):
    """A file is cut off."""

    does: ClassVar = "cuts `file` off after `left` bytes while the rank stands at `at`"
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "silent"
    example: ClassVar = (
        "{id: half-a-file, kind: truncated, ranks: [0], at: saved, file: shared/model.safetensors,"
        " left: 1KiB}"
    )
    how: ClassVar = "truncated"

    kind: Literal["truncated"]
    left: Size = Field(
        0, description="How much of it stays, with a unit.", json_schema_extra={"default": "0B"}
    )

    @property
    def keep(self) -> int:
        return self.left
