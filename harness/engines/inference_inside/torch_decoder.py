"""Decoder that is a module of torch, as an engine: an adapter loads it, splits it and calls it.

And other orders in which such a model may add up the same sums: what rounding alone does to its
logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from . import checkpoint
from .engine import ROUTER, InferenceEngine, Piece, SumOrder, part_name, products

aten = torch.ops.aten


class TorchDecoder(InferenceEngine):
    """Decoder that is a module of torch.

    An adapter says in `load` what the model is, by `take_in` before and after it is split; how it
    is called, in `step`; and, where a parameter is not cut into even parts, in `shares` how it is.
    """

    def __init__(self, name: str, *, rank: int, size: int) -> None:
        super().__init__(name, rank=rank, size=size)
        self.layers: Sequence[nn.Module] = ()

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the tensors of the model that come from the checkpoint, by name: its state,
        without caches.
        """
        state: Mapping[str, Tensor] = self.model.state_dict()
        return state

    def shares(
        self,
        name: str,  # noqa: ARG002 - an adapter tells tensors apart by it
        here: Tensor,
        whole: Sequence[int],
    ) -> list[list[checkpoint.Range]]:
        """For each dimension the parts of a tensor that this rank holds, in the order it holds
        them.

        As given here: all of it, or the rank's part of as many even ones as there are ranks.
        """
        return checkpoint.even_shares(here.shape, whole, rank=self.rank)

    # A rank of an adapter has a part of every layer; one of a pipeline has not.
    every_layer_has_matrices: ClassVar[bool] = True

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

    def _noting(self, name: str) -> Any:
        def note(_layer: nn.Module, _given: Any, output: Any) -> None:
            state = output[0] if isinstance(output, tuple) else output
            self._hidden[name] = state.reshape(-1, state.shape[-1])

        return note

    def pieces(self) -> Iterator[Piece]:
        """See `engine.InferenceEngine`."""
        for name, value in self.tensors().items():
            shares = self.shares(name, value, self._shapes[name])
            yield from pieces_of(value, checkpoint.blocks(name, shares, self._shapes))

    @contextmanager
    def scaled(self, layer: int, factor: float) -> Iterator[None]:
        """See `engine.InferenceEngine`."""
        before = [(matrix, matrix.detach().clone()) for matrix in self.matrices(self.layers[layer])]
        if not before and self.every_layer_has_matrices:
            raise ValueError(
                f"no matrix was found in layer {layer}; list its matrices in the adapter's"
                " `matrices`"
            )
        with torch.no_grad():
            for matrix, value in before:
                matrix.copy_(value * factor)
            try:
                yield
            finally:
                for matrix, value in before:
                    matrix.copy_(value)

    def together(self, parts: Sequence[Tensor]) -> Tensor:
        """See `engine.InferenceEngine`."""
        return torch.cat(list(parts))

    def numbers(self, row: Tensor) -> Any:
        """See `engine.InferenceEngine`."""
        return row.double().numpy()

    def orders(self) -> Iterator[SumOrder]:
        """See `engine.InferenceEngine`."""
        yield from products(lambda *cut: partial(_Products, Cut(*cut)))
        yield SumOrder("with two threads", partial(threads, 2))


def pieces_of(value: Tensor, blocks: Iterable[checkpoint.ParameterBlock]) -> Iterator[Piece]:
    """Yield what a rank holds of a parameter, slice by slice of the checkpoint's tensors."""
    for block in blocks:
        box = value.detach()[tuple(slice(*bounds) for bounds in block.local)].contiguous()
        data = box.reshape(-1).view(torch.uint8).numpy().tobytes()
        yield Piece(tensor=block.tensor, slices=[list(bounds) for bounds in block.whole], data=data)


# Torch leaves the hook of its class untyped.
class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Mode in which every product of matrices is made in parts of the inner dimension that are
    summed, whatever module makes it.
    """

    def __init__(self, cut: Cut) -> None:
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


Forward = Callable[[Tensor], Tensor]


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Give torch's kernels so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def setting(thing: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute to another value for a while."""
    before = getattr(thing, name)
    setattr(thing, name, value)
    try:
        yield
    finally:
        setattr(thing, name, before)


@contextmanager
def split(model: nn.Module, cut: Cut) -> Iterator[None]:
    """Make every product with a weight in parts of the inner dimension that are summed, as tensor
    parallelism does.

    Experts are split by their inner width, so that each part gates, multiplies and is summed like a
    rank's. A part lies together, or is every so manieth of them: as many roundings, and other ones.
    Such parts are copies, made in the first pass and held until the end: they take as much memory
    as the matrices, and making them takes ten times as long as a token's product.
    """
    changed: list[nn.Module] = []
    try:
        for module in model.modules():
            forward = _split(module, cut)
            if forward is not None:
                module.forward = forward
                changed.append(module)
        yield
    finally:
        for module in changed:
            del module.forward  # the class's own is seen again


def parts_of(layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield what a layer adds up, each by its name: its attention, its feed-forward part, with all
    matrices they have.
    """
    for name, part in layer.named_children():
        inner = [module for module in part.modules() if module is not part]
        whole = bool(inner) and not isinstance(part, nn.ModuleList) and part_name(name) != ROUTER
        if whole and any(parameter.ndim > 1 for parameter in part.parameters()):
            yield part_name(name), part


class Cut(NamedTuple):
    """Into how many parts a dimension is cut, and whether each is every so manieth."""

    parts: int
    strided: bool

    def of(self, length: int, *, multiple: int = 1) -> Iterator[Any]:
        """Even parts of so many, each but the last a multiple of one number: what they are indexed
        by.
        """
        most = -(-length // self.parts)
        most += -most % multiple
        bounds = (slice(begin, min(begin + most, length)) for begin in range(0, length, most))
        if not self.strided or length < self.parts:
            return bounds
        places = torch.cat([torch.arange(begin, length, self.parts) for begin in range(self.parts)])
        return (places[part] for part in bounds)


def _split(module: nn.Module, cut: Cut) -> Callable[..., Tensor] | None:
    # What is derived from it and does more (Llama 4's router gives scores besides) stays as it is.
    if isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward:
        return _summed(module, cut, functional.linear, inner=1)
    if type(module).__name__ == "Conv1D":  # GPT-2's, whose weight is [in, out]
        return _summed(module, cut, torch.matmul, inner=0)
    stacked = dict(module.named_parameters(recurse=False))
    if {"gate_up_proj", "down_proj"} <= stacked.keys():
        number, width, inner = stacked["down_proj"].shape
        # Those of GPT-OSS lie the other way round, gate and up in turns: they stay as they are.
        if stacked["gate_up_proj"].shape == (number, 2 * inner, width):
            return _experts(module, cut)
    return None


# Grouped products of transformers take rows whose bytes are a multiple of this.
ALIGNED = 16


def _summed(
    module: Any, cut: Cut, product: Callable[[Tensor, Tensor], Tensor], *, inner: int
) -> Forward:
    """Return a product with a weight whose inner dimension is that one, made in parts."""
    shares: list[tuple[Any, Tensor]] = []

    def forward(given: Tensor) -> Tensor:
        weight = module.weight
        if not shares:
            shares.extend(
                (part, weight[:, part] if inner else weight[part])
                for part in cut.of(weight.shape[inner])
            )
        total: Any = 0
        for part, share in shares:
            total = total + product(given[..., part], share)
        return cast("Tensor", total if module.bias is None else total + module.bias)

    return forward


def _experts(module: Any, cut: Cut) -> Callable[..., Tensor]:
    whole = type(module).forward
    shares: list[tuple[nn.Parameter, nn.Parameter]] = []

    def forward(*given: Any, **named: Any) -> Tensor:
        both = module.gate_up_proj
        down = module.down_proj
        if not shares:
            gate, up = both.chunk(2, dim=1)
            for part in cut.of(gate.shape[1], multiple=max(1, ALIGNED // gate.element_size())):
                first = nn.Parameter(
                    torch.cat([gate[:, part], up[:, part]], 1), requires_grad=False
                )
                shares.append(
                    (first, nn.Parameter(down[..., part].contiguous(), requires_grad=False))
                )
        total: Any = 0
        try:
            for first, second in shares:
                module.gate_up_proj = first
                module.down_proj = second
                total = total + whole(module, *given, **named)
        finally:
            module.gate_up_proj = both
            module.down_proj = down
        return cast("Tensor", total)

    return forward


def padded(ids: Tensor, places: Tensor, seen: int, padding: int) -> dict[str, Tensor]:
    """Return the same tokens as the second of a batch: it begins with padding, the first one with
    as many tokens more.

    Args:
        ids: `[1, tokens]`.
        places: their positions, `[1, tokens]`.
        seen: tokens in the cache, without padding.
        padding: how much longer the first of the batch is.
    """
    before = padding if seen == 0 else 0
    fill = ids[:, :1].expand(1, before)
    batch = torch.cat([torch.cat([fill, ids], 1)] * 2)
    first = torch.cat([torch.arange(before)[None], places + padding], 1)
    second = torch.cat([torch.zeros(1, before, dtype=places.dtype), places], 1)
    mask = torch.ones(2, padding + seen + ids.shape[1], dtype=torch.long)
    mask[1, :padding] = 0
    return {"input_ids": batch, "position_ids": torch.cat([first, second]), "attention_mask": mask}
