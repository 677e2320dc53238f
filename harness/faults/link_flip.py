"""Faults that flip bits on a link and mend the checksum: `flip` and `flip-frame`.

Proof: besides the count, the flow and offset of the byte, and what it was before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from harness.faults.link import LinkFault
from harness.forms.strict_json import JSON

# Bytes of payload from which on a packet is one of data, and not of what a library says of it.
DATA = 4096
MOST = 65_535
Mask = Annotated[int, Field(ge=1, le=255)]


class FlipFault(LinkFault):
    """Bits of one byte of a data message are flipped, with its checksum mended."""

    does: ClassVar = (
        "flips bits of one byte in a packet with 4 KiB of data or more, and corrects the checksum"
    )
    example: ClassVar = "{id: one-byte, kind: flip, ranks: [1], at: gather.begin, way: out}"
    effect: ClassVar = "silent"
    what: ClassVar = "flip"

    kind: Literal["flip"]
    message: Annotated[int, Field(ge=1)] = Field(
        1, description="Which of the packets with data, from 1."
    )
    byte: Annotated[int, Field(ge=0, lt=DATA)] | None = Field(
        None, description="Which byte of its payload, from 0 (default: the middle one)."
    )
    mask: Mask = Field(64, description="Which bits, as a number from 1 to 255.")

    def done(self) -> str:
        where = "in the middle" if self.byte is None else str(self.byte)
        return f"byte {where} of data packet {self.message} flipped by {self.mask:#04x}"

    def options(self) -> dict[str, JSON]:
        return {
            "least": DATA,
            "most": MOST,
            "message": self.message,
            "byte": self.byte,
            "mask": self.mask,
        }

    def counted(self, values: Mapping[str, JSON]) -> tuple[str, str]:
        return flips(values, mask=self.mask, least=DATA, byte=self.byte)


def flips(
    values: Mapping[str, JSON], *, mask: int, least: int, byte: int | None
) -> tuple[str, str]:
    """Return why the wire's log does not show exactly this flip, if so, and what to say of it."""
    listed = values.get("flips")
    log = [flip for flip in listed if isinstance(flip, dict)] if isinstance(listed, list) else []
    if not log:
        return "the wire's log shows no byte that it flipped", ""
    first = log[0]
    # Where TCP sent the byte again, it was flipped again.
    if any(
        flip.get(name) != first.get(name)
        for flip in log
        for name in ("flow", "offset", "before", "after")
    ):
        return "the wire flipped more than one byte of one stream", ""
    numbers: Any = [first.get(name) for name in ("before", "after", "payload", "byte")]
    before, after, size, at = numbers
    whole = all(type(number) is int for number in numbers)
    if not whole or before ^ after != mask or size < least or (byte is not None and at != byte):
        return f"the wire flipped something else: {before} to {after} at byte {at} of {size}", ""
    offset = first.get("offset")
    where = f"byte {offset} of" if isinstance(offset, int) else f"byte {at} of a segment of"
    return "", f": {where} {first.get('flow')} was {before:#04x} and became {after:#04x}"


class FlipFrameFault(LinkFault):
    """Bits of one byte at the head of a message are flipped."""

    does: ClassVar = (
        "flips bits of one of the first bytes of a packet's payload, and corrects the checksum"
    )
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
            "The smallest payload, in bytes, of the packets that are counted. Smaller packets are"
            " not changed."
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
