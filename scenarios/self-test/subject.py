"""A subject that works whatever it is told: a control made of it proves nothing."""


def meet(context, *, broken):
    """Entry: meet the other ranks."""
    del broken
    context.group.barrier()
    context.emit("met")
