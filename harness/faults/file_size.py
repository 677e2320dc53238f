"""`file-size`: no file that the rank writes may grow beyond some size.

Proof: see `harness.faults.limit`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.limit import LimitFault
from harness.forms.units import Size


class FileSizeFault(LimitFault):
    """The rank can write no file beyond a size."""

    does: ClassVar = (
        "lets no file that the rank writes grow beyond `to` from `at` on: in Python writing fails with EFBIG, "
        "a program gets SIGXFSZ"
    )
    example: ClassVar = "{id: no-large-files, kind: file-size, ranks: [1], at: save.begin, to: 64KiB}"
    resource: ClassVar = "file-size"

    kind: Literal["file-size"]
    to: Size = Field(description="The largest size of a file, with a unit: 64KiB. What is larger stays as it is.")

    @property
    def amount(self) -> int:
        return self.to

    def description(self) -> str:
        time = "" if self.for_ is None else f" for {self.for_:g} s"
        return f"no file beyond {self.to} bytes, from {self.at} on{time}"
