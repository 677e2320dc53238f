"""UTF-8 over any split, and texts against the ids that spell them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from damage import clean, decode, encode, spell, vocabulary
from rankproof_integrity.encoding import EncodingValidator, validate_text
from rankproof_integrity.problem import Misused
from rankproof_integrity.records import (
    UNCHECKED,
    EnhancedTokenChunk,
    Level,
    ValidationError,
    ValidationResult,
)
from rankproof_integrity.stream_validator import StreamValidator

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
CUTS = st.lists(st.integers(0, 120), max_size=12)


def pieces(whole: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes, cut at these places."""
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    return [whole[begin:end] for begin, end in pairwise(ends)]


def streamed(parts: list[bytes], *, cut: bool = False) -> list[ValidationResult]:
    validator = EncodingValidator()
    return [*(validator.feed(part) for part in parts), validator.finish(cut=cut)]


@given(TEXT, CUTS)
def test_a_text_is_valid_however_it_is_cut(text: str, cuts: list[int]) -> None:
    """A character that lies in several chunks is not an error, in any of them."""
    assert all(result.is_valid for result in streamed(pieces(text.encode(), cuts)))


@given(st.binary(max_size=40), CUTS)
# The begin of a surrogate, which is no character whatever follows.
@example(raw=b"\xed\xa0", cuts=[])
def test_bytes_are_judged_as_python_judges_them(raw: bytes, cuts: list[int]) -> None:
    """However they are cut, the first wrong byte is the one that decoding the whole names.

    A failure stays one.
    """
    results = streamed(pieces(raw, cuts))
    error = None
    try:
        raw.decode()
    except UnicodeDecodeError as found:
        error = found
    if error is None:
        assert all(result.is_valid for result in results)
        return
    first = next(result for result in results if not result.is_valid)
    assert first.position == error.start
    assert not results[-1].is_valid
    if error.reason == "unexpected end of data":
        assert first.error_type is ValidationError.INCOMPLETE
        assert streamed(pieces(raw, cuts), cut=True)[-1].is_valid
    else:
        assert first.error_type is ValidationError.NOT_UTF8


@given(TEXT, st.integers(0, 40), st.booleans())
def test_a_text_is_what_its_ids_spell(text: str, lag: int, cut: bool) -> None:
    """A detokenizer that lags behind is not an error.

    A text that is short of what the ids spell at the end is one.
    """
    output = clean(text)
    validator, out, spelled = EncodingValidator(token_bytes=spell), "", b""
    for number, one in enumerate(output.ids):
        spelled += spell(one)
        ready = spelled.decode("utf-8", "ignore") if number >= lag else ""
        assert validator.feed_token(one, ready[len(out) :]).is_valid
        out = max(out, ready, key=len)
    result = validator.finish(cut=cut)
    assert result.is_valid is (out == text)
    if out != text:
        assert (result.error_type, result.position) == (ValidationError.TEXT_DIFFERS, len(out))


@given(TEXT.filter(bool), st.data(), st.booleans())
def test_one_changed_character_is_found(text: str, data: st.DataObject, by_bytes: bool) -> None:
    """Whatever character is put for another, it is found where it is, by either way to spell
    ids.
    """
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters().filter(lambda one: one != text[at]))
    ids = clean(text).ids
    wrong = text[:at] + other + text[at + 1 :]
    validator = (
        EncodingValidator(token_bytes=spell)
        if by_bytes
        else EncodingValidator(decode=decode, interval=4)
    )
    results = [
        validator.feed_token(one, wrong if one_at == len(ids) - 1 else "")
        for one_at, one in enumerate(ids)
    ]
    results.append(validator.finish())
    first = next(result for result in results if not result.is_valid)
    assert first.position == at
    assert not results[-1].is_valid


def test_ids_that_end_inside_of_a_character_are_incomplete() -> None:
    """It is an error at the end of the whole, and not where the generation was cut there."""
    ids = clean("日").ids
    assert len(ids) == 1, "the tokenizer has this one whole"
    half = clean("本語龍").ids[:-1]
    spelled = b"".join(map(spell, half)).decode("utf-8", "ignore")
    for cut, error in ((False, ValidationError.INCOMPLETE), (True, None)):
        validator = EncodingValidator(token_bytes=spell)
        for at, one in enumerate(half):
            assert validator.feed_token(one, spelled if at == len(half) - 1 else "").is_valid
        assert validator.finish(cut=cut).error_type is error


def made(text: str) -> EnhancedTokenChunk:
    """A chunk whose maker made the checksum of this very text."""
    return EnhancedTokenChunk.sealed(
        token_id=20, text=text, sequence_position=0, source_device_rank=0, finish_reason="stop"
    )


def at_level(level: Level, **spelling: Any) -> Callable[[str], Iterable[ValidationResult]]:
    """What a stream of one token is said to be by a StreamValidator, there and at its end."""

    def judged(text: str) -> Iterable[ValidationResult]:
        validator = StreamValidator(tokens=vocabulary(), level=level, **spelling)
        return [validator.check(made(text)), validator.finish()]

    return judged


def by_encoding(**spelling: Any) -> Callable[[str], Iterable[ValidationResult]]:
    return lambda text: [EncodingValidator(**spelling).feed_token(20, text)]


JUDGES: dict[str, Callable[[str], Iterable[ValidationResult]]] = {
    "light": at_level(Level.LIGHT),
    "full": at_level(Level.FULL),
    "full, by bytes": at_level(Level.FULL, token_bytes=spell),
    "full, by decode": at_level(Level.FULL, decode=decode),
    "encoding": by_encoding(),
    "encoding, by bytes": by_encoding(token_bytes=spell),
    "encoding, by decode": by_encoding(decode=decode),
    "text": lambda text: [validate_text(text)],
    "token": lambda text: [vocabulary().validate_token(made(text))],
    "sequence": lambda text: vocabulary().validate_sequence([made(text)]).failures,
}


@pytest.mark.parametrize("judge", JUDGES)
@given(text=st.text(st.characters(exclude_categories=[]), min_size=1, max_size=9))
@example(text="aé\ud800")
@example(text="\ud83d\ude00")  # two halves are not the character that they stand for
@example(text="aé😀")
def test_half_of_a_surrogate_pair_is_refused_at_every_level(judge: str, text: str) -> None:
    """Whatever claims to check the encoding of a text refuses one that UTF-8 cannot encode, and no
    other one for that reason. `off` claims nothing.
    """
    errors = {result.error_type for result in JUDGES[judge](text)}
    try:
        text.encode()
    except UnicodeEncodeError:
        assert errors == {ValidationError.NOT_UTF8}
    else:
        assert ValidationError.NOT_UTF8 not in errors
    assert at_level(Level.OFF)(text) == [UNCHECKED, UNCHECKED]


@pytest.mark.parametrize("level", [Level.LIGHT, Level.FULL])
def test_the_half_of_a_pair_is_named_where_it_is_until_the_text_is_made_again(level: Level) -> None:
    """Its id is taken, its place is one of the whole text, and a text made again is good."""
    validator = StreamValidator(tokens=vocabulary(), level=level, token_bytes=spell)
    first, second = encode("ab"), encode("cd")
    ids = [*first, *second]
    for position, token_id in enumerate(ids):
        is_last = position == len(ids) - 1
        chunk = EnhancedTokenChunk.sealed(
            token_id=token_id,
            text=spell(token_id).decode() + "\udfff" * is_last,
            sequence_position=position,
            source_device_rank=0,
            finish_reason="stop" if is_last else None,
        )
        result = validator.check(chunk)
        assert result.is_valid is not is_last
    assert (result.error_type, result.position) == (ValidationError.NOT_UTF8, 4)
    assert validator.sequence.ids == ids
    assert validator.finish() == result
    assert validator.decoded_again("abcd").is_valid
    assert validator.finish().is_valid


def test_two_ways_to_spell_are_one_too_many() -> None:
    """Which of them would be compared nobody could tell."""
    with pytest.raises(Misused, match="not both"):
        EncodingValidator(token_bytes=spell, decode=decode)
