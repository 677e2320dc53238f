"""Ids against their vocabulary: by themselves, in sequences, and in arrays of every library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from damage import tokenizer
from rankproof_integrity.problem import Misused
from rankproof_integrity.records import UNCHECKED, VALID, EnhancedTokenChunk, ValidationError
from rankproof_integrity.token_validator import SpecialPlace, TokenValidator

BEGIN, END, PAD, HOLE = 0, 1, 2, 7
PLACES = {BEGIN: SpecialPlace.FIRST, END: SpecialPlace.LAST, PAD: SpecialPlace.NOWHERE}
VALIDATOR = TokenValidator(vocabulary=100, unassigned=[HOLE], special=PLACES, longest=50)
IDS = st.lists(
    st.integers(-3, 110) | st.sampled_from([BEGIN, END, PAD, HOLE, 2**31, -(2**63)]), max_size=60
)


def expected(ids: list[int], start: int) -> list[tuple[int, ValidationError]]:
    """The rules, one after the other, as slowly as can be."""
    found = []
    for position, one in enumerate(ids, start):
        if not 0 <= one < 100:
            found.append((position, ValidationError.OUT_OF_VOCABULARY))
        elif one == HOLE:
            found.append((position, ValidationError.UNASSIGNED))
        elif position >= 50:
            found.append((position, ValidationError.TOO_LONG))
        elif one == PAD or (one == BEGIN and position):
            found.append((position, ValidationError.SPECIAL_OUT_OF_PLACE))
    ends = [at for at, one in enumerate(ids) if one == END and at + start < 50]
    if ends and ends[0] + 1 < len(ids):
        found.append((start + ends[0] + 1, ValidationError.AFTER_END))
    return found


@example([5] * 3, 48)
@example([END, 5], 50)
@given(IDS, st.integers(0, 55))
def test_ids_are_judged_as_the_rules_say(ids: list[int], start: int) -> None:
    """A list, and the same as an array, get exactly the failures that the rules give them."""
    rows = expected(ids, start)
    for given_as in (ids, np.array(ids, dtype=np.int64)):
        result = VALIDATOR.validate_ids(given_as, start=start)
        assert [(one.position, one.error_type) for one in result.failures] == rows
        assert result.is_valid is (not rows and bool(ids))


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None, np.float32(3), np.bool_(True)])
def test_what_is_not_an_integer_is_not_an_id(wrong: Any) -> None:
    """A truth value, a float, a text: none of them is an id, however close."""
    result = VALIDATOR.validate_id(wrong)
    assert result.error_type is ValidationError.NOT_AN_INTEGER
    assert not VALIDATOR.validate_ids([5, wrong, 6]).is_valid


@pytest.mark.slow
def test_arrays_of_each_library_are_taken() -> None:
    """Tensors of torch and of MLX are judged like lists.

    One of floats, or of two dimensions, is refused.
    """
    torch = pytest.importorskip("torch")
    mlx = pytest.importorskip("mlx.core")
    for array in (
        torch.tensor([5, 99, 100]),
        mlx.array([5, 99, 100]),
        np.array([5, 99, 100], dtype=np.uint16),
    ):
        (failure,) = VALIDATOR.validate_ids(array).failures
        assert (failure.position, failure.error_type) == (2, ValidationError.OUT_OF_VOCABULARY)
    assert VALIDATOR.validate_id(torch.tensor(99)) is VALID
    ended = torch.tensor([BEGIN, 5, END, 6])
    for ids in (ended, list(ended)):
        (failure,) = VALIDATOR.validate_ids(ids).failures
        assert (failure.position, failure.error_type) == (3, ValidationError.AFTER_END)
    (failure,) = VALIDATOR.validate_ids(torch.tensor([5.0])).failures
    assert failure.error_type is ValidationError.NOT_AN_INTEGER
    with pytest.raises(Misused, match="one-dimensional array"):
        VALIDATOR.validate_ids(torch.zeros(2, 2, dtype=torch.int64))


def test_a_chunk_behind_the_last_one_is_named() -> None:
    """Nothing may stand behind the id that ends a stream; of no chunks at all nothing is valid."""
    ids = [BEGIN, 5, END, 6]
    chunks = [
        EnhancedTokenChunk.sealed(token_id=one, sequence_position=at, source_device_rank=0)
        for at, one in enumerate(ids)
    ]
    result = VALIDATOR.validate_sequence(chunks)
    assert [(one.position, one.error_type) for one in result.failures] == [
        (3, ValidationError.AFTER_END)
    ]
    assert VALIDATOR.validate_sequence(chunks[:3]).is_valid
    assert not VALIDATOR.validate_sequence([]).is_valid


def test_a_tokenizers_own_ids_are_its_vocabulary() -> None:
    """Made of a tokenizer, the validator knows its last id and no further one."""
    made = TokenValidator.of(tokenizer())
    assert made.validate_ids([0, 527]).is_valid
    assert made.validate_id(528).error_type is ValidationError.OUT_OF_VOCABULARY


@pytest.mark.parametrize(
    "wrong",
    [{"vocabulary": 0}, {"vocabulary": 5, "unassigned": [5]}, {"vocabulary": 5, "longest": 0}],
)
def test_a_vocabulary_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    """A validator that could find nothing, or knows of ids that are not there, is a slip of whoever
    makes it.
    """
    with pytest.raises(Misused):
        TokenValidator(**wrong)


def test_a_result_is_not_a_truth_value() -> None:
    """`if result:` would be true of every failure; it is an error instead."""
    with pytest.raises(TypeError, match="is_valid"):
        bool(VALIDATOR.validate_id(-1))


def test_confidence_is_in_facts_that_were_checked() -> None:
    """A fact holds or does not, so the score is whole; of what nobody looked at it is nothing."""
    scores = [VALIDATOR.validate_id(5), VALIDATOR.validate_id(-1), UNCHECKED]
    assert [result.confidence_score for result in scores] == [1.0, 1.0, 0.0]


def test_ids_that_can_only_be_gone_through_are_judged_alike() -> None:
    """A view of keys has a length and an order, and no places."""
    ids = {10: "", END: "", 11: ""}.keys()
    found = VALIDATOR.validate_ids(ids)
    assert [result.error_type for result in found.failures] == [ValidationError.AFTER_END]
