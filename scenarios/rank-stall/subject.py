"""Ranks that add up numbers together, round by round, and say what it came to."""

import hashlib


def add_up(context, *, rounds):
    """Each round every rank gives a number, and all get the sum.

    A rank that stands still holds all of them.
    """
    digest = hashlib.sha256()
    for number in range(rounds):
        context.emit("compute")
        given = context.group.all_gather(b"%d" % ((number + 1) * (context.rank + 1)))
        total = sum(map(int, given))
        digest.update(b"%d " % total)
        context.emit(
            "round", number=number, right=total == (number + 1) * sum(range(1, context.size + 1))
        )
    context.emit("added", digest=digest.hexdigest())
