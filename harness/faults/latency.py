"""`latency`: packets on the links of the rank's host come later, each by a time and a part of
another by chance.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.link import NEEDS, OF_A_LINK, Delay, LinkFault
from harness.forms.strict_json import JSON
from harness.forms.units import Duration


class LatencyFault(LinkFault):
    """Packets on the links of the rank's host come later."""

    does: ClassVar = (
        "has packets on the links of the rank's host come `by` later, and by chance up to `jitter`"
        " more"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_LINK
    example: ClassVar = (
        "{id: far-away, kind: latency, ranks: [1], at: decode.begin, by: 20ms, jitter: 5ms}"
    )
    effect: ClassVar = "masked"
    what: ClassVar = "latency"

    kind: Literal["latency"]
    by: Delay = Field(
        description="How much later, with a unit: 20ms. None overtakes another of its link."
    )
    jitter: Duration = Field(
        0.0,
        description="How much more at most, by chance, with a unit.",
        json_schema_extra={"default": "0s"},
    )

    def done(self) -> str:
        more = f" and up to {self.jitter:g} s more" if self.jitter else ""
        return f"packets {self.by:g} s later{more}"

    def options(self) -> dict[str, JSON]:
        return {"by_ns": round(self.by * 1e9), "jitter_ns": round(self.jitter * 1e9)}
