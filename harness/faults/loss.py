"""`loss`: packets on the links of the rank's host are lost: the first with new payload, and a share
of all.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.link import NEEDS, OF_A_LINK, LinkFault
from harness.forms.strict_json import JSON
from harness.forms.units import Percent


class LossFault(LinkFault):
    """Packets on the links of the rank's host are lost."""

    does: ClassVar = (
        "loses `share` of the packets on the links of the rank's host, and the first with new"
        " payload"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_LINK
    example: ClassVar = "{id: loss, kind: loss, ranks: [1], at: decode.begin, share: 10%}"
    effect: ClassVar = "masked"
    what: ClassVar = "loss"

    kind: Literal["loss"]
    share: Percent = Field(
        description=(
            "The share of packets, in percent: 10%. The first with new payload is always struck."
        )
    )

    def done(self) -> str:
        return f"{self.share * 100:g} % of the packets lost"

    def options(self) -> dict[str, JSON]:
        return {"share": self.share}
