"""A decoder in integers, split into stages, that generates over sockets: with the integrity
library, or without.
"""

import time
from functools import partial

from carriers import Bare, Lines, meet
from decoder import LAYERS, Layers, choose, embed
from keeper import Keeper
from recovery import recovered, work
from stages import Slips, Stage, Steps, Struck

from harness._integrity import MessageLate, Pace, TransferFailed, TransportLimits


def whole(context, *, tokens, **_):
    """What one device generates: the baseline."""
    layers, found = Layers(0, LAYERS), [1]
    while len(found) <= tokens:
        found.append(choose(layers(embed(found[-1]))))
    context.emit("generated", ids=found[1:])


def stream(context, *, tokens, carried, deadline=30.0, every=1):
    """Generate over one pipeline, and tell what came of it.

    Args:
        context: of the rank.
        tokens: how many.
        carried: `library` or `bare`.
        deadline: of the library, in seconds.
        every: positions between two events `step.N`, where faults strike.
    """
    limits = TransportLimits(deadline=deadline, silence=1.0)
    lines = {
        "bare": lambda: Bare(context),
        "library": lambda: Lines(context, limits=limits),
    }[carried]()
    meet(context)

    def told(position):
        if position % every == 0:
            context.emit(f"step.{position}")

    stage = Stage(rank=context.rank, size=context.size, lines=lines, tokens=tokens, told=told)
    stage.lead() if context.rank == 0 else stage.follow()
    context.emit("generated", ids=stage.known[1:])
    if carried == "library":
        context.emit("carried", **lines.transport.monitor.mended())
    lines.close()


# A stage that ends, and one that comes back.


# Eight arguments: what the scenarios vary.
def ended(
    context,
    *,
    tokens,
    carried,
    restarts=True,
    wait=3.0,
    ends_at=(),
    slips=None,
    every=10,
    stays=0.0,
):
    """Generate while a stage is ended or gives a wrong token: rank 0 recovers by the plan of the
    library's RecoveryManager.

    Args:
        context: of the rank.
        tokens: how many.
        carried: `library` or `bare`.
        restarts: whether a rank above 0 runs its stage in a process of its own, and begins it again
            when it ends.
        wait: seconds in which a stage has to come back, before its work is done on one device.
        ends_at: positions at which the first, the second, … of these processes is ended by SIGKILL.
        slips: `[position, times]`: where, and how often, the first process of the last stage gives
            a token that is not in the vocabulary.
        every: positions between two events `step.N`, where faults strike.
        stays: seconds that rank 0 stays when all is done, for the last faults to be in force as
            long as they should.
    """
    if context.rank == 0:
        steps = Steps(context, every)
        found = recovered(context, tokens=tokens, carried=carried, wait=wait, told=steps)
        context.emit("generated", ids=found)
        time.sleep(stays)
        return
    given = {"tokens": tokens, "carried": carried, "wait": wait}
    if not restarts:
        work(context, **given, told=Steps(context, every))
        return

    def start(starts):
        # A process that is not the rank says nothing in its name.
        told = Struck(ends_at[starts] if starts < len(ends_at) else None)
        chosen = Slips(*slips) if slips and starts == 0 else None
        return partial(work, context, **given, told=told, chosen=chosen)

    Keeper(context, start).keep(restarts=carried != "bare")


# A device that becomes slow.


def slow(context, *, tokens, adaptive, shortest=0.25, longest=8.0):
    """Generate, and give up on a stage from which nothing comes in time.

    Args:
        context: of the rank.
        tokens: how many.
        adaptive: wait as long as the stage's pace and the steps missed so far say, up to `longest`;
            else `shortest`.
        shortest: seconds.
        longest: seconds.
    """
    lines = Lines(context, limits=TransportLimits(deadline=longest, silence=5.0))
    pace = Pace(shortest=shortest, longest=longest)
    late = 0

    class Watched:
        def send(self, data, *, to):
            lines.send(data, to=to)

        def receive(self, *, source):
            nonlocal late
            begin, wait = time.monotonic(), pace.timeout() if adaptive and source else shortest
            while True:
                try:
                    found = lines.transport.receive(
                        source=f"rank {source}", timeout=wait if source else longest
                    )
                except MessageLate as error:
                    late += 1
                    if not adaptive or time.monotonic() - begin + 2 * wait > longest:
                        raise TimeoutError(
                            f"nothing came from rank {source} within {wait:g} s"
                        ) from error
                    wait *= 2
                    continue
                except TransferFailed as error:
                    raise TimeoutError(f"nothing came from rank {source} any more") from error
                pace.took(time.monotonic() - begin)
                return bytes(found.data)

    def told(position):
        context.emit(f"step.{position}")

    stage = Stage(rank=context.rank, size=context.size, lines=Watched(), tokens=tokens, told=told)
    meet(context)
    stage.lead() if context.rank == 0 else stage.follow()
    context.emit("generated", ids=stage.known[1:])
    context.emit("waited", late=late)
    lines.close()
