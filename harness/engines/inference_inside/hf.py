"""transformers as an engine: the whole model, transformers' own tensor parallelism, or stages of
our own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import checkpoint, defects_hf, session, stages, torch_decoder
from .choices import Margins, Routers
from .engine import Order, Piece, Plan, Request, products, takes_a_request
from .handover import Handover, handover

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PROBE = 16
"""Tokens by which it is tried what padding changes."""


class Transformers:
    """A decoder of transformers.

    Args:
        rank, size: of this process; one that holds the whole model is rank 0 of 1.
        sharding: `single`, `tensor` or `pipeline`.
        distributed: the module torch.distributed, with a group joined; None for `single`.
        handover: between the stages of a `pipeline`; by that module where none is given.
    """

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        sharding: str,
        distributed: Any = None,
        handover: Handover | None = None,
    ) -> None:
        self.name = f"hf-{sharding}"
        self.architecture = ""
        self.device = "cpu"
        self.rows = 0
        self.whole = size == 1
        self.has_logits = sharding != "pipeline" or rank == size - 1
        self._rank = rank
        self._size = size
        self._sharding = sharding
        self._distributed = distributed
        self._handover = (
            Handover(distributed, rank=rank, size=size) if handover is None else handover
        )
        self._model: Any = None
        self._stage: stages.Stage | None = None
        self._cache: Any = None
        self._seen = self._tokens = 0
        self._padding = 0
        self._batch = (0, 0)
        self._layers: dict[str, Tensor] = {}
        self._routers: Routers | None = None
        self._margins: Margins | None = None

    def load(self, folder: str, *, dtype: str, defect: str = "none") -> None:
        """Load the model, this rank's slices or this rank's layers.

        Raises:
            ValueError: this engine does not offer the model at this world size; the message says
                why.
        """
        import transformers

        logging: Any = transformers.logging
        logging.disable_progress_bar()
        logging.set_verbosity_error()  # what a stage lacks on purpose would be reported as missing
        auto: Any = transformers.AutoModelForCausalLM
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        self.architecture = (config.architectures or [config.model_type])[0]
        config = of_decoder(config)
        self._checkpoint = checkpoint.shapes(folder)
        self.rows = config.get_text_config().vocab_size
        of_all: dict[str, Any] = {
            "dtype": DTYPES[dtype],
            "local_files_only": True,
            "output_loading_info": True,
        }
        loading: Any = {"missing_keys": (), "unexpected_keys": ()}
        if self._sharding == "pipeline":
            self._stage = stages.Stage(self._handover, rank=self._rank, size=self._size)
            self._model = self._stage.load(folder, config, dtype=DTYPES[dtype])
        elif self._sharding == "tensor" and self._distributed is not None:
            from transformers.distributed.configuration_utils import DistributedConfig

            refuse_tensor(config, self._size)
            plan = DistributedConfig(tp_size=self._size, tp_plan="auto")
            self._model, loading = auto.from_pretrained(folder, distributed_config=plan, **of_all)
        else:
            self._model, loading = auto.from_pretrained(folder, **of_all)
        stages.demand_whole(loading)
        self._model.eval()
        if defect != "none":
            share = defects_hf.TransformersShare(
                model=self._model,
                stage=self._stage,
                rank=self._rank,
                size=self._size,
                folder=folder,
            )
            with torch.no_grad():
                defects_hf.spoil(share, defect)
        first = self._stage.first if self._stage is not None else 0
        for number, layer in enumerate(stages.layers_of(self._model), first):
            layer.register_forward_hook(self._watch(str(number)))
            for name, part in torch_decoder.parts_of(layer):
                part.register_forward_hook(self._watch(f"{number}.{name}"))
        # A reference has the whole model, and tells how its choices were decided; nobody asks the
        # others.
        self._margins = Margins(self._model) if self.whole else None
        self._routers = Routers(
            config.get_text_config(),
            self._checkpoint,
            layers=(first, first + len(stages.layers_of(self._model))),
            margins=self._margins,
        )

    def _watch(self, name: str) -> Any:
        def note(_module: nn.Module, _given: Any, output: Any) -> None:
            state = output[0] if isinstance(output, tuple) else output
            if isinstance(state, Tensor) and state.ndim > 1:
                # Experts give the tokens of the whole batch one below the other; Gemma 3n's layers
                # several states of each token, `[states, batch, tokens, width]`, of which the last
                # is told, DeepSeek-V4's all of a token side by side, `[batch, tokens, states,
                # width]`.
                if state.ndim == 4 and tuple(state.shape[:2]) == self._batch:
                    state = state.flatten(2)
                last = state.flatten(0, -3)[-1] if state.ndim > 2 else state
                self._layers[name] = last[-self._tokens :].detach()

        return note

    def pieces(self) -> Iterator[Piece]:
        """See `engine.Engine`. Of tied tensors only the one that the checkpoint has is told."""
        rename = self._stage.original if self._stage is not None else str
        base = f"{self._model.base_model_prefix}."
        named = [*self._model.named_parameters(remove_duplicate=True), *self._model.named_buffers()]
        kept = self._model.state_dict().keys()
        for name, found in named:
            if name not in kept:
                continue  # a buffer that is worked out anew, and is in no checkpoint
            local = found.to_local() if hasattr(found, "to_local") else found
            for block in checkpoint.blocks(
                rename(name), _shares(found), self._checkpoint, base=base
            ):
                box = local.detach()[tuple(slice(*bounds) for bounds in block.local)].contiguous()
                data = box.reshape(-1).view(torch.uint8).numpy().tobytes()
                yield Piece(
                    tensor=block.tensor, slices=[list(bounds) for bounds in block.whole], data=data
                )

    def stored(self) -> Collection[str]:
        """See `engine.Engine`."""
        return self._checkpoint.keys()

    def plan(self) -> Plan | None:
        """See `engine.Engine`."""
        return checkpoint.plan_of_transformers(self._model, self._checkpoint)

    def begin(self) -> None:
        """See `engine.Engine`."""
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self._model.config)
        self._seen = 0
        if self._margins is not None:
            self._margins.begin()
        if self._stage is not None:
            self._stage.begin()

    def forget(self) -> None:
        """See `engine.Engine`."""
        self._seen -= 1
        self._cache.crop(-1)

    def step(self, ids: Sequence[int]) -> Tensor | None:
        """See `engine.Engine`."""
        places = torch.arange(self._seen, self._seen + len(ids))[None]
        given = torch.tensor([list(ids)])
        self._tokens = len(ids)
        assert self._routers is not None
        with torch.no_grad():
            more = (
                torch_decoder.padded(given, places, self._seen, self._padding)
                if self._padding
                else {}
            )
            if self._stage is not None:
                self._stage.receive(tokens=len(ids))
            arguments = {
                "input_ids": given,
                "position_ids": places,
                "past_key_values": self._cache,
                "use_cache": True,
                **more,
            }
            batch, tokens = arguments["input_ids"].shape
            self._batch = (batch, tokens)
            if self._margins is not None:
                self._margins.step(batch, tokens, last=len(ids))
            with self._routers:
                logits = self._model(**arguments).logits
            if self._stage is not None:
                self._stage.send()
        self._seen += len(ids)
        if not self.has_logits:
            return None
        # What is before the prompt is padding; the last of a batch is the prompt.
        found: Tensor = logits[-1, -len(ids) :]
        return found

    def hidden(self) -> dict[str, Tensor]:
        """See `engine.Engine`."""
        found = self._layers
        self._layers = {}
        return found

    def scores(self) -> dict[int, Tensor]:
        """See `engine.Engine`."""
        assert self._routers is not None
        seen = self._routers.scores
        layers = self._routers.own
        if len(seen) != len(layers):
            raise ValueError(
                f"{self.architecture} has experts in {len(layers)} layers here, and the routers of"
                f" {len(seen)} were seen: leave routing: reference out"
            )
        return {
            layer: scores[-self._tokens :].float()
            for layer, scores in zip(layers, seen, strict=True)
        }

    def decided(self, *, routers: bool) -> Tensor | None:
        """See `engine.Engine`."""
        return self._margins.told(routers=routers) if self._margins is not None else None

    def routed(self) -> Tensor | None:
        """See `engine.Engine`."""
        assert self._routers is not None
        return (
            torch.stack([experts[-self._tokens :] for experts in self._routers.chosen], 1)
            if self._routers.chosen
            else None
        )

    def take(self, experts: Any) -> None:
        """See `engine.Engine`."""
        assert self._routers is not None
        self._routers.given = None if experts is None else torch.as_tensor(experts)

    @contextmanager
    def scaled(self, layer: int, factor: float) -> Iterator[None]:
        """See `engine.Engine`."""
        held = [
            found.to_local() if hasattr(found, "to_local") else found
            for name, found in stages.layers_of(self._model)[layer].named_parameters()
            if found.ndim > 1 and ".gate." not in name
        ]
        before = [found.detach().clone() for found in held]
        try:
            with torch.no_grad():
                for found in held:
                    found.mul_(factor)
            yield
        finally:
            with torch.no_grad():
                for found, kept in zip(held, before, strict=True):
                    found.copy_(kept)

    def together(self, parts: Sequence[Tensor]) -> Tensor:
        """See `engine.Engine`."""
        return torch.cat(list(parts))

    def numbers(self, row: Tensor) -> Any:
        """See `engine.Engine`."""
        return row.double().numpy()

    def agree(self, token: int | None) -> int:
        """See `engine.Engine`."""
        if self._stage is not None and self._size > 1:
            return self._stage.agree(token)
        assert token is not None
        return token

    def orders(self) -> Iterator[Order]:
        """See `engine.Engine`."""
        yield from products(
            lambda *cut: partial(torch_decoder.split, self._model, torch_decoder.Cut(*cut))
        )
        yield Order("two threads", partial(torch_decoder.threads, 2))
        if self._is_padded_alike():
            yield Order("in a batch of two, padded", self._padded)

    def _padded(self) -> AbstractContextManager[Any]:
        return torch_decoder.setting(self, "_padding", 3)

    def _is_padded_alike(self) -> bool:
        """Return whether padding is another order of the same sums, and not another computation.

        Some cut what they keep into blocks by its place (MiniMax M3), or let a convolution read
        padding (RecurrentGemma). No rank pads: without it the envelope is narrower, never wider.
        """
        found = list[Tensor | None]()
        self.take(None)
        for padding in (0, 3):
            with torch_decoder.setting(self, "_padding", padding):
                self.begin()
                found.append(self.step([token % self.rows for token in range(PROBE)]))
        self.begin()
        alone, padded = found
        if alone is None or padded is None:
            return True
        return bool(
            (alone - padded).abs().max() <= torch.finfo(alone.dtype).eps ** 0.5 * alone.abs().max()
        )


def refuse_tensor(config: Any, size: int) -> None:
    """Refuse what transformers does not offer, or accepts and crashes in.

    Raises:
        ValueError: no plan for this architecture, or something that the plan cannot split evenly.
    """
    text = config.get_text_config()
    if not (plan := getattr(text, "base_model_tp_plan", None)):
        if _of_head(config):
            return  # layers are whole on every rank
        raise ValueError(
            f"transformers has no tensor-parallel plan for {config.model_type}: take hf-pipeline"
        )
    if not any("att" in name and how == "colwise" for name, how in plan.items()):
        return  # attention is whole on every rank, or is gathered
    # Of some models (Dots 3) the layers differ, and the whole configuration does not tell of their
    # heads.
    for layer in text.per_layer_config if getattr(text, "is_heterogeneous", False) else [text]:
        if (
            heads := getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads
        ) % size:
            raise ValueError(
                f"{heads} KV heads cannot be split over {size} ranks: take fewer ranks, or"
                " hf-pipeline"
            )
        if layer.num_attention_heads % size:
            raise ValueError(
                f"{layer.num_attention_heads} heads cannot be split over {size} ranks: take fewer"
                " ranks"
            )


def _of_head(config: Any) -> dict[str, str]:
    """Return the plan that the class of a causal language model has for what stands behind its
    layers.

    Empty without.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    kinds: Any = MODEL_FOR_CAUSAL_LM_MAPPING
    return (getattr(kinds[type(config)], "_tp_plan", None) if type(config) in kinds else None) or {}


def _shares(found: Any) -> list[list[checkpoint.Range]]:
    """Return the parts of each dimension that this rank holds of a parameter, by the placements of
    a DTensor.
    """
    shares: list[list[checkpoint.Range]] = [[(0, size)] for size in found.shape]
    for place, size, rank in _placements(found):
        dimension = place.dim % len(shares)
        groups = getattr(place, "split_factor", 1)
        length = found.shape[dimension] // groups
        begin, end = _chunk(length, size, rank)
        shares[dimension] = [
            (group * length + begin, group * length + end) for group in range(groups)
        ]
    return shares


def _placements(found: Any) -> Iterator[tuple[Any, int, int]]:
    if not hasattr(found, "placements"):
        return
    for number, place in enumerate(found.placements):
        if hasattr(place, "dim"):
            yield place, found.device_mesh.size(number), found.device_mesh.get_local_rank(number)


def _chunk(length: int, size: int, rank: int) -> checkpoint.Range:
    """Return what torch.chunk gives a rank: chunks of one size, and what is left for the last."""
    most = -(-length // size)
    return min(rank * most, length), min((rank + 1) * most, length)


def of_decoder(config: Any) -> Any:
    """Return the configuration from which the causal language model is made.

    The same where it is of nothing else.

    Some models of text and images (Qwen3.5) are published with the configuration of all of it, and
    transformers' class for causal language models takes the decoder of them: then the configuration
    is that of the text alone, as `from_pretrained` of that class has it by itself.
    """
    import transformers

    known: Any = getattr(transformers.AutoModelForCausalLM, "_model_mapping", {})
    kind = known.get(type(config), None)
    text = getattr(config, "sub_configs", {}).get("text_config")
    return (
        config.get_text_config()
        if text is not None and getattr(kind, "config_class", None) is text
        else config
    )


def _run(context: Any, request: Request, *, sharding: str, integrity: str) -> None:
    """Load, warm up, answer every prompt.

    Tell what was mended between stages, or which message was lost.

    Args:
        context: of the rank.
        request: what is asked.
        sharding: `single`, `tensor` or `pipeline`.
        integrity: of a pipeline: `off`, `light` or `full`.
    """
    distributed = context.group.native
    rank = context.rank
    size = context.size
    with handover(
        integrity, distributed=distributed, rank=rank, size=size, folder=context.shared
    ) as between:
        engine = Transformers(
            rank=rank, size=size, sharding=sharding, distributed=distributed, handover=between
        )
        try:
            session.run(context, engine, request)
        except between.failures as error:
            context.emit("lost", peer=error.peer, message=error.sequence)
            raise
        if (mended := between.mended()) is not None:
            context.emit(
                "carried",
                damaged=mended["damaged"],
                sent_again=mended["sent_again"],
                duplicates=mended["duplicates"],
                early=mended["early"],
                made_anew=mended["made_anew"],
            )


@takes_a_request
def single(context: Any, **asked: Any) -> None:
    """Entry `hf-single`: the whole model in each rank; what a reference is, in a world of one."""
    session.run(context, Transformers(rank=0, size=1, sharding="single"), Request(**asked))


@takes_a_request
def tensor(context: Any, **asked: Any) -> None:
    """Entry `hf-tensor`: transformers' own tensor parallelism, by which each rank has its slices of
    every layer.
    """
    engine = Transformers(
        rank=context.rank, size=context.size, sharding="tensor", distributed=context.group.native
    )
    session.run(context, engine, Request(**asked))


@takes_a_request
def pipeline(context: Any, *, integrity: str = "off", **asked: Any) -> None:
    """Entry `hf-pipeline`: a decoder split by layers over the ranks, in stages of our own."""
    _run(context, Request(**asked), sharding="pipeline", integrity=integrity)


@takes_a_request
def sharded(
    context: Any, *, sharding: str = "tensor", integrity: str = "off", **asked: Any
) -> None:
    """Entry `hf-sharded`: shared as an argument says, whole in each rank, by tensors or by
    layers.
    """
    _run(context, Request(**asked), sharding=sharding, integrity=integrity)
