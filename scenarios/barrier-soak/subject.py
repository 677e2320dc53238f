"""Ten thousand barriers. Each rank says where it is in memory that all share, so that who passes
early is seen.

A rank writes the number of the barrier that it comes to before it enters, and looks at the others'
once it has passed: whoever has not come to that barrier by then was not waited for.
"""

import mmap
import os
from pathlib import Path

TOLD = 1000
# One page: 64 ranks have a word each.
PAGE = 4096


def soak(context, *, count, leaves_out):
    """Pass `count` barriers; rank 1 leaves out the one of number `leaves_out`, and makes up for it
    at the end.
    """
    places = board(Path(context.shared, "board"))
    context.group.barrier()
    early = 0
    for number in range(1, count + 1):
        write(places, context.rank, number)
        if not (number == leaves_out and context.rank == 1):
            context.group.barrier()
        early += any(read(places, rank) < number for rank in range(context.size))
        if number % TOLD == 0:
            context.emit("passed", number=number)
    if leaves_out and context.rank == 1:
        # As many as the others, in the end: a count of calls would see nothing.
        context.group.barrier()
    context.emit("soaked", passed=number, early=early)


def board(path):
    """Memory that all ranks of the machine share."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(descriptor, PAGE)
    shared = mmap.mmap(descriptor, PAGE)
    os.close(descriptor)
    return memoryview(shared).cast("q")


def write(places, rank, number):
    """Say that a rank has come to a barrier: one aligned word, which is written at once."""
    places[rank] = number


def read(places, rank):
    """The barrier that a rank has come to."""
    return places[rank]
