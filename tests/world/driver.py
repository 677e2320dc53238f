"""A harness for the tests to kill: worlds without end, one that hangs with stopped and departed
ranks among them.

Prints a line when its servers start and one per gate, and `cancelled` when it was interrupted. With
the argument `hold`, one gate is never answered; with `many`, there is one world, of 64 ranks, and a
line for each that has begun; with `hosts`, ranks are on test hosts, and the wire of the world that
hangs is stopped.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from harness.world.below.preload import Preload
from harness.world.control.pool import ServerPool
from harness.world.control.world import Cancelled, World
from harness.world.hosts.host import Hosts
from tests.kit.launches import launch_of
from tests.kit.worlds import wire_of

SUBJECTS = Path(__file__).with_name("subjects")


def main() -> None:
    """Run worlds until it is interrupted or killed."""
    read, write = os.pipe()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.write(write, b"x"))

    many, hosted = "many" in sys.argv, "hosts" in sys.argv
    size = 64 if many else 2

    def run(entry: str, warm: bool, groups: bool) -> None:
        launch = launch_of(
            about={},
            size=size,
            # A server or a new interpreter that imports torch takes seconds.
            backend="gloo" if groups else "none",
            warm=warm,
            entry=entry,
            folder=SUBJECTS,
            arguments={},
            inputs={},
            seeds=list(range(size)),
            deadline=600.0,
            preload=Preload(modules=("torch", "torch.distributed") if groups else ()),
            hosts=Hosts(count=size, of=tuple(range(size))) if hosted else None,
            gates=(
                (
                    "rank.begin"
                    if many
                    else "child"
                    if entry.startswith("breeding")
                    else "subject.begin"
                ),
            ),
        )

        def at_gate(world: World, _: object) -> None:
            if hosted and entry == "stuck:stop_itself":
                os.kill(wire_of(world), signal.SIGSTOP)
            print(entry, warm, flush=True)
            if "hold" in sys.argv and entry == "breeding:daemon":
                threading.Event().wait()

        World(launch, pool, cancel=read, on_gate=at_gate).run()

    def lane(entry: str, warm: bool, groups: bool) -> None:
        try:
            while True:
                run(entry, warm, groups)
        except Cancelled:
            print("cancelled", flush=True)

    with ServerPool(cancel=read) as pool:
        print("begin", flush=True)
        lanes = [
            threading.Thread(target=lane, args=arguments)
            for arguments in (
                ("calm:gather", True, True),
                ("stuck:stop_itself", True, True) if hosted else ("stuck:stop_apart", True, False),
                ("breeding:daemon", True, False),
                ("breeding:stopped", False, False),
            )[: 1 if many else None]
        ]
        for thread in lanes:
            thread.start()
        for thread in lanes:
            thread.join()
    print("end", flush=True)
    sys.exit(130)


if __name__ == "__main__":
    main()
