"""Subjects whose ranks send to each other what is digested at both ends."""


def every_way(context):
    """What torch has, with strides, NaN and -0, empty, asynchronous, functional, and of every type
    that gloo adds.
    """
    import torch
    import torch.distributed as dist

    rank, size = context.rank, context.size
    odd = torch.tensor([float("nan"), -0.0, 0.0, float("inf")])
    for given in (
        odd,
        torch.arange(12.0).reshape(3, 4) + rank,
        torch.ones(0),
        torch.ones(3, dtype=torch.bfloat16),
    ):
        rows = [torch.zeros_like(given) for _ in range(size)]
        dist.all_gather(rows, given)
        dist.broadcast(given.clone(), 1)
        dist.gather(given, rows if rank == 0 else None, 0)
        dist.scatter(torch.zeros_like(given), rows if rank == 1 else None, 1)
        dist.all_to_all(rows, [given for _ in range(size)])
    square = torch.arange(16.0).reshape(4, 4) + 100 * rank
    dist.all_to_all_single(torch.zeros(4 * size, 4), square.repeat(size, 1))
    for kind in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.int64,
        torch.uint8,
    ):
        values = (torch.arange(1000) % 50 * 0.7 + rank).to(kind)
        dist.all_reduce(values)
        dist.reduce(values.clone(), 0)
        part = torch.zeros(3, dtype=kind)
        dist.reduce_scatter_tensor(part, (torch.arange(3 * size) + rank).to(kind))
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    work = dist.all_reduce(square, async_op=True)
    work.wait()
    functional = torch.ops._c10d_functional
    name = dist.group.WORLD.group_name
    functional.wait_tensor(functional.all_reduce(square, "sum", name))
    functional.wait_tensor(functional.all_gather_into_tensor(square, size, name))
    functional.wait_tensor(
        functional.reduce_scatter_tensor(square.repeat(size, 1), "sum", size, name)
    )
    values.resize_(2000)  # what was digested is the subject's own still
    after, before = (rank + 1) % size, (rank - 1) % size
    batch = [
        dist.P2POp(dist.isend, square, after),
        dist.P2POp(dist.irecv, torch.zeros(4, 4), before),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    dist.barrier()
    context.emit("sent", wait=work.wait.__name__)


def left_alone(context, *, how):
    """Calls whose digests nobody can take."""
    import torch
    import torch.distributed as dist

    one = torch.ones(4)
    dist.all_reduce(one)
    if how == "not waited":
        work = dist.all_reduce(one, async_op=True)
        while not work.is_completed():
            pass
    elif how == "several":
        dist.all_reduce_coalesced([one, one])
    elif how == "from anybody":
        dist.send(one, 1) if context.rank == 0 else dist.recv(one)
    elif how == "not finite":
        dist.all_reduce(torch.tensor([float("nan")]))
    dist.barrier()


def over_the_ring(context):
    """The same over a ring of MLX."""
    import mlx.core as mx

    group, rank = context.group.native, context.rank
    for kind in (mx.float32, mx.bfloat16, mx.float16, mx.int32):
        values = (mx.arange(1000) % 50 + rank).astype(kind)
        mx.distributed.all_sum(values, group=group)
        mx.distributed.all_max(values, group=group)
        mx.distributed.all_gather(values.reshape(10, 100).T, group=group)
    if rank == 0:
        mx.eval(mx.distributed.send(mx.ones((2, 2)), 1, group=group))
    if rank == 1:
        mx.eval(mx.distributed.recv_like(mx.ones((2, 2)), 0, group=group))
    context.group.barrier()


def lost_meanwhile(context):
    """Rank 1 is gone, and its peer waits for an asynchronous call."""
    import os
    import signal

    import torch
    import torch.distributed as dist

    dist.barrier()
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4), async_op=True).wait()
