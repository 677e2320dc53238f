"""`half-open`: packets between the rank's host and the others pass one way only."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.link import NEEDS, OF_A_LINK, LinkFault


class HalfOpenFault(LinkFault):
    """Packets between the rank's host and the others pass one way only."""

    does: ClassVar = (
        "lets no packet pass one way on the links of the rank's host, while the other way stays"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_LINK
    example: ClassVar = "{id: deaf, kind: half-open, ranks: [1], at: decode.begin, way: in}"
    effect: ClassVar = "stopping"
    what: ClassVar = "drop"

    kind: Literal["half-open"]
    way: Literal["out", "in"] = Field(
        "out",
        description=(
            "Which packets are lost: those that the rank's host sends (out), or those it is sent"
            " (in)."
        ),
    )

    def done(self) -> str:
        return "no packet passes"
