"""Stand-ins for modules of mlx-lm: watched, cut into parts, or with what stages hand on checked.

MLX has no hooks, but Python looks a call up in the class: `around` gives a module a class of its
own that calls something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core
import mlx.nn
from mlx.utils import tree_flatten

from .engine import ROUTER, part_name

# Half of what is used has no types, and some of it wrong ones.
mx: Any = mlx.core
nn: Any = mlx.nn
Call = Callable[..., Any]


def around(module: Any, act: Call) -> None:
    """Have `act` called in place of a module, with what calls the module itself."""
    kind = type(module)

    def call(self: Any, *given: Any, **named: Any) -> Any:
        return act(lambda *again, **more: kind.__call__(self, *again, **more), *given, **named)

    # The same name: transformations and checks of mlx-lm go by it.
    module.__class__ = type(kind.__name__, (kind,), {"__call__": call})


def left_by(output: Any) -> Any:
    """Return the hidden state of what a layer gives, which may be a tuple."""
    return output[0] if isinstance(output, tuple) else output


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


def watch(layer: Any, name: str, states: dict[str, Any]) -> None:
    """Note what comes out of a layer, of a batch for the last."""

    def watched(call: Call, *given: Any, **named: Any) -> Any:
        output = call(*given, **named)
        state = left_by(output)
        if isinstance(state, mx.array) and state.ndim > 2:
            states[name] = state[-1]
        return output

    around(layer, watched)


def watch_router(block: Any, margins: list[Any]) -> None:
    """Note by how much the last expert chosen lies above the first that is not, `[batch,
    tokens]`.
    """
    many = getattr(block, "num_experts_per_tok", None) or block.top_k
    # Some gates choose by themselves, and give the experts in place of their scores.
    chooses = "e_score_correction_bias" in block.gate
    if getattr(block.gate, "n_group", 1) > 1:
        return  # of experts in groups, another margin decides

    def watched(call: Call, given: Any) -> Any:
        gate = block.gate
        scores = (given @ gate.weight.T if chooses else gate(given)).astype(mx.float32)
        corrected = gate if chooses else block
        if "e_score_correction_bias" in corrected:
            scores = mx.sigmoid(scores) + corrected.e_score_correction_bias.astype(mx.float32)
        best = mx.sort(scores, axis=-1)
        margins.append(best[..., -many] - best[..., -many - 1])
        return call(given)

    around(block, watched)


@contextmanager
def split(model: Any, parts: int, *, strided: bool = False) -> Iterator[None]:
    """Make every product with a weight in parts of the inner dimension that are summed, as tensor
    parallelism does.

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


EMPTY = 0
"""Stands for the digest of a state that a rank does not see."""


class Hops:
    """Hidden states that mlx-lm's stages hand on, digested at both ends and compared after each
    step: rank 0 has the last layers.

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
        self._note(model.layers[0], taken="taken")
        self._note(model.layers[-1], given="given")
        if (norm := getattr(model.model, "norm", None)) is not None:
            self._note(norm, taken="final")

    def _note(self, module: Any, *, taken: str = "", given: str = "") -> None:
        """Note by a name what a module takes, or what it gives."""

        def noted(call: Call, state: Any, *more: Any, **named: Any) -> Any:
            if taken:
                self._seen[taken] = state
            output = call(state, *more, **named)
            if given:
                self._seen[given] = left_by(output)
            return output

        around(module, noted)

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


def _bytes(array: Any) -> Any:
    """Return the bytes of an evaluated array, in the order of its indices."""
    flat: Any = mx.contiguous(array).reshape(-1).view(mx.uint8)
    return memoryview(flat).cast("B")
