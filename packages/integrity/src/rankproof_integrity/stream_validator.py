"""StreamValidator: all validators of one stream of tokens, at a level.

Off looks at nothing. Light: each chunk against its checksum, its id against the vocabulary, its
position and epoch against what is next; the ids are chained. Full: what light does, and the text
against the ids.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from .beside import Behind
from .encoding import EncodingValidator
from .metrics import Metrics
from .records import EnhancedTokenChunk, Level
from .sequence import SequenceIntegrityChecker
from .strictness import AdaptiveStrictness
from .token_validator import TokenValidator
from .validation import UNCHECKED, VALID, ValidationError, ValidationResult


class StreamValidator:
    """Validates a stream's chunks as they come. Not for several threads at once.

    Args:
        tokens: what is known of the vocabulary.
        level: how much is checked.
        strictness: lets the level follow from what is seen; `level` is then not looked at.
        token_bytes, decode: what ids spell, as in `EncodingValidator`. Without one no text is
            compared.
        stream, epoch: whose chunks these are.
        metrics: counts what is found, and what it takes.

    Attributes:
        sequence: the ids that were taken, and their digests.
    """

    def __init__(
        self,
        *,
        tokens: TokenValidator,
        level: Level = Level.FULL,
        strictness: AdaptiveStrictness | None = None,
        token_bytes: Callable[[int], bytes] | None = None,
        decode: Callable[[list[int]], str] | None = None,
        stream: str = "",
        epoch: int = 0,
        metrics: Metrics | None = None,
    ) -> None:
        self.sequence = SequenceIntegrityChecker(stream=stream, epoch=epoch)
        self._tokens, self._level, self._strictness, self._metrics = (
            tokens,
            Level(level),
            strictness,
            metrics,
        )
        self._token_bytes = token_bytes
        self._decode = decode
        self._compares = token_bytes is not None or decode is not None
        self._encoding = self._new_encoding()
        self._texts: list[str] = []
        self._fed = 0  # how many of them were compared
        self._end: int | None = None
        self._blind: int | None = None
        self._cut = False

    @property
    def level(self) -> Level:
        """How much is checked now."""
        return self._level if self._strictness is None else self._strictness.level

    def check(self, chunk: EnhancedTokenChunk) -> ValidationResult:
        """Return the next chunk. One that is not valid is not taken, unless its text alone is
        wrong.
        """
        level = self._level if self._strictness is None else self._strictness.level
        if level is Level.OFF:
            return UNCHECKED
        if self._metrics is None:
            result = self._checked(chunk, level)
        else:
            begin = perf_counter()
            result = self._checked(chunk, level)
            self._metrics.observe("integrity_check_seconds", perf_counter() - begin, level=level)
            if result.error_type is None:
                self._metrics.count("integrity_tokens_total", level=level)
            else:
                self._metrics.count("integrity_failures_total", error=result.error_type)
        if self._strictness is not None:
            after = (
                self._strictness.clean() if result.error_type is None else self._strictness.failed()
            )
            if self._metrics is not None:
                self._metrics.set("integrity_level", list(Level).index(after))
        return result

    def begin(self, *, epoch: int, position: int) -> None:
        """Go on under a later epoch from a position: what was made from there on is made again.

        Raises:
            OutOfStep: the epoch is not later, or the ids before the position are not here.
        """
        self.sequence.begin(epoch=epoch, position=position)
        del self._texts[position:]
        self._encoding = self._new_encoding()
        self._fed = 0
        self._end = None

    def decoded_again(self, text: str) -> ValidationResult:
        """The text of all ids so far was made again: take this one for it, and compare it."""
        self._texts = [""] * self.sequence.position
        if self._texts:
            self._texts[-1] = text
        self._encoding = self._new_encoding()
        self._fed = 0
        return self._compared()

    def passed_over(self, stretch: Behind) -> None:
        """Some chunks will not come here.

        From now on each is judged by itself, and `finish` says that it was so.
        """
        if self._blind is None:
            self._blind = self.sequence.position
        if self._metrics is not None:
            self._metrics.count("integrity_unvalidated_total", stretch.last - stretch.first + 1)

    def finish(self, *, held: tuple[int, int] | None = None) -> ValidationResult:
        """The stream is at its end.

        Args:
            held: how many ids their maker holds, and of which digest. Without it a lost end shows
                by the missing `finish_reason` alone.
        """
        if self.level is Level.OFF:
            return UNCHECKED
        if self._blind is not None:
            words = (
                f"from position {self._blind} on chunks were passed over: only each by itself was"
                " looked at"
            )
            return ValidationResult(
                error_type=ValidationError.NOT_LOOKED_AT, words=words, position=self._blind
            )
        if self.level is Level.FULL and not self._compares and any(self._texts):
            words = (
                "texts came, and nothing to compare them with: give token_bytes or decode, or take"
                " the level light"
            )
            return ValidationResult(error_type=ValidationError.NOT_LOOKED_AT, words=words)
        if self._end is None:
            at = self.sequence.position
            words = f"stream {self.sequence.stream!r} stopped at position {at} without a last token"
            return ValidationResult(error_type=ValidationError.UNFINISHED, words=words, position=at)
        if held is not None:
            result = self.sequence.agree(length=held[0], digest=held[1])
            if not result.is_valid:
                return result
        if self.level is Level.FULL and self._compares:
            result = self._compared()
            return result if not result.is_valid else self._encoding.finish(cut=self._cut)
        return VALID

    def _checked(self, chunk: EnhancedTokenChunk, level: Level) -> ValidationResult:
        if not chunk.intact:
            words = (
                f"the chunk at position {chunk.sequence_position} is not what rank"
                f" {chunk.source_device_rank} made its checksum of: {chunk.checksum or 'none'} came"
                " with it"
            )
            return ValidationResult(
                error_type=ValidationError.CHECKSUM, words=words, position=self.sequence.position
            )
        result = self._tokens.validate_id(chunk.token_id, chunk.sequence_position)
        if result.error_type is not None or self._blind is not None:
            return result
        if self._end is not None and chunk.sequence_position > self._end:
            words = (
                f"position {chunk.sequence_position} came behind {self._end}, which ended the"
                " stream"
            )
            return ValidationResult(
                error_type=ValidationError.AFTER_END, words=words, position=chunk.sequence_position
            )
        result = self.sequence.check(chunk)
        if result.error_type is not None:
            return result
        self._texts.append(chunk.text)
        if chunk.finish_reason is not None or self._tokens.ends(chunk.token_id):
            self._end = chunk.sequence_position
            self._cut = chunk.finish_reason == "length"
        return self._compared() if level is Level.FULL and self._compares else VALID

    def _compared(self) -> ValidationResult:
        """Compare what was not compared yet: after a time at light that is more than one."""
        result = VALID
        for at in range(self._fed, len(self._texts)):
            result = self._encoding.feed_token(self.sequence.id_at(at), self._texts[at])
        self._fed = len(self._texts)
        return result

    def _new_encoding(self) -> EncodingValidator:
        return EncodingValidator(token_bytes=self._token_bytes, decode=self._decode)
