"""TokenValidator: whether ids can be ids of this vocabulary, at this place of a stream. Facts only.

An id that is in range may still be the wrong one: that is for the digests of both ends
(`SequenceIntegrityChecker`).
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from .encoding import validate_text
from .problem import Misused
from .records import (
    VALID,
    EnhancedTokenChunk,
    SequenceValidationResult,
    ValidationError,
    ValidationResult,
    failure,
)

if TYPE_CHECKING:
    from .corruption import CorruptionReport


class SpecialPlace(StrEnum):
    """Where in a stream a special id may stand."""

    FIRST = "first"
    LAST = "last"
    ANYWHERE = "anywhere"
    NOWHERE = "nowhere"


class TokenValidator:
    """Judge of ids by what is known of their vocabulary.

    Args:
        vocabulary: how many ids there are, of the tokenizer: the rows of an embedding are often
            more, and an id in that padding has no token.
        unassigned: ids below that which have no token.
        special: where each special id may stand. One that is not named may stand anywhere.
        longest: how many tokens a stream may have; None for any number.

    Raises:
        Misused: an id of `special` or `unassigned` is not of the vocabulary, or a number is below
            1.
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        unassigned: Collection[int] = (),
        special: Mapping[int, SpecialPlace] | None = None,
        longest: int | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.longest = sys.maxsize if longest is None else longest
        self._unassigned = frozenset(unassigned)
        self._place = {
            token_id: SpecialPlace(place)
            for token_id, place in (special or {}).items()
            if place != SpecialPlace.ANYWHERE
        }
        self._marked = self._unassigned | self._place.keys()
        if vocabulary < 1 or self.longest < 1:
            raise Misused(
                "a vocabulary must have at least 1 id and a stream at least 1 token, not"
                f" {vocabulary} and {longest}"
            )
        if wrong := sorted(marked for marked in self._marked if not 0 <= marked < vocabulary):
            raise Misused(
                f"ids {wrong[:5]} are not in the vocabulary, which has the ids 0 to"
                f" {vocabulary - 1}"
            )

    @classmethod
    def of(
        cls,
        tokenizer: Any,
        *,
        special: Mapping[int, SpecialPlace] | None = None,
        longest: int | None = None,
    ) -> Self:
        """Return the validator of a tokenizer of `tokenizers` or transformers: its ids, without the
        holes between them.

        Args:
            tokenizer: anything with `get_vocab()`, from token to id.
            special: where each special id may stand.
            longest: how many tokens a stream may have.
        """
        ids = set(tokenizer.get_vocab().values())
        size = max(ids) + 1
        return cls(
            vocabulary=size, unassigned=set(range(size)) - ids, special=special, longest=longest
        )

    def validate_id(self, token_id: Any, position: int = 0) -> ValidationResult:
        """One id at one position of its stream.

        Args:
            token_id: an int, or what stands for one exactly (a scalar of numpy, torch or MLX).
            position: from 0.
        """
        if (
            type(token_id) is int
            and 0 <= token_id < self.vocabulary
            and token_id not in self._marked
            and position < self.longest
        ):
            return VALID
        return self._judged(token_id, position)

    def validate_token(self, token: EnhancedTokenChunk) -> ValidationResult:
        """Check the id of a token at its position, and that UTF-8 can encode its text.

        `token.intact` tells whether the token changed on its way, and `EncodingValidator` whether
        the text is that of the id.
        """
        position = token.sequence_position
        result = self.validate_id(token.token_id, position)
        if not result.is_valid:
            return result
        text = validate_text(token.text)
        if text.is_valid:
            return text
        words = f"the text at position {position} cannot be encoded: {text.words}"
        return failure(ValidationError.NOT_UTF8, words, position)

    def validate_sequence(self, tokens: Iterable[EnhancedTokenChunk]) -> SequenceValidationResult:
        """All chunks of a stream, in the order given: each by itself, and that none stands behind
        one that ends it.
        """
        failures = []
        length = 0
        end = None
        for token in tokens:
            length += 1
            result = self.validate_token(token)
            if end is not None and result.is_valid:
                result = self._after(end, token.sequence_position)
            if not result.is_valid:
                failures.append(result)
            elif self.ends(int(token.token_id)):
                end = token.sequence_position
        return SequenceValidationResult(length=length, failures=tuple(failures))

    def detect_corruption(
        self,
        text: str,
        *,
        ids: Sequence[int] | None = None,
        decode: Callable[[list[int]], str] | None = None,
    ) -> CorruptionReport | None:
        """Return the gravest contradiction in an output, lost tokens before a lost text.

        None: nothing contradicts the text. A `CorruptionDetector` also takes other records of an
        output, and tells whether there was anything to compare the text with.

        Args:
            text: as the user would see it.
            ids: that it was decoded from; without them only its encoding is checked.
            decode: the text that ids spell.
        """
        # Here: its patterns take longer to compile than all else that a stream needs.
        from .corruption import CorruptionDetector, CorruptionSeverity

        detector = CorruptionDetector(tokens=self, decode=decode)
        found = detector.analyze_output(text, ids=ids).corruptions
        lost = (one for one in found if one.severity is CorruptionSeverity.TOKENS)
        return next(lost, found[0] if found else None)

    def validate_ids(self, ids: Sequence[int] | Any, *, start: int = 0) -> SequenceValidationResult:
        """Ids in their order, the first at position `start`.

        Args:
            ids: a sequence of ints, or an array of one dimension and an integer dtype, of numpy,
                torch or MLX.
            start: position of the first.

        Raises:
            Misused: an array of another shape.
        """
        if hasattr(ids, "tolist"):
            shape = getattr(ids, "shape", (0,))
            if len(shape) != 1:
                raise Misused(
                    f"ids have the shape {tuple(shape)}; pass each stream separately, as a"
                    " one-dimensional array"
                )
            ids = ids.tolist()
        judged = [
            (at, token_id, self.validate_id(token_id, start + at))
            for at, token_id in enumerate(ids)
        ]
        failures = [result for _, _, result in judged if not result.is_valid]
        ends = [at for at, one, result in judged if result.is_valid and self.ends(int(one))]
        if ends and ends[0] + 1 < len(judged):
            failures.append(self._after(start + ends[0], start + ends[0] + 1))
        return SequenceValidationResult(length=len(judged), failures=tuple(failures))

    def ends(self, token_id: int) -> bool:
        """Return whether this id ends its stream."""
        return self._place.get(token_id) is SpecialPlace.LAST

    def _judged(self, token_id: Any, position: int) -> ValidationResult:
        # A truth value is an integer to `operator.index` too.
        refused = isinstance(token_id, bool) or "bool" in str(getattr(token_id, "dtype", ""))
        try:
            number = operator.index(token_id)
        except TypeError:
            refused = True
        if refused:
            return failure(
                ValidationError.NOT_AN_INTEGER,
                (
                    f"the id at position {position} must be an integer, not {token_id!r} of the type"
                    f" {type(token_id).__name__}"
                ),
                position,
            )
        where = f"id {number} at position {position}"
        if not 0 <= number < self.vocabulary:
            return failure(
                ValidationError.OUT_OF_VOCABULARY,
                f"{where} is not in this vocabulary, whose ids are 0 to {self.vocabulary - 1}",
                position,
            )
        if number in self._unassigned:
            return failure(
                ValidationError.UNASSIGNED, f"{where} has no token in this vocabulary", position
            )
        if position >= self.longest:
            return failure(
                ValidationError.TOO_LONG,
                f"{where} is past the end of a stream of at most {self.longest} tokens",
                position,
            )
        place = self._place.get(number, SpecialPlace.ANYWHERE)
        if place is SpecialPlace.NOWHERE or (place is SpecialPlace.FIRST and position > 0):
            return failure(
                ValidationError.SPECIAL_OUT_OF_PLACE,
                f"{where} is a special id that is allowed {place.value} in a stream",
                position,
            )
        return VALID

    def _after(self, end: int, position: int) -> ValidationResult:
        return failure(
            ValidationError.AFTER_END,
            (
                f"a token at position {position} follows the token at position {end}, which ended the"
                " stream"
            ),
            position,
        )
