"""SequenceIntegrityChecker: that ids come once, in order, without a gap, and are the same ids at
both ends.

Whoever makes the tokens and whoever gets them keep one each. Both chain xxh3 over the ids: the
digest after n ids is that of the digest before and of the n-th id. So one number says whether all
ids up to a step are the same at both ends, and where they are not, log2(n) numbers say which was
the first that is not.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable

from .digest import digest, digest_of
from .problem import OutOfStep
from .records import (
    VALID,
    EnhancedTokenChunk,
    ValidationError,
    ValidationResult,
    failure,
)

_LINK = struct.Struct("<Qq").pack  # the digest before, and the id
LARGEST = 2**63


class SequenceIntegrityChecker:
    """One end of a stream: which ids it holds, and what comes next.

    Kept are 16 bytes for each token. Not for several threads at once.

    Args:
        stream: the request's id: ids of another stream are another chain.
        epoch: how often its maker had begun.

    Attributes:
        stream, epoch: the same.
    """

    def __init__(self, *, stream: str = "", epoch: int = 0) -> None:
        self.stream = stream
        self.epoch = epoch
        self._ids = array("q")
        self._digests = array("Q", [digest(stream.encode(errors="surrogatepass"))])

    @property
    def position(self) -> int:
        """Position that comes next, which is also how many ids are held."""
        return len(self._ids)

    @property
    def ids(self) -> list[int]:
        """Ids that are held."""
        return self._ids.tolist()

    def id_at(self, position: int) -> int:
        """Return the id at one of them."""
        return self._ids[position]

    @property
    def digest(self) -> int:
        """Of all ids that are held, and of the stream's name."""
        return self._digests[-1]

    def digest_at(self, length: int) -> int:
        """Of the first `length` ids.

        Raises:
            OutOfStep: there are not that many yet.
        """
        if not 0 <= length <= self.position:
            raise OutOfStep(
                f"stream {self.stream!r}: the digest of {length} ids was requested, but it has"
                f" {self.position} ids"
            )
        return self._digests[length]

    def append(self, token_id: int) -> int:
        """Take the next id, on the side that makes them; gives the digest with it.

        Raises:
            OverflowError, TypeError: not an integer of 64 bits; nothing is taken.
        """
        self._ids.append(token_id)
        linked = digest_of(_LINK(self._digests[-1], token_id))
        self._digests.append(linked)
        return linked

    def check(self, chunk: EnhancedTokenChunk) -> ValidationResult:
        """Take the next chunk, on the side that gets them.

        One that is not next is not taken, and changes nothing.
        """
        at = chunk.sequence_position
        due = len(self._ids)
        if chunk.stream != self.stream or chunk.epoch != self.epoch:
            return self._elsewhere(chunk)
        if at != due:
            return self._not_next(chunk, due)
        token_id = chunk.token_id
        if type(token_id) is not int or not -LARGEST <= token_id < LARGEST:
            return failure(
                ValidationError.NOT_AN_INTEGER,
                f"the id at position {at} is {token_id!r}, not an integer of 64 bits",
                at,
            )
        self.append(token_id)
        return VALID

    def begin(self, *, epoch: int, position: int) -> None:
        """Go on under a later epoch from a position that is held: the ids from there on are
        dropped.

        Raises:
            OutOfStep: the epoch is not later, or the ids before the position are not here.
        """
        if epoch <= self.epoch:
            raise OutOfStep(
                f"stream {self.stream!r}: epoch {epoch} is not later than its current epoch"
                f" {self.epoch}"
            )
        if not 0 <= position <= self.position:
            raise OutOfStep(
                f"stream {self.stream!r}: epoch {epoch} cannot continue at position {position},"
                f" because it has {self.position} ids"
            )
        self.epoch = epoch
        del self._ids[position:]
        del self._digests[position + 1 :]

    def agree(self, *, length: int, digest: int) -> ValidationResult:
        """Return whether the other end, which holds `length` ids of that digest, holds what this
        one holds, and no less.

        Equal lengths and equal digests are the only agreement: an end that has fewer ids is a gap.
        """
        if length != self.position:
            return failure(
                ValidationError.GAP,
                f"stream {self.stream!r}: the other end has {length} ids, but this end has"
                f" {self.position}",
                max(0, min(length, self.position)),
            )
        if digest != self.digest:
            return failure(
                ValidationError.DIGEST,
                (
                    f"stream {self.stream!r}: the first {length} ids differ between the two ends: xxh3"
                    f" {digest:016x} at the other end, {self.digest:016x} at this end"
                ),
            )
        return VALID

    def first_difference(self, ask: Callable[[int], int], *, length: int) -> int | None:
        """Return the first position whose ids differ, or that one end lacks; None where both ends
        hold the same.

        Args:
            ask: the other end's `digest_at`, asked log2 of the length times.
            length: how many ids the other end holds.

        Raises:
            OutOfStep: the other end chains another stream.
        """
        if ask(0) != self._digests[0]:
            raise OutOfStep(
                f"the other end does not have stream {self.stream!r}, because its chain begins"
                " differently"
            )
        same = 0
        differs = min(length, self.position) + 1
        if ask(differs - 1) == self._digests[differs - 1]:
            return None if length == self.position else differs - 1
        while differs - same > 1:
            middle = (same + differs) // 2
            if ask(middle) == self._digests[middle]:
                same = middle
            else:
                differs = middle
        return same

    def _elsewhere(self, chunk: EnhancedTokenChunk) -> ValidationResult:
        position = chunk.sequence_position
        if chunk.stream != self.stream:
            return failure(
                ValidationError.ANOTHER_STREAM,
                f"a chunk of stream {chunk.stream!r} arrived at stream {self.stream!r}",
                position,
            )
        came = f"a chunk of epoch {chunk.epoch} arrived in epoch {self.epoch}"
        if chunk.epoch < self.epoch:
            return failure(
                ValidationError.STALE_EPOCH, f"{came}, which is from before a restart", position
            )
        return failure(ValidationError.UNKNOWN_EPOCH, f"{came}, which has not started", position)

    def _not_next(self, chunk: EnhancedTokenChunk, due: int) -> ValidationResult:
        at = chunk.sequence_position
        if at > due:
            last = "" if at == due + 1 else f" to {at - 1}"
            return failure(
                ValidationError.GAP, f"position {at} arrived, but position {due}{last} did not", due
            )
        if at < 0:
            return failure(
                ValidationError.GAP, f"position {at} arrived, but positions start at 0", at
            )
        if self._ids[at] == chunk.token_id:
            return failure(
                ValidationError.DUPLICATE, f"position {at} arrived again, with the same id", at
            )
        return failure(
            ValidationError.CONFLICT,
            f"position {at} arrived again, with id {chunk.token_id} instead of {self._ids[at]}",
            at,
        )
