"""What a validator says of one token, of a sequence of them, or of bytes: a fact, and what to do
about it.

Standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .records import ValidationStatus


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
    """What can be done, the cheapest first.

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
    """What was found. It has no score: each of these facts holds or does not.

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
    def suggested_action(self) -> RecoveryAction:
        """Return what helps first."""
        return RecoveryAction.NONE if self.error_type is None else SUGGESTED[self.error_type]

    def __bool__(self) -> bool:
        raise TypeError(
            "ask a ValidationResult for is_valid: it is neither true nor false by itself"
        )


VALID = ValidationResult()
UNCHECKED = ValidationResult(checked=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceValidationResult:
    """What was found in a whole sequence.

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
        raise TypeError(
            "ask a SequenceValidationResult for is_valid: it is neither true nor false by itself"
        )
