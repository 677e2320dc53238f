"""Whether a layer reads a second chunk of a prompt after the first, or as if nothing stood before it.

Layers that keep a state beside keys and values, in the cache (Jamba's, Zamba's) or in themselves (RecurrentGemma's),
may go on from all of it with a single token, and with several at once from a part of it: what a prompt says in chunks
is another thing than what it says whole, however the model is split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from .origins import Origins

OF_MODULES = set(vars(nn.Module()))
OWN = -1
"""The part of what is read in a step itself."""


class Forgetful(ValueError):
    """A layer reads a second chunk as if a part of what it keeps of the first were not there."""


class Chunks(Origins):  # type: ignore[no-untyped-call]  # torch leaves the hook of its class untyped
    """Around the steps of a prompt in two chunks and a token more: what each layer makes its output of.

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
        """A step begins: what the cache and its modules keep of each layer are parts, the same ones in each step."""
        self._names = []
        kept_of = [(number, kept) for number, kept in enumerate(getattr(cache, "layers", ()))]
        kept_of += [(number, module) for number, layer in enumerate(self._layers) for module in layer.modules()]
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
                    f"the {self._names[lost[0]]} are left out where a second chunk of a prompt is read: ask "
                    "prefill_chunk: 0 of the ranks, and envelope: unchunked of the reference"
                )
