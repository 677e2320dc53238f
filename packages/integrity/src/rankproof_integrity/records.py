"""Plain records that every part of this library takes and gives: tokens on their way, states,
classes, levels, and what a validator says of them: a fact, and what to do about it.

Standard library alone, and xxhash where a checksum is made.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Self, TypeAlias

from .digest import hexadecimal

NodeId: TypeAlias = str
"""Who takes part: an address, a host's name, `rank 1`; whatever the caller's messages shall say."""


class Level(StrEnum):
    """How much is checked. The transport checks alike at `light` and `full`.

    What `full` adds is beside the bytes.
    """

    OFF = "off"
    LIGHT = "light"
    FULL = "full"


class FailureClass(StrEnum):
    """Class of a failure, from which follows what helps against it.

    * transient: the same thing tried again may work: a lost message, a flipped bit, a late peer.
    * persistent: trying again does not help, another device or a new start may.
    * catastrophic: the pipeline as a whole cannot go on.
    """

    TRANSIENT = "transient"
    PERSISTENT = "persistent"
    CATASTROPHIC = "catastrophic"


class ValidationStatus(StrEnum):
    """Knowledge of a token: nothing yet, that it is as it was made, or that it is not."""

    UNCHECKED = "unchecked"
    VALID = "valid"
    CORRUPT = "corrupt"


class BarrierStatus(StrEnum):
    """Where a barrier stands: some are missing, all are there, or the time was up before they
    were.
    """

    WAITING = "waiting"
    COMPLETE = "complete"
    TIMED_OUT = "timed-out"


@dataclass(frozen=True, kw_only=True)
class TokenChunk:
    """Token as a stage of a pipeline hands it on.

    Attributes:
        token_id: its id in the vocabulary; the text follows from ids, never the other way round.
        text: what the detokenizer gave for it; may be empty while a character of several tokens is
            not complete.
        stream: which generation it belongs to: a request's id.
        finish_reason: null until the last one.
    """

    token_id: int
    text: str = ""
    stream: str = ""
    finish_reason: str | None = None


# Position and epoch, token id, microseconds since 1970 (NO_TIME: no time), rank; the lengths of
# stream, text and reason (-1: none), then their UTF-8.
CHUNK_HEAD = struct.Struct("!QIqqIIIi")
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
NO_TIME = -(2**63)

# Not a field: it is never compared, and a chunk made of another by `replace` has none.
_HELD = "_held"


@dataclass(frozen=True, kw_only=True)
class EnhancedTokenChunk(TokenChunk):
    """Token with where it stands, who made it, and the checksum its maker gave it.

    Attributes:
        sequence_position: its place in its stream, from 0.
        source_device_rank: the rank that made it.
        epoch: how often that rank had begun: a token of an earlier epoch is stale.
        checksum: xxh3 of the other fields, as sixteen lower-case hexadecimal digits.
        generation_timestamp: when `sealed` made it, by its maker's clock, in UTC; None if nobody
            recorded a time. It is sent with the token, for people: no verdict rests on it, because
            clocks of two hosts are not compared.

    Raises:
        ValueError: the timestamp has no time zone.
        OverflowError: in UTC the timestamp is before the year 1 or after 9999.
    """

    sequence_position: int
    source_device_rank: int
    epoch: int = 0
    checksum: str = ""
    generation_timestamp: datetime | None = None

    def __post_init__(self) -> None:
        made = self.generation_timestamp
        if made is None or made.tzinfo is UTC:
            return
        if made.utcoffset() is None:
            raise ValueError(
                f"the generation_timestamp {made} has no time zone; use datetime.now(UTC)"
            )
        # In one zone, because Python calls two times of different zones unequal where a clock is
        # set back, although both are the same instant.
        object.__setattr__(self, "generation_timestamp", made.astimezone(UTC))

    # Seven arguments: the fields of a token that its maker knows.
    @classmethod
    def sealed(
        cls,
        *,
        token_id: int,
        sequence_position: int,
        source_device_rank: int,
        epoch: int = 0,
        text: str = "",
        stream: str = "",
        finish_reason: str | None = None,
    ) -> Self:
        """Return a chunk as its maker makes it: with its checksum."""
        now = datetime.now(UTC)
        content = _content(
            sequence_position, epoch, token_id, now, source_device_rank, stream, text, finish_reason
        )
        chunk = cls(
            token_id=token_id,
            text=text,
            stream=stream,
            finish_reason=finish_reason,
            sequence_position=sequence_position,
            source_device_rank=source_device_rank,
            epoch=epoch,
            checksum=hexadecimal(content),
            generation_timestamp=now,
        )
        chunk.__dict__[_HELD] = content
        return chunk

    def content(self) -> bytes:
        """Return what the checksum covers: the same bytes for the same chunk, on every machine.

        Lone surrogates pass as they are: whether a text is well formed is another question than
        whether it changed. What made a chunk of bytes, or bytes of a chunk, leaves them with it: no
        field of it can change.
        """
        held: bytes | None = self.__dict__.get(_HELD)
        if held is not None:
            return held
        return _content(
            self.sequence_position,
            self.epoch,
            self.token_id,
            self.generation_timestamp,
            self.source_device_rank,
            self.stream,
            self.text,
            self.finish_reason,
        )

    @classmethod
    def from_content(cls, content: bytes, *, checksum: str) -> Self:
        """Return the chunk of which these bytes are the content; with whatever checksum came along.

        Raises:
            ValueError, OverflowError, struct.error: they are not the content of any.
        """
        position, epoch, token_id, made, rank, named, spelled, why = CHUNK_HEAD.unpack_from(content)
        texts = content[CHUNK_HEAD.size :]
        first = named
        second = named + spelled
        last = named + spelled + max(why, 0)
        if len(texts) != last or why < -1:
            raise ValueError(f"{last} bytes of text were announced, but {len(texts)} arrived")
        chunk = cls(
            token_id=token_id,
            text=texts[first:second].decode(errors="surrogatepass") if spelled else "",
            stream=texts[:first].decode(errors="surrogatepass"),
            finish_reason=texts[second:].decode(errors="surrogatepass") if why >= 0 else None,
            sequence_position=position,
            source_device_rank=rank,
            epoch=epoch,
            checksum=checksum,
            generation_timestamp=None if made == NO_TIME else _1970 + made * _MICROSECOND,
        )
        chunk.__dict__[_HELD] = content
        return chunk

    def computed_checksum(self) -> str:
        """Return the checksum of what it holds now."""
        return hexadecimal(self.content())

    @property
    def intact(self) -> bool:
        """Return whether it holds what its maker made the checksum of.

        One that has none, or cannot have one, does not.
        """
        try:
            return self.checksum == hexadecimal(self.content())
        except (struct.error, AttributeError):
            return False  # an id that is not an integer, a text that is none, a position below 0

    @property
    def validation_status(self) -> ValidationStatus:
        """Whether this is what its maker made; unchecked where its maker gave it no checksum.

        Worked out when it is asked for: it is not sent, and a changed copy does not keep it.
        """
        if not self.checksum:
            return ValidationStatus.UNCHECKED
        return ValidationStatus.VALID if self.intact else ValidationStatus.CORRUPT


# Eight arguments: the fields that the checksum covers, in the order in which they are packed.
def _content(
    position: int,
    epoch: int,
    token: int,
    made: datetime | None,
    rank: int,
    stream: str,
    text: str,
    reason: str | None,
) -> bytes:
    name = stream.encode(errors="surrogatepass")
    spelled = text.encode(errors="surrogatepass")
    why = b"" if reason is None else reason.encode(errors="surrogatepass")
    length = -1 if reason is None else len(why)
    time = NO_TIME if made is None else (made - _1970) // _MICROSECOND
    head = CHUNK_HEAD.pack(position, epoch, token, time, rank, len(name), len(spelled), length)
    return head + name + spelled + why


@dataclass(frozen=True, kw_only=True)
class SyncState:
    """Where a barrier stood when it was looked at.

    Attributes:
        participating_devices: all that have to arrive, in the order of their ranks.
        sync_timestamp: when it was looked at, by this host's clock.
        barrier_status: where it stands.
        timeout_remaining: seconds that are left; 0 when none are.
        name, sequence, epoch: which barrier, and which of its turns, under which epoch of the
            group.
        missing: the ranks that have not arrived.
    """

    participating_devices: tuple[NodeId, ...]
    sync_timestamp: datetime
    barrier_status: BarrierStatus
    timeout_remaining: float
    name: str = ""
    sequence: int = 0
    epoch: int = 0
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TransferResult:
    """Receipt of a message that its receiver has, whole and unchanged.

    Attributes:
        peer: who has it.
        sequence: its number, from 0.
        epoch: of its sender.
        seconds: from the call until it was acknowledged.
        sent_again: frames to that peer that were sent again meanwhile.
    """

    peer: NodeId
    sequence: int
    epoch: int
    seconds: float
    sent_again: int


class ValidationError(StrEnum):
    """Which fact does not hold.

    * not-an-integer: an id that is a float, a truth value, a text, or larger than 64 bits.
    * out-of-vocabulary, unassigned: an id at or above the vocabulary's size, below 0, or one that
      has no token.
    * special-out-of-place: a special id where its stream does not allow it.
    * too-long: a position at or past the longest stream.
    * after-end: a token behind the one that ended the stream.
    * checksum: a chunk does not hold what its maker made the checksum of.
    * another-stream, stale-epoch, unknown-epoch: a chunk of another generation, of an earlier
      start, of a later one.
    * gap, duplicate, conflict: positions are missing; one came again; one came again with another
      id.
    * digest: both ends do not hold the same ids.
    * not-utf8, incomplete: bytes that no text has; a text that ended inside of a character.
    * text-differs: the text is not what the ids spell.
    * unfinished: the stream stopped without a last token.
    * not-looked-at: a part of the stream was passed over, and nobody knows.
    """

    NOT_AN_INTEGER = "not-an-integer"
    OUT_OF_VOCABULARY = "out-of-vocabulary"
    UNASSIGNED = "unassigned"
    SPECIAL_OUT_OF_PLACE = "special-out-of-place"
    TOO_LONG = "too-long"
    AFTER_END = "after-end"
    CHECKSUM = "checksum"
    ANOTHER_STREAM = "another-stream"
    STALE_EPOCH = "stale-epoch"
    UNKNOWN_EPOCH = "unknown-epoch"
    GAP = "gap"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    DIGEST = "digest"
    NOT_UTF8 = "not-utf8"
    INCOMPLETE = "incomplete"
    TEXT_DIFFERS = "text-differs"
    UNFINISHED = "unfinished"
    NOT_LOOKED_AT = "not-looked-at"


class RecoveryAction(StrEnum):
    """Remedies, the cheapest first.

    * none: nothing is wrong.
    * discard: drop what came, and go on: it is a copy, or from before a restart.
    * decode-again: the ids are good, the text is not.
    * resend: ask the maker for the same once more.
    * regenerate, restart-stage, reinitialize-device, fall-back: make the tokens again, with ever
      more of the pipeline made anew; at last on one device alone.
    """

    NONE = "none"
    DISCARD = "discard"
    DECODE_AGAIN = "decode-again"
    RESEND = "resend"
    REGENERATE = "regenerate"
    RESTART_STAGE = "restart-stage"
    REINITIALIZE_DEVICE = "reinitialize-device"
    FALL_BACK = "fall-back"


SUGGESTED = {
    ValidationError.NOT_AN_INTEGER: RecoveryAction.REGENERATE,
    ValidationError.OUT_OF_VOCABULARY: RecoveryAction.REGENERATE,
    ValidationError.UNASSIGNED: RecoveryAction.REGENERATE,
    ValidationError.SPECIAL_OUT_OF_PLACE: RecoveryAction.REGENERATE,
    ValidationError.TOO_LONG: RecoveryAction.REGENERATE,
    ValidationError.AFTER_END: RecoveryAction.DISCARD,
    ValidationError.CHECKSUM: RecoveryAction.RESEND,
    ValidationError.ANOTHER_STREAM: RecoveryAction.DISCARD,
    ValidationError.STALE_EPOCH: RecoveryAction.DISCARD,
    ValidationError.UNKNOWN_EPOCH: RecoveryAction.RESTART_STAGE,
    ValidationError.GAP: RecoveryAction.RESEND,
    ValidationError.DUPLICATE: RecoveryAction.DISCARD,
    ValidationError.CONFLICT: RecoveryAction.REGENERATE,
    ValidationError.DIGEST: RecoveryAction.REGENERATE,
    ValidationError.NOT_UTF8: RecoveryAction.DECODE_AGAIN,
    ValidationError.INCOMPLETE: RecoveryAction.DECODE_AGAIN,
    ValidationError.TEXT_DIFFERS: RecoveryAction.DECODE_AGAIN,
    ValidationError.UNFINISHED: RecoveryAction.RESEND,
    ValidationError.NOT_LOOKED_AT: RecoveryAction.RESEND,
}
"""What helps first against each. What to do when that does not help is for `RecoveryManager`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationResult:
    """Finding of a validator: facts that hold or do not, never an estimate.

    Attributes:
        error_type: which fact does not hold; None where all that was looked at do.
        words: what is wrong, in a sentence; empty where nothing is.
        position: of the token in its stream, or of the byte among the bytes, that the sentence is
            about.
        checked: whether anything was looked at; false at the level off.
    """

    error_type: ValidationError | None = None
    words: str = ""
    position: int | None = None
    checked: bool = True

    @property
    def is_valid(self) -> bool:
        """Return whether nothing is known to be wrong: all facts that were looked at hold.

        Whether any was says `status`.
        """
        return self.error_type is None

    @property
    def status(self) -> ValidationStatus:
        """Valid, corrupt, or unchecked."""
        if self.error_type is not None:
            return ValidationStatus.CORRUPT
        return ValidationStatus.VALID if self.checked else ValidationStatus.UNCHECKED

    @property
    def confidence_score(self) -> float:
        """1.0 where facts were checked; 0.0 where nothing was looked at.

        Nothing is in between, because no validator estimates. What a text looks like is a `Hint`,
        with the rate at which clean texts look so.
        """
        return 1.0 if self.checked else 0.0

    @property
    def suggested_action(self) -> RecoveryAction:
        """Return what helps first."""
        return RecoveryAction.NONE if self.error_type is None else SUGGESTED[self.error_type]

    def __bool__(self) -> bool:
        raise TypeError("a ValidationResult has no truth value; use its is_valid")


VALID = ValidationResult()
UNCHECKED = ValidationResult(checked=False)


def failure(
    error_type: ValidationError, words: str, position: int | None = None
) -> ValidationResult:
    """Return the finding that a fact does not hold."""
    return ValidationResult(error_type=error_type, words=words, position=position)


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceValidationResult:
    """Findings in a whole sequence.

    Attributes:
        length: how many tokens were looked at.
        failures: what does not hold, in the order of the sequence.
    """

    length: int
    failures: tuple[ValidationResult, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Return whether everything holds, of at least one token: of nothing, nothing holds."""
        return self.length > 0 and not self.failures

    def __bool__(self) -> bool:
        raise TypeError("a SequenceValidationResult has no truth value; use its is_valid")
