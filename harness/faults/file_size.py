"""`file-size`: no file that the rank writes may grow beyond some size.

Proof: see `harness.faults.condition`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.condition import FROM_OUTSIDE, LimitFault
from harness.forms.units import Size


class FileSizeFault(LimitFault):
    """The rank can write no file beyond a size."""

    does: ClassVar = (
        "lets no file that the rank writes grow beyond `to` from `at` on: in Python writing fails"
        " with EFBIG, a program gets SIGXFSZ"
    )
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: no-large-files, kind: file-size, ranks: [1], at: save.begin, to: 64KiB}"
    )
    resource: ClassVar = "file-size"

    kind: Literal["file-size"]
    to: Size = Field(
        description="The largest size of a file, with a unit: 64KiB. What is larger stays as it is."
    )

    @property
    def amount(self) -> int:
        return self.to

    @property
    def condition(self) -> str:
        return f"no file beyond {self.to} bytes"
