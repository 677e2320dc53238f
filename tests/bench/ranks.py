"""What the processor spends on a rank of the tokenizer scenario, beside a bare fork and exit.

Page faults count the pages that a rank writes to or reads for the first time, and do not depend on
the load of the machine. Times do, so they are compared with the peer's of the same run: a child
that ends at once, forked by a rank, so by a process of the same size. Time is user and system time
together: the kernel splits that of a process this short by a handful of ticks.
"""

from __future__ import annotations

import shutil
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import harness
from harness.backends import KINDS
from harness.world.below.preload import MODULES, Preload
from harness.world.control.pool import ServerPool
from harness.world.control.world import World
from tests.kit.launches import launch_of

SCENARIO = Path(harness.__file__).parents[1] / "scenarios" / "tokenizer-on-every-rank"
RANKS, FORKS = 4, 10
SUBJECT = """
import atexit, os, resource
import subject

def used(usage):
    return {"faults": usage.ru_minflt, "ms": (usage.ru_utime + usage.ru_stime) * 1e3}

def rank(context):
    # The last that a rank does: after its group is left and what it loaded is reported.
    atexit.register(
        lambda: context.emit("spent", **used(resource.getrusage(resource.RUSAGE_SELF)))
    )
    subject.warm_up(context, loader="every-rank")

def peer(context, forks):
    for _ in range(forks):
        child = os.fork()
        if child == 0:
            os._exit(0)
        context.emit("spent", **used(os.wait4(child, 0)[2]))
"""


def measure(pool: ServerPool, folder: Path, *, rounds: int) -> dict[str, Any]:
    """Measure ranks and bare forks in turn: median page faults, milliseconds, and their ratios."""
    shutil.copy(SCENARIO / "subject.py", folder)
    (folder / "measured.py").write_text(SUBJECT)
    spent: dict[str, list[float]] = defaultdict(list)
    for round_ in range(rounds + 1):
        for entry, size, arguments in (("rank", RANKS, {}), ("peer", 1, {"forks": FORKS})):
            launch = launch_of(
                about={},
                size=size,
                backend="gloo",
                warm=True,
                entry=f"measured:{entry}",
                folder=folder,
                arguments=arguments,
                inputs={"tokenizer": str(SCENARIO / "tokenizer")},
                seeds=[1] * size,
                preload=Preload(MODULES, (KINDS["gloo"].inside_file,)),
            )
            events = World(launch, pool).run().events
            if round_ == 0:  # the server's first world copies what later ones find copied
                continue
            for event in events:
                values = event.values
                if event.name == "spent":
                    spent[f"{entry}_faults"].append(values["faults"])
                    if entry == "peer":
                        spent["peer_ms"].append(values["ms"])
                elif event.name == "rank.exited" and entry == "rank":
                    # From outside, so with its end, which takes a tenth of the time.
                    seconds = values["user_seconds"] + values["system_seconds"]
                    spent["rank_ms"].append(seconds * 1e3)
    medians = {name: statistics.median(values) for name, values in spent.items()}
    ratios = {
        f"{what}_ratio": medians[f"rank_{what}"] / medians[f"peer_{what}"]
        for what in ("faults", "ms")
    }
    return medians | ratios


def show(figures: dict[str, Any]) -> None:
    """Print the figures for people."""
    print("a rank of the tokenizer scenario, beside a bare fork and exit of a process of its size")
    for side in ("rank", "peer"):
        faults = figures[f"{side}_faults"]
        print(f"  {side:<6} {faults:.0f} page faults, {figures[f'{side}_ms']:.1f} ms")
    print(
        f"  ratio  {figures['faults_ratio']:.1f} times the faults, "
        f"{figures['ms_ratio']:.1f} times the time"
    )
