"""StreamValidator: all validators of one stream of tokens, at a level.

Off looks at nothing. Light: each chunk against its checksum, its id against the vocabulary, its
position and epoch against what is next, and whether UTF-8 can encode its text; the ids are chained.
Full: what light does, and the text against the ids.

The level may follow from what is seen (`AdaptiveStrictness`), and the validation may run in a
thread that the token path never waits for (`ValidationBeside`). Where that thread falls behind, it
is said, with what was not validated. It is never counted as valid.
"""

from __future__ import annotations

import codecs
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter
from types import TracebackType
from typing import Generic, Self, TypeVar

from .encoding import UNSPELLABLE, EncodingValidator, validate_text
from .metrics import Metrics
from .problem import Misused
from .records import (
    UNCHECKED,
    VALID,
    EnhancedTokenChunk,
    Level,
    ValidationError,
    ValidationResult,
    failure,
)
from .sequence import SequenceIntegrityChecker
from .spelling import REPLACEMENT
from .token_validator import TokenValidator


class AdaptiveStrictness:
    """Level of a stream's checks.

    A failure raises it to full at once. It falls back to the floor after so many clean tokens that
    a failure rate of `rate` would have shown itself with a probability of `confidence`: 2,995 for
    0.1 % and 95 %. Each further failure at full doubles that number, up to `patience` times; once
    the floor has lasted as long, it is as at the beginning. Off stays off: who wants no checks gets
    none.

    Args:
        floor: the level when all is well, and of the beginning.
        rate: failures for each token that would be worth seeing.
        confidence: with which clean tokens speak against that rate.
        patience: how many times longer it stays at full at most.

    Attributes:
        level: as it is now.

    Raises:
        Misused: a number is out of its range.
    """

    def __init__(
        self,
        *,
        floor: Level = Level.LIGHT,
        rate: float = 1e-3,
        confidence: float = 0.95,
        patience: int = 32,
    ) -> None:
        if not (0 < rate < 1 and 0 < confidence < 1 and patience >= 1):
            raise Misused(
                f"rate and confidence must be between 0 and 1, and patience 1 or more, not {rate},"
                f" {confidence} and {patience}"
            )
        self.floor = self.level = Level(floor)
        self.enough = math.ceil(math.log(1 - confidence) / math.log1p(-rate))
        self._patience = patience
        self._times = 1
        self._clean = 0

    @property
    def remaining(self) -> int:
        """How many clean tokens it takes until the level falls; 0 where it is at its floor."""
        return 0 if self.level is self.floor else self.enough * self._times - self._clean

    def clean(self, tokens: int = 1) -> Level:
        """Count so many tokens that were checked and had nothing wrong; gives the level from now
        on.
        """
        if self._times > 1 or self.level is not self.floor:
            self._clean += tokens
            if self._clean >= self.enough * self._times:
                if self.level is self.floor:
                    self._times = 1
                self.level = self.floor
                self._clean = 0
        return self.level

    def failed(self) -> Level:
        """Note that something was wrong; gives the level from now on."""
        if self.floor is Level.LIGHT:
            if self.level is Level.FULL:
                self._times = min(self._patience, self._times * 2)
            self.level = Level.FULL
            self._clean = 0
        return self.level


Item = TypeVar("Item")
MOST_KEPT = 1000  # failures that are kept; further ones are counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Behind:
    """Stretch that was not validated: the queue was full.

    Attributes:
        first, last: numbers of the items, from 0, in the order they were offered.
    """

    first: int
    last: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationAccount:
    """Account of everything that was offered.

    Attributes:
        offered, validated: how many items, and how many were looked at; where that is less, not all
            is known.
        failures: number of the item and what does not hold of it, at most a thousand; `failed`
            counts all.
        behind: what was passed over.
        error: why the validation itself ended, where it raised: what came after is not validated.
    """

    offered: int
    validated: int
    failed: int
    failures: tuple[tuple[int, ValidationResult], ...]
    behind: tuple[Behind, ...]
    error: BaseException | None

    @property
    def is_valid(self) -> bool:
        """Return whether everything that was offered was validated and is valid, and there was
        something.
        """
        return 0 < self.offered == self.validated and not self.failed and self.error is None


class ValidationBeside(Generic[Item]):
    """Hands items to a thread that validates them, in their order.

    `offer` is for one thread, that of the tokens; everything else is for any. A thread does not
    outlive a fork: make one in the process that uses it.

    Args:
        check: validates one item, in the thread.
        capacity: items that may wait. When so many do, the next are passed over, until half of them
            are done.
        skipped: called in the thread, in order, with each stretch that was passed over, before the
            item behind it: a check that counts positions is told there that some are missing.
        metrics: is told how long after its offer each failure was found.

    Raises:
        Misused: a capacity below 1.
    """

    def __init__(
        self,
        check: Callable[[Item], ValidationResult],
        *,
        capacity: int = 1024,
        skipped: Callable[[Behind], object] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        if capacity < 1:
            raise Misused(f"capacity must be at least 1 item, not {capacity}")
        self._check = check
        self._capacity = capacity
        self._skipped = skipped
        self._metrics = metrics
        self._queue: SimpleQueue[tuple[int, float, Item] | Behind | None] = SimpleQueue()
        self._offered = self._passed = self._taken = self._validated = self._failed = 0
        self._first = -1
        self._failures: list[tuple[int, ValidationResult]] = []
        self._behind: list[Behind] = []
        self._error: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="validation beside", daemon=True)
        self._thread.start()

    def offer(self, item: Item) -> bool:
        """Hand over an item without waiting; whether it will be validated.

        False once it fell behind, or is closed.
        """
        number = self._offered
        self._offered = number + 1
        # This thread alone writes the first two, the other the third: no lock, and at worst it
        # seems fuller than it is. Once it was full, it is so until half of what waited is done:
        # stretches are few and long, and not one for every other item.
        room = self._capacity if self._first < 0 else (self._capacity + 1) // 2
        full = number - self._passed - self._taken >= room
        if full or self._error is not None or self._closed:
            self._passed += 1
            if self._first < 0:
                self._first = number
            return False
        if self._first >= 0:
            self._caught_up(number - 1)
        self._queue.put((number, time.monotonic(), item))
        return True

    @property
    def waiting(self) -> int:
        """How many items wait."""
        return self._offered - self._passed - self._taken

    def close(self, timeout: float = 10.0) -> ValidationAccount:
        """Take nothing more, validate what waits, for `timeout` seconds at most, and give the
        account of everything.
        """
        if not self._closed:
            self._closed = True
            if self._first >= 0:
                self._caught_up(self._offered - 1)
            self._queue.put(None)
        self._thread.join(timeout)
        return ValidationAccount(
            offered=self._offered,
            validated=self._validated,
            failed=self._failed,
            failures=tuple(self._failures),
            behind=tuple(self._behind),
            error=self._error,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _caught_up(self, last: int) -> None:
        stretch = Behind(first=self._first, last=last)
        self._behind.append(stretch)
        self._first = -1
        self._queue.put(stretch)

    def _run(self) -> None:
        try:
            while (entry := self._queue.get()) is not None:
                if isinstance(entry, Behind):
                    if self._skipped is not None:
                        self._skipped(entry)
                    continue
                self._validate(*entry)
                self._taken += 1
        # Said in the account; a thread has nobody to raise to.
        except BaseException as error:  # noqa: BLE001
            self._error = error

    def _validate(self, number: int, since: float, item: Item) -> None:
        result = self._check(item)
        self._validated += result.checked
        if result.is_valid:
            return
        self._failed += 1
        if self._metrics is not None:
            self._metrics.observe("integrity_detection_seconds", time.monotonic() - since)
        if len(self._failures) < MOST_KEPT:
            self._failures.append((number, result))


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

    # Eight arguments: how much is checked (2), with what (3), of which stream (2), counted where.
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
        self._tokens = tokens
        self._level = Level(level)
        self._strictness = strictness
        self._metrics = metrics
        self._token_bytes = token_bytes
        self._decode = decode
        self._compares = token_bytes is not None or decode is not None
        self._encoding = self._new_encoding()
        self._texts: list[str] = []
        self._fed = 0  # how many of them were compared
        self._made_again = 0  # how many of them stand for a text that was made again
        self._end: int | None = None
        self._blind: int | None = None
        self._cut = False

    @property
    def level(self) -> Level:
        """How much is checked now."""
        return self._level if self._strictness is None else self._strictness.level

    def check(self, chunk: EnhancedTokenChunk) -> ValidationResult:
        """Check the next chunk. One that is not valid is not taken, unless its text alone is
        wrong.
        """
        level = self.level
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
            if result.error_type is None:
                after = self._strictness.clean()
            else:
                after = self._strictness.failed()
            if self._metrics is not None:
                self._metrics.set("integrity_level", list(Level).index(after))
        return result

    def begin(self, *, epoch: int, position: int) -> None:
        """Go on under a later epoch from a position: what was made from there on is made again.

        Raises:
            OutOfStep: the epoch is not later, or the ids before the position are not here.
        """
        given = "".join(self._texts)
        self.sequence.begin(epoch=epoch, position=position)
        del self._texts[position:]
        if position < self._made_again:
            # Of the text that was made again no part belongs to one id: as much of it is kept as
            # the ids before the position spell, so that what is wrong there is still compared.
            kept = given[: self._spelled_length(self.sequence.ids, most=len(given))]
            self._texts = _at_the_end(kept, position)
            self._made_again = position
        if self._blind is not None and position <= self._blind:
            # Those that were passed over are made again, and come here this time.
            self._blind = None
        self._encoding = self._new_encoding()
        self._fed = 0
        self._end = None

    def decoded_again(self, text: str) -> ValidationResult:
        """Take this text for that of all ids so far, which was made again, and compare it."""
        self._made_again = self.sequence.position
        self._texts = _at_the_end(text, self._made_again)
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
        """Judge the stream at its end.

        Args:
            held: how many ids their maker holds, and of which digest. Without it a lost end shows
                by the missing `finish_reason` alone.
        """
        if self.level is Level.OFF:
            return UNCHECKED
        if self._blind is not None:
            return failure(
                ValidationError.NOT_LOOKED_AT,
                (
                    f"from position {self._blind} on, chunks were skipped, so each chunk was checked"
                    " only by itself"
                ),
                self._blind,
            )
        text = self._whole_text()
        if not text.is_valid:
            return text
        if self.level is Level.FULL and not self._compares and any(self._texts):
            return failure(
                ValidationError.NOT_LOOKED_AT,
                (
                    "texts arrived, but they cannot be compared with the ids; pass token_bytes or"
                    " decode, or use the level light"
                ),
            )
        if self._end is None:
            at = self.sequence.position
            return failure(
                ValidationError.UNFINISHED,
                f"stream {self.sequence.stream!r} stopped at position {at} without a last token",
                at,
            )
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
            return failure(
                ValidationError.CHECKSUM,
                (
                    f"the chunk at position {chunk.sequence_position} does not match the checksum of"
                    f" rank {chunk.source_device_rank} that arrived with it"
                    f" ({chunk.checksum or 'none'})"
                ),
                self.sequence.position,
            )
        if self._blind is not None:
            return self._tokens.validate_token(chunk)
        result = self._tokens.validate_id(chunk.token_id, chunk.sequence_position)
        if result.error_type is not None:
            return result
        if self._end is not None and chunk.sequence_position > self._end:
            return failure(
                ValidationError.AFTER_END,
                f"position {chunk.sequence_position} arrived after position {self._end}, which"
                " ended the stream",
                chunk.sequence_position,
            )
        result = self.sequence.check(chunk)
        if result.error_type is not None:
            return result
        self._texts.append(chunk.text)
        if chunk.finish_reason is not None or self._tokens.ends(chunk.token_id):
            self._end = chunk.sequence_position
            self._cut = chunk.finish_reason == "length"
        if level is Level.FULL and self._compares:
            return self._compared()
        return VALID if validate_text(chunk.text).error_type is None else self._whole_text()

    def _whole_text(self) -> ValidationResult:
        """Return whether UTF-8 can encode the text so far; its position is one of that text."""
        return validate_text("".join(self._texts))

    def _compared(self) -> ValidationResult:
        """Compare what was not compared yet: after a time at light that is more than one."""
        result = VALID
        for at in range(self._fed, len(self._texts)):
            result = self._encoding.feed_token(self.sequence.id_at(at), self._texts[at])
        self._fed = len(self._texts)
        return result

    def _spelled_length(self, ids: list[int], *, most: int) -> int:
        """Return how many whole characters these ids spell; `most` where one has no spelling."""
        try:
            if self._token_bytes is not None:
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                return sum(len(decoder.decode(self._token_bytes(token_id))) for token_id in ids)
            if self._decode is None or not ids:
                return 0
            return len(self._decode(ids).rstrip(REPLACEMENT))
        except UNSPELLABLE:
            # Comparing says so, in its own words.
            return most

    def _new_encoding(self) -> EncodingValidator:
        return EncodingValidator(token_bytes=self._token_bytes, decode=self._decode)


def _at_the_end(text: str, length: int) -> list[str]:
    """Return texts of so many ids that are this text together."""
    return [""] * (length - 1) + [text] if length else []
