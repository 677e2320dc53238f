"""A harness to be killed: one world with a rank that a fault has in its grip for ten minutes.

Prints a line when so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.faults.strikes import Strikes
from harness.world.below.preload import Preload
from harness.world.control.pool import ServerPool
from harness.world.control.world import World
from tests.kit.faulted_worlds import a_fault
from tests.kit.launches import launch_of

SUBJECTS = Path(__file__).with_name("subjects")
OPTIONS = {"no-space": {"folder": "home"}, "memory": {"more": "64MiB"}}
# What tells that the fault is in force.
TOLD = {
    "pause": "rank.stopped",
    "starve": "rank.crowded",
    "no-space": "rank.covered",
    "memory": "rank.limited",
}


def main() -> None:
    """Run the world; it does not end."""
    kind = sys.argv[1]
    strikes = Strikes(
        [a_fault(kind=kind, ranks=[1], at="door", **{"for": "10min"}, **OPTIONS.get(kind, {}))],
        size=2,
    )
    launch = launch_of(
        about={},
        size=2,
        backend="none",  # importing torch takes longer than all else, and who waits waits alone
        warm=True,
        entry="struck:stay",
        folder=SUBJECTS,
        arguments={},
        inputs={},
        seeds=[1, 2],
        deadline=900.0,
        preload=Preload(modules=()),
    )

    def begin(world: World) -> None:
        strikes.begin(world)
        world.once(TOLD.get(kind, ""), rank=1, do=lambda: print("struck", flush=True))

    def at_gate(world: World, event: object) -> None:
        strikes.at_gate(world, event)  # type: ignore[arg-type]
        if kind == "delay":
            print("struck", flush=True)

    with ServerPool() as pool:
        World(
            strikes.prepare(launch), pool, on_begin=begin, on_gate=at_gate, on_end=strikes.end
        ).run()


if __name__ == "__main__":
    main()
