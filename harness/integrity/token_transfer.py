"""Tokens as bytes on their way, and whether one that came is the one that was sent."""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import Any

from harness.integrity.digest import hexadecimal
from harness.integrity.problem import MessageCorrupt, Misused
from harness.integrity.records import CHUNK_HEAD, EnhancedTokenChunk, ValidationStatus

_IGNORED = {"generation_timestamp", "validation_status"}


class TokenTransferValidator:
    """Checks tokens that were handed from one device to another. It keeps nothing."""

    def compute_checksum(self, token_data: Any) -> str:
        """Xxh3 of 64 bits of a contiguous buffer, in sixteen lower-case hexadecimal digits."""
        return hexadecimal(token_data)

    def validate_transfer(self, original: EnhancedTokenChunk, received: EnhancedTokenChunk) -> bool:
        """Whether what came is what was sent, and each is what its maker made.

        The original comes from the sender, by another way than the received one: an object held against itself says
        nothing. Where it is not at hand, `received.intact` says what its own checksum says.
        """
        return received.intact and original.intact and self.difference(original, received) is None

    def difference(self, original: EnhancedTokenChunk, received: EnhancedTokenChunk) -> str | None:
        """The first field that is not the same, with both values; None where all are."""
        for one in fields(EnhancedTokenChunk):
            sent, came = getattr(original, one.name), getattr(received, one.name)
            if one.name not in _IGNORED and sent != came:
                return f"{one.name} was sent as {sent!r} and came as {came!r}"
        return None


def chunk_bytes(chunk: EnhancedTokenChunk) -> bytes:
    """A chunk as a message: its checksum as its maker computed it, then what that covers.

    Raises:
        Misused: it has none, or is not what its checksum was made of: what is wrong here is not sent on.
    """
    content = chunk.content()
    if chunk.checksum != (found := hexadecimal(content)):
        raise Misused(
            f"the token at position {chunk.sequence_position} is not as its maker made it: its checksum is "
            f"{chunk.checksum or 'missing'}, and it has {found}"
        )
    return bytes.fromhex(found) + content


def chunk_of(data: Any, *, peer: str = "the sender") -> EnhancedTokenChunk:
    """The chunk in a message, whose checksum is the one its maker gave it.

    Raises:
        MessageCorrupt: it is not a chunk, or not as its maker made it.
    """
    view = memoryview(data)
    try:
        position, epoch, token_id, rank, *sizes = CHUNK_HEAD.unpack_from(view, 8)
        stream, rest = _cut(bytes(view[8 + CHUNK_HEAD.size :]), sizes[0])
        text, rest = _cut(rest, sizes[1])
        reason, rest = _cut(rest, 0 if sizes[2] == -1 else sizes[2])
        _end(rest)
    except (struct.error, ValueError) as error:
        raise MessageCorrupt(f"a message from {peer} is not a token: {error}", peer=peer) from error
    chunk = EnhancedTokenChunk(
        token_id=token_id,
        text=text,
        stream=stream,
        finish_reason=reason if sizes[2] >= 0 else None,
        sequence_position=position,
        source_device_rank=rank,
        epoch=epoch,
        checksum=bytes(view[:8]).hex(),
        validation_status=ValidationStatus.UNCHECKED,
    )
    # Every byte of a message is in its chunk and the other way round, so that these bytes are its content.
    if chunk.checksum != (found := hexadecimal(view[8:])):
        raise MessageCorrupt(
            f"the token at position {position} from {peer} is not as rank {rank} made it: its checksum is "
            f"{chunk.checksum}, and what came has {found}",
            peer=peer,
            sequence=position,
            epoch=epoch,
        )
    return chunk


def _cut(data: bytes, size: int) -> tuple[str, bytes]:
    """A text at the beginning, and the rest."""
    if not 0 <= size <= len(data):
        raise ValueError(f"{size} bytes of text are announced, and {len(data)} came")
    return data[:size].decode(errors="surrogatepass"), data[size:]


def _end(rest: bytes) -> None:
    if rest:
        raise ValueError(f"{len(rest)} bytes come after it")
