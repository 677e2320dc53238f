"""Rank 0 waits for rank 1, with patience or without."""

import time


def work(context, *, patience):
    """Entry: rank 1 works, rank 0 measures how long the others took."""
    context.emit("work.begin")
    begin = time.monotonic()
    context.group.barrier()
    context.emit("work.end")
    if context.rank == 0:
        if time.monotonic() - begin > patience:
            raise TimeoutError("a rank was late")
        context.emit("answer")
