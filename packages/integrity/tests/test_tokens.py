"""Tokens on their way, the stages of a stream, the lines of a group, tensors with a seal, and
timeouts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import threading
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankproof_integrity
from rankproof_integrity import (
    DeviceCommunicationManager,
    EnhancedTokenChunk,
    MemoryStore,
    MessageCorrupt,
    MessageLate,
    Misused,
    OutOfStep,
    TokenStreamSynchronizer,
    TokenTransferValidator,
    chunk_bytes,
    chunk_of,
    disorder,
    frame,
)
from rankproof_integrity.digest import digest
from rankproof_integrity.link import Pace, RoundTrip
from rankproof_integrity.records import ValidationStatus
from rankproof_integrity.tensors import _Seals


def chunk(position: int = 0, **others: object) -> EnhancedTokenChunk:
    return EnhancedTokenChunk.sealed(
        **{
            "token_id": 7,
            "text": "é",
            "stream": "s",
            "sequence_position": position,
            "source_device_rank": 0,
        }
        | others
    )


def test_every_name_of_the_design_is_there() -> None:
    """What the package says that it exports can be had, each from its own module."""
    assert all(getattr(rankproof_integrity, name) for name in rankproof_integrity.__all__)


# With halves of surrogate pairs: whether a text is well formed is not for the message to judge.
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=12)


class SetBack(tzinfo):
    """A zone whose clocks are just set back by an hour: Python calls none of its times equal to one
    in UTC.
    """

    def utcoffset(self, time: datetime | None) -> timedelta:
        return timedelta(hours=1 if time is not None and time.fold else 2)

    def dst(self, time: datetime | None) -> timedelta:
        return self.utcoffset(time) - timedelta(hours=1)


ZONES = st.sampled_from(
    [UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=11.5)), SetBack()]
)
# In UTC too they are in the years that Python knows.
TIMES = st.none() | st.datetimes(timezones=ZONES).filter(lambda time: 1 < time.year < 9999)


@given(
    st.builds(
        EnhancedTokenChunk,
        token_id=st.integers(-(2**63), 2**63 - 1),
        text=TEXTS,
        stream=TEXTS,
        finish_reason=st.none() | TEXTS,
        sequence_position=st.integers(0, 2**64 - 1),
        source_device_rank=st.integers(0, 2**32 - 1),
        epoch=st.integers(0, 2**32 - 1),
        generation_timestamp=TIMES,
    )
)
def test_a_token_comes_as_it_was_sent(chunk: EnhancedTokenChunk) -> None:
    """Every field of any chunk survives being bytes: its time too, in whatever zone it was
    stated.
    """
    sent = dataclasses.replace(chunk, checksum=chunk.computed_checksum())
    came = chunk_of(chunk_bytes(sent))
    assert came == sent
    assert chunk_bytes(came) == chunk_bytes(sent)
    assert came.validation_status is sent.validation_status is ValidationStatus.VALID
    assert TokenTransferValidator().validate_transfer(sent, came)


def test_a_token_carries_the_time_at_which_it_was_made() -> None:
    """The receiver reads its maker's clock; another time is another token."""
    before = datetime.now(UTC)
    sent = chunk()
    came = chunk_of(chunk_bytes(sent))
    assert came.generation_timestamp is not None
    assert before <= came.generation_timestamp <= datetime.now(UTC)
    later = dataclasses.replace(
        sent, generation_timestamp=came.generation_timestamp + timedelta(microseconds=1)
    )
    assert later.validation_status is ValidationStatus.CORRUPT
    assert not TokenTransferValidator().validate_transfer(sent, later)
    with pytest.raises(Misused, match="changed after it was created"):
        chunk_bytes(later)


def test_a_time_without_a_zone_is_refused() -> None:
    """It would be another instant on another machine."""
    with pytest.raises(ValueError, match="has no time zone"):
        dataclasses.replace(chunk(), generation_timestamp=datetime(2026, 1, 3))  # noqa: DTZ001


def test_the_status_of_a_token_follows_from_its_checksum() -> None:
    """Valid as it was made, corrupt once it was changed, unchecked without a checksum."""
    for changed, status in (
        ({}, ValidationStatus.VALID),
        ({"text": "e"}, ValidationStatus.CORRUPT),
        ({"checksum": ""}, ValidationStatus.UNCHECKED),
    ):
        assert dataclasses.replace(chunk(), **changed).validation_status is status


def test_each_bit_of_a_token_counts() -> None:
    """Whatever single bit of a token's bytes is flipped, it is refused.

    So is one that is cut or longer.
    """
    data = chunk_bytes(chunk(5, finish_reason="stop"))
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MessageCorrupt):
            chunk_of(changed)
    for wrong in (data[:-1], data + b"x", b""):
        with pytest.raises(MessageCorrupt):
            chunk_of(wrong)


def test_another_token_is_not_the_one_that_was_sent() -> None:
    """A token that is whole in itself but is not the one that was sent is told apart."""
    validator = TokenTransferValidator()
    assert not validator.validate_transfer(chunk(), chunk(token_id=8))
    forged = dataclasses.replace(chunk(), text="e")
    assert not validator.validate_transfer(forged, forged)


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_checksum_is_that_of_the_bytes(data: bytes, draw: st.DataObject) -> None:
    """The same bytes have the same one everywhere, and each bit counts."""
    checksum = TokenTransferValidator().compute_checksum
    assert checksum(b"hidden state") == "b3759154541e79c7"
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    assert checksum(bytearray(data)) == checksum(data) != checksum(changed)


def test_each_bit_of_a_frame_counts() -> None:
    """Of ten thousand frames with one flipped bit none passes, and of as many clean ones each
    does.
    """
    chance = random.Random(1)
    for _ in range(2000):
        payload = chance.randbytes(chance.randrange(300))
        header = frame.packed(
            kind=frame.Kind.DATA,
            epoch=1,
            toward=2,
            length=len(payload),
            payload_digest=digest(payload),
        )
        data = bytearray(header + payload)
        clean = frame.parsed(data)
        assert clean is not None
        assert frame.holds(clean, data[frame.SIZE :])
        for _ in range(5):
            bit = chance.randrange(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
            found = frame.parsed(data)
            assert found is None or not frame.holds(found, data[frame.SIZE :])
            data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([chunk(0), chunk(1)], None),
        ([], None),
        ([chunk(0), chunk(2)], "position 2 follows position 0"),
        ([chunk(1), chunk(1)], "position 1 follows position 1"),
        ([chunk(0), chunk(1, stream="t")], "stream 't'"),
        ([chunk(0, finish_reason="stop"), chunk(1)], "follows the last token"),
        ([chunk(0, epoch=2), chunk(1, epoch=1)], "epoch 1 of rank 0, which has ended"),
    ],
)
def test_the_first_disorder_is_said(tokens: list[EnhancedTokenChunk], words: str | None) -> None:
    """Tokens that follow each other are in order.

    A gap, a copy, another stream, an old epoch are said.
    """
    found = disorder(tokens)
    assert found is None if words is None else words in str(found)
    stage = TokenStreamSynchronizer(store=MemoryStore(), stream="s", stage=0, stages=1)
    assert asyncio.run(stage.verify_token_ordering(tokens)) is (words is None)


def test_a_stage_waits_for_the_one_before_and_for_the_last() -> None:
    """A stage goes on when the one before has handed on, and nobody is too far behind.

    Who is behind is said.
    """
    store = MemoryStore()
    first, last = (
        TokenStreamSynchronizer(store=store, stream="s", stage=n, stages=2, lead=2)
        for n in range(2)
    )
    assert last.look().waits_for == (0,)
    first.handed_on(0)
    assert last.look().may_go_on
    first.handed_on(1)
    found = first.look()
    assert (found.may_go_on, found.waits_for, found.behind) == (False, (1,), {1: 2})
    with pytest.raises(
        MessageLate, match=r"stage 0 of stream 's' waited .* at position 2 for stage 1 at 0"
    ):
        first.wait(timeout=0.01)
    with pytest.raises(OutOfStep, match="passed on position 3, but the next position is 0"):
        last.handed_on(3)
    TokenStreamSynchronizer(store=store, stream="s", stage=1, stages=2, epoch=2)
    with pytest.raises(OutOfStep, match=r"restarted \(epoch 2 after 1\).*resume"):
        first.look()
    first.resume(position=0)
    assert first.look().may_go_on


def test_ranks_find_each_other_and_hand_on_tokens() -> None:
    """Three ranks meet in a store, pass a barrier, and hand a token around the ring as it was
    made.
    """
    store = MemoryStore()
    found: dict[int, EnhancedTokenChunk] = {}

    def rank(own: int) -> None:
        with DeviceCommunicationManager(store=store, rank=own, world_size=3) as devices:
            devices.barrier().wait(timeout=20)
            devices.send_token(chunk(own, source_device_rank=own), to=(own + 1) % 3)
            found[own] = devices.receive_token(source=(own - 1) % 3)
            with pytest.raises(Misused, match="checksum is missing"):
                devices.send_token(dataclasses.replace(chunk(), checksum=""), to=(own + 1) % 3)
            devices.barrier("end").wait(timeout=20)
            assert {one.counted["damaged"] for one in devices.health()} == {0}

    threads = [threading.Thread(target=rank, args=(own,)) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {own: came.sequence_position for own, came in found.items()} == {0: 2, 1: 0, 2: 1}


def test_a_seal_holds_for_its_tensor_alone() -> None:
    """A changed byte, a changed seal, another tensor than the next and another epoch are each
    told.
    """
    data, other = b"tensor bytes", b"tensor bytez"
    sender = _Seals(rank=0, epoch=3)
    seals = [sender.seal(data, form=5, to=1) for _ in range(4)]
    receiver = _Seals(rank=1, epoch=3)
    receiver.check(data, seals[0], form=5, of=None, source=0)
    with pytest.raises(MessageCorrupt, match="tensor 1 from rank 0 to rank 1 changed in transit"):
        receiver.check(other, seals[1], form=5, of=None, source=0)
    with pytest.raises(MessageCorrupt, match="metadata of tensor 2"):
        receiver.check(
            data, [*seals[2][:3], seals[2][3] ^ 1, *seals[2][4:]], form=5, of=None, source=0
        )
    with pytest.raises(OutOfStep, match="tensor 0 of epoch 3 arrived"):
        receiver.check(data, seals[0], form=5, of=None, source=0)
    with pytest.raises(OutOfStep, match="epoch 4"):
        _Seals(rank=1, epoch=4).check(data, seals[0], form=5, of=None, source=0)


def test_a_time_out_follows_what_was_seen_within_its_bounds() -> None:
    """It grows with slow and uneven answers, shrinks with quick ones, doubles when in vain, and
    never leaves bounds.
    """
    seen = RoundTrip(shortest=0.05, longest=5.0)
    assert seen.timeout() == 1.0
    for _ in range(50):
        seen.sample(0.2)
    assert 0.2 <= seen.timeout() < 0.25
    assert seen.timeout(doubled=2) == pytest.approx(4 * seen.timeout())
    assert seen.timeout(doubled=30) == 5.0
    for _ in range(200):
        seen.sample(0.001)
    assert seen.timeout() == 0.05
    pace = Pace(shortest=0.1, longest=60)
    assert pace.timeout() == 60
    for seconds in (1.0, 3.0) * 20:
        pace.took(seconds)
    assert 3 < pace.timeout() < 12
