"""A defect that a model has nothing to do with says so, on every rank, and one that it has changes
something.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.engines.models import safetensors

torch = pytest.importorskip("torch")
defects = importlib.import_module("harness.engines.inference_inside.defects_hf")
stages = importlib.import_module("harness.engines.inference_inside.stages")
OF_ATTENTION = (
    "bias-per-rank",
    "stale-position",
    "half-message",
    "swapped-heads",
    "norm-split",
    "fused-interleave",
)


class Decoder(torch.nn.Module):  # type: ignore[name-defined,misc]
    """Of as many layers as are made."""

    def __init__(
        self, make: Callable[[], Any], *, theta: float = 10_000.0, layers: int = 2
    ) -> None:
        super().__init__()
        text = SimpleNamespace(num_hidden_layers=layers, rope_parameters={"rope_theta": theta})
        self.config = SimpleNamespace(get_text_config=lambda: text)
        self.layers = torch.nn.ModuleList([make() for _ in range(layers)])
        self.register_buffer("inv_freq", theta ** -torch.tensor([0.0, 0.25, 0.5]))


def block(**parts: Any) -> Any:
    """A layer with these parts and a matrix."""
    made = torch.nn.Linear(4, 4)
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def attention(name: str) -> Callable[[], Any]:
    """Layers whose attention goes by that name, its matrices whole on every rank."""
    return lambda: block(**{name: block(o_proj=torch.nn.Linear(4, 4), head_dim=2)})


def share(model: Any, rank: int, *, folder: Path = Path(), stage: Any = None) -> Any:
    return defects.TransformersShare(
        model=model, stage=stage, rank=rank, size=2, folder=str(folder)
    )


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("defect", OF_ATTENTION)
def test_an_attention_by_another_name_has_nothing_that_a_defect_is_about(
    defect: str, rank: int
) -> None:
    """GPT-NeoX raised that it has no attribute: the control seemed to have failed otherwise than
    stated.
    """
    with pytest.raises(ValueError, match=f"has no part that the defect {defect} could change"):
        defects.spoil(share(Decoder(attention("beholds")), rank), defect)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("defect", ["stale-position", "half-message", "bias-per-rank"])
def test_a_sum_that_no_plan_makes_is_not_waited_for(defect: str, rank: int) -> None:
    """Granite's plan for experts leaves attention whole: the last rank summed alone, until the
    deadline.
    """
    with pytest.raises(ValueError, match=f"has no part that the defect {defect} could change"):
        defects.spoil(share(Decoder(attention("self_attn")), rank), defect)


@pytest.mark.parametrize("name", ["self_attn", "attn", "attention", "self_attention"])
def test_heads_are_swapped_by_whatever_name_a_library_calls_attention(name: str) -> None:
    """By two heads of the last rank's last layer."""
    model = Decoder(attention(name))
    defects.spoil(share(model, 1, stage=SimpleNamespace()), "swapped-heads")
    out = getattr(model.layers[1], name).o_proj
    given = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert torch.equal(
        out(given), torch.nn.functional.linear(given[:, [2, 3, 0, 1]], out.weight, out.bias)
    )


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0, 1_000_000.0])
def test_the_base_of_rotation_becomes_another_one(theta: float) -> None:
    """That of Llama 4 is what the defect put in its place, and the control held."""
    model = Decoder(attention("self_attn"), theta=theta)
    before = model.inv_freq.clone()
    defects.spoil(share(model, 0), "rope-base")
    assert float((model.inv_freq / before).log().abs().max()) > 1


class Anew(torch.nn.Module):  # type: ignore[name-defined,misc]
    """A rotation that goes back to what it began with, or works it out in each step as PhiMoE's
    does.
    """

    def __init__(self, *, works_out: bool) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 10_000.0 ** -torch.tensor([0.0, 0.25, 0.5]))
        self.original_inv_freq = self.inv_freq if works_out else self.inv_freq.clone()
        inverse = self.inv_freq.clone()
        self.rope_init_fn = (lambda _config: (inverse, 1.0)) if works_out else None

    def forward(self) -> Any:
        return (
            self.rope_init_fn(None)[0] if self.rope_init_fn is not None else self.original_inv_freq
        )


@pytest.mark.parametrize("works_out", [False, True])
def test_a_base_that_is_taken_anew_in_each_step_becomes_the_same_other_one(works_out: bool) -> None:
    """Nothing changed in PhiMoE, and the control held.

    What is kept by two names was to become another one twice.
    """
    model = Decoder(attention("self_attn"))
    model.rotary = Anew(works_out=works_out)
    defects.spoil(share(model, 0), "rope-base")
    assert torch.allclose(model.rotary(), 500_000.0 ** -torch.tensor([0.0, 0.25, 0.5]))
    assert torch.allclose(model.rotary.inv_freq, model.inv_freq)


def test_a_rotation_without_a_base_has_nothing_that_the_defect_is_about() -> None:
    """A quarter of a head of eight is rotated by one angle."""
    model = Decoder(attention("self_attn"))
    model.inv_freq = torch.ones(1)
    with pytest.raises(ValueError, match="has no part that the defect rope-base could change"):
        defects.spoil(share(model, 0), "rope-base")


def test_the_router_of_another_stage_is_that_of_its_first_layer_with_experts(
    tmp_path: Path,
) -> None:
    """Layer 0 of many has none: such a control ended in an error."""
    model = Decoder(lambda: block(mlp=block(gate=torch.nn.Linear(4, 3, bias=False))), layers=1)
    routers = {
        f"model.layers.{layer}.mlp.gate.weight": np.full((3, 4), layer, np.float32)
        for layer in (1, 2)
    }
    (tmp_path / "model.safetensors").write_bytes(safetensors(routers))
    with torch.no_grad():
        defects.spoil(
            share(model, 1, folder=tmp_path, stage=SimpleNamespace(first=2)), "other-router"
        )
        assert torch.equal(model.layers[0].mlp.gate.weight, torch.ones(3, 4))
        with pytest.raises(
            ValueError, match="has no part that the defect other-router could change"
        ):
            defects.spoil(
                share(model, 1, folder=tmp_path, stage=SimpleNamespace(first=1)), "other-router"
            )
