"""`shards-cover` and `influence`: a run that split nothing, or whose ranks do nothing, does not
pass.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from tests.checks.worlds import Reference, judged

ROWS = np.arange(24, dtype="float32").reshape(4, 6)
NORM = np.ones(6, "float32")
COVER = {"kind": "shards-cover", "replicated": ["norm"]}
Event = tuple[str, dict[str, Any]]


def checkpoint(**arrays: Any) -> bytes:
    """A safetensors file."""
    header, data = {}, b""
    for name, array in arrays.items():
        place = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": place}
        data += array.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def shard(tensor: str, array: Any, *bounds: tuple[int, int]) -> Event:
    """What a rank says of a slice that it loaded."""
    part = array[tuple(slice(*one) for one in bounds)]
    digest = hashlib.sha256(np.ascontiguousarray(part).tobytes()).hexdigest()
    return "shard", {"tensor": tensor, "slices": [list(one) for one in bounds], "sha256": digest}


WHOLE_NORM = shard("norm", NORM, (0, 6))
LEFT, RIGHT = shard("w", ROWS, (0, 4), (0, 3)), shard("w", ROWS, (0, 4), (3, 6))
UPPER, LOWER = shard("w", ROWS, (0, 2), (0, 6)), shard("w", ROWS, (2, 4), (0, 6))


def covered(*said: list[Event], **more: Any) -> list[str]:
    """Why each rank fails; empty where it does not."""
    reference = Reference()
    reference.kept = {"checkpoint": checkpoint(w=ROWS, norm=NORM)}
    return [
        part.reason
        for part in judged(COVER, reference, [{}] * len(said), said=list(said), **more).ranks
    ]


@pytest.mark.parametrize("halves", [(LEFT, RIGHT), (UPPER, LOWER)])
def test_slices_that_cover_the_checkpoint_pass(halves: tuple[Event, Event]) -> None:
    """By rows or by columns, with what may be replicated on both ranks.

    And all of it in a world of one.
    """
    assert covered([halves[0], WHOLE_NORM], [halves[1], WHOLE_NORM]) == ["", ""]
    assert covered([*halves, WHOLE_NORM]) == [""]


def test_what_is_twice_missing_or_elsewhere_is_named() -> None:
    """The whole model on every rank, a slice on two, one on none, other bytes, a slice that cannot
    be.
    """
    whole = shard("w", ROWS, (0, 4), (0, 6))
    assert all(
        "w is on ranks 0, 1" in why for why in covered([whole, WHOLE_NORM], [whole, WHOLE_NORM])
    )
    three = covered([whole, WHOLE_NORM], [WHOLE_NORM], [whole, WHOLE_NORM], [UPPER, WHOLE_NORM])
    assert [why.startswith("w is on ranks 0, 2, 3 (") for why in three] == [
        True,
        False,
        True,
        True,
    ]
    assert covered([whole, WHOLE_NORM], [WHOLE_NORM]) == [
        "",
        "everything that it has is also on another rank",
    ]
    assert covered([whole, WHOLE_NORM], [])[1] == "it reported no shards"
    assert covered([LEFT, WHOLE_NORM], [UPPER, WHOLE_NORM])[1].startswith(
        "w is on ranks 0, 1 ([0:4, 0:3] and [0:2"
    )
    assert covered([LEFT, WHOLE_NORM], [WHOLE_NORM])[0] == "12 of 24 elements of w are on no rank"
    assert (
        "differ from the checkpoint"
        in covered([LEFT, WHOLE_NORM], [shard("w", ROWS + 1, (0, 4), (3, 6)), WHOLE_NORM])[1]
    )
    outside = ("shard", {**RIGHT[1], "slices": [[0, 4], [3, 7]]})
    assert "is outside the tensor" in covered([LEFT, WHOLE_NORM], [outside, WHOLE_NORM])[1]
    assert (
        "has no tensor v"
        in covered([LEFT, WHOLE_NORM], [("shard", {**RIGHT[1], "tensor": "v"}), WHOLE_NORM])[1]
    )
    assert (
        "is not valid" in covered([LEFT, WHOLE_NORM], [("shard", {**RIGHT[1], "slices": None})])[1]
    )


def test_a_forged_digest_of_the_account_passes_nobody() -> None:
    """Without the account, or with one of no file, nothing is covered."""

    def emptied(values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "account": {"shapes": {}, "slices": {}}}

    assert all(covered([LEFT, WHOLE_NORM], [RIGHT, WHOLE_NORM], change=emptied))


def influences(
    moves: dict[tuple[int, int], float],
    *,
    said: Any = None,
    size: int = 2,
    silent: tuple[int, ...] = (),
) -> list[str]:
    """Why each rank has no influence: by how much the logits of `seen` move when the share of
    `changed` is changed.
    """
    reference = Reference()
    kept = []
    for seen in range(size):
        own = {} if seen in silent else dict(reference.answer)
        for (changed, by), distance in moves.items():
            if by == seen:
                own[f"influence.{changed}.prefill.logits.0"] = reference.answer[
                    "prefill.logits.0"
                ] + np.float32(distance)
        kept.append(own)
    told = said or [[("perturbed", {"number": rank})] for rank in range(size)]
    return [part.reason for part in judged({"kind": "influence"}, reference, kept, said=told).ranks]


def test_a_share_that_moves_the_others_takes_part() -> None:
    """On every other rank that has logits, by more than noise.

    Where one rank alone has logits, by its own too.
    """
    every = {(changed, seen): 0.5 + changed for changed in (0, 1) for seen in (0, 1)}
    assert influences(every) == ["", ""]
    assert influences({(0, 1): 0.5, (1, 1): 0.6}, silent=(0,)) == ["", ""]


def test_passes_with_the_same_bits_show_the_influence_of_nobody() -> None:
    """Where every rank changes its share in every pass, and says so in its own, whole models would
    pass.
    """
    every = {(changed, seen): 0.5 for changed in (0, 1) for seen in (0, 1)}
    why = "but each pass must change the shard of a different rank"
    assert influences(every) == [
        f"rank 1 kept bit-identical logits in passes 0 and 1, {why}",
        f"rank 0 kept bit-identical logits in passes 1 and 0, {why}",
    ]


def test_whole_models_side_by_side_have_no_influence_on_each_other() -> None:
    """Each moves its own logits and nobody else's.

    Noise alone is not influence, nor is NaN, nor a pass nobody kept.
    """
    own = {(0, 0): 0.5, (1, 1): 0.5, (0, 1): 0.0, (1, 0): 0.0}
    assert (
        influences(own)[0]
        == "it has no influence: with its shard changed, the logits of rank 1 did not move"
    )
    assert all("times the noise" in why for why in influences({**own, (0, 1): 1e-7, (1, 0): 1e-7}))
    assert "not finite" in influences({**own, (0, 1): np.nan})[0]
    assert influences({(0, 1): 0.5})[1] == "rank 0 kept no influence.1.prefill.logits"


def test_a_share_has_to_be_changed_alone() -> None:
    """Where another rank changed its share too, or nobody says that it did, nothing is shown."""
    every = {(changed, seen): 0.5 + changed for changed in (0, 1) for seen in (0, 1)}
    both = [[("perturbed", {"number": 0}), ("perturbed", {"number": 1})]] * 2
    assert (
        influences(every, said=both)[0]
        == "in pass 0 only its shard may be changed, but ranks 0, 1 changed their shards"
    )
    assert "no rank changed its shard" in influences(every, said=[[], []])[0]
