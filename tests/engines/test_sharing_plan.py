"""What a whole model tells of how its library shares it, beside what ranks that share it hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check
from harness.checks.shards_cover import ShardsCoverCheck, shards_of
from harness.engines.models import write
from harness.history import History
from harness.subjects import READY
from tests.engines.test_rehearsal import EXPERTS, SIZES, saved
from tests.engines.worlds import Worlds

CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)
BY_PLAN = {
    "id": "it",
    "kind": "shards-cover",
    "ranks": "every",
    "against": "reference",
    "plan": "reference",
}
ASKED = {"prompts": [[20, 21, 22]], "max_new_tokens": 1}
# Takes the place of a rank's entry: it loads, changes what it tells, and ends.
SLIP = """

@takes_a_request
def tensor(context, **asked):
    engine = Transformers(rank=context.rank, size=context.size, sharding="tensor", distributed={distributed})
    whole = Transformers(rank=0, size=1, sharding="single")
    shared = engine.pieces
    def pieces():
        held = list(shared())
        {slip}
        return held
    engine.pieces = pieces
    whole.load(context.inputs["model"], dtype="float32")
    of_all = {{one.tensor: one for one in whole.pieces()}}
    session._load(context, engine, Request(**asked))
    context.group.native.barrier()
"""
OTHERS = "if context.rank == 1: "
# How they call it, what is done, and what is said of each rank.
SLIPS = {
    "nothing is split": ("None", "pass", ["model.embed_tokens.weight is on ranks 0, 1 "] * 2),
    "one rank keeps a matrix": (
        "context.group.native",
        f"{OTHERS}held = [of_all[one.tensor] if 'experts' in one.tensor else one for one in held]",
        ["experts.gate_up_proj is on ranks 0, 1 "] * 2,
    ),
    "a slice twice": (
        "context.group.native",
        f"{OTHERS}held.append(next(one for one in held if 'experts' in one.tensor))",
        ["", "experts.gate_up_proj is on rank 1 twice "],
    ),
    "a slice is missing": (
        "context.group.native",
        f"{OTHERS}held.remove(next(one for one in held if 'experts' in one.tensor))",
        ["elements of model.layers.0.block_sparse_moe.experts.gate_up_proj are on no rank"] * 2,
    ),
    "a rank lacks what is whole": (
        "context.group.native",
        f"{OTHERS}held.remove(next(one for one in held if 'q_proj' in one.tensor))",
        ["", "it does not have all of model.layers.0.self_attn.q_proj.weight once"],
    ),
}


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    """One pool for all."""
    with Worlds() as found:
        yield found


def covered(ranks: History, reference: History) -> list[str]:
    """Why each rank fails; empty where it does not.

    The bytes are taken to be those of the checkpoint.
    """
    check = CHECK.validate_python(BY_PLAN)
    assert isinstance(check, ShardsCoverCheck)
    shapes: dict[str, Any] = {
        one.tensor: [end for _, end in one.bounds] for one in shards_of(reference, 0) or ()
    }
    told = [one for rank in range(ranks.size) for one in shards_of(ranks, rank) or ()]
    slices: dict[str, Any] = {
        f"{one.tensor}[{', '.join(f'{begin}:{end}' for begin, end in one.bounds)}]": one.sha256
        for one in told
    }
    history = History([seen.event for seen in ranks.seen], size=ranks.size, reference=reference)
    return [
        one.reason for one in check.judge_account(history, {"shapes": shapes, "slices": slices}, 1)
    ]


@pytest.fixture(scope="module")
def granite(worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, History]:
    """A model whose plan leaves attention whole, and its reference."""
    model = saved(
        "granitemoe",
        tmp_path_factory.mktemp("granite"),
        **SIZES | EXPERTS | {"num_hidden_layers": 1},
    )
    return model, worlds.run("hf-single", size=1, model=model, envelope="some", **ASKED)


@pytest.mark.long
def test_a_plan_that_leaves_attention_whole_is_what_ranks_hold(
    worlds: Worlds, granite: tuple[Path, History]
) -> None:
    """Healthy ranks of two and three hold to what the reference told, which names attention and no
    expert.
    """
    model, reference = granite
    whole = {value for value, _ in reference.values(0, "plan.whole", "tensor")}
    assert "model.layers.0.self_attn.q_proj.weight" in whole
    assert not any("experts" in str(name) or "embed" in str(name) for name in whole)
    for size in (2, 3):
        assert (
            covered(worlds.run("hf-tensor", size=size, model=model, **ASKED), reference)
            == [""] * size
        )


@pytest.mark.whole
@pytest.mark.parametrize("slip", SLIPS)
def test_what_a_rank_tells_against_the_plan_is_seen(
    worlds: Worlds, granite: tuple[Path, History], slip: str
) -> None:
    """A rank that keeps, doubles, loses or lacks something, and a world that splits nothing, by
    their own events.
    """
    model, reference = granite
    distributed, does, says = SLIPS[slip]
    subject = READY["hf-tensor"]
    files = dict(subject.files())
    name = next(one for one in files if one.endswith("/hf.py"))
    files[name] += SLIP.format(distributed=distributed, slip=does).encode()
    found = covered(worlds.run("hf-tensor", size=2, model=model, files=files, **ASKED), reference)
    assert [bool(why) for why in found] == [bool(why) for why in says], found
    assert all(word in why for word, why in zip(says, found, strict=True)), found


@pytest.mark.whole
def test_a_plan_of_mlx_is_what_ranks_hold(worlds: Worlds, tmp_path: Path) -> None:
    """Of experts with norms of queries and keys.

    Embedding, head, norms and routers lie on both ranks.
    """
    pytest.importorskip("mlx.core")
    model = write("qwen3-moe", tmp_path / "model")
    reference = worlds.run("mlx-single", size=1, model=model, envelope="some", **ASKED)
    assert covered(worlds.run("mlx-tensor", size=2, model=model, **ASKED), reference) == ["", ""]
