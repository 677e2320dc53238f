"""`address-space`: the rank can map so much memory more, and then no more.

Proof: see `harness.faults.condition`. It counts addresses, not pages: what a library maps and never
touches counts too.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.condition import FROM_OUTSIDE, LimitFault
from harness.forms.units import Size


class AddressSpaceFault(LimitFault):
    """The rank can map only so much memory more."""

    does: ClassVar = (
        "lets the rank map `more` bytes beyond what it has mapped at `at`: then allocations fail"
    )
    properties: ClassVar = FROM_OUTSIDE
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: memory-is-short, kind: address-space, ranks: [1], at: model.load.begin, more: 64MiB}"
    )
    resource: ClassVar = "address-space"

    kind: Literal["address-space"]
    more: Size = Field(description="How much it can still map, with a unit: 64MiB.")

    @property
    def amount(self) -> int:
        return self.more

    @property
    def condition(self) -> str:
        return f"{self.more} bytes of addresses more, no further ones"
