"""Runs the pipeline that recovers on this machine, without Rankproof, and does to it what it is told:
`python local.py --kill 1@20` ends the process of stage 1 by SIGKILL when rank 0 is at position 20.

Prints one line of JSON for each event. The last one has the tokens, which are those of an
undisturbed run whatever was done.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from multiprocessing import get_context

from keeper import pid_of
from subject import ended

from harness._integrity import FolderStore


class Local:
    """What a rank is given, on this machine.

    Args:
        rank, size: which rank this is, of how many.
        shared: a folder that all ranks share.
        strike: called with the name of each event.
    """

    def __init__(self, rank, size, shared, strike=None):
        self.rank, self.size, self.shared, self._strike = rank, size, shared, strike

    def emit(self, name, **values):
        """Print an event, and strike where that was asked for."""
        # In one write, because the ranks share the pipe.
        sys.stdout.write(json.dumps({"event": name, "rank": self.rank, **values}) + "\n")
        sys.stdout.flush()
        if self._strike is not None:
            self._strike(name)


def main():
    """Run it once."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--stages", type=int, default=2)
    given.add_argument("--tokens", type=int, default=40)
    given.add_argument("--wait", type=float, default=3.0, help="seconds for a stage to come back")
    given.add_argument("--kill", metavar="STAGE@POSITION", help="end its process by SIGKILL")
    given.add_argument("--lose", metavar="STAGE@POSITION", help="the same, and its keeper's")
    given.add_argument("--stop", metavar="STAGE@POSITION", help="stop its process by SIGSTOP")
    given.add_argument(
        "--slip",
        nargs=2,
        type=int,
        metavar=("POSITION", "TIMES"),
        help="the last stage gives a wrong token",
    )
    options = given.parse_args()
    with tempfile.TemporaryDirectory() as shared:
        store = FolderStore(shared)
        keepers = {}

        def strike(name):
            for what, number in (
                ("kill", signal.SIGKILL),
                ("lose", signal.SIGKILL),
                ("stop", signal.SIGSTOP),
            ):
                stage, _, position = (getattr(options, what) or "").partition("@")
                if name == f"step.{position}":
                    if what == "lose":
                        keepers[int(stage)].kill()
                        keepers[int(stage)].join()
                    os.kill(pid_of(store, int(stage)), number)

        arguments = {
            "tokens": options.tokens,
            "carried": "library",
            "wait": options.wait,
            "slips": options.slip,
            "every": 1,
        }
        # Forks, made before rank 0 has any thread.
        for rank in range(1, options.stages):
            context = Local(rank, options.stages, shared)
            keepers[rank] = get_context("fork").Process(
                target=ended, args=(context,), kwargs=arguments
            )
            keepers[rank].start()
        try:
            ended(Local(0, options.stages, shared, strike), **arguments)
            for worker in keepers.values():
                worker.join()
        except BaseException:
            # Python waits for its children before it ends, and these would wait for rank 0.
            for rank, worker in keepers.items():
                worker.kill()
                worker.join()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid_of(store, rank), signal.SIGKILL)
            raise


if __name__ == "__main__":
    sys.exit(main())
