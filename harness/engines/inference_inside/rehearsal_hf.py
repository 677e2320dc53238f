"""transformers rehearsed on tensors that have shapes and no numbers, whole or as stages.

No process joins a group. `ChunkOrigins` shows whether a layer reads a second chunk of a prompt
after the whole of the first one; `StageOrigins` whether a stage takes anything of the stages before
it but the hidden state.
"""

from __future__ import annotations

import importlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from . import checkpoint, stages
from .handover import Handover
from .hf import Transformers, of_decoder
from .rehearsal import STEPS

# What says that an answer depends on numbers, or that such a tensor lacks an operation: nothing of
# the model.
UNKNOWN = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedFakeTensorException,
    fake_tensor.UnsupportedOperatorException,
    NotImplementedError,
)


class Still(Handover):
    """Handover that takes and gives nothing."""

    def send(self, state: Tensor) -> None:
        """See `handover.Handover`."""

    def receive(self, state: Tensor) -> None:
        """See `handover.Handover`."""


def rehearse(folder: str, sharding: str, *, size: int, dtype: str) -> None:
    """Load a model as each rank of so many would, and have it take a prompt in chunks and a token
    more.

    Raises:
        Exception: what torch, transformers or the rank's own code raises.
    """
    # A mode is one thread's.
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    if sharding == "tensor":
        attempts = [
            partial(_sharing, folder, rank=rank, size=size, dtype=dtype) for rank in (0, size - 1)
        ]
    else:
        attempts = [
            partial(_alone, folder, sharding, rank=rank, size=size, dtype=dtype)
            for rank in range(size)
        ]
    if sharding == "pipeline" and size > 1:
        attempts.append(partial(_followed, folder, size=size, dtype=dtype))
    for attempt in attempts:
        try:
            attempt()
        except UNKNOWN:
            return


def in_chunks(folder: str, *, dtype: str) -> None:
    """Follow what the whole model reads a second chunk of a prompt after.

    Raises:
        Forgetful: less than what it reads a single token after.
    """
    try:
        with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
            engine = _loaded(folder, "single", rank=0, size=1, dtype=dtype)
            with ChunkOrigins(engine.layers) as followed:
                _steps(engine, followed)
    except UNKNOWN:
        return
    followed.demand_memory()


def _alone(folder: str, sharding: str, *, rank: int, size: int, dtype: str) -> None:
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        _steps(_loaded(folder, sharding, rank=rank, size=size, dtype=dtype))


def _sharing(folder: str, *, rank: int, size: int, dtype: str) -> None:
    """Rehearse a rank of those that share each layer: the first, or the last, which gets what is
    left.
    """
    with (
        group_alone(rank=rank, size=size) as group,
        fake_tensor.FakeTensorMode(allow_non_fake_inputs=True),
    ):
        _steps(_loaded(folder, "tensor", rank=rank, size=size, dtype=dtype, distributed=group))


def _followed(folder: str, *, size: int, dtype: str) -> None:
    """Follow the whole model: a stage that lacks something of another one may go on without an
    error.
    """
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        engine = _loaded(folder, "single", rank=0, size=1, dtype=dtype)
        many = len(engine.layers)
        begins = [stages.share(many, size=size, rank=rank)[0] for rank in range(size)]
        with StageOrigins(engine.model.get_input_embeddings(), engine.layers, begins):
            _steps(engine)


def _loaded(
    folder: str, sharding: str, *, rank: int, size: int, dtype: str, distributed: Any = None
) -> Transformers:
    import transformers

    stages.read = _read
    # Dory copies what its cache has for a layer; DeepSeek-V4's constructors convert modules.
    fake_tensor.FakeTensor.__deepcopy__ = _copied  # type: ignore[method-assign]
    nn.Module._apply = _converted  # type: ignore[method-assign]  # noqa: SLF001
    auto: Any = transformers.AutoModelForCausalLM
    auto.from_pretrained = _loader(auto)
    still = Still(distributed, rank=rank, size=size)
    engine = Transformers(
        rank=rank, size=size, sharding=sharding, distributed=distributed, handover=still
    )
    engine.load(folder, dtype=dtype)
    # The faster products of experts want 16 bits where there are no numbers, and the slowest loops
    # over numbers.
    vars(engine.model.config.get_text_config())["_experts_implementation_internal"] = "batched_mm"
    return engine


def _steps(engine: Transformers, followed: ChunkOrigins | None = None) -> None:
    engine.begin()
    for tokens in STEPS:
        if followed is not None:
            followed.step_from(vars(engine)["_cache"])
        logits = engine.step([0] * tokens)
        if logits is not None and tuple(logits.shape) != (tokens, engine.rows):
            raise ValueError(
                f"{tokens} tokens produced logits of shape {list(logits.shape)}, not"
                f" {[tokens, engine.rows]}"
            )


def _read(folder: str, *, skip: Callable[[str], bool]) -> dict[str, Tensor]:
    """Return what `stages.read` does, of the headers alone."""
    return {
        name: torch.empty(tensor.shape, dtype=stages.DTYPES.get(tensor.dtype, torch.uint8))
        for name, tensor in checkpoint.stored(folder).items()
        if not skip(name)
    }


def _copied(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """Return a copy of a tensor without numbers; torch's own copies the storage, and crashes."""
    copy = tensor.clone()
    memo[id(tensor)] = copy
    return copy


def _converted(
    module: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True
) -> nn.Module:
    """Convert a module's tensors, as `nn.Module._apply` does; torch's own swaps what two tensors
    are, which it cannot do with those without numbers.
    """
    for inner in module.children() if recurse else ():
        _converted(inner, function)
    for name, value in module.named_parameters(recurse=False):
        with torch.no_grad():
            converted = function(value)
        if converted is not value:
            setattr(module, name, nn.Parameter(converted, requires_grad=value.requires_grad))
    for name, buffer in module.named_buffers(recurse=False):
        setattr(module, name, function(buffer))
    return module


def _loader(auto: Any) -> Callable[..., Any]:
    """Return what `from_pretrained` of a class does, its tensors read by `_read`."""

    def load(folder: str, **named: Any) -> Any:
        import transformers

        config = of_decoder(transformers.AutoConfig.from_pretrained(folder, local_files_only=True))
        with torch.device("meta"):
            kind = type(auto.from_config(config))
        state = _read(folder, skip=lambda _name: False)
        return kind.from_pretrained(None, config=config, state_dict=state, **named)

    return load


# Where a library looks for a function, and its name.
WITH_NUMBERS = (
    ("torch.distributed", "init_device_mesh"),
    ("torch.distributed.device_mesh:DeviceMesh", "__getitem__"),
    ("torch.distributed.device_mesh:DeviceMesh", "_flatten"),
    ("transformers.distributed.sharding_utils", "compute_local_shape_and_global_offset"),
)


@contextmanager
def group_alone(*, rank: int, size: int) -> Iterator[Any]:
    """Join a group in which nobody answers, and collectives give the right shape; the module
    torch.distributed.

    torch has such a backend for its own tests. What it works out about ranks with small tensors of
    its own needs numbers, and is made outside of the mode in which tensors have none.

    Raises:
        NotImplementedError: this release of torch or transformers is arranged otherwise.
    """
    try:
        fake_pg = _arranged()
    except (ImportError, AttributeError) as error:
        raise NotImplementedError(
            "this version of torch or transformers cannot simulate a process group in one process"
        ) from error
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
    }
    distributed: Any = torch.distributed
    distributed.init_process_group("fake", rank=rank, world_size=size, store=fake_pg.FakeStore())
    try:
        yield distributed
    finally:
        distributed.destroy_process_group()


@cache
def _arranged() -> Any:
    """Return the module of torch's backend; what needs numbers has them from now on."""
    fake_pg = importlib.import_module("torch.testing._internal.distributed.fake_pg")
    for where, name in WITH_NUMBERS:
        module, _, kind = where.partition(":")
        place: Any = importlib.import_module(module)
        place = getattr(place, kind) if kind else place
        setattr(place, name, _with_numbers(getattr(place, name)))
    return fake_pg


def _with_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def outside(*given: Any, **named: Any) -> Any:
        with fake_tensor.unset_fake_temporarily():
            return function(*given, **named)

    return outside


aten = torch.ops.aten
# They take a shape, a dtype, a device, and no number.
KINDS = ("zeros", "ones", "empty", "full")
OF_THE_SHAPE = {getattr(aten, name) for kind in KINDS for name in (f"{kind}_like", f"new_{kind}")}


# Torch leaves the hook of its class untyped.
class Origins(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Around forward passes: the parts that tensors are marked with go over to what is made of
    them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._parts: Any = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket not in OF_THE_SHAPE and (come := self.of((args, kwargs))):
            for leaf in tree_leaves(result):
                if isinstance(leaf, Tensor):
                    self._parts[leaf] = self._parts.get(leaf, frozenset()) | come
        return result

    def mark(self, tensor: Tensor, part: int) -> Tensor:
        """Return a tensor that comes of that part alone; the same one."""
        self._parts[tensor] = frozenset({part})
        return tensor

    def of(self, tree: Any) -> frozenset[int]:
        """Return the parts that the tensors in nested lists and mappings came of."""
        parts = (
            self._parts.get(leaf, frozenset())
            for leaf in tree_leaves(tree)
            if isinstance(leaf, Tensor)
        )
        return frozenset[int]().union(*parts)

    def given(self, part: int, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return what a layer is called with, its hidden state another one that comes of that part
        alone.
        """
        fresh = self.mark(torch.empty_like(given[0] if given else named["hidden_states"]), part)
        return ((fresh, *given[1:]), named) if given else (given, {**named, "hidden_states": fresh})


OF_MODULES = set(vars(nn.Module()))
OWN = -1
"""The part of what is read in a step itself."""


class Forgetful(ValueError):
    """Raised of a layer that reads a second chunk without a part of what it keeps of the first."""


# Torch leaves the hook of its class untyped.
class ChunkOrigins(Origins):  # type: ignore[no-untyped-call]
    """Around the steps of a prompt in two chunks and a token more: what each layer makes its output
    of.

    Layers that keep a state beside keys and values, in the cache (Jamba's, Zamba's) or in
    themselves (RecurrentGemma's), may go on from all of it with a single token, and with several at
    once from a part of it: what a prompt says in chunks is another thing than what it says whole,
    however the model is split.

    Args:
        layers: of the whole model.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        # Of each step, what each layer made its outputs of: some decoders run a layer several times.
        self._seen: list[defaultdict[int, frozenset[int]]] = []
        self._names: list[str] = []
        self._layers = layers
        for number, layer in enumerate(layers):
            layer.register_forward_pre_hook(self._entering, with_kwargs=True)
            layer.register_forward_hook(self._left(number))

    def step_from(self, cache: Any) -> None:
        """Begin a step: what the cache and its modules keep of each layer are parts, the same ones
        in each step.
        """
        self._names = []
        self._seen.append(defaultdict(frozenset))
        kept_of = [(number, kept) for number, kept in enumerate(getattr(cache, "layers", ()))]
        kept_of += [
            (number, module)
            for number, layer in enumerate(self._layers)
            for module in layer.modules()
        ]
        for number, kept in kept_of:
            for name, states in sorted(vars(kept).items()):
                if isinstance(kept, nn.Module) and name in OF_MODULES:
                    continue  # what it was loaded with, and no state
                for state in tree_leaves(states):
                    if isinstance(state, Tensor):
                        self.mark(state, len(self._names))
                        self._names.append(f"{name} of layer {number}")

    def _entering(self, _module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return self.given(OWN, given, named)

    def _left(self, number: int) -> Any:
        def leave(_module: nn.Module, _given: Any, output: Any) -> None:
            self._seen[-1][number] |= self.of(output)

        return leave

    def demand_memory(self) -> None:
        """Demand that a chunk is read after all that a token is.

        Raises:
            Forgetful: a layer does otherwise.
        """
        _, chunk, token = self._seen
        for number in sorted(token):
            if lost := sorted(token[number] - chunk[number]):
                raise Forgetful(
                    f"the model ignores the {self._names[lost[0]]} when it processes the second"
                    " chunk of a prompt, but not when it processes a single token; set"
                    " prefill_chunk: 0 for the ranks, and envelope: unchunked for the reference"
                )


class StageLeak(ValueError):
    """Raised of a layer that takes more of the layers before its stage than the hidden state."""


# Torch leaves the hook of its class untyped.
class StageOrigins(Origins):  # type: ignore[no-untyped-call]
    """Around forward passes of the whole model: which stage the numbers of each tensor come from.

    Some decoders give a layer what an earlier one chose, or the embeddings once more (Zamba, GLM's
    sparse attention): a stage would go on without it, and compute something else.

    Args:
        embedding: whose output is the first stage's.
        layers: of the whole model.
        begins: the number of each stage's first layer, in order.
    """

    def __init__(
        self, embedding: nn.Module, layers: Sequence[nn.Module], begins: Sequence[int]
    ) -> None:
        super().__init__()
        embedding.register_forward_hook(self._first)
        for number, layer in enumerate(layers):
            stage = sum(begin <= number for begin in begins) - 1
            if number in begins[1:]:
                layer.register_forward_pre_hook(self._entering(stage), with_kwargs=True)
            layer.register_forward_hook(self._left(number, stage))

    def _first(self, _module: nn.Module, _given: Any, output: Tensor) -> None:
        self.mark(output, 0)

    def _entering(self, stage: int) -> Any:
        def enter(_module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
            return self.given(stage, given, named)

        return enter

    def _left(self, number: int, stage: int) -> Any:
        def leave(_module: nn.Module, _given: Any, output: Any) -> None:
            if others := self.of(output) - {stage}:
                raise StageLeak(
                    f"layer {number} uses more than the hidden state from the layers of stage"
                    f" {min(others)}, so hf-pipeline cannot split the model"
                )

        return leave
