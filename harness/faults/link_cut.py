"""Faults that end the traffic of a link: `partition`, `half-open` and `reset`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from harness.faults.link import LinkFault
from harness.forms.strict_json import JSON


class PartitionFault(LinkFault):
    """No packet passes between the rank's host and the others."""

    does: ClassVar = "drops every packet on the links of the rank's host, in both directions"
    example: ClassVar = "{id: cut-off, kind: partition, ranks: [1], at: decode.begin, for: 2s}"
    effect: ClassVar = "stopping"
    what: ClassVar = "drop"

    kind: Literal["partition"]
    way: Literal["both"] = Field("both", description="Both ways.")

    def done(self) -> str:
        return "every packet dropped"


class HalfOpenFault(LinkFault):
    """Packets between the rank's host and the others pass one way only."""

    does: ClassVar = (
        "drops every packet in one direction on the links of the rank's host; the other direction"
        " works"
    )
    example: ClassVar = "{id: deaf, kind: half-open, ranks: [1], at: decode.begin, way: in}"
    effect: ClassVar = "stopping"
    what: ClassVar = "drop"

    kind: Literal["half-open"]
    way: Literal["out", "in"] = Field(
        "out",
        description=(
            "Which packets are lost: those that the rank's host sends (out), or those that it"
            " receives (in)."
        ),
    )

    def done(self) -> str:
        return "every packet dropped"


# Proof: beside the count, the connections.
class ResetFault(LinkFault):
    """Connections over the links of the rank's host are reset at both ends."""

    does: ClassVar = (
        "resets every connection over the links of the rank's host, at both ends, when it is next"
        " used"
    )
    example: ClassVar = "{id: cut-short, kind: reset, ranks: [1], at: decode.begin}"
    effect: ClassVar = "stopping"
    what: ClassVar = "reset"

    kind: Literal["reset"]

    def done(self) -> str:
        return "every connection reset at both ends"

    def counted(self, values: Mapping[str, JSON]) -> tuple[str, str]:
        flows = values.get("flows")
        if not isinstance(flows, list) or not flows:
            return "no connection was reset", ""
        return "", f", the first of {flows[0]}"
