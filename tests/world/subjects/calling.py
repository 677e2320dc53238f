"""Subjects whose ranks make collective calls: all that torch has, some out of step, some past the
ledger.
"""

import os
import signal
import threading


def every_kind(context):
    """Every collective of torch, from functions, functional collectives, threads, batches and
    groups of its own.
    """
    import torch
    import torch.distributed as dist

    rank, size = context.rank, context.size
    one, rows = torch.ones(4), [torch.ones(4) for _ in range(size)]
    dist.all_reduce(one)
    dist.all_reduce(one, op=dist.ReduceOp.MAX, async_op=True).wait()
    with torch.inference_mode():
        dist.all_reduce(torch.ones(2, 3, dtype=torch.int64))
    dist.broadcast(one, 1)
    dist.reduce(one, 0)
    dist.all_gather(rows, one)
    dist.all_gather_into_tensor(torch.ones(4 * size), one)
    dist.gather(one, rows if rank == 0 else None, 0)
    dist.scatter(one, rows if rank == 1 else None, 1)
    dist.reduce_scatter(one, rows)
    dist.reduce_scatter_tensor(one, torch.ones(4 * size))
    dist.all_to_all(rows, [torch.ones(4) for _ in range(size)])
    # Rank r sends r + 1 elements to everybody: uneven, and right.
    dist.all_to_all_single(
        torch.ones(sum(range(1, size + 1))),
        torch.ones((rank + 1) * size),
        [*range(1, size + 1)],
        [rank + 1] * size,
    )
    dist.all_gather_object([None] * size, {"rank": rank})
    functional = torch.ops._c10d_functional
    functional.wait_tensor(functional.all_reduce(one, "sum", dist.group.WORLD.group_name))
    dist.barrier()
    after, before = (rank + 1) % size, (rank - 1) % size
    batch = [dist.P2POp(dist.isend, one, after), dist.P2POp(dist.irecv, torch.ones(4), before)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    if rank == 0:
        dist.send(torch.ones(3), 1, tag=7)
        dist.recv(torch.ones(3))  # from whoever sends
    if rank == 1:
        dist.recv(torch.ones(3), 0, tag=7)
        dist.send(torch.ones(3), 0)
    pair = dist.new_group([1, 0])
    if rank < 2:
        dist.all_reduce(one, group=pair)
        dist.broadcast(one, group=pair, src=1)
    thread = threading.Thread(target=lambda: dist.broadcast(one, 0))
    thread.start()
    thread.join()
    dist.all_reduce(torch.eye(3).to_sparse())
    context.group.barrier()
    context.emit("called")


def again(context, *, times=3):
    """Everything several times: from the same lines with other tensors and tags, and from others
    with the same.
    """
    import torch
    import torch.distributed as dist

    for step in range(times):
        every_kind(context)
        for tensor in (
            torch.ones(3),
            torch.ones(3, dtype=torch.int64),
            torch.ones(3, 1),
            torch.ones(step + 5),
        ):
            dist.all_reduce(tensor)
            dist.all_reduce(tensor, op=dist.ReduceOp.MIN)
            dist.all_reduce(tensor, async_op=step == 1)
            dist.broadcast(tensor, step % context.size)
            for tag in range(3):
                if context.rank == 0:
                    dist.send(tensor, 1, tag=tag)
                if context.rank == 1:
                    dist.recv(tensor, 0, tag=tag)
        dist.barrier()


def branch(context, *, odd=1):
    """One rank takes another way at the third call."""
    import torch
    import torch.distributed as dist

    total = torch.ones(8)
    for step in range(3):
        if step == 2 and context.rank == odd:
            dist.barrier()
        else:
            dist.all_reduce(total)


def missing_send(context):
    """Rank 0 leaves the second of three out."""
    import torch
    import torch.distributed as dist

    for step in range(3):
        if context.rank == 0 and step != 1:
            dist.send(torch.ones(step + 1), 1)
        if context.rank == 1:
            dist.recv(torch.ones(step + 1), 0)


def swapped_receives(context):
    """Rank 1 takes two tensors in the other order."""
    import torch
    import torch.distributed as dist

    if context.rank == 0:
        dist.send(torch.ones(1 << 20), 1, tag=1)
        dist.send(torch.ones(5), 1, tag=2)
    else:
        dist.recv(torch.ones(5), 0, tag=2)
        dist.recv(torch.ones(1 << 20), 0, tag=1)


def reduces_otherwise(context):
    """The last rank takes the maximum where the others sum: nobody waits, and the values are
    wrong.
    """
    import torch
    import torch.distributed as dist

    last = context.rank == context.size - 1
    dist.all_reduce(torch.ones(3), op=dist.ReduceOp.MAX if last else dist.ReduceOp.SUM)


def splits_otherwise(context, *, operation):
    """In the second step rank 1 gives its tensor in other parts than the others take, or has two in
    another order.
    """
    import torch
    import torch.distributed as dist

    takes = [[1, 2, 3][context.rank]] * 3
    for step in range(2):
        sizes = [1, 2, 3] if step == 0 or context.rank != 1 else [1, 3, 2]
        if operation == "all_to_all_single":
            dist.all_to_all_single(torch.zeros(sum(takes)), torch.ones(6), takes, sizes)
        else:
            dist.all_reduce_coalesced([torch.ones(size) for size in sizes])


def past_it(context):
    """A call of the backend's own object."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    dist.group.WORLD._get_backend(torch.device("cpu")).allreduce([torch.ones(2)]).wait()


def past_it_elsewhere(context):
    """The same in a group of its own, in which nothing else is called."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    dist.new_group([0, 1])._get_backend(torch.device("cpu")).allreduce([torch.ones(2)]).wait()


def past_it_and_gone(context):
    """The same, and the group is ended by the subject itself."""
    import torch.distributed as dist

    past_it(context)
    dist.destroy_process_group()


def forks(context):
    """A child makes a call in the group that it inherited, which gloo does not take.

    Of one that it takes the child would wait for ever for a lock that a thread of gloo's held as it
    was forked.
    """
    import torch
    import torch.distributed as dist

    dist.barrier()
    if (child := os.fork()) == 0:
        try:
            dist.all_gather([torch.ones(2)] * context.size, torch.ones(3))
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def killed(context, *, call):
    """Rank 1 is gone by a signal, and its peers stand in a call."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    if context.rank == 1:
        if call:
            dist.irecv(torch.ones(2), 0)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(2))


def refused(context):
    """A call that its library does not take, which the subject takes for granted."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    try:
        dist.all_gather([torch.ones(2)] * context.size, torch.ones(3))
    except RuntimeError:
        context.emit("refused")
    dist.barrier()


def silent(context):
    """Nothing is called."""


def over_the_ring(context, *, swapped=False):
    """What MLX has over a ring; with `swapped` rank 1 makes two calls in the other order."""
    import mlx.core as mx

    group = context.group.native
    mx.eval(mx.distributed.all_sum(mx.ones((2, 3)), group=group))
    mx.eval(mx.distributed.all_gather(mx.ones(4)))
    calls = [mx.distributed.all_max, mx.distributed.all_sum]
    for call in reversed(calls) if swapped and context.rank == 1 else calls:
        mx.eval(call(mx.ones(5), group=group))
    if context.rank == 0:
        mx.eval(mx.distributed.send(mx.ones((2, 2)), 1, group=group))
    if context.rank == 1:
        mx.eval(mx.distributed.recv((2, 2), mx.float32, 0, group=group))
    context.group.barrier()


def compiled(context):
    """A collective in a function that MLX traces once and runs three times."""
    import mlx.core as mx

    step = mx.compile(lambda x: mx.distributed.all_sum(x, group=context.group.native) + 1)
    for _ in range(3):
        mx.eval(step(mx.ones(2)))


def unobserved(context):
    """Before which of the kernels something stands."""
    import torch

    context.group.barrier()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("c10d::")]
    context.emit("kernels", before=[name for name in names if has(name, "BackendSelect")])


def gathers(context):
    """Four times what tells rank and step."""
    import torch
    import torch.distributed as dist

    for step in range(4):
        rows = [torch.zeros(8) for _ in range(context.size)]
        dist.all_gather(rows, torch.arange(8.0) + 100 * context.rank + step)
