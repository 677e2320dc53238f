"""Ranks that pass barriers between rounds; each barrier, and each round, carries its number."""


def in_step(context, *, rounds, slip=None):
    """Barrier, round, barrier, round, …; a rank that is out of step shows, and then all stop.

    Args:
        context: of the rank; any backend with a group.
        rounds: how many.
        slip: what rank 1 does at the barrier of the second round: `skipped` leaves it out,
            `retried` passes it twice, as after an error that it took for one of its own.
    """
    for number in range(rounds):
        times = 1
        if slip is not None and context.rank == 1 and number == 1:
            times = {"skipped": 0, "retried": 2}[slip]
        for _ in range(times):
            if not meet(context, "barrier", number):
                return
        if not meet(context, "round", number):
            return
    context.emit("finished")


def meet(context, what, number):
    """Whether every rank is at the same place."""
    words = context.group.all_gather(f"{what} {number}".encode())
    together = len(set(words)) == 1
    context.emit("met", at=[word.decode() for word in words], together=together)
    return together


def join(context, *, alone):
    """Have joined, and do one round, or take this rank for all there are."""
    words = [b"%d" % context.rank] if alone else context.group.all_gather(b"%d" % context.rank)
    context.emit("round", ranks=[int(word) for word in words])
