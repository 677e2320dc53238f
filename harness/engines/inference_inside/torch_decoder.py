"""A decoder of anybody's, a module of torch, as an engine: an adapter for it loads it, splits it
and calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from . import layout, orders
from .engine import Order, Piece, Plan, products

aten = torch.ops.aten


class TorchDecoder(ABC):
    """What a session asks of an engine, of a decoder whose ranks all have logits.

    An adapter says in `load` what the model is, by `take_in` before and after it is split; how it
    is called, in `step`; and, where a parameter is not cut into even parts, in `shares` how it is.

    Args:
        name: of the engine.
        rank, size: of this process; one that holds the whole model is rank 0 of 1.
    """

    def __init__(self, name: str, *, rank: int, size: int) -> None:
        self.name = name
        self.rank = rank
        self.size = size
        self.architecture = ""
        self.device = "cpu"
        self.rows = 0
        self.has_logits = True
        self.whole = size == 1
        self.model: Any = None
        self.layers: Sequence[nn.Module] = ()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._hidden: dict[str, Tensor] = {}

    # -- what an adapter says ------------------------------------------------------------------

    @abstractmethod
    def load(self, folder: str, *, dtype: str, defect: str = "none") -> None:
        """Load the model, take it in, and split it; see `engine.Engine`."""

    @abstractmethod
    def begin(self) -> None:
        """Empty the cache; see `engine.Engine`."""

    @abstractmethod
    def step(self, ids: Sequence[int]) -> Tensor:
        """Call the model; see `engine.Engine`."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the tensors of the model that come from the checkpoint, by name: its state,
        without caches.
        """
        found: Mapping[str, Tensor] = self.model.state_dict()
        return found

    # An adapter tells tensors apart by it.
    def shares(self, name: str, here: Tensor, whole: Sequence[int]) -> list[list[layout.Range]]:  # noqa: ARG002
        """For each dimension the parts of a tensor that this rank holds, in the order it holds
        them.

        As given here: all of it, or the rank's part of as many even ones as there are ranks.
        """
        return [
            [(0, size)] if found == size else [(self.rank * found, (self.rank + 1) * found)]
            for found, size in zip(here.shape, whole, strict=True)
        ]

    def matrices(self, layer: nn.Module) -> Iterable[Tensor]:
        """Return what of a layer is multiplied to make it louder: its matrices, but for a
        router's.
        """
        return [
            value
            for name, value in layer.named_parameters()
            if value.ndim > 1
            and value.is_floating_point()
            and "gate." not in name
            and "router" not in name
        ]

    def take_in(self, model: Any, *, layers: Sequence[nn.Module], rows: int) -> None:
        """Take the whole model in, before it is split: the shapes of its tensors, and what comes
        out of its layers.
        """
        self.model = model
        self.layers = layers
        self.rows = rows
        self.architecture = type(model).__name__
        self._shapes = {name: tuple(value.shape) for name, value in self.tensors().items()}
        for number, layer in enumerate(layers):
            layer.register_forward_hook(self._noting(str(number)))

    # -- what a session asks -------------------------------------------------------------------

    def _noting(self, name: str) -> Any:
        def note(_layer: nn.Module, _given: Any, output: Any) -> None:
            state = output[0] if isinstance(output, tuple) else output
            self._hidden[name] = state.reshape(-1, state.shape[-1])

        return note

    def pieces(self) -> Iterator[Piece]:
        """See `engine.Engine`."""
        for name, value in self.tensors().items():
            for block in layout.blocks(
                name, self.shares(name, value, self._shapes[name]), self._shapes
            ):
                part = value[tuple(slice(*bounds) for bounds in block.local)].detach().contiguous()
                data = part.reshape(-1).view(torch.uint8).numpy().tobytes()
                yield Piece(
                    tensor=block.tensor, slices=[list(bounds) for bounds in block.whole], data=data
                )

    def stored(self) -> Collection[str]:
        """See `engine.Engine`."""
        return self._shapes.keys()

    def plan(self) -> Plan | None:
        """See `engine.Engine`: nobody reads how an engine that is not known shares."""
        return None

    def forget(self) -> None:
        """See `engine.Engine`."""
        raise NotImplementedError("an adapter whose sessions lose a position has its own")

    def hidden(self) -> dict[str, Tensor]:
        """See `engine.Engine`."""
        found = dict(self._hidden)
        self._hidden.clear()
        return found

    def decided(self, *, routers: bool) -> Any:  # noqa: ARG002 - it is the same either way
        """See `engine.Engine`: nobody looks at what a model chooses that is not known."""
        return None

    def routed(self) -> Any:
        """See `engine.Engine`."""
        return None

    def scores(self) -> dict[int, Any]:
        """See `engine.Engine`."""
        return {}

    def take(self, experts: Any) -> None:
        """See `engine.Engine`."""
        assert experts is None

    @contextmanager
    def scaled(self, layer: int, factor: float) -> Iterator[None]:
        """See `engine.Engine`."""
        before = [(matrix, matrix.detach().clone()) for matrix in self.matrices(self.layers[layer])]
        if not before:
            raise ValueError(
                f"no matrix was found in layer {layer}: let the adapter say in `matrices` which"
                " they are"
            )
        with torch.no_grad():
            for one, value in before:
                one.copy_(value * factor)
            try:
                yield
            finally:
                for one, value in before:
                    one.copy_(value)

    def together(self, parts: Sequence[Any]) -> Any:
        """See `engine.Engine`."""
        return torch.cat(list(parts))

    def numbers(self, row: Any) -> Any:
        """See `engine.Engine`."""
        return row.double().numpy()

    def agree(self, token: int | None) -> int:
        """See `engine.Engine`: every rank has logits, and chooses for itself."""
        assert token is not None
        return token

    def orders(self) -> Iterator[Order]:
        """See `engine.Engine`."""
        yield from products(lambda *cut: partial(_Products, orders.Cut(*cut)))
        yield Order("with two threads", partial(orders.threads, 2))


# Torch leaves the hook of its class untyped.
class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every product of matrices is made in parts of the inner dimension that are summed, whatever
    module makes it.
    """

    def __init__(self, cut: orders.Cut) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._cut = cut

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.addmm.default and not kwargs:
            return args[0] + self._product(aten.mm.default, *args[1:])
        if func in (aten.mm.default, aten.bmm.default) and args[0].is_floating_point():
            return self._product(func, *args)
        return func(*args, **(kwargs or {}))

    def _product(self, product: Any, left: Tensor, right: Tensor) -> Any:
        return sum(
            product(left[..., part], right[..., part, :]) for part in self._cut.of(left.shape[-1])
        )
