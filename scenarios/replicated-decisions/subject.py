"""Ranks that hold a part of a model each, and make every decision of the serving loop in as many
copies as there are.

The logits of a step are the sum of what all ranks have. All that follows is decided by each rank:
which request comes next, which token is drawn, which of two equal logits wins, when time is up,
whether a request was cancelled. A rank that sees something else decides otherwise, and from then on
it computes something else, or waits where nobody comes. With `decides: rank-0` that rank decides
and tells the others; a request ends for all where it does for one.
"""

import random
import time

VOCABULARY = 32
STEPS = 6
REQUESTS = (3, 11, 19, 26)
LATE = 0.05


def serve(context, *, decides, decision):
    """Serve all requests; `decision` is the one that ranks see differently."""
    together = decides == "rank-0"
    queue = list(REQUESTS)
    if decision == "order" and context.rank == 1:
        queue.reverse()  # they came in over another connection
    drawn = random.Random(7)
    if decision == "draw" and context.rank == 1:
        drawn.random()  # it has answered one more request than the others
    ids, begin = [], time.monotonic()
    while queue:
        first = agreed(context, queue[0], together=together)
        queue.remove(first)
        token, told = first, [first]
        for step in range(STEPS):
            logits = combine(context, token, step)
            token = agreed(
                context, choose(context, logits, decision=decision, drawn=drawn), together=together
            )
            told.append(token)
            context.emit("step", request=first, number=step)
            if anyone(context, ends(context, decision, step, begin), together=together):
                break
        ids.append(told)
        context.group.barrier()  # all ranks give the memory of a request back together
    context.emit("served", ids=ids)


def choose(context, logits, *, decision, drawn):
    """The next token: drawn, or the largest.

    Of equal ones the first, or on one rank the last, as kernels differ.
    """
    if decision == "draw":
        return drawn.choices(range(VOCABULARY), weights=[value + 1.0 for value in logits])[0]
    best = [place for place, value in enumerate(logits) if value == max(logits)]
    return best[-1 if decision == "tie" and context.rank == 1 else 0]


def ends(context, decision, step, begin):
    """Whether a rank thinks that the request is over: rank 1 heard of a cancel, or was busy when
    time was up.
    """
    if context.rank != 1 or step != 2:
        return False
    if decision == "clock":
        time.sleep(LATE)
        return time.monotonic() - begin >= LATE
    return decision == "cancel"


def agreed(context, mine, *, together):
    """What is done: what rank 0 decided, who tells the others, or each rank's own.

    As many calls either way.
    """
    heard = [int(told) for told in context.group.all_gather(b"%02d" % mine)]
    return heard[0] if together else mine


def anyone(context, mine, *, together):
    """Whether it is done: where any rank says so, or where a rank says so itself."""
    heard = context.group.all_gather(b"1" if mine else b"0")
    return b"1" in heard if together else mine


def combine(context, token, step):
    """Logits of a step, to which every rank adds: small whole numbers, so that sums are exact and
    many are equal.
    """
    mine = [float((token * 7 + step * 13 + place * 5) % 11) for place in range(VOCABULARY)]
    if context.backend == "mlx-ring":
        import mlx.core as mx

        return mx.distributed.all_sum(mx.array(mine), group=context.group.native).tolist()
    import torch

    values = torch.tensor(mine)
    context.group.native.all_reduce(values)
    return values.tolist()
