"""Subjects whose ranks exchange data that each can work out for itself, so that every wrong byte is
seen.
"""

import time
from pathlib import Path


def pattern(rank, step, size):
    """What a rank sends in a step."""
    return bytes((rank * 31 + step * 7 + place) % 251 for place in range(256)) * (size // 256)


def exchange(context, *, size=65536, steps=4):
    """Gather everybody's bytes, step by step, and say of each step who sent what was not his, and
    where it begins.
    """
    for step in range(steps):
        context.emit("step.begin", step=step)
        gathered = context.group.all_gather(pattern(context.rank, step, size))
        wrong = []
        for rank, found in enumerate(gathered):
            meant = pattern(rank, step, size)
            if found != meant:
                places = [
                    place
                    for place in range(min(len(found), len(meant)))
                    if found[place] != meant[place]
                ]
                wrong.append(
                    {
                        "rank": rank,
                        "first": places[0] if places else len(found),
                        "count": len(places),
                    }
                )
        context.emit("step.end", step=step, wrong=wrong)


def exchange_and_say(context, *, size=65536, steps=4):
    """Exchange, and say when the last collective is over: only the ends of connections pass after
    that.
    """
    exchange(context, size=size, steps=steps)
    # A collective that returned here may still be on its way elsewhere.
    Path(context.shared, f"over-{context.rank}").touch()
    while len(list(Path(context.shared).glob("over-*"))) < context.size:
        time.sleep(0.001)
    context.emit("exchange.over")
