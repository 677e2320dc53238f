"""Before the fix: rank 1 loses in about half of the trials, decided by its seed."""


def race(context):
    """Entry."""
    if context.rank == 1 and context.seed % 2:
        raise RuntimeError("lost the race")
    context.emit("won")
