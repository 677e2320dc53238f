"""mlx-lm as an engine: the whole model, or its own tensor parallelism and pipeline over MLX's
ring.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import mlx.core
import mlx.nn
from mlx.utils import tree_flatten, tree_unflatten

from . import checkpoint, defects_mlx, session
from .engine import ROUTER, Order, Piece, Plan, Request, part_name, products, takes_a_request

# Half of what is used has no types, and some of it wrong ones.
mx: Any = mlx.core
nn: Any = mlx.nn
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
# GPT-2's matrices, which checkpoints hold the other way round.
TURNED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


class MlxLm:
    """A decoder of mlx-lm.

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
        self.name = f"mlx-{sharding}"
        self.architecture = ""
        self.device = "gpu" if mx.default_device() == mx.gpu else "cpu"
        self.whole = size == 1
        self.rows = 0
        self._folder = ""
        # The last stage's hidden state goes to all, and every rank has the head.
        self.has_logits = True
        self._rank = rank
        self._size = size
        self._sharding = sharding
        self._group = group
        self._integrity = integrity
        self._hops: Hops | None = None
        self._model: Any = None
        self._cache: list[Any] = []
        self._batch = 1
        self._layers: dict[str, Any] = {}
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
        self._checkpoint = checkpoint.shapes(folder)
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
            self._model = skeleton
        elif not hasattr(utils, "sharded_load"):
            raise ValueError(f"mlx-lm {_version()} splits no model: take 0.30.0 or a later one")
        else:
            refuse(skeleton, config, sharding=self._sharding, size=self._size)
            if self._sharding == "pipeline":
                checkpoint.demand_index(folder)
            self._model = self.share(folder, skeleton)
        if any(value.dtype != DTYPES[dtype] for _, value in self.parameters(self._model)):
            self._model.set_dtype(DTYPES[dtype])
        mx.eval(self._model.parameters())
        demand_known(self._names(), self._checkpoint)
        if defect != "none":
            share = defects_mlx.MlxShare(
                model=self._model,
                sharding=self._sharding,
                rank=self._rank,
                size=self._size,
                folder=folder,
            )
            defects_mlx.spoil(share, defect)
            mx.eval(self._model.parameters())
        first = getattr(getattr(self._model, "model", None), "start_idx", 0)
        for number, layer in enumerate(self._model.layers, first):
            for name, part in parts_of(layer):
                _watch(part, f"{number}.{name}", self._layers)
            _watch(layer, str(number), self._layers)
        for module in self._model.modules() if self._sharding == "single" else ():
            if "gate" in module and "switch_mlp" in module:
                _watch_router(module, self._gaps)
        if self._integrity != "off" and self._size > 1:
            self._hops = Hops(self._model, rank=self._rank, size=self._size, group=self._group)

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
        """Every parameter of a module by its name there.

        An adapter whose modules hide some has its own.
        """
        found: Any = tree_flatten(module.parameters())
        return list(found)

    def known_as(self, name: str) -> str:
        """Return what mlx-lm calls a parameter.

        An adapter whose modules call it otherwise has its own.
        """
        return name

    def _named(self) -> Iterator[tuple[str, Any]]:
        return ((self.known_as(name), value) for name, value in self.parameters(self._model))

    def _names(self) -> Iterator[str]:
        for name, value in self._named():
            yield from (block.tensor for block in self._blocks(name, value))

    def _blocks(self, name: str, value: Any) -> Iterator[checkpoint.ParameterBlock]:
        whole = (
            checkpoint.whole_shape(
                name, self._checkpoint, base="model.", turned=name.endswith(TURNED)
            )
            or value.shape
        )
        shares = [
            [(0, size)] if here == size else [(self._rank * here, (self._rank + 1) * here)]
            for here, size in zip(value.shape, whole, strict=True)
        ]
        return checkpoint.blocks(name, shares, self._checkpoint, base="model.")

    def pieces(self) -> Iterator[Piece]:
        """See `engine.Engine`."""
        for name, value in self._named():
            for block in self._blocks(name, value):
                box = value[tuple(slice(*bounds) for bounds in block.local)]
                ranges = block.whole
                if name.endswith(TURNED) and self._model.model_type == "gpt2":
                    box = box.T
                    ranges = (ranges[1], ranges[0])
                data = bytes(memoryview(mx.contiguous(box).flatten().view(mx.uint8)))
                yield Piece(
                    tensor=block.tensor, slices=[list(bounds) for bounds in ranges], data=data
                )

    def stored(self) -> Collection[str]:
        """See `engine.Engine`."""
        return self._checkpoint.keys()

    def plan(self) -> Plan | None:
        """See `engine.Engine`."""
        shapes = {
            self.known_as(name): tuple(value.shape) for name, value in self.parameters(self._model)
        }
        return checkpoint.plan_of_mlx_lm(self._folder, shapes, self._checkpoint)

    def begin(self) -> None:
        """See `engine.Engine`."""
        from mlx_lm.models.cache import make_prompt_cache

        self._cache = make_prompt_cache(self._model)
        self._decided.clear()

    def forget(self) -> None:
        """See `engine.Engine`."""
        from mlx_lm.models.cache import trim_prompt_cache

        trim_prompt_cache(self._cache, 1)

    def step(self, ids: Sequence[int]) -> Any:
        """See `engine.Engine`."""
        rows = [list(ids)] if self._batch == 1 else [list(reversed(ids)), list(ids)]
        self._gaps.clear()
        logits = self._model(mx.array(rows), cache=self._cache)[-1]
        # MLX is lazy: what is not evaluated is neither computed nor sent.
        noted = self._hops.arrays if self._hops is not None else []
        if self._gaps:
            self._decided.append(mx.stack([gap[-1] for gap in self._gaps], axis=-1))
        mx.eval(
            logits,
            [layer.state for layer in self._cache],
            list(self._layers.values()),
            noted,
            self._decided,
        )
        if self._hops is not None:
            self._hops.check()
        return logits

    def hidden(self) -> dict[str, Any]:
        """See `engine.Engine`."""
        found = dict(self._layers)
        self._layers.clear()
        return found

    def decided(self, *, routers: bool) -> Any:
        """See `engine.Engine`: of what mlx-lm chooses between, its routers alone are looked at."""
        noted = self._decided
        self._decided = []
        return mx.concatenate(noted) if noted and routers else None

    def routed(self) -> Any:
        """See `engine.Engine`: mlx-lm's routers choose inside of what is compiled, and nobody sees
        what.
        """
        return None

    def scores(self) -> dict[int, Any]:
        """See `engine.Engine`."""
        return {}

    def take(self, experts: Any) -> None:
        """See `engine.Engine`; `routing: reference` is refused before."""
        assert experts is None

    @contextmanager
    def scaled(self, layer: int, factor: float) -> Iterator[None]:
        """See `engine.Engine`."""
        held = self._model.layers[layer]
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
        """See `engine.Engine`."""
        return mx.contiguous(mx.concatenate(list(parts)))

    def numbers(self, row: Any) -> Any:
        """See `engine.Engine`."""
        import numpy as np

        return np.array(row.astype(mx.float32)).astype(np.float64)

    def agree(self, token: int | None) -> int:
        """See `engine.Engine`: every rank has logits, and chooses for itself."""
        assert token is not None
        return token

    def orders(self) -> Iterator[Order]:
        """See `engine.Engine`."""
        yield from products(
            lambda parts, strided: partial(split, self._model, parts, strided=strided)
        )
        yield Order("in a batch of two", self._batched)

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
                f"mlx-lm {_version()} does not split the layers of {kind}: take mlx-single"
            )
        heads = config.get("num_attention_heads", size)
        for number, what in (
            (config.get("num_key_value_heads") or heads, "KV heads"),
            (heads, "heads"),
        ):
            if number % size:
                raise ValueError(
                    f"{number} {what} cannot be split over {size} ranks: take fewer ranks"
                )
    elif not hasattr(getattr(model, "model", None), "pipeline"):
        raise ValueError(
            f"mlx-lm {_version()} has no pipeline for {kind}: take mlx-single, or mlx-tensor if it"
            " has that"
        )
    elif len(model.layers) < size:
        raise ValueError(
            f"{len(model.layers)} layers cannot be split over {size} ranks: take fewer ranks"
        )


def demand_known(names: Iterable[str], stored: Container[str]) -> None:
    """Demand that the checkpoint has each tensor: where it shards, mlx-lm leaves others as they
    were drawn.

    Raises:
        ValueError: it has not.
    """
    if absent := sorted(name for name in names if name not in stored):
        raise ValueError(
            f"the checkpoint lacks {absent[0]}, or mlx-lm {_version()} makes it of tensors with"
            " other names: convert the model with mlx_lm.convert"
        )


@contextmanager
def split(model: Any, parts: int, *, strided: bool = False) -> Iterator[None]:
    """Every product with a weight is made in parts of the inner dimension that are summed, as
    tensor parallelism does.

    Experts are split by their inner width. A part lies together, or is every so manieth: other
    roundings. Parts are made in the first pass and held until the end; what is not together takes
    as much memory as the matrices.
    """
    changed: list[tuple[Any, type]] = []
    try:
        for module in model.modules():
            if type(module) is nn.Linear:
                other: type = _linear(parts, strided)
            elif type(module).__name__ == "SwitchGLU":
                other = _experts(type(module), parts, strided)
            else:
                continue
            changed.append((module, type(module)))
            module.__class__ = other
        yield
    finally:
        for module, kind in changed:
            module.__class__ = kind


def _parts(length: int, parts: int, strided: bool) -> Iterator[Any]:
    if strided:
        return (mx.arange(begin, length, parts) for begin in range(parts))
    most = -(-length // parts)
    return (slice(begin, min(begin + most, length)) for begin in range(0, length, most))


def _linear(parts: int, strided: bool) -> type:
    shares: list[tuple[Any, Any]] = []

    def call(self: Any, given: Any) -> Any:
        weight = self.weight
        if not shares:
            shares.extend(
                (part, weight[:, part].T) for part in _parts(weight.shape[1], parts, strided)
            )
        total = sum(given[..., part] @ share for part, share in shares)
        return total + self.bias if "bias" in self else total

    return type("Split", (nn.Linear,), {"__call__": call})


def _experts(kind: type, parts: int, strided: bool) -> type:
    shares: list[tuple[Any, Any, Any]] = []

    def call(self: Any, given: Any, indices: Any) -> Any:
        gate = self.gate_proj.weight
        up = self.up_proj.weight
        down = self.down_proj.weight
        if not shares:
            shares.extend(
                (gate[:, part], up[:, part], down[..., part])
                for part in _parts(gate.shape[1], parts, strided)
            )
        total: Any = 0
        try:
            for share in shares:
                self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight = share
                total = total + kind.__call__(self, given, indices)
        finally:
            self.gate_proj.weight = gate
            self.up_proj.weight = up
            self.down_proj.weight = down
        return total

    return type("Split", (kind,), {"__call__": call})


def parts_of(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a layer adds up, each by its name: its attention, its feed-forward part, with all
    matrices they have.
    """
    for name, part in layer.children().items():
        if not isinstance(part, nn.Module) or part_name(name) == ROUTER:
            continue
        parameters: Any = tree_flatten(part.parameters())
        if any("." in path and value.ndim > 1 for path, value in parameters):
            yield part_name(name), part


def _watch(layer: Any, name: str, found: dict[str, Any]) -> None:
    """Note what comes out of a layer, of a batch for the last: MLX has no hooks, so its class is
    one that notes.
    """
    kind = type(layer)

    def call(self: Any, *given: Any, **named: Any) -> Any:
        output = kind.__call__(self, *given, **named)
        state = output[0] if isinstance(output, tuple) else output
        if isinstance(state, mx.array) and state.ndim > 2:
            found[name] = state[-1]
        return output

    layer.__class__ = type(kind.__name__, (kind,), {"__call__": call})


def _watch_router(block: Any, found: list[Any]) -> None:
    """Note by how much the last expert chosen lies above the first that is not, `[batch,
    tokens]`.
    """
    kind = type(block)
    many = getattr(block, "num_experts_per_tok", None) or block.top_k
    # Some gates choose by themselves, and give the experts in place of their scores.
    chooses = "e_score_correction_bias" in block.gate
    if getattr(block.gate, "n_group", 1) > 1:
        return  # of experts in groups, another margin decides

    def call(self: Any, given: Any) -> Any:
        scores = (given @ self.gate.weight.T if chooses else self.gate(given)).astype(mx.float32)
        corrected = self.gate if chooses else self
        if "e_score_correction_bias" in corrected:
            scores = mx.sigmoid(scores) + corrected.e_score_correction_bias.astype(mx.float32)
        best = mx.sort(scores, axis=-1)
        found.append(best[..., -many] - best[..., -many - 1])
        return kind.__call__(self, given)

    block.__class__ = type(kind.__name__, (kind,), {"__call__": call})


def _version() -> str:
    from importlib.metadata import version

    return version("mlx-lm")


EMPTY = 0


class Hops:
    """What mlx-lm's stages hand on, digested at both ends and compared after each step: rank 0 has
    the last layers.

    mlx-lm sends inside its models and gives no seam to put a transport in. What a stage's last
    layer gives and its next stage's first layer takes can be seen, and what the final norm takes on
    every rank; so what changed on its way is detected, and is one error on every rank. Nothing is
    sent again.

    Args:
        model: of mlx-lm, with this rank's layers.
        rank, size: of this stage.
        group: of MLX.
    """

    def __init__(self, model: Any, *, rank: int, size: int, group: Any) -> None:
        self._rank = rank
        self._size = size
        self._group = group
        self._step = 0
        self._seen: dict[str, Any] = {}
        _note(model.layers[0], taken=lambda state: self._seen.update(taken=state))
        _note(model.layers[-1], given=lambda state: self._seen.update(given=state))
        if (norm := getattr(model.model, "norm", None)) is not None:
            _note(norm, taken=lambda state: self._seen.update(final=state))

    @property
    def arrays(self) -> list[Any]:
        """Return what has to be evaluated before `check`."""
        return list(self._seen.values())

    def check(self) -> None:
        """Hold what every rank took against what the rank before gave.

        Raises:
            MessageCorrupt: they differ; on every rank.
        """
        from harness._integrity import MessageCorrupt
        from harness._integrity.digest import digest

        states = [self._seen.get(name) for name in ("taken", "given", "final")]
        mine = [EMPTY if state is None else digest(_bytes(state)) for state in states]
        words = [half for state in mine for half in (state >> 32, state % 2**32)]
        gathered: Any = mx.distributed.all_gather(
            mx.array(words, dtype=mx.uint32)[None], group=self._group
        ).tolist()
        self._seen.clear()
        step = self._step
        self._step = self._step + 1
        for rank in range(self._size - 1):
            if gathered[rank][:2] != gathered[rank + 1][2:4]:
                raise MessageCorrupt(
                    f"the hidden state of step {step} changed on its way from rank {rank + 1} to"
                    f" rank {rank}",
                    peer=f"rank {rank + 1}",
                    sequence=step,
                )
        for rank in range(self._size):
            if gathered[rank][4:] != gathered[0][2:4] and gathered[rank][4:] != [EMPTY, EMPTY]:
                raise MessageCorrupt(
                    f"the last hidden state of step {step} changed on its way from rank 0 to rank"
                    f" {rank}",
                    peer="rank 0",
                    sequence=step,
                )


def _note(
    module: Any,
    *,
    taken: Callable[[Any], None] | None = None,
    given: Callable[[Any], None] | None = None,
) -> None:
    """Note what a module takes or gives: MLX has no hooks, so its class is one that notes."""
    kind = type(module)

    def call(self: Any, state: Any, *more: Any, **named: Any) -> Any:
        if taken is not None:
            taken(state)
        output = kind.__call__(self, state, *more, **named)
        if given is not None:
            given(output[0] if isinstance(output, tuple) else output)
        return output

    module.__class__ = type(kind.__name__, (kind,), {"__call__": call})


def _bytes(array: Any) -> Any:
    """Return the bytes of an evaluated array, in the order of its indices."""
    flat: Any = mx.contiguous(array).reshape(-1).view(mx.uint8)
    return memoryview(flat).cast("B")


def _run(context: Any, request: Request, *, sharding: str, integrity: str) -> None:
    engine = MlxLm(
        rank=context.rank,
        size=context.size,
        sharding=sharding,
        group=context.group.native,
        integrity=integrity,
    )
    session.run(context, engine, request)


@takes_a_request
def single(context: Any, **asked: Any) -> None:
    """Entry `mlx-single`: the whole model in each rank; what a reference is, in a world of one."""
    session.run(context, MlxLm(rank=0, size=1, sharding="single"), Request(**asked))


@takes_a_request
def tensor(context: Any, **asked: Any) -> None:
    """Entry `mlx-tensor`: mlx-lm's own tensor parallelism, by which each rank has its slices of
    every layer.
    """
    engine = MlxLm(
        rank=context.rank, size=context.size, sharding="tensor", group=context.group.native
    )
    session.run(context, engine, Request(**asked))


@takes_a_request
def pipeline(context: Any, *, integrity: str = "off", **asked: Any) -> None:
    """Entry `mlx-pipeline`: mlx-lm's own pipeline: rank 0 has the last layers, and every rank the
    head.
    """
    _run(context, Request(**asked), sharding="pipeline", integrity=integrity)


@takes_a_request
def sharded(
    context: Any, *, sharding: str = "tensor", integrity: str = "off", **asked: Any
) -> None:
    """Entry `mlx-sharded`: shared as an argument says, whole in each rank, by tensors or by
    layers.
    """
    _run(context, Request(**asked), sharding=sharding, integrity=integrity)
