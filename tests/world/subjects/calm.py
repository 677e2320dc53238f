"""Subjects that behave."""

import os
import random
import sys
import threading
from pathlib import Path


def gather(context):
    """Meet everybody, and report whom."""
    context.group.barrier()
    found = context.group.all_gather(str(context.rank).encode() * (context.rank + 1))
    context.emit(
        "met", ranks=[text.decode()[0] for text in found], lengths=[len(text) for text in found]
    )


def alone(context):
    """Return without meeting anybody."""
    context.emit("there", pid=os.getpid())


def numbers(context):
    """Report the seed and what the generators make of it."""
    import torch

    drawn = [random.random(), float(torch.rand(1))]
    context.emit("drawn", seed=str(context.seed), numbers=drawn)


def surroundings(context, names=()):
    """Report variables, threads of torch, descriptors, current folder."""
    import torch

    context.emit(
        "surroundings",
        variables={name: os.environ.get(name) for name in names},
        names=sorted(os.environ),
        threads=torch.get_num_threads(),
        folder=str(Path.cwd()),
        empty=not any(Path().iterdir()),
    )
    Path("mine.txt").write_text("left here")


def descriptors(context):
    """Report what every open descriptor is, before any library opened its own for the group's
    sake.
    """
    found = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            found[entry.name] = str(entry.readlink())
        except OSError:
            continue
    context.emit("descriptors", open=found)


def gates(context, rounds=1):
    """Pass the gate `door` some times."""
    for turn in range(rounds):
        context.emit("door", turn=turn)
        context.emit("through", turn=turn)


def die_at_the_gate(context):
    """Rank 1 is killed by a thread of its own while it waits at the gate."""
    if context.rank == 1:
        threading.Timer(0.1, os.kill, (os.getpid(), 9)).start()
    context.emit("door")


def modules(context):
    """Report where `harness` came from."""
    context.emit("modules", harness=sys.modules["harness"].__name__)


def rank_0_alone(context):
    """Fail at once on every rank but 0, which waits for the others."""
    assert context.rank == 0
    context.group.barrier()


def joins_twice(context):
    """Say once more what the harness said for this rank."""
    try:
        context.emit("backend.ready", rank=context.rank, size=context.size)
    except ValueError:
        context.emit("refused")
    context._emitter.emit("backend.ready", {"rank": context.rank, "size": context.size})


def share(context):
    """Leave a file in the folder that the world shares, and tell what everybody left there."""
    from pathlib import Path

    folder = Path(context.shared)
    context.emit("found", names=sorted(path.name for path in folder.iterdir()))
    context.group.barrier()
    (folder / f"rank-{context.rank}").write_text("here")
    context.group.barrier()
    context.emit(
        "left", names=sorted(path.name for path in folder.iterdir()), folder=context.shared
    )
