"""EncodingValidator: judge whether bytes are UTF-8 over any split, and whether a text is what its
ids spell.

A character may lie in several tokens, and a token may end inside of one: an incomplete end of a
chunk is not an error, an incomplete end of the whole is, unless the generation was cut there. What
is non-ASCII says nothing about anything.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from .problem import Misused
from .records import VALID, ValidationError, ValidationResult, failure
from .spelling import REPLACEMENT, Spelling

UNSPELLABLE = (LookupError, ValueError, TypeError, OverflowError)
"""Errors that a tokenizer raises for ids that it does not have."""
SHOWN = 12  # bytes or characters on each side of a difference


class EncodingValidator:
    """Judges one stream. Not for several threads at once.

    Bytes, text beside ids, or both; each of them to the end of the stream. What did not hold once
    does not hold later: every further answer is that failure.

    Args:
        token_bytes: the bytes that an id spells, `b""` for a special one that is not shown. With it
            the text is compared at every token. Right where a text is its tokens' bytes one after
            the other, as of byte-level BPE.
        decode: the text that ids spell, from the same tokenizer and options that make the text.
            With it the text is compared every `interval` tokens and at the end, for each time all
            ids are decoded. For all others. A run of byte tokens (byte fallback) is compared
            character by character, see `spelling`.
        interval: how many tokens `decode` waits.

    Raises:
        Misused: both are given.
    """

    def __init__(
        self,
        *,
        token_bytes: Callable[[int], bytes] | None = None,
        decode: Callable[[list[int]], str] | None = None,
        interval: int = 256,
    ) -> None:
        if token_bytes is not None and decode is not None:
            raise Misused("pass either token_bytes or decode, not both")
        self._token_bytes = token_bytes
        self._interval = interval
        self._spelling = None if decode is None else Spelling(decode)
        self._offset = 0
        self._tail = b""
        self._spelled = codecs.getincrementaldecoder("utf-8")("replace")
        self._due = ""  # spelled by ids and not seen as text
        self._seen = 0  # characters that were
        # Characters at the end that a detokenizer holds back, for they may be half of one.
        self._held = 0
        self._ahead = ""  # U+FFFD that came as text for a character that is not complete
        self._ids: list[int] = []
        self._text: list[str] = []
        self._failed = VALID

    def feed(self, data: bytes | bytearray | memoryview) -> ValidationResult:
        """Judge the next bytes of the stream; they may end inside of a character.

        The position of a failure is that of the first wrong byte in the whole stream.
        """
        if not self._failed.is_valid:
            return self._failed
        whole = self._tail + bytes(data)
        if whole.isascii():  # the tail of before was empty then: it never is ASCII
            self._offset += len(whole)
            return VALID
        try:
            _, used = codecs.utf_8_decode(whole, "strict", False)  # not final
            _demand_begun(whole, used)
        except UnicodeDecodeError as error:
            at = self._offset + error.start
            near = whole[max(0, error.start - SHOWN) : error.start + SHOWN]
            return self._fail(
                ValidationError.NOT_UTF8,
                f"byte {at} is not UTF-8 ({error.reason}): …{near.hex(' ')}…",
                at,
            )
        self._offset += used
        self._tail = whole[used:]
        return VALID

    def feed_token(self, token_id: int, text: str) -> ValidationResult:
        """Judge the next id, and the text that the detokenizer gave out at it, which may lag behind
        the ids.

        The position of a failure is that of the first wrong character in the whole text.
        """
        if not self._failed.is_valid:
            return self._failed
        if (lone := _surrogate(text)) is not None:
            at = self._seen + lone
            return self._fail(ValidationError.NOT_UTF8, _half_words(at), at)
        if self._token_bytes is not None:
            try:
                spelling = self._token_bytes(token_id)
            except UNSPELLABLE as error:
                return self._fail(
                    ValidationError.UNASSIGNED,
                    f"id {token_id} cannot be decoded: {type(error).__name__}: {error}",
                    self._seen,
                )
            return self._compared(self._spelled.decode(spelling), text)
        self._seen += len(text)
        if self._spelling is not None:
            self._ids.append(token_id)
            self._text.append(text)
            if len(self._ids) % self._interval == 0:
                return self._redecoded(self._spelling, ongoing=True)
        return VALID

    def finish(self, *, cut: bool = False) -> ValidationResult:
        """Judge the stream at its end.

        Args:
            cut: the generation was cut (its length was reached), so that it may end inside of a
                character.
        """
        if not self._failed.is_valid:
            return self._failed
        if self._tail and not cut:
            return self._fail(
                ValidationError.INCOMPLETE,
                f"the bytes end inside a character: {self._tail.hex(' ')} at byte {self._offset}",
                self._offset,
            )
        if self._spelling is not None:
            return self._redecoded(self._spelling, cut=cut)
        rest = "" if cut else self._spelled.decode(b"", final=True)
        # Of an incomplete character at the very end detokenizers give a replacement character, or
        # nothing.
        if self._due and not (cut and len(self._due) <= self._held):
            return self._fail(
                ValidationError.TEXT_DIFFERS,
                (
                    f"{len(self._due)} characters of the decoded ids never arrived:"
                    f" {self._due[:SHOWN]!r}…"
                ),
                self._seen,
            )
        if rest:
            return self._fail(
                ValidationError.INCOMPLETE,
                f"the ids end inside a character, after {self._seen} characters",
                self._seen,
            )
        return VALID

    def _compared(self, spelled: str, text: str) -> ValidationResult:
        if spelled == text and not self._due and not self._ahead:
            self._seen += len(text)
            self._held = 0
            return VALID
        due = self._due + spelled
        is_open = bool(self._spelled.getstate()[0]) or due.endswith(REPLACEMENT)
        self._held = self._held + len(spelled) if is_open else 0
        if self._ahead or not due.startswith(text):
            return self._replaced(due, text)
        self._due = due[len(text) :]
        self._seen += len(text)
        return VALID

    def _replaced(self, due: str, text: str) -> ValidationResult:
        """Some text came that the ids do not spell yet: U+FFFD, where the ids end inside of a
        character.

        It is right where the generation was cut there, which the end will tell, or where the next
        token shows that the character never becomes one.
        """
        text = self._ahead + text
        before = self._seen - len(self._ahead)
        pending, _ = self._spelled.getstate()
        rest = text[len(due) :]
        if due.startswith(text):
            self._due = due[len(text) :]
            self._ahead = ""
        elif text.startswith(due) and len(rest) <= len(pending) and not rest.strip(REPLACEMENT):
            self._due = ""
            self._ahead = rest
        else:
            return self._differs(due, text, before)
        self._seen = before + len(text)
        return VALID

    def _redecoded(
        self, spelling: Spelling, *, ongoing: bool = False, cut: bool = False
    ) -> ValidationResult:
        text = "".join(self._text)
        self._text = [text]
        try:
            spelled = spelling.of(self._ids, text, ongoing=ongoing, cut=cut)
        except UNSPELLABLE as error:
            return self._fail(
                ValidationError.UNASSIGNED,
                f"the tokenizer has no text for these ids: {type(error).__name__}: {error}",
                0,
            )
        if spelled == text or (ongoing and spelled.startswith(text)):
            return VALID
        return self._differs(spelled, text, 0)

    def _differs(self, spelled: str, text: str, before: int) -> ValidationResult:
        at = common_prefix(spelled, text)
        here = text[at : at + SHOWN]
        there = spelled[at : at + SHOWN]
        return self._fail(
            ValidationError.TEXT_DIFFERS,
            (
                f"from character {before + at} on the text is {here!r}, but the ids decode to"
                f" {there!r}"
            ),
            before + at,
        )

    def _fail(self, error: ValidationError, words: str, position: int) -> ValidationResult:
        self._failed = failure(error, words, position)
        return self._failed


def validate_text(text: str) -> ValidationResult:
    """Return whether a text can be written as UTF-8: one with half of a surrogate pair cannot."""
    at = _surrogate(text)
    return VALID if at is None else failure(ValidationError.NOT_UTF8, _half_words(at), at)


def _half_words(at: int) -> str:
    return f"character {at} is half of a surrogate pair, which UTF-8 cannot encode"


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """Return how long two sequences begin alike."""
    for at, (here, there) in enumerate(zip(a, b, strict=False)):
        if here != there:
            return at
    return min(len(a), len(b))


def _demand_begun(whole: bytes, used: int) -> None:
    """Refuse what is left behind `used` where no byte to come makes a character of it.

    Python's decoder waits for the third byte of a surrogate, and refuses it only then.

    Raises:
        UnicodeDecodeError: at the place in `whole`.
    """
    try:
        whole[used:].decode()
    except UnicodeDecodeError as error:
        if used + error.end < len(whole):
            place = used + error.start
            raise UnicodeDecodeError("utf-8", whole, place, place + 1, error.reason) from None


def _surrogate(text: str) -> int | None:
    """Return the place of the first half of a surrogate pair; None where there is none."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None
