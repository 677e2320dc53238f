"""Which parts of a computation each tensor came of, followed without numbers.

Only which tensor came of which is needed: not what stands in them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

aten = torch.ops.aten
# They take a shape, a dtype, a device, and no number.
KINDS = ("zeros", "ones", "empty", "full")
OF_THE_SHAPE = {getattr(aten, name) for kind in KINDS for name in (f"{kind}_like", f"new_{kind}")}


class Origins(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves the hook of its class untyped
    """Around forward passes: the parts that tensors are marked with go over to what is made of them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._parts: Any = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket not in OF_THE_SHAPE and (come := self.of((args, kwargs))):
            for one in tree_leaves(made):
                if isinstance(one, Tensor):
                    self._parts[one] = self._parts.get(one, frozenset()) | come
        return made

    def mark(self, tensor: Tensor, part: int) -> Tensor:
        """A tensor that comes of that part alone; the same one."""
        self._parts[tensor] = frozenset({part})
        return tensor

    def of(self, tree: Any) -> frozenset[int]:
        """The parts that the tensors in nested lists and mappings came of."""
        found = (self._parts.get(one, frozenset()) for one in tree_leaves(tree) if isinstance(one, Tensor))
        return frozenset[int]().union(*found)

    def given(self, part: int, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What a layer is called with, its hidden state another one that comes of that part alone."""
        fresh = self.mark(torch.empty_like(given[0] if given else named["hidden_states"]), part)
        return ((fresh, *given[1:]), named) if given else (given, {**named, "hidden_states": fresh})
