"""Ranks on several machines that do something when one of these is cut off: load, sum, or nothing
at all.
"""

from __future__ import annotations

import hashlib
import random
import time
from typing import Any


def work(context: Any, *, moment: str, heeds: bool) -> None:
    """Meet, announce the moment at which the cable is pulled, and go on with it until somebody ends
    this.

    Args:
        context: of the rank.
        moment: load (rank 1 reads and digests, the others wait for it at a barrier), collective
            (all of them gather for ever), idle (nobody says anything), any (all of them gather and
            compute in turns, and rank 1 announces after up to two seconds, by the seed of its
            trial).
        heeds: whether ranks 0 and 2 wait for rank 1; otherwise they return as if all was well.
    """
    context.group.barrier()
    if moment == "any" and heeds:
        go_on(context, random.Random(context.seed).uniform(0, 2))
    context.emit("struck.begin", moment=moment)
    while not heeds:
        if context.rank != 1:
            return
        time.sleep(1)
    if moment == "load":
        if context.rank == 1:
            read = hashlib.sha256()
            while True:
                read.update(bytes(2**20))
        context.group.barrier()
    while moment == "collective":
        context.group.all_gather(bytes(4096))
    while moment == "idle":
        time.sleep(1)


def go_on(context: Any, seconds: float) -> None:
    """Gather and compute in turns for ever; rank 1 announces when these seconds are over."""
    due = time.monotonic() + seconds
    announced = context.rank != 1
    while True:
        context.group.all_gather(bytes(4096))
        hashlib.sha256(bytes(2**22)).digest()
        if not announced and time.monotonic() >= due:
            announced = True
            context.emit("struck.begin", moment="any")
