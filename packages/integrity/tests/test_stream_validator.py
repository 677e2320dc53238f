"""All validators of a stream together, at each level, after restarts, and beside the token path."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from damage import decode, encode, spell, vocabulary
from rankproof_integrity.metrics import Metrics
from rankproof_integrity.problem import Misused
from rankproof_integrity.records import (
    UNCHECKED,
    VALID,
    EnhancedTokenChunk,
    Level,
    ValidationError,
    ValidationResult,
    ValidationStatus,
)
from rankproof_integrity.stream_validator import (
    AdaptiveStrictness,
    Behind,
    StreamValidator,
    ValidationAccount,
    ValidationBeside,
)
from rankproof_integrity.token_validator import SpecialPlace, TokenValidator
from rates import digest_of

TEXT = "The quick brown fox; 日本語, naïveté, 🙂."
IDS = encode(TEXT)


def stream(ids: list[int] = IDS, *, epoch: int = 0, start: int = 0) -> list[EnhancedTokenChunk]:
    """The chunks of a text as a detokenizer gives them: characters when they are whole."""
    chunks, spelled, out = [], b"", ""
    for position, one in enumerate(ids):
        spelled += spell(one)
        ready = spelled.decode("utf-8", "ignore")
        chunks.append(
            EnhancedTokenChunk.sealed(
                token_id=one,
                sequence_position=position,
                source_device_rank=0,
                epoch=epoch,
                text=ready[len(out) :],
                finish_reason="stop" if position == len(ids) - 1 else None,
            )
        )
        out = ready
    return chunks[start:]


def validator(level: Level = Level.FULL, **more: object) -> StreamValidator:
    return StreamValidator(tokens=vocabulary(), level=level, token_bytes=spell, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", Level)
def test_a_whole_stream_is_valid_at_every_level(level: Level) -> None:
    """Every chunk, and the end: both ends hold the same ids.

    At off nothing is held, for nothing is looked at.
    """
    one = validator(level)
    assert all(one.check(chunk).is_valid for chunk in stream())
    end = one.finish(held=(len(IDS), digest_of(IDS)))
    assert end.status is (
        ValidationStatus.UNCHECKED if level is Level.OFF else ValidationStatus.VALID
    )
    assert one.sequence.position == (0 if level is Level.OFF else len(IDS))


def test_texts_that_nothing_is_compared_with_are_not_called_valid() -> None:
    """`full` without the spelling of ids looks at no text, and says so at the end; `light` never
    promised to.
    """
    for level, error in ((Level.FULL, ValidationError.NOT_LOOKED_AT), (Level.LIGHT, None)):
        one = StreamValidator(tokens=vocabulary(), level=level)
        assert all(one.check(chunk).is_valid for chunk in stream())
        assert one.finish().error_type is error


@pytest.mark.parametrize(
    "wrong", [{"token_id": 2**70}, {"token_id": 1.5}, {"sequence_position": -1}, {"text": None}]
)
def test_what_cannot_be_a_chunk_is_an_answer_and_not_an_error(wrong: dict[str, object]) -> None:
    """An id that is not an integer of 64 bits, a place before the first, a text that is none: not
    intact, and named.
    """
    chunk = dataclasses.replace(stream()[0], **wrong)  # type: ignore[arg-type]
    assert not chunk.intact
    assert validator().check(chunk).error_type is ValidationError.CHECKSUM


@given(st.integers(0, len(IDS) - 1), st.integers(0, 40), st.sampled_from([Level.LIGHT, Level.FULL]))
def test_a_flipped_bit_of_any_id_is_seen(at: int, bit: int, level: Level) -> None:
    """Light sees it by the checksum of the chunk, and does not take it.

    What is sent again is taken.
    """
    one, chunks = validator(level), stream()
    for chunk in chunks[:at]:
        assert one.check(chunk).is_valid
    flipped = dataclasses.replace(chunks[at], token_id=chunks[at].token_id ^ (1 << bit))
    result = one.check(flipped)
    assert (result.error_type, result.position) == (ValidationError.CHECKSUM, at)
    assert all(one.check(chunk).is_valid for chunk in chunks[at:])
    assert one.finish().is_valid


@given(st.integers(0, len(IDS) - 1))
def test_a_wrong_text_is_seen_at_full_alone(at: int) -> None:
    """A text that was damaged before its maker made the checksum: the ids tell.

    Decoded again, it is valid.
    """
    chunks = stream()
    fields = {
        name: getattr(chunks[at], name)
        for name in ("token_id", "sequence_position", "source_device_rank", "finish_reason")
    }
    chunks[at] = EnhancedTokenChunk.sealed(text=chunks[at].text + "\ufffd", **fields)
    full, light = validator(Level.FULL), validator(Level.LIGHT)
    results = [full.check(chunk) for chunk in chunks]
    assert (
        next(one.error_type for one in results if not one.is_valid) is ValidationError.TEXT_DIFFERS
    )
    assert full.finish().error_type is ValidationError.TEXT_DIFFERS
    assert full.decoded_again(TEXT).is_valid
    assert full.finish().is_valid
    assert all(light.check(chunk).is_valid for chunk in chunks)
    assert light.finish().is_valid


@given(st.integers(1, len(IDS)), st.data(), st.booleans())
def test_a_text_that_was_decoded_again_outlives_a_restart(
    at: int, data: st.DataObject, by_bytes: bool
) -> None:
    """Of a text that was made again nobody knows which id gave which part of it.

    Those before the restart are not accused, and a wrong text behind it is.
    """
    back = data.draw(st.integers(0, min(at, len(IDS) - 1)))

    def again() -> StreamValidator:
        spelling = {"token_bytes": spell} if by_bytes else {"decode": decode}
        one = StreamValidator(tokens=vocabulary(), **spelling)  # type: ignore[arg-type]
        assert all(one.check(chunk).is_valid for chunk in stream()[:at])
        assert one.decoded_again("".join(chunk.text for chunk in stream()[:at])).is_valid
        one.begin(epoch=1, position=back)
        return one

    one = again()
    assert all(one.check(chunk).is_valid for chunk in stream(epoch=1, start=back))
    assert one.finish().is_valid
    wrong = again()
    for chunk in stream(epoch=1, start=back):
        text = chunk.text if chunk.finish_reason is None else chunk.text + "x"
        changed = dataclasses.replace(chunk, text=text)
        wrong.check(dataclasses.replace(changed, checksum=changed.computed_checksum()))
    assert wrong.finish().error_type is ValidationError.TEXT_DIFFERS


@given(st.integers(1, len(IDS) - 1), st.data())
def test_a_stream_goes_on_after_a_restart(at: int, data: st.DataObject) -> None:
    """From any position that is held: late chunks of before are stale, the end is that of an
    undisturbed stream.
    """
    back = data.draw(st.integers(0, at))
    one = validator()
    for chunk in stream()[:at]:
        assert one.check(chunk).is_valid
    one.begin(epoch=1, position=back)
    if at < len(IDS):
        assert one.check(stream()[at]).error_type is ValidationError.STALE_EPOCH
    assert all(one.check(chunk).is_valid for chunk in stream(epoch=1, start=back))
    assert one.finish(held=(len(IDS), digest_of(IDS))).is_valid


def test_what_was_passed_over_and_made_again_is_looked_at() -> None:
    """A stream that begins again from before the gap is judged whole; one that does not, is not."""
    for begins_again in (True, False):
        one = validator()
        for chunk in stream()[:3]:
            assert one.check(chunk).is_valid
        one.passed_over(Behind(first=3, last=3))
        one.check(stream()[4])
        if begins_again:
            one.begin(epoch=1, position=2)
            assert all(one.check(chunk).is_valid for chunk in stream(epoch=1, start=2))
        assert one.finish().is_valid is begins_again


LETTERS = {0: b"a", 1: b"b", 2: b"c", 3: b"d"}


def letters(way: str, **more: object) -> StreamValidator:
    """A validator of four letters; the ids 4 and 5 are in the vocabulary and spell nothing."""
    spelling: dict[str, object] = {
        "token_bytes": {"token_bytes": LETTERS.__getitem__},
        "decode": {"decode": lambda ids: "".join(LETTERS[one].decode() for one in ids)},
    }[way]
    return StreamValidator(tokens=TokenValidator(vocabulary=6), **spelling, **more)  # type: ignore[arg-type]


def letter(token_id: int, text: str, position: int, *, epoch: int = 0) -> EnhancedTokenChunk:
    return EnhancedTokenChunk.sealed(
        token_id=token_id,
        sequence_position=position,
        source_device_rank=0,
        epoch=epoch,
        text=text,
        finish_reason="stop" if position == 3 else None,
    )


@pytest.mark.parametrize("way", ["token_bytes", "decode"])
@pytest.mark.parametrize(
    ("again", "is_right"), [("abc", True), ("aXc", False), ("a", False), ("", False)]
)
def test_a_wrong_text_made_again_is_not_forgotten_at_a_restart(
    way: str, again: str, *, is_right: bool
) -> None:
    """What stands before the restart is compared as it was given, not as its ids spell it."""
    one = letters(way)
    for position, (token_id, text) in enumerate([(0, "a"), (1, "b"), (2, "c")]):
        assert one.check(letter(token_id, text, position)).is_valid
    one.decoded_again(again)
    one.begin(epoch=1, position=2)
    results = [one.check(letter(2, "c", 2, epoch=1)), one.check(letter(3, "d", 3, epoch=1))]
    found = {result.error_type for result in (*results, one.finish()) if not result.is_valid}
    assert found == (set() if is_right else {ValidationError.TEXT_DIFFERS})


@pytest.mark.parametrize("way", ["token_bytes", "decode"])
@pytest.mark.parametrize("level", [Level.LIGHT, Level.FULL])
def test_a_restart_behind_an_id_without_a_spelling_raises_nothing(way: str, level: Level) -> None:
    """The tokenizer's own error is an answer of a comparison, not of `begin`."""
    one = letters(way, level=level)
    for position, (token_id, text) in enumerate([(0, "a"), (5, ""), (2, "c"), (3, "d")]):
        one.check(letter(token_id, text, position))
    one.decoded_again("acd")
    one.begin(epoch=1, position=min(3, one.sequence.position))


def test_a_stream_without_its_end_is_unfinished() -> None:
    """Chunks that never came at the end show, by the missing last one and by the maker's own
    count.
    """
    one = validator()
    for chunk in stream()[:-1]:
        assert one.check(chunk).is_valid
    assert one.finish().error_type is ValidationError.UNFINISHED
    other = validator()
    for chunk in stream():
        other.check(chunk)
    assert other.finish(held=(len(IDS) + 1, 5)).error_type is ValidationError.GAP
    assert other.finish(held=(len(IDS), 5)).error_type is ValidationError.DIGEST
    extra = EnhancedTokenChunk.sealed(token_id=20, sequence_position=len(IDS), source_device_rank=0)
    assert other.check(extra).error_type is ValidationError.AFTER_END


def test_ids_that_this_vocabulary_lacks_are_not_taken() -> None:
    """A chunk that its maker made so: only the vocabulary tells."""
    one = StreamValidator(
        tokens=TokenValidator(vocabulary=10, special={2: SpecialPlace.LAST}), level=Level.LIGHT
    )
    wrong = EnhancedTokenChunk.sealed(token_id=10, sequence_position=0, source_device_rank=0)
    assert one.check(wrong).error_type is ValidationError.OUT_OF_VOCABULARY
    assert one.sequence.position == 0
    assert one.check(
        EnhancedTokenChunk.sealed(token_id=2, sequence_position=0, source_device_rank=0)
    ).is_valid
    assert one.finish().is_valid


def test_strictness_rises_at_a_failure_and_compares_what_came_before() -> None:
    """At light a wrong text passes; once the level rises, the texts of before are compared too."""
    strictness = AdaptiveStrictness(floor=Level.LIGHT)
    one = validator(strictness=strictness)
    chunks = stream()
    wrong = EnhancedTokenChunk.sealed(
        token_id=chunks[0].token_id, sequence_position=0, source_device_rank=0, text="not this"
    )
    assert one.check(wrong).is_valid
    assert one.check(chunks[0]).error_type is ValidationError.DUPLICATE
    assert one.level is Level.FULL
    assert one.check(chunks[1]).error_type is ValidationError.TEXT_DIFFERS


@given(st.lists(st.booleans() | st.integers(1, 5000), max_size=40), st.sampled_from(Level))
def test_the_level_never_falls_before_enough_clean_tokens(
    steps: list[bool | int], floor: Level
) -> None:
    """After a failure the level is full for at least as many clean tokens as rule out its rate.

    The floor is kept.
    """
    strictness = AdaptiveStrictness(floor=floor)
    assert strictness.enough == 2995
    since: int | None = None
    for step in steps:
        if step is True:
            strictness.failed()
            since = 0
        else:
            strictness.clean(int(step))
            since = None if since is None else since + int(step)
        if floor is not Level.LIGHT:
            assert (strictness.level, strictness.remaining) == (floor, 0)
        elif since is None:
            assert strictness.level is Level.LIGHT
        elif since < strictness.enough:
            assert strictness.level is Level.FULL
            assert 0 < strictness.remaining <= strictness.enough * 32 - since
        elif since >= strictness.enough * 32:
            assert strictness.level is Level.LIGHT


def test_relapses_are_watched_for_longer() -> None:
    """Each further failure at full doubles the clean tokens that are asked for, to a bound.

    A long calm undoes that.
    """
    strictness = AdaptiveStrictness(rate=0.5, confidence=0.75, patience=4)
    assert strictness.enough == 2
    lengths = []
    for failures in (1, 2, 3, 9):
        fresh = AdaptiveStrictness(rate=0.5, confidence=0.75, patience=4)
        for _ in range(failures):
            fresh.failed()
        lengths.append(next(count for count in range(1, 99) if fresh.clean() is Level.LIGHT))
    assert lengths == [2, 4, 8, 8]
    assert fresh.clean(8) is Level.LIGHT
    fresh.failed()
    assert fresh.remaining == 2
    with pytest.raises(Misused):
        AdaptiveStrictness(rate=0)


class Held:
    """A check that waits until it is let go, as one on a busy machine does."""

    def __init__(self) -> None:
        self.go, self.seen = threading.Semaphore(0), list[int]()
        self.taken = threading.Semaphore(0)

    def __call__(self, item: int) -> ValidationResult:
        self.taken.release()
        self.go.acquire()
        self.seen.append(item)
        wrong = ValidationResult(error_type=ValidationError.GAP, words="odd", position=item)
        return wrong if item % 2 else VALID


def test_the_token_path_never_waits_and_hears_what_was_passed_over() -> None:
    """With its thread held up, offers return at once.

    What did not fit is named, and never counts as valid.
    """
    held, skipped = Held(), list[Behind]()
    beside = ValidationBeside(held, capacity=4, skipped=skipped.append)
    assert [beside.offer(item) for item in range(7)] == [True] * 4 + [False] * 3
    assert beside.waiting == 4
    for _ in range(3):  # until the third is taken: then at most two wait
        held.taken.acquire()
        held.go.release()
    held.taken.acquire()
    assert beside.offer(7)
    for _ in range(2):
        held.go.release()
    account = beside.close()
    assert held.seen == [0, 1, 2, 3, 7]
    assert [(one.first, one.last) for one in account.behind] == [(4, 6)]
    assert list(account.behind) == skipped
    assert (account.offered, account.validated, account.failed) == (8, 5, 3)
    assert [number for number, _ in account.failures] == [1, 3, 7]
    assert not account.is_valid
    assert not beside.offer(8)


def test_a_validation_that_ends_early_is_never_a_valid_one() -> None:
    """An error inside of the check, or a thread that did not get through in time: the account says
    so.
    """

    def broken(item: int) -> ValidationResult:
        raise OSError("the tokenizer is gone")

    account = _closed(broken, [1, 2])
    assert isinstance(account.error, OSError)
    assert not account.is_valid
    held = Held()
    beside = ValidationBeside(held)
    beside.offer(0)
    assert not beside.close(timeout=0).is_valid
    held.go.release()
    assert beside.close().is_valid
    assert not _closed(valid, []).is_valid
    # A check at the level off.
    assert not _closed(lambda item: UNCHECKED, [1]).is_valid  # noqa: ARG005
    with pytest.raises(Misused):
        ValidationBeside(held, capacity=0)


def valid(item: int) -> ValidationResult:
    return VALID


def _closed(check: Callable[[int], ValidationResult], items: list[int]) -> ValidationAccount:
    with ValidationBeside(check) as beside:
        for item in items:
            beside.offer(item)
    return beside.close()


def test_a_stream_that_is_validated_beside_says_where_it_was_not() -> None:
    """A stretch that was passed over is not a gap of the stream.

    At its end nobody calls it valid either.
    """
    metrics = Metrics()
    one, chunks = validator(metrics=metrics), stream()
    for chunk in chunks[:3]:
        assert one.check(chunk).is_valid
    one.passed_over(Behind(first=3, last=5))
    assert all(one.check(chunk).is_valid for chunk in chunks[6:])
    assert (
        one.check(dataclasses.replace(chunks[7], token_id=1)).error_type is ValidationError.CHECKSUM
    )
    result = one.finish(held=(len(IDS), digest_of(IDS)))
    assert (result.error_type, result.position) == (ValidationError.NOT_LOOKED_AT, 3)
    values = {sample.name: sample.value for sample in metrics.samples()}
    assert values["integrity_unvalidated_total"] == 3
    assert values["integrity_failures_total"] == 1
