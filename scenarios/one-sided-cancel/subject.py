"""A tensor-parallel server of three requests, the second of which its client cancels while it is
decoded.

Rank 0 takes the requests, so it alone hears of the cancel. Each step of a request is one
`all_reduce` of the ranks' parts, each request ends with a barrier. A rank 0 that leaves the request
at once stands in the barrier while the others wait for its part of the next step: nothing is
raised, and nothing goes on.
"""

REQUESTS = ((3, None), (6, 2), (2, None))
"""Of each request the number of steps, and after which of them it is cancelled."""
WIDTH = 8


def serve(context, *, agree):
    """Entry: decode every request; with `agree` the ranks decide together whether one goes on."""
    tokens = []
    for number, (steps, cancelled) in enumerate(REQUESTS):
        for step in range(steps):
            heard = context.rank == 0 and cancelled is not None and step >= cancelled
            if decided(heard) if agree else heard:
                break
            tokens.append(token(combine(context, number=number, step=step)))
        context.group.barrier()
    context.emit("served", tokens=tokens)


def decided(heard):
    """Whether any rank has heard of a cancel: one answer for all."""
    import torch
    import torch.distributed as dist

    flag = torch.tensor([int(heard)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def combine(context, *, number, step):
    """The sum of the ranks' parts of one step, as tensor parallelism makes it: float32, [WIDTH]."""
    import torch
    import torch.distributed as dist

    part = torch.arange(WIDTH, dtype=torch.float32) * (context.rank + 1) + number + step
    dist.all_reduce(part)
    return part


def token(logits):
    """The best one."""
    return int(logits.argmax()) + int(logits.sum()) % 100
