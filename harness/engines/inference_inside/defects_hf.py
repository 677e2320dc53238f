"""Defects as they are found in the field, put into a share of a decoder of transformers on purpose.

Each is what a control of a scenario computes with. In a world of one there are those alone that are
in the code of a single rank too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import checkpoint, stages
from .engine import AT_ONE, LOUDER
from .stages import local

# Of rotations: models have the one or the other, or something above.
BASES = (10_000.0, 500_000.0)
# What libraries call what attends, and the matrix behind it.
ATTENDS = ("self_attn", "attn", "attention", "self_attention")
OUT = ("o_proj", "c_proj", "out_proj", "dense")
ROUTER = re.compile(r"\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.gate\.weight")
Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class TransformersShare:
    """Share of a model that one rank holds.

    Attributes:
        model: with its layers alone, or its slices of every layer.
        stage: of a pipeline.
        rank, size: of this process and its world.
        folder: where the whole checkpoint lies.
    """

    model: Any
    stage: stages.Stage | None
    rank: int
    size: int
    folder: str

    @property
    def layers(self) -> list[Any]:
        return list(stages.layers_of(self.model))

    @property
    def is_last(self) -> bool:
        return self.rank == self.size - 1


def spoil(share: TransformersShare, defect: str) -> None:
    """Put a defect in.

    Raises:
        ValueError: the model, or the way in which it is split, has nothing that this defect is
            about.
    """
    if (share.size > 1 or defect in AT_ONE) and not DEFECTS[defect](share):
        how = "split by layers" if share.stage is not None else "split in every layer"
        raise ValueError(
            f"{type(share.model).__name__}, {how}, has no part that the defect {defect} could"
            " change"
        )


def stale() -> Change:
    """Make the last position the one before it, of the message before where there is one alone."""
    before: list[Tensor] = []

    def change(message: Tensor) -> Tensor:
        altered = message.clone()
        newest = message[:, -1:].clone()
        last = before[-1] if before else newest
        altered[:, -1:] = message[:, -2:-1] if message.shape[1] > 1 else last
        before[:] = [newest]
        return altered

    return change


def half(message: Tensor) -> Tensor:
    """Make the second half zeros."""
    halved = message.clone()
    halved[..., halved.shape[-1] // 2 :] = 0
    return halved


def _message(change: Callable[[], Change]) -> Callable[[TransformersShare], bool]:
    """Change what the last rank puts into a sum, or gets of the stage before it."""

    def act(share: TransformersShare) -> bool:
        if share.stage is None:
            return _summed_anew(
                share.layers[0], share, change() if share.is_last else None, biased=False
            )
        if share.is_last:
            share.stage.altered = change()
        return True

    return act


def _bias_per_rank(share: TransformersShare) -> bool:
    done = [
        _summed_anew(layer, share, None, biased=True)
        for layer in share.layers
        if share.stage is None
    ]
    return bool(done) and all(done)


def _summed_anew(
    layer: Any, share: TransformersShare, change: Change | None, *, biased: bool
) -> bool:
    """Sum the output of attention over the ranks as the engine does, but for what is changed: a
    part, or the bias.
    """
    out = _out_of(layer)
    if not _is_summed(out):
        return False
    bias = local(out.bias) if out.bias is not None else None
    if biased and bias is None:
        return False
    if not biased and change is None:
        return True

    def forward(given: Tensor) -> Tensor:
        weight = local(out.weight)
        if given.shape[-1] != weight.shape[1]:  # some models have all heads on every rank
            given = given[..., share.rank * weight.shape[1] : (share.rank + 1) * weight.shape[1]]
        part = functional.linear(given, weight, bias if biased else None)
        total = part if change is None else change(part)
        torch.distributed.all_reduce(total)
        return total if biased or bias is None else total + bias

    out.forward = forward
    return True


def _is_summed(out: Any) -> bool:
    """Return whether the ranks' products with a matrix are summed.

    A plan may leave attention whole: then nothing is, and a rank that waits for a sum waits for
    ever.
    """
    places = getattr(getattr(out, "weight", None), "placements", ())
    return any(hasattr(place, "dim") and place.dim % 2 == 1 for place in places)


def _swapped_heads(share: TransformersShare) -> bool:
    out = _out_of(share.layers[-1])
    size = getattr(_attention_of(share.layers[-1]), "head_dim", None)
    if out is None or size is None:
        return False

    def swap(_module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        # Some models have all heads on every rank: of those, the first two of its own.
        heads = given[0]
        width = local(out.weight).shape[1]
        begin = share.rank * width if share.stage is None and width < heads.shape[-1] else 0
        middle = begin + size
        end = begin + 2 * size
        parts = [
            heads[..., :begin],
            heads[..., middle:end],
            heads[..., begin:middle],
            heads[..., end:],
        ]
        return torch.cat(parts, -1), *given[1:]

    if share.is_last:
        out.register_forward_pre_hook(swap)
    return True


def _dropped_layer(share: TransformersShare) -> bool:
    def drop(_module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
        state = given[0] if given else named["hidden_states"]
        return (state, *output[1:]) if isinstance(output, tuple) else state

    # Of a layer that all ranks compute together, all leave it out: one alone would hang.
    if share.is_last or share.stage is None:
        share.layers[-1].register_forward_hook(drop, with_kwargs=True, prepend=True)
    return True


def _norm_split(share: TransformersShare) -> bool:
    """Norm over those heads alone that each rank has."""
    is_in = False
    for layer in share.layers if share.stage is None else ():
        attention = _attention_of(layer)
        for name in ("q_norm", "k_norm"):
            norm = getattr(attention, name, None)
            if norm is None or not hasattr(norm, "weight"):
                continue
            if norm.weight.shape[0] == getattr(attention, "head_dim", None):  # over each head alone
                continue

            def forward(state: Tensor, norm: Any = norm) -> Tensor:
                parts = state.reshape(*state.shape[:-1], share.size, -1).float()
                near = parts * torch.rsqrt(
                    parts.square().mean(-1, keepdim=True) + norm.variance_epsilon
                )
                weighed: Tensor = local(norm.weight) * near.flatten(-2).to(state.dtype)
                return weighed

            norm.forward = forward
            is_in = True
    return is_in


def _fused_interleave(share: TransformersShare) -> bool:
    """Queries, keys and values joined in one matrix are cut as if they were of one kind."""
    if share.stage is not None:
        return _other_order(share)
    path = stages.path_of_layers(share.model)
    is_in = False
    for number, layer in enumerate(share.layers):
        attention = _attention_of(layer)
        here = f"{path}.{number}.self_attn."
        if not all(hasattr(attention, f"{name}_proj") for name in "qkv"):
            continue
        # Called at once.
        whole = stages.read(share.folder, skip=lambda name: not name.startswith(here))  # noqa: B023
        for kind in ("weight", "bias"):
            given = [
                getattr(getattr(attention, f"{name}_proj", None), kind, None) for name in "qkv"
            ]
            names = [f"{here}{name}_proj.{kind}" for name in "qkv"]
            if any(parameter is None for parameter in given) or not whole.keys() >= set(names):
                continue
            parts = [local(parameter) for parameter in given]
            fused = torch.cat([whole[name] for name in names])
            if fused.shape[0] != share.size * sum(part.shape[0] for part in parts):
                continue  # a plan may leave them whole
            begin = fused.shape[0] * share.rank // share.size
            for part in parts:
                part.copy_(fused[begin : begin + part.shape[0]])
                begin += part.shape[0]
            is_in = True
    return is_in


def _other_order(share: TransformersShare) -> bool:
    """Read a fused matrix head by head, which is kind by kind."""
    for layer in share.layers:
        if (fused := getattr(_attention_of(layer), "c_attn", None)) is None:
            return False
        size = _attention_of(layer).head_dim
        for tensor in (fused.weight, fused.bias) if share.is_last else ():
            tensor.copy_(tensor.unflatten(-1, (-1, 3, size)).transpose(-3, -2).flatten(-3).clone())
    return True


def _rope_base(share: TransformersShare) -> bool:
    is_in = False
    theta = _base_of(share.model)
    if not theta:
        return False
    power = math.log(BASES[theta < math.sqrt(math.prod(BASES))]) / math.log(theta)
    for module in share.model.modules():
        if not isinstance(inverse := getattr(module, "inv_freq", None), Tensor):
            continue
        is_in = is_in or not torch.equal(inverse**power, inverse)  # that of two numbers has no base
        # Some go back to what they began with, and PhiMoE's works them out in each step.
        named = {**dict(module.named_buffers(recurse=False)), **vars(module)}
        kept = {
            id(buffer): buffer
            for name, buffer in named.items()
            if name.endswith("inv_freq") and isinstance(buffer, Tensor)
        }
        for buffer in kept.values():
            buffer.copy_(buffer**power)
        if callable(make := getattr(module, "rope_init_fn", None)):
            module.rope_init_fn = _of_power(make, power)
    return is_in


def _of_power(
    make: Callable[..., tuple[Tensor, float]], power: float
) -> Callable[..., tuple[Tensor, float]]:
    def of_power(*given: Any, **named: Any) -> tuple[Tensor, float]:
        inverse, scaling = make(*given, **named)
        return inverse**power, scaling

    return of_power


def _base_of(model: Any) -> float:
    """Return the base of a model's rotations; 0 where it is not one for all layers, or there is
    none.
    """
    parameters = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    return float(parameters.get("rope_theta") or 0)


def _other_router(share: TransformersShare) -> bool:
    """Let the last rank ask the experts as another rank's router says."""
    routers = [router for layer in share.layers if (router := _router_of(layer)) is not None]
    if not routers or _router_of(share.layers[-1]) is None:
        return False
    if share.is_last and share.stage is None:
        for router in routers:
            weight = local(router.weight)
            weight.copy_(weight.roll(weight.shape[0] // share.size, 0))
    elif share.is_last and share.stage is not None:
        # The first layers of some have no experts.
        layers = {
            int(match[1]): name
            for name in checkpoint.shapes(share.folder)
            if (match := ROUTER.search(f".{name}"))
        }
        if not layers or (first := min(layers)) >= share.stage.first + len(share.layers) - 1:
            return False
        whole = stages.read(share.folder, skip=lambda name: name != layers[first])
        routers[-1].weight.copy_(next(iter(whole.values())))
    return True


def _scaled_layer(share: TransformersShare) -> bool:
    for parameter in share.layers[-1].parameters() if share.is_last else ():
        if parameter.ndim > 1:
            local(parameter).mul_(LOUDER)
    return True


def _attention_of(layer: Any) -> Any:
    """Return what attends in a layer; None where it is called otherwise, or another thing stands
    there.
    """
    parts = (getattr(layer, name, None) for name in ATTENDS)
    attention = next((part for part in parts if isinstance(part, nn.Module)), None)
    return getattr(attention, "attention", attention)  # GPT-Neo's, which may be of two kinds


def _out_of(layer: Any) -> Any:
    """Return the matrix behind the heads of a layer; None where there is none by that name."""
    attention = _attention_of(layer)
    parts = (getattr(attention, name, None) for name in OUT)
    return next((part for part in parts if isinstance(getattr(part, "weight", None), Tensor)), None)


def _router_of(layer: Any) -> Any:
    gate = getattr(getattr(layer, "mlp", None), "gate", None)
    return gate if isinstance(getattr(gate, "weight", None), Tensor) else None


DEFECTS: dict[str, Callable[[TransformersShare], bool]] = {
    "bias-per-rank": _bias_per_rank,
    "stale-position": _message(stale),
    "half-message": _message(lambda: half),
    "swapped-heads": _swapped_heads,
    "dropped-layer": _dropped_layer,
    "norm-split": _norm_split,
    "fused-interleave": _fused_interleave,
    "rope-base": _rope_base,
    "other-router": _other_router,
    "scaled-layer": _scaled_layer,
}
