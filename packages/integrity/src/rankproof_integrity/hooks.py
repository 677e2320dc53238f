"""Hooks for an engine whose send and recv are its own: one call at the start on every rank, and
what a stage takes is what the stage before gave, or it is one clear error.

    watch(stage, receives_from=rank - 1, sends_to=rank + 1)    # a module of torch
    watch_mlx(group)                                           # a pipeline of MLX

Both are for all ranks or for none: whoever is not watched sends no seal, and the next one waits for
it. The rank that finds a change raises, and the others wait in the engine's own calls: end them, as
after any error of a rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from .problem import Misused
from .tensors import SEAL, MlxTensors, _Seals, form_of, torch_bytes

TAG = 0x5EA1
"""Of the seals, so that the engine's messages between the same ranks are not mixed up with them."""
AHEAD = 64
"""Microbatches that a stage may be ahead of the next one, before it waits for it."""
_UNDER_WAY: list[Any] = []
"""Seals that the next stage may not have taken: gloo would withdraw what nobody holds, also where
the stage itself is gone by then.
"""


class Watch:
    """A hook that is in place, until `remove`."""

    def __init__(self, *undo: Callable[[], object]) -> None:
        self._undo = undo

    def remove(self) -> None:
        """Take it away: on all ranks, between two steps."""
        for undo in self._undo:
            undo()
        self._undo = ()


# Six arguments: which stage, whose neighbours (2), and how seals go (3).
def watch(
    stage: Any,
    *,
    receives_from: int | None = None,
    sends_to: int | None = None,
    epoch: int = 1,
    group: Any = None,
    tag: int = TAG,
) -> Watch:
    """Compare what this stage of a torch pipeline takes with what the stage before gave.

    However the engine moves tensors: after each forward of the stage the digest of its output goes
    to the next rank beside them, and is compared there with the positional arguments before the
    forward. So a stage takes as positional arguments what the stage before gave, as in
    `torch.distributed.pipelining`; what else it needs (a mask, a cache) is passed by keyword. Both
    ends run microbatches in the same order. Gradients are not compared.

    Args:
        stage: the `torch.nn.Module` that is called once for each microbatch; of
            `torch.distributed.pipelining` the `PipelineStage`, because torch calls its module once
            more, to learn shapes.
        receives_from: the rank before; None for the first stage.
        sends_to: the rank behind; None for the last stage.
        epoch: of the group: the same on all ranks, greater at each start.
        group: a process group that takes tensors of the CPU (gloo), by which the seals go; None for
            the default one.
        tag: of the seals: one for each, where a rank has several stages.

    The forward raises, and pipelining raises its RuntimeError from it:
        MessageCorrupt: what the stage takes is not what the stage before gave.
        OutOfStep: it is another microbatch than the next.
        Misused: it is of another dtype or shape.
    """
    import torch
    from torch import distributed

    plain = getattr(stage, "forward_maybe_with_nosync", None)
    if plain is None and not isinstance(stage, torch.nn.Module):
        raise Misused(
            "watch a torch.nn.Module or a PipelineStage of torch, not"
            f" {type(stage).__module__}.{type(stage).__qualname__}; watch_mlx is for MLX"
        )
    seals = _Seals(rank=distributed.get_rank(), epoch=epoch)
    under_way: deque[tuple[Any, Any]] = deque()
    _UNDER_WAY.append(under_way)

    def took(_: Any, given: Any) -> None:
        if receives_from is None:
            return
        seal = torch.empty(SEAL, dtype=torch.int64)
        distributed.recv(seal, src=receives_from, group=group, tag=tag)
        tensors = _tensors_of(given)
        seals.check(
            _bytes_of(tensors),
            seal.tolist(),
            form=form_of(*tensors),
            of=tensors[0] if tensors else seal,
            source=receives_from,
        )

    def gave(_: Any, __: Any, output: Any) -> None:
        if sends_to is None:
            return
        tensors = _tensors_of(output)
        words = seals.seal(_bytes_of(tensors), form=form_of(*tensors), to=sends_to)
        seal = torch.tensor(words, dtype=torch.int64)
        # Not waited for: the next stage takes it only once it has the tensors, which the engine
        # sends after this.
        work = distributed.isend(seal, dst=sends_to, group=group, tag=tag)
        under_way.append((work, seal))
        if len(under_way) > AHEAD:
            # gloo says of no message that it has gone, before somebody waits for it.
            under_way.popleft()[0].wait()

    if plain is None:
        taking = stage.register_forward_pre_hook(took)
        giving = stage.register_forward_hook(gave)
        return Watch(taking.remove, giving.remove)

    def forward(*given: Any, **named: Any) -> Any:
        took(stage, given)
        output = plain(*given, **named)
        gave(stage, given, output)
        return output

    stage.forward_maybe_with_nosync = forward
    return Watch(lambda: setattr(stage, "forward_maybe_with_nosync", plain))


def _tensors_of(value: Any) -> list[Any]:
    """Return the tensors of a value, in their order."""
    if hasattr(value, "is_contiguous"):
        return [value]
    if isinstance(value, Mapping):
        return _tensors_of(list(value.values()))
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in _tensors_of(part)]
    return []


def _bytes_of(tensors: list[Any]) -> Any:
    return torch_bytes(tensors[0]) if len(tensors) == 1 else b"".join(map(torch_bytes, tensors))


def watch_mlx(group: Any = None, *, epoch: int = 1) -> Watch:
    """Seal what a pipeline of MLX sends: `mx.distributed.send`, `recv`, `recv_like` and
    `all_gather`, for as long as the hook is in place.

    Engines call these in the middle of a model (mlx-lm's pipelines, exo), and MLX has no other
    place for a hook: the functions of `mlx.core.distributed` are replaced in this process. Calls
    with another `group` are left as they are. What is sent is evaluated at once, which MLX would
    otherwise do later. What `all_sum` adds up nobody sent, so it is not compared.

    Args:
        group: the pipeline's, the same object that the engine passes; None where it passes none.
        epoch: of the group: the same on all ranks, greater at each start.

    These functions raise:
        MessageCorrupt: what came is not what was sent.
        OutOfStep: it is another message than the next.
        Misused: it is of another dtype or shape.
    """
    import mlx.core as mx

    place: Any = mx.distributed
    names = ("send", "recv", "recv_like", "all_gather")
    plain = SimpleNamespace(**{name: getattr(place, name) for name in names})
    rank = (mx.distributed.init() if group is None else group).rank()
    tensors = MlxTensors(rank=rank, epoch=epoch, group=group, over=plain)

    # All is evaluated at once, so that no stream is needed to say where.
    def send(x: Any, dst: int, *, group: Any = None, stream: Any = None) -> Any:
        if group is not watched:
            return plain.send(x, dst, group=group, stream=stream)
        tensors.send(x, to=dst)
        return x

    def recv(shape: Any, dtype: Any, src: int, *, group: Any = None, stream: Any = None) -> Any:
        if group is not watched:
            return plain.recv(shape, dtype, src, group=group, stream=stream)
        return tensors.receive(shape=tuple(shape), dtype=dtype, source=src)

    def recv_like(x: Any, src: int, *, group: Any = None, stream: Any = None) -> Any:
        return recv(x.shape, x.dtype, src, group=group, stream=stream)

    def all_gather(x: Any, *, group: Any = None, stream: Any = None) -> Any:
        if group is not watched:
            return plain.all_gather(x, group=group, stream=stream)
        return tensors.gather(x)

    watched = group
    for function in (send, recv, recv_like, all_gather):
        setattr(place, function.__name__, function)

    def undo() -> None:
        for name in names:
            setattr(place, name, getattr(plain, name))

    return Watch(undo)
