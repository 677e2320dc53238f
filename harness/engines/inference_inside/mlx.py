"""mlx-lm as an engine: the whole model, or its own tensor parallelism and pipeline over MLX's
ring.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import mlx.core
from mlx.utils import tree_flatten, tree_unflatten

from . import checkpoint, defects_mlx, session
from .engine import (
    InferenceEngine,
    LibraryPlan,
    Piece,
    Request,
    SumOrder,
    products,
    takes_a_request,
)
from .modules_mlx import Hops, parts_of, split, watch, watch_router

# Half of what is used has no types, and some of it wrong ones.
mx: Any = mlx.core
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
# GPT-2's matrices, which checkpoints hold the other way round.
TURNED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


class MlxLm(InferenceEngine):
    """Decoder of mlx-lm.

    Args:
        rank, size: of this process; one that holds the whole model is rank 0 of 1.
        sharding: `single`, `tensor` or `pipeline`.
        group: of MLX; None for `single`.
        integrity: of a pipeline: `off`, or `light` or `full`, which are the same here: what changed
            is detected.
    """

    def __init__(
        self, *, rank: int, size: int, sharding: str, group: Any = None, integrity: str = "off"
    ) -> None:
        # The last stage's hidden state goes to all, and every rank has the head and logits.
        super().__init__(f"mlx-{sharding}", rank=rank, size=size)
        self.device = "gpu" if mx.default_device() == mx.gpu else "cpu"
        self._folder = ""
        self._sharding = sharding
        self._group = group
        self._integrity = integrity
        self._hops: Hops | None = None
        self._cache: list[Any] = []
        self._batch = 1
        self._gaps: list[Any] = []
        self._decided: list[Any] = []

    def load(self, folder: str, *, dtype: str, defect: str = "none") -> None:
        """Load the model or this rank's share as mlx-lm does.

        Raises:
            ValueError: this engine does not offer the model at this world size, or a tensor is not
                in the checkpoint.
        """
        from pathlib import Path

        from mlx_lm import utils

        self._folder = folder
        self._shapes = checkpoint.shapes(folder)
        config = utils.load_config(Path(folder))
        self.architecture = (config.get("architectures") or [config["model_type"]])[0]
        self.rows = int((config.get("text_config") or config)["vocab_size"])
        try:
            skeleton, _ = utils.load_model(Path(folder), lazy=self._sharding != "single")
        # Of a key that ModelArgs lacks, or that is null.
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(
                f"mlx-lm {_version()} cannot read this config.json: {error}"
            ) from error
        if self._sharding == "single":
            self.model = skeleton
        elif not hasattr(utils, "sharded_load"):
            raise ValueError(f"mlx-lm {_version()} cannot split models; use 0.30.0 or later")
        else:
            refuse(skeleton, config, sharding=self._sharding, size=self.size)
            if self._sharding == "pipeline":
                checkpoint.demand_index(folder)
            self.model = self.share(folder, skeleton)
        if any(value.dtype != DTYPES[dtype] for _, value in self.parameters(self.model)):
            self.model.set_dtype(DTYPES[dtype])
        mx.eval(self.model.parameters())
        demand_known(self._names(), self._shapes)
        if defect != "none":
            share = defects_mlx.MlxShare(
                model=self.model,
                sharding=self._sharding,
                rank=self.rank,
                size=self.size,
                folder=folder,
            )
            defects_mlx.spoil(share, defect)
            mx.eval(self.model.parameters())
        first = getattr(getattr(self.model, "model", None), "start_idx", 0)
        for number, layer in enumerate(self.model.layers, first):
            for name, part in parts_of(layer):
                watch(part, f"{number}.{name}", self._hidden)
            watch(layer, str(number), self._hidden)
        for module in self.model.modules() if self._sharding == "single" else ():
            if "gate" in module and "switch_mlp" in module:
                watch_router(module, self._gaps)
        if self._integrity != "off" and self.size > 1:
            self._hops = Hops(self.model, rank=self.rank, size=self.size, group=self._group)

    # Others split the whole model, whose weights are lazy.
    def share(self, folder: str, whole: Any) -> Any:  # noqa: ARG002
        """This rank's share of the model of a folder, as mlx-lm splits it.

        An adapter for another splitter has its own.

        `whole` is the model, none of whose weights is in memory yet.
        """
        from mlx_lm import utils

        groups = (self._group, None) if self._sharding == "pipeline" else (None, self._group)
        return utils.sharded_load(folder, *groups)[0]

    def parameters(self, module: Any) -> list[tuple[str, Any]]:
        """Return every parameter of a module by its name there.

        An adapter whose modules hide some has its own.
        """
        parameters: Any = tree_flatten(module.parameters())
        return list(parameters)

    def known_as(self, name: str) -> str:
        """Return what mlx-lm calls a parameter.

        An adapter whose modules call it otherwise has its own.
        """
        return name

    def _named(self) -> Iterator[tuple[str, Any]]:
        return ((self.known_as(name), value) for name, value in self.parameters(self.model))

    def _names(self) -> Iterator[str]:
        for name, value in self._named():
            yield from (block.tensor for block in self._blocks(name, value))

    def _blocks(self, name: str, value: Any) -> Iterator[checkpoint.ParameterBlock]:
        whole = (
            checkpoint.whole_shape(name, self._shapes, base="model.", turned=name.endswith(TURNED))
            or value.shape
        )
        shares = checkpoint.even_shares(value.shape, whole, rank=self.rank)
        return checkpoint.blocks(name, shares, self._shapes, base="model.")

    def pieces(self) -> Iterator[Piece]:
        """See `engine.InferenceEngine`."""
        for name, value in self._named():
            for block in self._blocks(name, value):
                box = value[tuple(slice(*bounds) for bounds in block.local)]
                ranges = block.whole
                if name.endswith(TURNED) and self.model.model_type == "gpt2":
                    box = box.T
                    ranges = (ranges[1], ranges[0])
                data = bytes(memoryview(mx.contiguous(box).flatten().view(mx.uint8)))
                yield Piece(
                    tensor=block.tensor, slices=[list(bounds) for bounds in ranges], data=data
                )

    def plan(self) -> LibraryPlan | None:
        """See `engine.InferenceEngine`."""
        shapes = {
            self.known_as(name): tuple(value.shape) for name, value in self.parameters(self.model)
        }
        return checkpoint.plan_of_mlx_lm(self._folder, shapes, self._shapes)

    def begin(self) -> None:
        """See `engine.InferenceEngine`."""
        from mlx_lm.models.cache import make_prompt_cache

        self._cache = make_prompt_cache(self.model)
        self._decided.clear()

    def forget(self) -> None:
        """See `engine.InferenceEngine`."""
        from mlx_lm.models.cache import trim_prompt_cache

        trim_prompt_cache(self._cache, 1)

    def step(self, ids: Sequence[int]) -> Any:
        """See `engine.InferenceEngine`."""
        rows = [list(ids)] if self._batch == 1 else [list(reversed(ids)), list(ids)]
        self._gaps.clear()
        logits = self.model(mx.array(rows), cache=self._cache)[-1]
        # MLX is lazy: what is not evaluated is neither computed nor sent.
        noted = self._hops.arrays if self._hops is not None else []
        if self._gaps:
            self._decided.append(mx.stack([gap[-1] for gap in self._gaps], axis=-1))
        mx.eval(
            logits,
            [layer.state for layer in self._cache],
            list(self._hidden.values()),
            noted,
            self._decided,
        )
        if self._hops is not None:
            self._hops.check()
        return logits

    def decided(self, *, routers: bool) -> Any:
        """See `engine.InferenceEngine`: of what mlx-lm chooses, its routers alone are looked at."""
        noted = self._decided
        self._decided = []
        return mx.concatenate(noted) if noted and routers else None

    @contextmanager
    def scaled(self, layer: int, factor: float) -> Iterator[None]:
        """See `engine.InferenceEngine`."""
        held = self.model.layers[layer]
        before = [
            (name, value)
            for name, value in self.parameters(held)
            if value.ndim > 1 and ".gate." not in name
        ]
        held.update(tree_unflatten([(name, value * factor) for name, value in before]))
        try:
            yield
        finally:
            held.update(tree_unflatten(before))

    def together(self, parts: Sequence[Any]) -> Any:
        """See `engine.InferenceEngine`."""
        return mx.contiguous(mx.concatenate(list(parts)))

    def numbers(self, row: Any) -> Any:
        """See `engine.InferenceEngine`."""
        import numpy as np

        return np.array(row.astype(mx.float32)).astype(np.float64)

    def orders(self) -> Iterator[SumOrder]:
        """See `engine.InferenceEngine`."""
        yield from products(
            lambda parts, strided: partial(split, self.model, parts, strided=strided)
        )
        yield SumOrder("in a batch of two", self._batched)

    @contextmanager
    def _batched(self) -> Iterator[None]:
        self._batch = 2
        try:
            yield
        finally:
            self._batch = 1


def refuse(model: Any, config: dict[str, Any], *, sharding: str, size: int) -> None:
    """Refuse what mlx-lm does not offer, or accepts and crashes in.

    Raises:
        ValueError: the message says why.
    """
    kind = config["model_type"]
    if sharding == "tensor":
        if not hasattr(model, "shard"):
            raise ValueError(
                f"mlx-lm {_version()} cannot split the layers of {kind}; use mlx-single"
            )
        heads = config.get("num_attention_heads", size)
        for number, what in (
            (config.get("num_key_value_heads") or heads, "KV heads"),
            (heads, "heads"),
        ):
            if number % size:
                raise ValueError(
                    f"{number} {what} cannot be split over {size} ranks; use fewer ranks"
                )
    elif not hasattr(getattr(model, "model", None), "pipeline"):
        raise ValueError(
            f"mlx-lm {_version()} has no pipeline for {kind}; use mlx-single, or mlx-tensor if it"
            " supports that model"
        )
    elif len(model.layers) < size:
        raise ValueError(
            f"{len(model.layers)} layers cannot be split over {size} ranks; use fewer ranks"
        )


def demand_known(names: Iterable[str], stored: Container[str]) -> None:
    """Demand that the checkpoint has each tensor: where it shards, mlx-lm leaves others as they
    were drawn.

    Raises:
        ValueError: it has not.
    """
    if absent := sorted(name for name in names if name not in stored):
        raise ValueError(
            f"the checkpoint has no tensor {absent[0]}, or mlx-lm {_version()} makes this tensor"
            " from tensors with other names; convert the model with mlx_lm.convert"
        )


def _version() -> str:
    from importlib.metadata import version

    return version("mlx-lm")


def _run(context: Any, asked: Mapping[str, Any], *, sharding: str, integrity: str = "off") -> None:
    """Load, warm up, answer every prompt, over the group that the rank has joined."""
    engine = MlxLm(
        rank=context.rank,
        size=context.size,
        sharding=sharding,
        group=context.group.native,
        integrity=integrity,
    )
    session.run(context, engine, Request(**asked))


@takes_a_request
def single(context: Any, **asked: Any) -> None:
    """Entry `mlx-single`: the whole model in each rank; what a reference is, in a world of one."""
    session.run(context, MlxLm(rank=0, size=1, sharding="single"), Request(**asked))


@takes_a_request
def tensor(context: Any, **asked: Any) -> None:
    """Entry `mlx-tensor`: mlx-lm's own tensor parallelism, by which each rank has its slices of
    every layer.
    """
    _run(context, asked, sharding="tensor")


@takes_a_request
def pipeline(context: Any, *, integrity: str = "off", **asked: Any) -> None:
    """Entry `mlx-pipeline`: mlx-lm's own pipeline: rank 0 has the last layers, and every rank the
    head.
    """
    _run(context, asked, sharding="pipeline", integrity=integrity)


@takes_a_request
def sharded(
    context: Any, *, sharding: str = "tensor", integrity: str = "off", **asked: Any
) -> None:
    """Entry `mlx-sharded`: shared as an argument says, whole in each rank, by tensors or by
    layers.
    """
    _run(context, asked, sharding=sharding, integrity=integrity)
