"""transformers as an engine: the whole model, transformers' own tensor parallelism, or stages of
our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import checkpoint, defects_hf, kv_cache, session, stages
from .choices import Margins, Routers
from .engine import LibraryPlan, Piece, Request, SumOrder, products, takes_a_request
from .handover import Handover, handover
from .torch_decoder import (
    Cut,
    TorchDecoder,
    padded,
    parts_of,
    pieces_of,
    setting,
    split,
    threads,
)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PROBE = 16
"""Tokens by which it is tried what padding changes."""


class Transformers(TorchDecoder):
    """Decoder of transformers.

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
        super().__init__(f"hf-{sharding}", rank=rank, size=size)
        self.has_logits = sharding != "pipeline" or rank == size - 1
        self._sharding = sharding
        self._distributed = distributed
        self._handover = handover or Handover(distributed, rank=rank, size=size)
        self._stage: stages.Stage | None = None
        self._cache: Any = None
        self._takes_cache = ""  # by which parameter
        self._seen = 0
        self._tokens = 0
        self._padding = 0
        self._batch = (0, 0)
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
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        self.architecture = (config.architectures or [config.model_type])[0]
        config = of_decoder(config)
        text = config.get_text_config()
        self._shapes = checkpoint.shapes(folder)
        self.rows = text.vocab_size
        self._load_model(folder, config, DTYPES[dtype])
        self._takes_cache = kv_cache.cache_parameter(type(self.model))
        self.model.eval()
        self.layers = list(stages.layers_of(self.model))
        if defect != "none":
            share = defects_hf.TransformersShare(
                model=self.model, stage=self._stage, rank=self.rank, size=self.size, folder=folder
            )
            with torch.no_grad():
                defects_hf.spoil(share, defect)
        first = self._stage.first if self._stage is not None else 0
        for number, layer in enumerate(self.layers, first):
            layer.register_forward_hook(self._watch(str(number)))
            for name, part in parts_of(layer):
                part.register_forward_hook(self._watch(f"{number}.{name}"))
        # A reference has the whole model, and tells how its choices were decided; nobody asks the
        # others.
        self._margins = Margins(self.model) if self.whole else None
        self._routers = Routers(
            text, self._shapes, layers=(first, first + len(self.layers)), margins=self._margins
        )

    def _load_model(self, folder: str, config: Any, dtype: torch.dtype) -> None:
        import transformers

        if self._sharding == "pipeline":
            self._stage = stages.Stage(self._handover, rank=self.rank, size=self.size)
            self.model = self._stage.load(folder, config, dtype=dtype)
            return
        sharing: dict[str, Any] = {}
        if self._sharding == "tensor" and self._distributed is not None:
            from transformers.distributed.configuration_utils import DistributedConfig

            refuse_tensor(config, self.size)
            sharing["distributed_config"] = DistributedConfig(tp_size=self.size, tp_plan="auto")
        auto: Any = transformers.AutoModelForCausalLM  # whose functions have no types
        self.model, loading = auto.from_pretrained(
            folder, dtype=dtype, local_files_only=True, output_loading_info=True, **sharing
        )
        stages.demand_whole(loading)

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
                self._hidden[name] = last[-self._tokens :].detach()

        return note

    def pieces(self) -> Iterator[Piece]:
        """See `engine.InferenceEngine`. Of tied tensors only the one that the checkpoint has is
        told.
        """
        rename = self._stage.original if self._stage is not None else str
        base = f"{self.model.base_model_prefix}."
        kept = self.model.state_dict().keys()
        for name, value in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if name in kept:  # others are buffers that are worked out anew, and in no checkpoint
                blocks = checkpoint.blocks(rename(name), _shares(value), self._shapes, base=base)
                yield from pieces_of(stages.local(value), blocks)

    def plan(self) -> LibraryPlan | None:
        """See `engine.InferenceEngine`."""
        return checkpoint.plan_of_transformers(self.model, self._shapes)

    def begin(self) -> None:
        """See `engine.InferenceEngine`."""
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self.model.config)
        self._seen = 0
        if self._margins is not None:
            self._margins.begin()
        if self._stage is not None:
            self._stage.begin()

    def forget(self) -> None:
        """See `engine.InferenceEngine`."""
        self._seen -= 1
        self._cache.crop(-1)

    def step(self, ids: Sequence[int]) -> Tensor | None:
        """See `engine.InferenceEngine`."""
        places = torch.arange(self._seen, self._seen + len(ids))[None]
        given = torch.tensor([list(ids)])
        self._tokens = len(ids)
        assert self._routers is not None
        with torch.no_grad():
            more = padded(given, places, self._seen, self._padding) if self._padding else {}
            if self._stage is not None:
                self._stage.receive(tokens=len(ids))
            arguments = {
                "input_ids": given,
                "position_ids": places,
                self._takes_cache: self._cache,
                "use_cache": True,
                **more,
            }
            batch, tokens = arguments["input_ids"].shape
            self._batch = (batch, tokens)
            if self._margins is not None:
                self._margins.step(batch, tokens, last=len(ids))
            with self._routers:
                logits = self.model(**arguments).logits
            if self._stage is not None:
                self._stage.send()
            elif self._seen == 0:  # the layers of a stage may have nothing to keep
                kv_cache.demand_kept(
                    self._cache, architecture=self.architecture, parameter=self._takes_cache
                )
        self._seen += len(ids)
        if not self.has_logits:
            return None
        # What is before the prompt is padding; the last of a batch is the prompt.
        rows: Tensor = logits[-1, -len(ids) :]
        return rows

    def scores(self) -> dict[int, Tensor]:
        """See `engine.InferenceEngine`."""
        assert self._routers is not None
        seen = self._routers.scores
        layers = self._routers.own
        if len(seen) != len(layers):
            raise ValueError(
                f"{self.architecture} has experts in {len(layers)} layers, but the number of"
                f" routers that were observed is {len(seen)}; remove routing: reference"
            )
        return {
            layer: scores[-self._tokens :].float()
            for layer, scores in zip(layers, seen, strict=True)
        }

    def decided(self, *, routers: bool) -> Tensor | None:
        """See `engine.InferenceEngine`."""
        return self._margins.taken(routers=routers) if self._margins is not None else None

    def routed(self) -> Tensor | None:
        """See `engine.InferenceEngine`."""
        assert self._routers is not None
        if not self._routers.chosen:
            return None
        return torch.stack([experts[-self._tokens :] for experts in self._routers.chosen], 1)

    def take(self, experts: Any) -> None:
        """See `engine.InferenceEngine`."""
        assert self._routers is not None
        self._routers.given = None if experts is None else torch.as_tensor(experts)

    every_layer_has_matrices = False

    def matrices(self, layer: nn.Module) -> Iterator[Tensor]:
        """Yield this rank's parts of a layer's matrices, but for a router's.

        Raises:
            ValueError: a matrix of whole numbers: a small factor would change nothing in it.
        """
        for name, value in layer.named_parameters():
            if value.ndim > 1 and ".gate." not in name:
                if not value.is_floating_point():
                    raise ValueError(
                        f"{name} cannot be scaled by a small factor, because its dtype is"
                        f" {value.dtype}"
                    )
                yield stages.local(value)

    def agree(self, token: int | None) -> int:
        """See `engine.InferenceEngine`: of stages the last one alone has logits."""
        if self._stage is not None and self.size > 1:
            return self._stage.agree(token)
        return super().agree(token)

    def orders(self) -> Iterator[SumOrder]:
        """See `engine.InferenceEngine`."""
        yield from products(lambda *cut: partial(split, self.model, Cut(*cut)))
        yield SumOrder("two threads", partial(threads, 2))
        if self._is_padded_alike():
            yield SumOrder("in a batch of two, padded", partial(setting, self, "_padding", 3))

    def _is_padded_alike(self) -> bool:
        """Return whether padding is another order of the same sums, and not another computation.

        Some cut what they keep into blocks by its place (MiniMax M3), or let a convolution read
        padding (RecurrentGemma). No rank pads: without it the envelope is narrower, never wider.
        """
        logits = list[Tensor | None]()
        self.take(None)
        for padding in (0, 3):
            with setting(self, "_padding", padding):
                self.begin()
                logits.append(self.step([token % self.rows for token in range(PROBE)]))
        self.begin()
        alone, beside_another = logits
        if alone is None or beside_another is None:
            return True
        least = torch.finfo(alone.dtype).eps ** 0.5 * alone.abs().max()
        return bool((alone - beside_another).abs().max() <= least)


def refuse_tensor(config: Any, size: int) -> None:
    """Refuse what transformers does not offer, or accepts and crashes in.

    Raises:
        ValueError: no plan for this architecture, or something that the plan cannot split evenly.
    """
    text = config.get_text_config()
    plan = getattr(text, "base_model_tp_plan", None)
    if not plan:
        if _has_plan_of_head(config):
            return  # layers are whole on every rank
        raise ValueError(
            f"transformers has no tensor-parallel plan for {config.model_type}; use hf-single or"
            " hf-pipeline"
        )
    if not any("att" in name and how == "colwise" for name, how in plan.items()):
        return  # attention is whole on every rank, or is gathered
    # Of some models (Dots 3) the layers differ, and the whole configuration does not tell of their
    # heads.
    layers = text.per_layer_config if getattr(text, "is_heterogeneous", False) else [text]
    for layer in layers:
        heads = layer.num_attention_heads
        kv_heads = getattr(layer, "num_key_value_heads", None) or heads
        if kv_heads % size:
            raise ValueError(
                f"{kv_heads} KV heads cannot be split over {size} ranks; use fewer ranks, or"
                " hf-pipeline"
            )
        if heads % size:
            raise ValueError(f"{heads} heads cannot be split over {size} ranks; use fewer ranks")


def _has_plan_of_head(config: Any) -> bool:
    """Return whether the class of a causal language model has a plan for what is behind its
    layers.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    kinds: Any = MODEL_FOR_CAUSAL_LM_MAPPING
    return type(config) in kinds and bool(getattr(kinds[type(config)], "_tp_plan", None))


def _shares(value: Any) -> list[list[checkpoint.Range]]:
    """Return the parts of each dimension that this rank holds of a parameter, by the placements of
    a DTensor.
    """
    shares: list[list[checkpoint.Range]] = [[(0, size)] for size in value.shape]
    for number, place in enumerate(getattr(value, "placements", ())):
        if not hasattr(place, "dim"):
            continue  # replicated
        dimension = place.dim % len(shares)
        groups = getattr(place, "split_factor", 1)
        length = value.shape[dimension] // groups
        rank = value.device_mesh.get_local_rank(number)
        # As torch.chunk: chunks of one size, and what is left for the last.
        most = -(-length // value.device_mesh.size(number))
        begin = min(rank * most, length)
        end = min(begin + most, length)
        shares[dimension] = [
            (group * length + begin, group * length + end) for group in range(groups)
        ]
    return shares


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


def _run(context: Any, asked: Mapping[str, Any], *, sharding: str, integrity: str) -> None:
    """Load, warm up, answer every prompt, over the group that the rank has joined.

    Tell what was mended between stages, or which message was lost.
    """
    placed = {"distributed": context.group.native, "rank": context.rank, "size": context.size}
    with handover(integrity, **placed, folder=context.shared) as between:
        engine = Transformers(**placed, sharding=sharding, handover=between)
        try:
            session.run(context, engine, Request(**asked))
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
    _run(context, asked, sharding="pipeline", integrity=integrity)


@takes_a_request
def sharded(
    context: Any, *, sharding: str = "tensor", integrity: str = "off", **asked: Any
) -> None:
    """Entry `hf-sharded`: shared as an argument says, whole in each rank, by tensors or by
    layers.
    """
    _run(context, asked, sharding=sharding, integrity=integrity)
