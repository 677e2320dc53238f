"""Ranks on several machines that do something when one of these is cut off: load, sum, or nothing at all."""

from __future__ import annotations

import hashlib
import time
from typing import Any


def work(context: Any, *, moment: str, heeds: bool) -> None:
    """Meet, announce the moment at which the cable is pulled, and go on with it until somebody ends this.

    Args:
        context: of the rank.
        moment: load (rank 1 reads and digests, the others wait for it at a barrier), collective (all of them sum, over
            and over), idle (nobody says anything).
        heeds: whether ranks 0 and 2 wait for rank 1; otherwise they return as if all was well.
    """
    context.group.barrier()
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
