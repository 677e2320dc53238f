"""A reduction inside a branch that depends on the rank: the commonest deadlock of distributed inference.

A rank whose share of the batch is empty has nothing to add. If it leaves the reduction out, the others wait for it, and it
waits for them one step later: every rank stands in a collective, each in another one, and nobody raises anything.
"""

SHARES = ([1.0, 2.0], [])


def step(context, *, skip_when_empty):
    """Entry: add up the shares of all ranks, then meet for the next step."""
    mine = SHARES[context.rank]
    total = sum(mine)
    if mine or not skip_when_empty:
        total = reduce(context, total)
    context.group.barrier()
    context.emit("step", total=total)


def reduce(context, value):
    """The sum of every rank's value."""
    if context.backend == "mlx-ring":
        import mlx.core as mx

        return mx.distributed.all_sum(mx.array(value), group=context.group.native).item()
    import torch

    total = torch.tensor(value)
    context.group.native.all_reduce(total)
    return total.item()
