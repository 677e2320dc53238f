"""Subjects that go astray by themselves, as programs do: at a step, and for a rank, that `draw`
decides.
"""

import random


def _drawn(context, draw):
    """A step of eight, a rank, and how many elements."""
    chance = random.Random(draw)
    return chance.randrange(8), chance.randrange(context.size), chance.randrange(1, 5000)


def branch(context, *, draw):
    """One rank takes another way around a collective."""
    at, odd, many = _drawn(context, draw)
    if context.backend == "gloo":
        import torch
        import torch.distributed as dist

        for step in range(8):
            if step == at and context.rank == odd:
                dist.barrier()
            else:
                dist.all_reduce(torch.ones(many))
    else:
        import mlx.core as mx

        for step in range(8):
            if step == at and context.rank == odd:
                mx.eval(mx.distributed.all_max(mx.ones(many)))
            else:
                mx.eval(mx.distributed.all_sum(mx.ones(many)))


def missing_send(context, *, draw):
    """Rank 0 leaves one of eight sends of one shape out."""
    at, _, many = _drawn(context, draw)
    if context.backend == "gloo":
        import torch
        import torch.distributed as dist

        for step in range(8):
            if context.rank == 0 and step != at:
                dist.send(torch.ones(many) * step, 1)
            if context.rank == 1:
                dist.recv(torch.ones(many), 0)
    else:
        import mlx.core as mx

        for step in range(8):
            if context.rank == 0 and step != at:
                mx.eval(mx.distributed.send(mx.ones(many) * step, 1))
            if context.rank == 1:
                mx.eval(mx.distributed.recv((many,), mx.float32, 0))


def swapped(context, *, draw):
    """Rank 1 takes two tensors of one shape in the other order, told apart by their tags."""
    import torch
    import torch.distributed as dist

    _, _, many = _drawn(context, draw)
    first, second = torch.ones((1 << 20) + many), torch.zeros((1 << 20) + many)
    if context.rank == 0:
        dist.send(first, 1, tag=1)
        dist.send(second, 1, tag=2)
    else:
        dist.recv(second, 0, tag=2)
        dist.recv(first, 0, tag=1)


def swapped_shapes(context, *, draw):
    """Rank 1 takes two arrays of other shapes in the other order."""
    _, _, many = _drawn(context, draw)
    if context.backend == "gloo":
        import torch
        import torch.distributed as dist

        if context.rank == 0:
            dist.send(torch.ones(many), 1)
            dist.send(torch.ones(2 * many), 1)
        else:
            dist.recv(torch.ones(2 * many), 0)
            dist.recv(torch.ones(many), 0)
    else:
        import mlx.core as mx

        if context.rank == 0:
            mx.eval(mx.distributed.send(mx.ones(many), 1))
            mx.eval(mx.distributed.send(mx.ones(2 * many), 1))
        else:
            mx.eval(mx.distributed.recv((2 * many,), mx.float32, 0))
            mx.eval(mx.distributed.recv((many,), mx.float32, 0))


def overwritten(context, *, draw):
    """Rank 0 writes the next values into a buffer that is still being sent."""
    import torch
    import torch.distributed as dist

    _, _, many = _drawn(context, draw)
    buffer = torch.zeros((1 << 22) + many)
    if context.rank == 0:
        work = dist.isend(buffer, 1)
        buffer.fill_(1.0)
        dist.barrier()
        work.wait()
    else:
        dist.barrier()  # late, as any rank may be
        dist.recv(buffer, 0)


def swapped_places(context, *, draw):
    """Rank 1 takes two arrays of one shape, with coded payloads, each into the other one's
    place.
    """
    _, _, many = _drawn(context, draw)
    if context.backend == "gloo":
        import torch as library
        import torch.distributed as dist
    else:
        import mlx.core as library
    coded = context.coded(library)
    operation = "send" if context.rank == 0 else "recv"
    calls = [coded.call(operation, elements=many, other=1 - context.rank) for _ in range(2)]
    for call in calls if context.rank == 0 else reversed(calls):
        if context.backend != "gloo":
            distributed, given = library.distributed, call.given
            call.given = (
                distributed.send(given, 1) if context.rank == 0 else distributed.recv_like(given, 0)
            )
            library.eval(call.given)
        elif context.rank == 0:
            dist.send(call.given, 1)
        else:
            dist.recv(call.given, 0)
    if context.rank == 1:
        for call in calls:
            call.received(call.given)
    coded.done()


def stale(context, *, draw):
    """One rank gives what it gave in the step before, with coded payloads."""
    at, odd, many = _drawn(context, draw)
    at = max(at, 1)
    if context.backend == "gloo":
        import torch as library
        import torch.distributed as dist
    else:
        import mlx.core as library
    coded, before = context.coded(library), None
    for step in range(8):
        call = coded.call("all_gather", elements=many)
        given = before if step == at and context.rank == odd else call.given
        before = call.given
        if context.backend == "gloo":
            rows = [call.blank() for _ in range(context.size)]
            dist.all_gather(rows, given)
        else:
            rows = library.distributed.all_gather(given)
            library.eval(rows)
        call.received(rows)
    coded.done()
