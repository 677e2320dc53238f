"""Defects as they are found in the field, put into a share of a decoder of mlx-lm on purpose: those
of `defects_hf`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core
from mlx.utils import tree_flatten, tree_unflatten

from .engine import AT_ONE, LOUDER
from .modules_mlx import Call, around

mx: Any = mlx.core
BASE = 500_000.0
Change = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class MlxShare:
    """Share of a model that one rank holds.

    Attributes:
        model: with its layers alone, or its slices of every layer.
        sharding: `tensor` or `pipeline`.
        rank, size: of this process and its world.
        folder: where the whole checkpoint lies.
    """

    model: Any
    sharding: str
    rank: int
    size: int
    folder: str

    @property
    def layers(self) -> list[Any]:
        return list(self.model.layers)

    @property
    def is_last(self) -> bool:
        """Return whether nobody comes after it; mlx-lm's pipeline ends at rank 0."""
        return self.rank == (0 if self.sharding == "pipeline" else self.size - 1)

    def whole(self, name: str) -> Any:
        """Return a tensor of the checkpoint."""
        from pathlib import Path

        for path in sorted(Path(self.folder).glob("*.safetensors")):
            if name in (tensors := mx.load(str(path))):
                return tensors[name]
        return None


def spoil(share: MlxShare, defect: str) -> None:
    """Put a defect in.

    Raises:
        ValueError: the model, or the way in which it is split, has nothing that this defect is
            about.
    """
    if (share.size > 1 or defect in AT_ONE) and not DEFECTS[defect](share):
        how = "split by layers" if share.sharding == "pipeline" else "split in every layer"
        raise ValueError(
            f"{type(share.model).__module__}, {how}, has no part that the defect {defect} could"
            " change"
        )


def stale() -> Change:
    """Make the last position the one before it, of the message before where there is one alone."""
    before: list[Any] = []

    def change(message: Any) -> Any:
        newest = message[:, -1:]
        last = before[-1] if before else newest
        if message.shape[1] > 1:
            last = message[:, -2:-1]
        before[:] = [newest]
        return mx.concatenate([message[:, :-1], last], axis=1)

    return change


def half(message: Any) -> Any:
    """Make the second half zeros."""
    middle = message.shape[-1] // 2
    return mx.concatenate([message[..., :middle], mx.zeros_like(message[..., middle:])], axis=-1)


def _message(change: Callable[[], Change]) -> Callable[[MlxShare], bool]:
    """Change what the last rank puts into a sum, or gets of the stage before it."""

    def act(share: MlxShare) -> bool:
        if not share.is_last:
            return True
        if share.sharding == "tensor":
            return _summed_anew(share.layers[0], change())
        altered = change()
        around(
            share.layers[0],
            lambda call, state, *rest, **named: call(altered(state), *rest, **named),
        )
        return True

    return act


def _bias_per_rank(share: MlxShare) -> bool:
    done = [_summed_anew(layer, None) for layer in share.layers if share.sharding == "tensor"]
    return bool(done) and all(done)


def _summed_anew(layer: Any, change: Change | None) -> bool:
    """Sum the output of attention over the ranks as the engine does, but for what is changed: a
    part, or the bias.
    """
    out = layer.self_attn.o_proj
    bias = out.get("bias")
    if change is None and bias is None:
        return False

    def summed(_call: Call, given: Any) -> Any:
        part = given @ out["weight"].T
        part = part + bias if change is None else change(part)
        total = mx.distributed.all_sum(part, group=out.group)
        return total if change is None or bias is None else total + bias

    around(out, summed)
    return True


def _swapped_heads(share: MlxShare) -> bool:
    attention = share.layers[-1].self_attn
    size = attention.o_proj.weight.shape[1] // _heads(attention)

    def swapped(call: Call, given: Any) -> Any:
        return call(
            mx.concatenate(
                [given[..., size : 2 * size], given[..., :size], given[..., 2 * size :]], axis=-1
            )
        )

    if share.is_last:
        around(attention.o_proj, swapped)
    return True


def _heads(attention: Any) -> int:
    return int(getattr(attention, "n_heads", None) or attention.num_attention_heads)


def _dropped_layer(share: MlxShare) -> bool:
    def dropped(call: Call, state: Any, *rest: Any, **named: Any) -> Any:
        call(state, *rest, **named)  # its cache goes on
        return state

    # Of a layer that all ranks compute together, all leave it out.
    if share.is_last or share.sharding == "tensor":
        around(share.layers[-1], dropped)
    return True


def _norm_split(share: MlxShare) -> bool:
    """Norm over those heads alone that each rank has."""
    is_in = False
    for layer in share.layers:
        for name in ("q_norm", "k_norm"):
            norm = getattr(layer.self_attn, name, None)
            if type(norm).__name__ == "ShardedRMSNorm":
                around(
                    norm,
                    lambda _call, state, norm=norm: mx.fast.rms_norm(state, norm.weight, norm.eps),
                )
                is_in = True
    return is_in


def _fused_interleave(share: MlxShare) -> bool:
    """Queries, keys and values joined in one matrix are cut as if they were of one kind."""
    if share.sharding != "tensor":
        return False
    for number, layer in enumerate(share.layers):
        for kind in ("weight", "bias"):
            names = [f"model.layers.{number}.self_attn.{name}_proj.{kind}" for name in "qkv"]
            whole = [share.whole(name) for name in names]
            if any(tensor is None for tensor in whole):
                continue
            fused = mx.concatenate(whole)
            begin = fused.shape[0] * share.rank // share.size
            for name in "qkv":
                module = getattr(layer.self_attn, f"{name}_proj")
                end = begin + module[kind].shape[0]
                module[kind] = mx.contiguous(fused[begin:end].astype(module[kind].dtype))
                begin = end
    return True


def _rope_base(share: MlxShare) -> bool:
    is_in = False
    for layer in share.layers:
        rope: Any = getattr(layer.self_attn, "rope", None)
        if isinstance(getattr(rope, "base", None), float | int):
            rope.base = BASE
            is_in = True
    return is_in


def _other_router(share: MlxShare) -> bool:
    """Let the last rank ask the experts as another rank's router says."""
    routers = [_router_of(layer) for layer in share.layers]
    if routers[-1] is None:
        return False
    if share.is_last and share.sharding == "tensor":
        for router in routers:
            router.weight = mx.roll(router.weight, router.weight.shape[0] // share.size, 0)
    elif share.is_last:
        routers[-1].weight = share.whole("model.layers.0.mlp.gate.weight").astype(
            routers[-1].weight.dtype
        )
    return True


def _router_of(layer: Any) -> Any:
    block = getattr(layer, "block_sparse_moe", None) or getattr(layer, "mlp", None)
    return getattr(block, "gate", None)


def _scaled_layer(share: MlxShare) -> bool:
    if share.is_last:
        layer = share.layers[-1]
        values: Any = tree_flatten(layer.parameters())
        louder = [(name, value * LOUDER) for name, value in values if value.ndim > 1]
        layer.update(tree_unflatten(louder))
    return True


DEFECTS: dict[str, Callable[[MlxShare], bool]] = {
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
