"""`reorder`: packets on the links of the rank's host are held back, so that those after them come
first.

The first packet with new payload waits until another of its link has come first, however long that
takes. So there is something to prove on links too where each packet waits for the one before: TCP
sends that one again, and its copy comes first.

Proof: beside the count, that at least one packet did come before one that was held.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.link import NEEDS, OF_A_LINK, Delay, LinkFault
from harness.forms.strict_json import JSON
from harness.forms.units import Percent


class ReorderFault(LinkFault):
    """Packets on the links of the rank's host come out of order."""

    does: ClassVar = (
        "holds `share` of the packets on the links of the rank's host back by `by`: others come"
        " first"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_LINK
    example: ClassVar = (
        "{id: out-of-order, kind: reorder, ranks: [1], at: decode.begin, share: 20%, by: 5ms}"
    )
    effect: ClassVar = "masked"
    what: ClassVar = "reorder"

    kind: Literal["reorder"]
    share: Percent = Field(
        description=(
            "The share of packets, in percent: 20%. "
            "The first with new payload always is, until another came first."
        )
    )
    by: Delay = Field(
        0.005, description="How long, with a unit.", json_schema_extra={"default": "5ms"}
    )

    def done(self) -> str:
        return f"{self.share * 100:g} % of the packets held back by {self.by:g} s"

    def options(self) -> dict[str, JSON]:
        return {"share": self.share, "by_ns": round(self.by * 1e9)}

    def counted(self, values: Mapping[str, JSON]) -> tuple[str, str]:
        overtaken = values.get("overtaken")
        held = values.get("struck")
        if type(overtaken) is not int or type(held) is not int or not overtaken:
            return "no packet came before one that was held back", ""
        if not 1 <= overtaken <= held:
            return f"{overtaken} packets were overtaken, of {held} that were held back", ""
        return "", f", {overtaken} of them overtaken"
