"""`replaced`: another file of the same name and size takes the place of one, as by a second
download that went wrong.

Proof: see `harness.faults.folder.FileFault`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.condition import FROM_OUTSIDE
from harness.faults.folder import FileFault
from harness.forms.units import Size


class ReplacedFault(FileFault):
    """A file is replaced by one in which a byte differs."""

    does: ClassVar = (
        "puts another file in the place of `file` while the rank stands at `at`: a new one, of the"
        " same size, in which all bits of the byte at `offset` are turned; who has the old one open"
        " keeps it"
    )
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "silent"
    example: ClassVar = (
        "{id: another-file, kind: replaced, ranks: [0], at: saved, file: shared/model.safetensors,"
        " offset: 4KiB}"
    )
    how: ClassVar = "replaced"

    kind: Literal["replaced"]
    offset: Size = Field(
        0,
        description="Where the byte lies that differs, with a unit.",
        json_schema_extra={"default": "0B"},
    )

    @property
    def keep(self) -> int:
        return self.offset
