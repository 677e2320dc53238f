"""`bandwidth`: the links of the rank's host carry so many bytes in a second and no more."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.faults.link import NEEDS, OF_A_LINK, LinkFault
from harness.forms.strict_json import JSON
from harness.forms.units import Size


class BandwidthFault(LinkFault):
    """The links of the rank's host carry so many bytes in a second."""

    does: ClassVar = (
        "has each link of the rank's host carry `per_second` bytes in a second and no more"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_LINK
    example: ClassVar = (
        "{id: narrow, kind: bandwidth, ranks: [1], at: decode.begin, per_second: 1MiB}"
    )
    effect: ClassVar = "masked"
    what: ClassVar = "bandwidth"

    kind: Literal["bandwidth"]
    per_second: Annotated[Size, Field(ge=1)] = Field(
        description="Bytes in a second, with a unit: 10MiB."
    )

    def done(self) -> str:
        return f"{self.per_second / 2**20:g} MiB in a second"

    def options(self) -> dict[str, JSON]:
        return {"bytes_per_second": self.per_second}
