"""`duplicate`: packets on the links of the rank's host come twice: the first with new payload, and
a share of all.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.link import NEEDS, OF_A_LINK, LinkFault
from harness.forms.strict_json import JSON
from harness.forms.units import Percent


class DuplicateFault(LinkFault):
    """Packets on the links of the rank's host come twice."""

    does: ClassVar = (
        "has `share` of the packets on the links of the rank's host come twice, and the first with"
        " new payload"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_LINK
    example: ClassVar = "{id: duplicate, kind: duplicate, ranks: [1], at: decode.begin, share: 10%}"
    effect: ClassVar = "masked"
    what: ClassVar = "duplicate"

    kind: Literal["duplicate"]
    share: Percent = Field(
        description=(
            "The share of packets, in percent: 10%. The first with new payload is always struck."
        )
    )

    def done(self) -> str:
        return f"{self.share * 100:g} % of the packets twice"

    def options(self) -> dict[str, JSON]:
        return {"share": self.share}
