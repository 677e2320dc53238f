"""What mlx-lm's stages hand on, digested at both ends and held against each other after each step.

mlx-lm sends inside its models and gives no seam to put a transport in. What a stage's last layer gives and its next
stage's first layer takes can be seen, and what the final norm takes on every rank; so what changed on its way is
detected, and is one error on every rank. Nothing is sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core

mx: Any = mlx.core
EMPTY = 0


class Hops:
    """Between the stages of a model that mlx-lm split over a group: rank 0 has the last layers.

    Args:
        model: of mlx-lm, with this rank's layers.
        rank, size: of this stage.
        group: of MLX.
    """

    def __init__(self, model: Any, *, rank: int, size: int, group: Any) -> None:
        self._rank, self._size, self._group, self._step = rank, size, group, 0
        self._seen: dict[str, Any] = {}
        _note(model.layers[0], taken=lambda state: self._seen.update(taken=state))
        _note(model.layers[-1], given=lambda state: self._seen.update(given=state))
        if (norm := getattr(model.model, "norm", None)) is not None:
            _note(norm, taken=lambda state: self._seen.update(final=state))

    @property
    def arrays(self) -> list[Any]:
        """What has to be evaluated before `check`."""
        return list(self._seen.values())

    def check(self) -> None:
        """Hold what every rank took against what the rank before gave.

        Raises:
            MessageCorrupt: they differ; on every rank.
        """
        from harness._integrity import MessageCorrupt
        from harness._integrity.digest import digest

        states = [self._seen.get(name) for name in ("taken", "given", "final")]
        mine = [EMPTY if one is None else digest(_bytes(one)) for one in states]
        words = [half for one in mine for half in (one >> 32, one % 2**32)]
        told: Any = mx.distributed.all_gather(mx.array(words, dtype=mx.uint32)[None], group=self._group).tolist()
        self._seen.clear()
        step, self._step = self._step, self._step + 1
        for rank in range(self._size - 1):
            if told[rank][:2] != told[rank + 1][2:4]:
                raise MessageCorrupt(
                    f"the hidden state of step {step} changed on its way from rank {rank + 1} to rank {rank}",
                    peer=f"rank {rank + 1}",
                    sequence=step,
                )
        for rank in range(self._size):
            if told[rank][4:] != told[0][2:4] and told[rank][4:] != [EMPTY, EMPTY]:
                raise MessageCorrupt(
                    f"the last hidden state of step {step} changed on its way from rank 0 to rank {rank}",
                    peer="rank 0",
                    sequence=step,
                )


def _note(
    module: Any, *, taken: Callable[[Any], None] | None = None, given: Callable[[Any], None] | None = None
) -> None:
    """Note what a module takes or gives: MLX has no hooks, so its class is one that notes."""
    kind = type(module)

    def call(self: Any, state: Any, *more: Any, **named: Any) -> Any:
        if taken is not None:
            taken(state)
        output = kind.__call__(self, state, *more, **named)
        if given is not None:
            given(output[0] if isinstance(output, tuple) else output)
        return output

    module.__class__ = type(kind.__name__, (kind,), {"__call__": call})


def _bytes(array: Any) -> Any:
    """The bytes of an evaluated array, in the order of its indices."""
    flat: Any = mx.contiguous(array).reshape(-1).view(mx.uint8)
    return memoryview(flat).cast("B")
