"""Ranks that load, meet in a few rounds, wait for work, and meet once more.

One of them is ended on the way.
"""

import threading

ROUNDS = 6
IDLE = 0.3


def serve(context, *, moment, swallows=None):
    """Live such a life.

    Args:
        context: of the rank; any backend with a group.
        moment: where the fault finds its rank: in `load`, in a `collective`, or `idle`.
        swallows: a rank that takes the error of a dead peer for the end of its work; None for no
            such rank.
    """
    try:
        load(context, moment)
        for number in range(ROUNDS):
            if moment == "collective" and number == ROUNDS // 2:
                context.emit("here")
            meet(context, number)
        wait_for_work(context, moment)
        meet(context, ROUNDS)
    except RuntimeError:
        if context.rank == swallows:
            return
        raise


def load(context, moment):
    if moment == "load":
        context.emit("here")
    context.emit("loaded", parameters=sum(range(100_000)))


def meet(context, number):
    """One round: every rank's word, in the order of ranks."""
    words = context.group.all_gather(b"%d of %d" % (number, context.rank))
    assert words == [b"%d of %d" % (number, rank) for rank in range(context.size)], words
    context.emit("round", number=number)


def wait_for_work(context, moment):
    """Nobody is in a collective for a while: a rank that dies now is missed by nobody yet."""
    if moment == "idle":
        context.emit("here")
    threading.Event().wait(IDLE)
