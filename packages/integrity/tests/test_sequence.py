"""Positions, epochs and digests of a stream, at both of its ends."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankproof_integrity.problem import OutOfStep
from rankproof_integrity.records import EnhancedTokenChunk, RecoveryAction, ValidationError
from rankproof_integrity.sequence import SequenceIntegrityChecker

IDS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40)


def chunk(token_id: int, position: int, *, epoch: int = 0, stream: str = "") -> EnhancedTokenChunk:
    return EnhancedTokenChunk.sealed(
        token_id=token_id,
        sequence_position=position,
        source_device_rank=0,
        epoch=epoch,
        stream=stream,
    )


def holding(ids: list[int], stream: str = "") -> SequenceIntegrityChecker:
    made = SequenceIntegrityChecker(stream=stream)
    for one in ids:
        made.append(one)
    return made


@given(IDS, st.data())
def test_any_order_of_arrival_ends_in_order_or_names_what_is_missing(
    ids: list[int], data: st.DataObject
) -> None:
    """Chunks lost, doubled and mixed: what is taken is a prefix of what was sent, and all else is
    named.
    """
    positions = data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=80))
    receiver = SequenceIntegrityChecker()
    for position in positions:
        due = receiver.position
        result = receiver.check(chunk(ids[position], position))
        assert receiver.ids == ids[: receiver.position]
        if position == due:
            assert result.is_valid
        elif position > due:
            assert (result.error_type, result.position) == (ValidationError.GAP, due)
        else:
            assert (result.error_type, result.suggested_action) == (
                ValidationError.DUPLICATE,
                RecoveryAction.DISCARD,
            )
    assert receiver.digest == holding(ids).digest_at(receiver.position)
    agreed = receiver.agree(length=len(ids), digest=holding(ids).digest)
    assert agreed.is_valid is (receiver.position == len(ids))
    assert agreed.is_valid or agreed.position == receiver.position


@given(IDS, IDS)
def test_the_first_difference_is_found_by_halves(here: list[int], there: list[int]) -> None:
    """Two ends find the first position they differ at, by digests alone, in as many questions as it
    has bits.
    """
    there = here[: len(there) // 2] + there
    asked = []
    other = holding(there)

    def ask(length: int) -> int:
        asked.append(length)
        return other.digest_at(length)

    least = min(len(here), len(there))
    first = next(
        (at for at in range(least) if here[at] != there[at]), None if here == there else least
    )
    assert holding(here).first_difference(ask, length=len(there)) == first
    assert len(asked) <= 3 + least.bit_length()


@given(IDS, st.data())
def test_one_changed_id_is_another_digest_for_ever(ids: list[int], data: st.DataObject) -> None:
    """One bit of one id: every digest behind it differs, and none before it."""
    at, bit = data.draw(st.integers(0, len(ids) - 1)), data.draw(st.integers(0, 62))
    changed = list(ids)
    changed[at] ^= 1 << bit
    one, other = holding(ids), holding(changed)
    same = [one.digest_at(length) == other.digest_at(length) for length in range(len(ids) + 1)]
    assert same == [length <= at for length in range(len(ids) + 1)]
    result = other.agree(length=len(ids), digest=one.digest)
    assert result.error_type is ValidationError.DIGEST


def test_a_conflict_is_not_a_duplicate() -> None:
    """The same position with another id is a conflict, and changes nothing."""
    receiver = holding([1, 2, 3])
    result = receiver.check(chunk(9, 1))
    assert (result.error_type, result.position) == (ValidationError.CONFLICT, 1)
    assert receiver.ids == [1, 2, 3]


def test_an_epoch_goes_on_where_the_ids_are_held() -> None:
    """After a restart stale chunks are told from new ones, and the digest is that of the ids,
    whoever made them.
    """
    receiver = holding([1, 2, 3, 4])
    assert receiver.check(chunk(5, 4, epoch=1)).error_type is ValidationError.UNKNOWN_EPOCH
    receiver.begin(epoch=1, position=2)
    assert receiver.check(chunk(3, 2)).error_type is ValidationError.STALE_EPOCH
    assert receiver.check(chunk(3, 2, epoch=1)).is_valid
    assert receiver.digest == holding([1, 2, 3]).digest
    for epoch, position in ((1, 0), (2, 4), (2, -1)):
        with pytest.raises(OutOfStep):
            receiver.begin(epoch=epoch, position=position)


def test_streams_are_not_mixed() -> None:
    """A chunk of another stream is named, and the chains of two streams never agree."""
    receiver = holding([1], "a")
    assert receiver.check(chunk(2, 1, stream="b")).error_type is ValidationError.ANOTHER_STREAM
    assert not receiver.agree(length=1, digest=holding([1], "b").digest).is_valid
    with pytest.raises(OutOfStep, match="begins differently"):
        receiver.first_difference(holding([1], "b").digest_at, length=1)


def test_what_is_not_an_id_is_not_chained() -> None:
    """A float, a truth value, or more than 64 bits is named, and nothing is taken."""
    receiver = SequenceIntegrityChecker()
    for wrong in (1.5, True, 2**63):
        result = receiver.check(dataclasses.replace(chunk(1, 0), token_id=wrong))  # type: ignore[arg-type]
        assert result.error_type is ValidationError.NOT_AN_INTEGER
    assert receiver.position == 0
    with pytest.raises(OverflowError):
        receiver.append(2**63)
    assert receiver.position == 0
