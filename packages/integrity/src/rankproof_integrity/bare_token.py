"""Tokens on their way without their texts: an id each, with its place and its checksum, in few
calls.

What is sent is an `EnhancedTokenChunk` like every other, and everything of it is looked at; but no
chunk is made of one that is the one that is due, for of that all but the id is known.
"""

from __future__ import annotations

import struct
from typing import Any

from .digest import digest_of
from .problem import OutOfStep
from .records import CHUNK_HEAD
from .sequence import SequenceIntegrityChecker
from .token_transfer import chunk_of
from .token_validator import TokenValidator
from .validation import ValidationResult

_CHECKSUM = struct.Struct("!Q")


class BareTokens:
    """One stream's, at one end of it. Not for several threads at once.

    Args:
        tokens: what is known of the vocabulary.
        maker: the rank that makes them.
        stream: the request's id.
        epoch: how often its maker had begun.

    Attributes:
        sequence: the ids so far, and their digests.
    """

    def __init__(
        self, *, tokens: TokenValidator, maker: int, stream: str = "", epoch: int = 0
    ) -> None:
        self.sequence = SequenceIntegrityChecker(stream=stream, epoch=epoch)
        self._tokens = tokens
        self._maker = maker
        self._name = stream.encode(errors="surrogatepass")
        self._tail = (maker, len(self._name), 0, -1)

    def made(self, token_id: int) -> bytes:
        """Take the next id where it is made.

        Gives the chunk that is to be sent, as `send_token` sends it.

        Raises:
            OutOfStep: it is not of the vocabulary.
        """
        position = self.sequence.position
        found = self._tokens.validate_id(token_id, position)
        if found.error_type is not None:
            raise self._refused(position, found)
        content = CHUNK_HEAD.pack(position, self.sequence.epoch, token_id, *self._tail) + self._name
        self.sequence.append(token_id)
        return _CHECKSUM.pack(digest_of(content)) + content

    def taken(self, data: Any) -> int:
        """Return the id in a message, which is the next.

        Raises:
            MessageCorrupt: it is not as its maker made it.
            OutOfStep: it is another one than is due, or not of the vocabulary.
        """
        sequence = self.sequence
        view = memoryview(data)
        due = sequence.position
        if len(view) == _CHECKSUM.size + CHUNK_HEAD.size + len(self._name):
            position, epoch, token_id, *tail = CHUNK_HEAD.unpack_from(view, _CHECKSUM.size)
            if (
                position == due
                and epoch == sequence.epoch
                and tuple(tail) == self._tail
                and view[_CHECKSUM.size + CHUNK_HEAD.size :] == self._name
                and _CHECKSUM.unpack_from(view)[0] == digest_of(view[_CHECKSUM.size :])
            ):
                found = self._tokens.validate_id(token_id, position)
                if found.error_type is not None:
                    raise self._refused(position, found)
                sequence.append(token_id)
                return int(token_id)
        return self._other(data, due)

    def _other(self, data: Any, due: int) -> int:
        """Return what else came, in a chunk of its own, which says what it is."""
        chunk = chunk_of(data, peer=f"rank {self._maker}")
        found = self._tokens.validate_id(chunk.token_id, chunk.sequence_position)
        if chunk.source_device_rank != self._maker:
            raise OutOfStep(
                f"rank {chunk.source_device_rank} made the token at position {due}, not"
                f" {self._maker}"
            )
        if found.error_type is None:
            found = self.sequence.check(chunk)
        if found.error_type is not None:
            raise self._refused(due, found)
        return chunk.token_id

    def _refused(self, position: int, found: ValidationResult) -> OutOfStep:
        return OutOfStep(
            f"the token at position {position} from rank {self._maker} cannot stand: {found.words}"
        )
