"""`flip-frame`: bits of one byte at the head of a message are flipped, where libraries say what is
to come.

Proof: beside the count, the flow and offset of the byte, and what it was before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.faults.flip import MOST, Mask, flips
from harness.faults.link import NEEDS, OF_A_LINK, LinkFault
from harness.forms.strict_json import JSON


class FlipFrameFault(LinkFault):
    """Bits of one byte at the head of a message are flipped."""

    does: ClassVar = (
        "flips bits of one of the first bytes of a packet's payload, and mends the checksum"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_LINK
    example: ClassVar = "{id: bad-header, kind: flip-frame, ranks: [1], at: gather.begin, byte: 0}"
    effect: ClassVar = "breaking"
    what: ClassVar = "flip"

    kind: Literal["flip-frame"]
    message: Annotated[int, Field(ge=1)] = Field(
        1, description="Which of the packets with a payload, from 1."
    )
    least: Annotated[int, Field(ge=1, le=MOST)] = Field(
        1,
        description=(
            "Bytes of payload from which on a packet counts: what is not counted is not flipped."
        ),
    )
    byte: Annotated[int, Field(ge=0, lt=64)] = Field(
        0, description="Which byte of its payload, 0 to 63."
    )
    mask: Mask = Field(64, description="Which bits, as a number from 1 to 255.")

    def done(self) -> str:
        return f"byte {self.byte} of packet {self.message} flipped by {self.mask:#04x}"

    def options(self) -> dict[str, JSON]:
        return {
            "least": self.least,
            "most": MOST,
            "message": self.message,
            "byte": self.byte,
            "mask": self.mask,
        }

    def counted(self, values: Mapping[str, JSON]) -> tuple[str, str]:
        return flips(values, mask=self.mask, least=self.least, byte=self.byte)
