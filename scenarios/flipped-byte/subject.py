"""Ranks on three hosts gather what each of them holds.

On the way, a byte is changed that no checksum of TCP shows.
"""

import hashlib

SIZE = 64 * 1024


def held(rank):
    """What a rank holds: bytes that every rank can work out."""
    return bytes((rank * 31 + place) % 251 for place in range(256)) * (SIZE // 256)


def gather(context, *, checked):
    """Gather from every rank; where `checked`, until what each has got is what each has sent."""
    group, mine = context.group, held(context.rank)
    context.emit("gather.begin")
    found = group.all_gather(mine)
    while checked:
        sent = group.all_gather(hashlib.sha256(mine).digest())
        wrong = [
            rank for rank, data in enumerate(found) if hashlib.sha256(data).digest() != sent[rank]
        ]
        # All of them go on, or gather again, together: a rank that did so alone would be one step
        # ahead of the others.
        if not any(map(int, group.all_gather(b"1" if wrong else b"0"))):
            break
        context.emit("gather.again", wrong=wrong)
        found = group.all_gather(mine)
    right = sum(
        mine == meant
        for rank, data in enumerate(found)
        for mine, meant in zip(data, held(rank), strict=True)
    )
    context.emit("gathered", right=right)
