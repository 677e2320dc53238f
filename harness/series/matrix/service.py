"""What a service does beside its model, for the matrix: it notices dead peers, ends its workers,
and asks again.

This file is copied into both arms of a part, as `standard.py` is. It needs the standard library
alone.
"""

import atexit
import hashlib
import os
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

LATE = 2.5
ATTEMPTS = 3


def serve(context: Any, *, rounds: int = 4, defect: str = "") -> None:
    """Meet in rounds, until a peer is gone: then every rank ends with an error.

    Args:
        context: of the rank.
        rounds: how many.
        defect: how rank 0 takes it instead: `deaf` returns as if all was done, `late` ends after
            LATE seconds, `quiet` ends with code 0, as by a clean-up that wants to be sure that the
            process ends.
    """
    mine = defect if context.rank == 0 else ""
    if mine == "quiet":
        atexit.register(os._exit, 0)
    context.emit("work.begin")
    try:
        meet(context, rounds)
    except RuntimeError:
        if mine == "deaf":
            return
        if mine == "late":
            time.sleep(LATE)
        raise


def employ(context: Any, *, rounds: int = 4) -> None:
    """Meet in rounds, each rank beside a worker process that it ends itself, however it comes to
    its end.
    """
    context.emit("work.begin")
    worker = subprocess.Popen(["sleep", "600"])
    try:
        meet(context, rounds)
    finally:
        worker.kill()
        worker.wait()


def meet(context: Any, rounds: int) -> None:
    """As many rounds, in each the word of every rank."""
    for number in range(rounds):
        context.emit("round", number=number)
        words = context.group.all_gather(b"%d of %d" % (number, context.rank))
        assert words == [b"%d of %d" % (number, rank) for rank in range(context.size)], words


def fetch(context: Any) -> None:
    """Every rank fetches a file from the scenario's hub, and asks again where the hub fails."""
    context.emit("work.begin")
    address = f"{os.environ['HF_ENDPOINT']}/rankproof/llama3/resolve/main/tokenizer_config.json"
    found = asked(address)
    context.emit("read", size=len(found), digest=hashlib.sha256(found).hexdigest())


def asked(address: str) -> bytes:
    """Return what lies there."""
    for left in reversed(range(ATTEMPTS)):
        try:
            with urllib.request.urlopen(address) as answer:  # noqa: S310 - the scenario's own hub
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            if error.code < 500 or not left:
                raise
    raise AssertionError("the number of attempts must be at least 1")
