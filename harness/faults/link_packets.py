"""Faults of the packets on a link: `latency`, `bandwidth`, `loss`, `duplicate` and `reorder`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.faults.link import Delay, LinkFault
from harness.forms.strict_json import JSON
from harness.forms.units import Duration, Percent, Size


class LatencyFault(LinkFault):
    """Packets on the links of the rank's host come later."""

    does: ClassVar = (
        "delays packets on the links of the rank's host by `by`, and by up to `jitter` more at"
        " random"
    )
    example: ClassVar = (
        "{id: far-away, kind: latency, ranks: [1], at: decode.begin, by: 20ms, jitter: 5ms}"
    )
    effect: ClassVar = "masked"
    what: ClassVar = "latency"

    kind: Literal["latency"]
    by: Delay = Field(
        description="How much later, with a unit: 20ms. Packets of a link stay in order."
    )
    jitter: Duration = Field(
        0.0,
        description="The largest random addition, with a unit.",
        json_schema_extra={"default": "0s"},
    )

    def done(self) -> str:
        more = f" and up to {self.jitter:g} s more" if self.jitter else ""
        return f"packets {self.by:g} s later{more}"

    def options(self) -> dict[str, JSON]:
        return {"by_ns": round(self.by * 1e9), "jitter_ns": round(self.jitter * 1e9)}


class BandwidthFault(LinkFault):
    """The links of the rank's host carry so many bytes in a second."""

    does: ClassVar = "limits each link of the rank's host to `per_second` bytes per second"
    example: ClassVar = (
        "{id: narrow, kind: bandwidth, ranks: [1], at: decode.begin, per_second: 1MiB}"
    )
    effect: ClassVar = "masked"
    what: ClassVar = "bandwidth"

    kind: Literal["bandwidth"]
    per_second: Annotated[Size, Field(ge=1)] = Field(
        description="Bytes per second, with a unit: 10MiB."
    )

    def done(self) -> str:
        return f"{self.per_second / 2**20:g} MiB per second"

    def options(self) -> dict[str, JSON]:
        return {"bytes_per_second": self.per_second}


class LossFault(LinkFault):
    """Packets on the links of the rank's host are lost."""

    does: ClassVar = (
        "loses `share` of the packets on the links of the rank's host, and the first with new"
        " payload"
    )
    example: ClassVar = "{id: loss, kind: loss, ranks: [1], at: decode.begin, share: 10%}"
    effect: ClassVar = "masked"
    what: ClassVar = "loss"

    kind: Literal["loss"]
    share: Percent = Field(
        description=(
            "The share of packets, in percent: 10%. The first one with new payload is always"
            " affected."
        )
    )

    def done(self) -> str:
        return f"{self.share * 100:g}% of the packets lost"

    def options(self) -> dict[str, JSON]:
        return {"share": self.share}


class DuplicateFault(LinkFault):
    """Packets on the links of the rank's host come twice."""

    does: ClassVar = (
        "duplicates `share` of the packets on the links of the rank's host, and the first with"
        " new payload"
    )
    example: ClassVar = "{id: duplicate, kind: duplicate, ranks: [1], at: decode.begin, share: 10%}"
    effect: ClassVar = "masked"
    what: ClassVar = "duplicate"

    kind: Literal["duplicate"]
    share: Percent = Field(
        description=(
            "The share of packets, in percent: 10%. The first one with new payload is always"
            " affected."
        )
    )

    def done(self) -> str:
        return f"{self.share * 100:g}% of the packets duplicated"

    def options(self) -> dict[str, JSON]:
        return {"share": self.share}


# The first packet with new payload waits until another of its link has come first, however long
# that takes. So there is something to prove on links too where each packet waits for the one
# before: TCP sends that one again, and its copy comes first.
#
# Proof: beside the count, that at least one packet did come before one that was held.
class ReorderFault(LinkFault):
    """Packets on the links of the rank's host come out of order."""

    does: ClassVar = (
        "holds back `share` of the packets on the links of the rank's host by `by`, so that others"
        " overtake them"
    )
    example: ClassVar = (
        "{id: out-of-order, kind: reorder, ranks: [1], at: decode.begin, share: 20%, by: 5ms}"
    )
    effect: ClassVar = "masked"
    what: ClassVar = "reorder"

    kind: Literal["reorder"]
    share: Percent = Field(
        description=(
            "The share of packets, in percent: 20%. The first packet with new payload is always"
            " held back until another packet has overtaken it."
        )
    )
    by: Delay = Field(
        0.005, description="How long, with a unit.", json_schema_extra={"default": "5ms"}
    )

    def done(self) -> str:
        return f"{self.share * 100:g}% of the packets held back by {self.by:g} s"

    def options(self) -> dict[str, JSON]:
        return {"share": self.share, "by_ns": round(self.by * 1e9)}

    def counted(self, values: Mapping[str, JSON]) -> tuple[str, str]:
        overtaken = values.get("overtaken")
        held = values.get("struck")
        if type(overtaken) is not int or type(held) is not int or not overtaken:
            return "no packet overtook one that was held back", ""
        if not 1 <= overtaken <= held:
            return f"{overtaken} of {held} packets that were held back were overtaken", ""
        return "", f", {overtaken} of them overtaken"
