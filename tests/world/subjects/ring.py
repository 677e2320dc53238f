"""Subjects that meet over a ring, and one that does not come."""

import os
import signal
import threading


def sums(context):
    """Sum through MLX itself, and report what MLX says of the group."""
    import mlx.core as mx

    group = context.group.native
    total = mx.distributed.all_sum(mx.array([context.rank + 1]), group=group, stream=mx.cpu)
    context.emit("summed", total=total.item(), rank=group.rank(), size=group.size())


def lengths(context, longest):
    """Exchange bytes of every value: nothing from rank 0, the most from the last one."""
    mine = longest * context.rank // max(1, context.size - 1)
    found = context.group.all_gather(bytes((context.rank + i) % 256 for i in range(mine)))
    right = all(
        text == bytes((rank + i) % 256 for i in range(len(text)))
        and len(text) == longest * rank // max(1, context.size - 1)
        for rank, text in enumerate(found)
    )
    context.emit("gathered", count=len(found), right=right)


def one_dies(context, victim=1):
    """The others stand in a collective, or soon will, when one is killed."""
    context.group.barrier()
    if context.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    meet(context)


def one_stays_away(context):
    """Rank 1 never comes to the collective the others wait in."""
    if context.rank == 1:
        threading.Event().wait()
    meet(context)


def meet(context):
    """Named, so that a stack shows it."""
    context.group.barrier()


def told(context):
    """Report what the group says of itself."""
    context.emit("told", rank=context.group.rank, size=context.group.size)


def together(context, call):
    """Ask a group for what it cannot do."""
    getattr(context.group, call)(*([b""] if call == "all_gather" else []))


def compiled(context):
    """Let MLX compile a kernel, as models do, and meet."""
    import mlx.core as mx

    value = mx.compile(lambda x: mx.exp(x) * 2 + x)(mx.array([0.0]))
    context.emit("computed", value=value.item())
    context.group.barrier()
