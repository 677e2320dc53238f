"""By how much a decoder chose: what is seen of routers, of indexers, and of what only looks like a
choice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn: Any = torch.nn

# After torch is known to be here.
from harness.checks.equivalent import EquivalentCheck, parity_of  # noqa: E402
from harness.engines.inference_inside.choices import Margins, Routers, margin  # noqa: E402
from tests.ladder.__main__ import doubt_of, say  # noqa: E402
from tests.ladder.sessions import CHECK, Worlds, judged  # noqa: E402

INF = float("inf")


class Chooser(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Chooses as it is told."""

    def __init__(self, choose: Any) -> None:
        super().__init__()
        self.choose = choose

    def forward(self, scores: Any) -> Any:
        self.choose(scores)
        return scores


def told(
    *choose: Any, steps: Any, batch: int = 1, tokens: int = 3, last: int = 3, routers: bool = True
) -> Any:
    """The margins of a model whose modules choose so among these scores, a step each."""
    model = nn.Sequential(*map(Chooser, choose))
    margins = Margins(model)

    class Config:
        num_experts, num_experts_per_tok = 4, 2

    watched = Routers(
        Config, ["model.layers.0.mlp.experts.0.up_proj.weight"], layers=(0, 1), margins=margins
    )
    margins.begin()
    for scores in steps:
        margins.step(batch, tokens, last=last)
        with watched:
            model(scores)
    found = margins.taken(routers=routers)
    return None if found is None else [[round(one, 4) for one in row] for row in found.tolist()]


ROWS = [[1.0, 4.0, 2.0, 3.5], [1.0, 2.0, 3.0, 4.0], [1.0, 9.0, 3.0, 3.0]]
OF_ROWS = [[1.5], [1.0], [0.0]]


def test_a_choice_is_one_where_somebody_asks_what_was_chosen() -> None:
    """The sum of the best two of a group is none.

    And what is taken of all, or ruled out by a mask, is none.
    """
    scores = torch.tensor(ROWS)
    assert told(lambda one: one.topk(2, -1).indices, steps=[scores]) == OF_ROWS
    assert told(lambda one: one.topk(2, dim=-1)[1], steps=[scores]) == OF_ROWS
    assert (
        told(lambda one: [best for best, where in [torch.topk(one, 2)]], steps=[scores]) == OF_ROWS
    )
    assert told(lambda one: one.topk(2)[0].sum(), steps=[scores]) is None
    assert told(lambda one: one.topk(2).values.sum(), steps=[scores]) is None
    assert told(lambda one: one.max(-1).values, steps=[scores]) is None
    assert told(lambda one: one.max(), steps=[scores]) is None
    assert told(lambda one: one.max(dim=-1, keepdim=True)[1], steps=[scores]) == [
        [0.5],
        [1.0],
        [6.0],
    ]
    assert told(lambda one: one.topk(4).indices, steps=[scores]) == [[INF]] * 3
    masked = scores.masked_fill(scores < 3, torch.finfo(scores.dtype).min)
    assert told(lambda one: one.topk(2).indices, steps=[masked]) == [[INF], [INF], [0.0]]


@pytest.mark.parametrize("by", ["tokens", "rows", "heads", "loop", "nothing"])
def test_margins_are_those_of_the_last_tokens(by: str) -> None:
    """Of a batch, of its last sequence, and of that what is no padding.

    Of several heads the least.
    """
    other, rows = torch.arange(12.0).reshape(3, 4) ** 2, torch.tensor(ROWS)
    both = torch.stack([other, rows])
    ways = {
        "tokens": lambda one: one.topk(2).indices,
        "rows": lambda one: one.reshape(6, 4).topk(2).indices,
        "heads": lambda one: torch.stack([one + 1, one * 2], 1).topk(2).indices,
        # As each position sees one more.
        "loop": lambda one: [
            row[: at + 2].topk(1, dim=0).indices for part in one for at, row in enumerate(part)
        ],
        "nothing": lambda one: one.reshape(6, 4)[:5].topk(2).indices,
    }
    expected = {"loop": [[1.0], [6.0]], "nothing": [[1.0], [1.0]]}.get(by, OF_ROWS[1:])
    assert told(ways[by], steps=[both], batch=2, tokens=3, last=2) == expected


def test_steps_are_told_together_and_routers_only_where_they_choose() -> None:
    """A choice that comes up later was none before; experts that are told are no choice."""

    def experts(scores: Any) -> Any:
        return scores[0].topk(2).indices

    def keys(scores: Any) -> Any:
        return (scores[:, :, :3] * 10).topk(1).indices if scores.shape[-1] > 3 else None

    first, second = torch.tensor([ROWS])[..., :3], torch.tensor([ROWS])
    both = [[1, INF], [1, INF], [2, INF], [1.5, 20], [1, 10], [0, 60]]
    assert told(experts, keys, steps=[first, second]) == both
    assert told(experts, keys, steps=[second], routers=False) == [[20], [10], [60]]
    assert told(experts, steps=[second], routers=False) is None


def test_the_last_that_is_chosen_is_held_against_the_first_that_is_not() -> None:
    """Along any dimension; what is ruled out is not the first."""
    assert margin(torch.tensor([[3.0, 1.0, 7.0], [2.0, -INF, INF]]).T, 2, 0).tolist() == [2.0, INF]


SIZES = {
    "num_hidden_layers": 4,
    "hidden_size": 96,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
}
SIZES |= {
    "intermediate_size": 192,
    "vocab_size": 528,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
SIZES |= {
    "moe_intermediate_size": 48,
    "n_routed_experts": 12,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}
SIZES |= {
    "q_lora_rank": 32,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
SIZES |= {"index_topk": 6, "index_head_dim": 16, "index_n_heads": 4}


def drawn(place: Path) -> str:
    """An A.X K2 of which some keys' scores are cut off at 0, all alike, where the last key is
    chosen.
    """
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(35)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.CONFIG_MAPPING["axk2"](**SIZES)
    )
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim > 1:
                value.normal_(0, 0.25 if "embed" in name else value.shape[-1] ** -0.5)
            elif "bias" in name:
                value.normal_(0, 0.05)
    model.save_pretrained(place)
    return str(place)


@pytest.mark.long
def test_a_tie_of_an_indexer_is_counted_apart_and_its_defects_are_not(tmp_path: Path) -> None:
    """A healthy run was DIVERGENT, for another order of the same sums attends to another key."""
    import random

    dice, model = random.Random(35), drawn(tmp_path / "axk2")
    check = CHECK.validate_python(
        {
            "id": "same",
            "kind": "equivalent",
            "ranks": "every",
            "against": "reference",
            "middle": 1.25,
            "layers": 3,
        }
    )
    assert isinstance(check, EquivalentCheck)
    asked: dict[str, Any] = {
        "prompts": [[dice.randrange(20, 520) for _ in range(20)] for _ in range(2)],
        "teacher": [[dice.randrange(20, 520) for _ in range(2)] for _ in range(2)],
        "dtype": "float32",
        "hidden": "parts",
    }
    with Worlds() as worlds:
        whole = {"number": 0, "model": model, "with": asked | {"envelope": "unchunked"}}
        (reference,) = worlds.run("hf-single", size=1, sessions=[whole])
        sessions = [
            {"number": number, "model": model, "invented": defect, "with": asked}
            for number, defect in enumerate((None, "indexer-short", "indexer-keys-late"))
        ]
        healthy, *spoilt = worlds.run("hf-tensor", size=2, sessions=sessions)
    assert doubt_of(check, reference) == ""
    parity = parity_of(check, judged(check, healthy, reference))
    assert parity is not None
    # Four indexers, three routers.
    assert (parity.choices, parity.phases["prefill"].apart > 0) == (7, True)
    assert say(check, healthy, reference)[0] == "EQUIVALENT"
    assert [say(check, one, reference)[0] for one in spoilt] == ["DIVERGENT in layer 0"] * 2
