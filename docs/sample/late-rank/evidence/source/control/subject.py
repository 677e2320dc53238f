"""A health check before the first request: every rank tells rank 0 that it is ready, within a time.

Rank 0 waits for the others with gloo's monitored barrier, which names the rank that is missing.
With too short a time a rank that is only late, because it still loads or the machine is busy, is
taken for a dead one: the service goes down.
"""

from datetime import timedelta


def serve(context, *, patience):
    """Entry: get ready, wait for everybody, exchange the first answer."""
    context.emit("load.begin")
    total = sum(range(context.rank + 1))
    await_everybody(context, patience)
    context.emit("everybody.ready")
    gathered = context.group.all_gather(str(total).encode())
    context.emit("answer", gathered=[text.decode() for text in gathered])


def await_everybody(context, patience):
    """Meet every rank, or raise and name who is missing after `patience` seconds."""
    context.group.native.monitored_barrier(timeout=timedelta(seconds=patience))
