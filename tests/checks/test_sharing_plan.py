"""`shards-cover` by a plan: what the reference says is whole lies on every rank, and all else is
shared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check
from harness.checks.shards_cover import ShardsCoverCheck
from harness.reason import VerdictCode
from tests.checks.test_shards import Event, checkpoint, shard
from tests.checks.worlds import Reference, history, judged

ENGINE = "hf-tensor"
CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)
# By the list alone anything may lie twice: by a plan it is not asked.
BY_PLAN = {"kind": "shards-cover", "plan": "reference", "replicated": ["*e*", "*a*", "*w*"]}
EXPERTS = np.arange(24, dtype="float32").reshape(4, 6)
TENSORS = {
    "embed": EXPERTS + 1,
    "layers.0.attn": EXPERTS + 2,
    "layers.0.bias": np.ones(6, "float32"),
}
TENSORS |= {"layers.0.experts": EXPERTS}
WHOLE = ("layers.0.attn", "layers.0.bias")
READY: Event = ("engine.ready", {"engine": ENGINE})


def piece(name: str, rows: tuple[int, int] | None = None) -> Event:
    """A rank holds these rows of a tensor, or all of it."""
    array = TENSORS[name]
    return shard(
        name,
        array,
        *([rows] if rows else [(0, array.shape[0])]),
        *[(0, size) for size in array.shape[1:]],
    )


UPPER, LOWER = (0, 2), (2, 4)
ATTENTION, BIAS = piece("layers.0.attn"), piece("layers.0.bias")


def rank(rows: tuple[int, int]) -> list[Event]:
    """What a rank says that holds what the plan leaves whole, and these rows of the rest."""
    return [READY, ATTENTION, BIAS, piece("embed", rows), piece("layers.0.experts", rows)]


def plan(*whole: str, engine: str = ENGINE, says: int | None = None) -> list[Event]:
    """What a reference says of a plan."""
    told: list[Event] = [("plan.whole", {"engine": engine, "tensor": name}) for name in whole]
    count = len(whole) if says is None else says
    return [
        *told,
        ("plan", {"engine": engine, "rules": {}, "whole": count, "shared": len(TENSORS) - count}),
    ]


def covered(
    *said: list[Event], told: list[Event] | None = None, check: dict[str, Any] = BY_PLAN
) -> list[str]:
    """Why each rank fails; empty where it does not."""
    reference = Reference()
    reference.kept = {"checkpoint": checkpoint(**TENSORS)}
    reference.events = plan(*WHOLE) if told is None else told
    return [
        part.reason for part in judged(check, reference, [{}] * len(said), said=list(said)).ranks
    ]


def test_what_a_plan_leaves_whole_lies_on_every_rank() -> None:
    """No pattern names it, and in a world of one there is nobody to share with."""
    assert covered(rank(UPPER), rank(LOWER)) == ["", ""]
    assert covered(rank((0, 4))) == [""]
    listed = {"kind": "shards-cover", "replicated": ["*bias"]}
    assert all(
        "layers.0.attn is on ranks" in why
        for why in covered(rank(UPPER), rank(LOWER), check=listed)
    )


def test_what_a_plan_shares_lies_nowhere_twice() -> None:
    """A rank that keeps it whole, all that do, a slice that is told twice, one on no rank: whatever
    is listed.
    """
    whole = rank((0, 4))
    assert all("embed is on ranks 0, 1" in why for why in covered(whole, whole))
    keeps = [*rank(UPPER)[:-1], piece("layers.0.experts")]
    assert all("layers.0.experts is on ranks 0, 1" in why for why in covered(keeps, rank(LOWER)))
    assert (
        "layers.0.experts is on rank 0 twice"
        in covered([*rank(UPPER), rank(UPPER)[-1]], rank(LOWER))[0]
    )
    assert all(
        "12 of 24 elements of layers.0.experts" in why
        for why in covered(rank(UPPER), rank(LOWER)[:-1])
    )


def test_a_rank_lacks_nothing_that_is_whole() -> None:
    """Not on one rank and not in part; twice is not once either."""
    why = "it does not have all of layers.0.attn once, which the plan of hf-tensor does not split"
    lacks = [one for one in rank(LOWER) if one is not ATTENTION]
    assert covered(rank(UPPER), lacks) == ["", why]
    assert covered(rank(UPPER), [*lacks, piece("layers.0.attn", UPPER)]) == ["", why]
    assert covered([*rank(UPPER), ATTENTION], rank(LOWER)) == [why, ""]


def test_a_plan_that_shares_nothing_of_a_layer_is_none() -> None:
    """All whole, all but the embedding, or but a vector: nothing that layers multiply by is
    shared.
    """
    nothing = "it has no part of any matrix that the plan of hf-tensor splits within a layer"
    every = [READY, *(piece(name) for name in TENSORS)]
    assert covered(every, every, told=plan(*TENSORS)) == [nothing, nothing]
    halves = [
        [READY, ATTENTION, BIAS, piece("layers.0.experts"), piece("embed", rows)]
        for rows in (UPPER, LOWER)
    ]
    assert covered(*halves, told=plan(*WHOLE, "layers.0.experts")) == [nothing, nothing]
    biases = [
        [
            READY,
            ATTENTION,
            piece("layers.0.experts"),
            piece("embed", rows),
            piece("layers.0.bias", some),
        ]
        for rows, some in ((UPPER, (0, 3)), (LOWER, (3, 6)))
    ]
    assert covered(*biases, told=plan("layers.0.attn", "layers.0.experts")) == [nothing, nothing]
    # One rank has all of what is shared within layers, and the other one its half of the embedding.
    alone = [[*rank(UPPER)[:-1], piece("layers.0.experts")], rank(LOWER)[:-1]]
    assert covered(*alone) == ["", nothing]


def test_a_plan_that_is_told_too_wide_or_too_narrow_is_wrong_of_ranks_that_share() -> None:
    """Whoever widens it has to have ranks that hold all of that."""
    wide = (
        "it does not have all of layers.0.experts once, which the plan of hf-tensor does not split"
    )
    assert covered(rank(UPPER), rank(LOWER), told=plan(*WHOLE, "layers.0.experts")) == [wide, wide]
    assert all(
        "attn is on ranks" in why
        for why in covered(rank(UPPER), rank(LOWER), told=plan("layers.0.bias"))
    )
    says = (
        "the hf-tensor plan that the reference reported states a tensor count that does not"
        " match its list of tensors"
    )
    for told in (
        plan(*WHOLE, "embed", says=2),
        plan(*WHOLE, WHOLE[0]),
        plan(*WHOLE)[:-1],
        [*plan(*WHOLE), *plan()],
        [*plan(*WHOLE, says=3), ("plan.whole", {"engine": ENGINE, "tensor": ["embed"]})],
    ):
        assert covered(rank(UPPER), rank(LOWER), told=told) == [says, says]


def test_a_plan_is_that_of_the_engine_that_all_ranks_are() -> None:
    """No rank says alone that it is another.

    Of an engine of which no plan was told the list holds.
    """
    other: Event = ("engine.ready", {"engine": "hf-pipeline"})
    mixed = covered(rank(UPPER), [other, *rank(LOWER)[1:]])
    assert mixed == ["ranks report different engines: hf-pipeline, hf-tensor"] * 2
    assert "different engines: None" in covered(rank(UPPER), rank(LOWER)[1:])[0]
    listed = {**BY_PLAN, "replicated": ["layers.0.attn"]}
    stages = covered([other, *rank(UPPER)[1:]], [other, *rank(LOWER)[1:]], check=listed)
    assert all("layers.0.bias is on ranks" in why for why in stages)
    assert all(
        "bias is on ranks" in why
        for why in covered(rank(UPPER), rank(LOWER), told=[], check=listed)
    )
    strange = [("engine.ready", {"engine": [ENGINE]}), *rank(UPPER)[1:]]
    assert "different engines" in covered(strange, rank(LOWER))[0]


@pytest.mark.parametrize(("asked", "doubted"), [("reference", True), (None, False)])
def test_a_reference_tells_one_plan(asked: str | None, doubted: bool) -> None:
    """Told otherwise in its second run, nobody knows what ranks should hold."""
    check = CHECK.validate_python(
        {**BY_PLAN, "id": "it", "ranks": "every", "against": "reference", "plan": asked}
    )
    assert isinstance(check, ShardsCoverCheck)
    first = history([{}], [plan(*WHOLE)])
    assert list(check.doubts(history([{}], [plan(*WHOLE)], reference=first))) == []
    second = history([{}], [plan(*WHOLE, "embed")], reference=first)
    codes = [code for code, _ in check.doubts(second)]
    assert codes == ([VerdictCode.REFERENCE_DIFFERS] if doubted else [])
