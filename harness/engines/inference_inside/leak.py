"""Whether a stage takes anything of the stages before it but the hidden state, followed through the whole model.

Some decoders give a layer what an earlier one chose, or the embeddings once more (Zamba, GLM's sparse attention): a
stage would go on without it, and compute something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from .origins import Origins


class Leak(ValueError):
    """A layer takes something else of the layers before its stage than the hidden state."""


class Followed(Origins):  # type: ignore[no-untyped-call]  # torch leaves the hook of its class untyped
    """Around forward passes of the whole model: which stage the numbers of each tensor come from.

    Args:
        embedding: whose output is the first stage's.
        layers: of the whole model.
        begins: the number of each stage's first layer, in order.
    """

    def __init__(self, embedding: nn.Module, layers: Sequence[nn.Module], begins: Sequence[int]) -> None:
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
                raise Leak(
                    f"layer {number} takes more than the hidden state of the layers that are stage "
                    f"{min(others)}'s: hf-pipeline cannot split it"
                )

        return leave
