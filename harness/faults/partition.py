"""`partition`: no packet passes between the rank's host and the others."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.link import NEEDS, OF_A_LINK, LinkFault


class PartitionFault(LinkFault):
    """No packet passes between the rank's host and the others."""

    does: ClassVar = "lets no packet pass on the links of the rank's host, neither way"
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_LINK
    example: ClassVar = "{id: cut-off, kind: partition, ranks: [1], at: decode.begin, for: 2s}"
    effect: ClassVar = "stopping"
    what: ClassVar = "drop"

    kind: Literal["partition"]
    way: Literal["both"] = Field("both", description="Both ways.")

    def done(self) -> str:
        return "no packet passes"
