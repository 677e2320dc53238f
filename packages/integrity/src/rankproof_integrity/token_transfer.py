"""Tokens as bytes on their way, and whether one that came is the one that was sent."""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import Any

from .digest import hexadecimal
from .problem import MessageCorrupt, Misused
from .records import EnhancedTokenChunk

_IGNORED = {"generation_timestamp", "validation_status"}


class TokenTransferValidator:
    """Checks tokens that were handed from one device to another. It keeps nothing."""

    def compute_checksum(self, token_data: Any) -> str:
        """Xxh3 of 64 bits of a contiguous buffer, in sixteen lower-case hexadecimal digits."""
        return hexadecimal(token_data)

    def validate_transfer(self, original: EnhancedTokenChunk, received: EnhancedTokenChunk) -> bool:
        """Return whether what came is what was sent, and each is what its maker made.

        The original comes from the sender, by another way than the received one: an object held
        against itself says nothing. Where it is not at hand, `received.intact` says what its own
        checksum says.
        """
        return received.intact and original.intact and self.difference(original, received) is None

    def difference(self, original: EnhancedTokenChunk, received: EnhancedTokenChunk) -> str | None:
        """Return the first field that is not the same, with both values; None where all are."""
        for one in fields(EnhancedTokenChunk):
            sent = getattr(original, one.name)
            came = getattr(received, one.name)
            if one.name not in _IGNORED and sent != came:
                return f"{one.name} was sent as {sent!r} and came as {came!r}"
        return None


def chunk_bytes(chunk: EnhancedTokenChunk) -> bytes:
    """Return a chunk as a message: its checksum as its maker computed it, then what that covers.

    Raises:
        Misused: it has none, or is not what its checksum was made of: what is wrong here is not
            sent on.
    """
    content = chunk.content()
    if chunk.checksum != (found := hexadecimal(content)):
        raise Misused(
            f"the token at position {chunk.sequence_position} is not as its maker made it: its"
            f" checksum is {chunk.checksum or 'missing'}, and it has {found}"
        )
    return bytes.fromhex(found) + content


def chunk_of(data: Any, *, peer: str = "the sender") -> EnhancedTokenChunk:
    """Return the chunk in a message, whose checksum is the one its maker gave it.

    Raises:
        MessageCorrupt: it is not a chunk, or not as its maker made it.
    """
    view = memoryview(data)
    try:
        chunk = EnhancedTokenChunk.from_content(bytes(view[8:]), checksum=view[:8].hex())
    except (struct.error, ValueError) as error:
        raise MessageCorrupt(f"a message from {peer} is not a token: {error}", peer=peer) from error
    # Every byte of a message is in its chunk and the other way round, so that these bytes are its
    # content.
    if not chunk.intact:
        raise MessageCorrupt(
            f"the token at position {chunk.sequence_position} from {peer} is not as rank"
            f" {chunk.source_device_rank} made it: its checksum is {chunk.checksum}, and what came"
            f" has {chunk.computed_checksum()}",
            peer=peer,
            sequence=chunk.sequence_position,
            epoch=chunk.epoch,
        )
    return chunk
