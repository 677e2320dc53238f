"""Which parts of a computation each tensor came of, followed without numbers.

`ChunkOrigins` shows whether a layer reads a second chunk of a prompt after the whole of the first
one; `StageOrigins` whether a stage takes anything of the stages before it but the hidden state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

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
        found = (
            self._parts.get(leaf, frozenset())
            for leaf in tree_leaves(tree)
            if isinstance(leaf, Tensor)
        )
        return frozenset[int]().union(*found)

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
    """A layer reads a second chunk as if a part of what it keeps of the first were not there."""


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
        self._seen: defaultdict[int, list[frozenset[int]]] = defaultdict(list)
        self._names: list[str] = []
        self._layers = layers
        for number, layer in enumerate(layers):
            layer.register_forward_pre_hook(self._entering, with_kwargs=True)
            layer.register_forward_hook(self._left(number))

    def step_from(self, cache: Any) -> None:
        """A step begins: what the cache and its modules keep of each layer are parts, the same ones
        in each step.
        """
        self._names = []
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
            self._seen[number].append(self.of(output))

        return leave

    def demand_memory(self) -> None:
        """Demand that a chunk is read after all that a token is.

        Raises:
            Forgetful: a layer does otherwise.
        """
        for _, (_, chunk, token, *_) in sorted(self._seen.items()):
            if lost := sorted(token - chunk):
                raise Forgetful(
                    f"the {self._names[lost[0]]} are left out where a second chunk of a prompt is"
                    " read: ask prefill_chunk: 0 of the ranks, and envelope: unchunked of the"
                    " reference"
                )


class StageLeak(ValueError):
    """A layer takes something else of the layers before its stage than the hidden state."""


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
                    f"layer {number} takes more than the hidden state of the layers that are stage "
                    f"{min(others)}'s: hf-pipeline cannot split it"
                )

        return leave
