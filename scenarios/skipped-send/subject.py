"""A pipeline of two stages whose second micro-batch is empty.

The first stage sends each micro-batch, padded to one width, and the second sends back its sum. A
first stage that leaves an empty micro-batch out goes on to wait for its sum, while the second waits
for the micro-batch: a deadlock, in which no rank raises anything.
"""

BATCHES = ([1.0, 2.0], [], [3.0, 4.0])
WIDTH = 4


def serve(context, *, skip_empty):
    """Entry: rank 0 is the first stage, rank 1 the second."""
    totals = []
    for batch in BATCHES:
        if context.rank == 0:
            if batch or not skip_empty:
                send(context, [*batch, *[0.0] * (WIDTH - len(batch))], to=1)
            totals.append(receive(context, by=1)[0])
        else:
            send(context, [sum(receive(context, by=0))] * WIDTH, to=0)
    if context.rank == 0:
        context.emit("answer", totals=totals)
    context.emit("served")


def send(context, values, *, to):
    """Send WIDTH numbers to a rank."""
    if context.backend == "mlx-ring":
        import mlx.core as mx

        mx.eval(mx.distributed.send(mx.array(values), to, group=context.group.native))
        return
    import torch

    context.group.native.send(torch.tensor(values), to)


def receive(context, *, by):
    """Receive WIDTH numbers from a rank."""
    if context.backend == "mlx-ring":
        import mlx.core as mx

        return mx.distributed.recv((WIDTH,), mx.float32, by, group=context.group.native).tolist()
    import torch

    values = torch.empty(WIDTH)
    context.group.native.recv(values, by)
    return values.tolist()
