"""Tokens without texts: the same bytes as chunks have, and nothing else is taken for the one that
is due.
"""

from __future__ import annotations

import pytest

from rankproof_integrity import (
    BareTokens,
    EnhancedTokenChunk,
    MessageCorrupt,
    OutOfStep,
    TokenValidator,
    chunk_bytes,
    chunk_of,
)


def tokens(stream: str = "3", maker: int = 1, epoch: int = 0) -> BareTokens:
    return BareTokens(
        tokens=TokenValidator(vocabulary=1000), maker=maker, stream=stream, epoch=epoch
    )


def test_both_ends_hold_the_same_ids_and_a_chunk_is_what_was_sent() -> None:
    """What is made is a chunk with its checksum, as any receiver of chunks takes it.

    Both ends chain the same ids.
    """
    here, there = tokens(), tokens()
    for at, token in enumerate([7, 999, 0, 40]):
        made = here.made(token)
        chunk = chunk_of(made)
        assert (
            chunk.token_id,
            chunk.sequence_position,
            chunk.source_device_rank,
            chunk.stream,
        ) == (token, at, 1, "3")
        assert made == chunk_bytes(chunk)
        assert chunk == EnhancedTokenChunk(
            token_id=token,
            sequence_position=at,
            source_device_rank=1,
            stream="3",
            checksum=chunk.checksum,
        )
        assert there.taken(memoryview(made)) == token
    assert there.sequence.ids == [7, 999, 0, 40]
    assert there.sequence.agree(length=4, digest=here.sequence.digest).is_valid


def test_each_flipped_bit_is_refused_and_nothing_is_taken() -> None:
    """Whichever bit of a message changed, it is an error, and the one that was sent is taken
    still.
    """
    there = tokens()
    made = tokens().made(7)
    for bit in range(8 * len(made)):
        changed = bytearray(made)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((MessageCorrupt, OutOfStep)):
            there.taken(changed)
    assert there.taken(made) == 7


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (tokens(stream="4").made(7), "a chunk of stream '4' arrived at stream '3'"),
        (tokens(stream="44").made(7), "a chunk of stream '44' arrived at stream '3'"),
        (tokens(epoch=1).made(7), "a chunk of epoch 1 arrived in epoch 0"),
        (tokens(maker=2).made(7), "rank 2 created the token at position 0, not rank 1"),
        (tokens().made(7)[:-1], "is not a token"),
        (b"", "is not a token"),
    ],
)
def test_another_token_than_is_due_is_said(made: bytes, words: str) -> None:
    """A token of another stream, epoch or maker, or what is none, is whole in itself and is not
    taken.
    """
    there = tokens()
    with pytest.raises((MessageCorrupt, OutOfStep), match=words):
        there.taken(made)
    assert there.sequence.position == 0


def test_one_that_is_lost_doubled_or_of_no_vocabulary_is_said() -> None:
    """A gap, a copy and an id out of range, at either end."""
    here, there = tokens(), tokens()
    first, second = here.made(1), here.made(2)
    with pytest.raises(
        OutOfStep,
        match="position 0 from rank 1 is not valid: position 1 arrived, but position 0 did not",
    ):
        there.taken(second)
    assert there.taken(first) == 1
    with pytest.raises(OutOfStep, match="position 0 arrived again"):
        there.taken(first)
    with pytest.raises(OutOfStep, match="id 1000 at position 2 is not in this vocabulary"):
        here.made(1000)
    wide = BareTokens(tokens=TokenValidator(vocabulary=5000), maker=1, stream="3")
    wide.made(1)
    with pytest.raises(OutOfStep, match="id 1000 at position 1 is not in this vocabulary"):
        there.taken(wide.made(1000))
    assert there.taken(second) == 2
