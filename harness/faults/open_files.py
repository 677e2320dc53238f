"""`open-files`: the rank can have no descriptor with a number from some number on, so soon no
further file or socket.

Proof: see `harness.faults.condition`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.faults.condition import FROM_OUTSIDE, LimitFault


class OpenFilesFault(LimitFault):
    """The rank can open no further file or socket."""

    does: ClassVar = (
        "lets the rank have descriptors below `to` alone from `at` on: opening another file or"
        " socket fails with EMFILE; what is open stays open"
    )
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: no-more-files, kind: open-files, ranks: [1], at: decode.begin, to: 0, for: 1s}"
    )
    resource: ClassVar = "open-files"

    kind: Literal["open-files"]
    to: Annotated[int, Field(ge=0, le=2**20)] = Field(
        description="Descriptors must have a lower number; 0 means that nothing more can be opened."
    )

    @property
    def amount(self) -> int:
        return self.to

    @property
    def condition(self) -> str:
        return f"descriptors below {self.to} only"
