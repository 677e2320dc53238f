"""What the ledger costs: the time inside its hook, in the same run as the calls that it is held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.world.pool import ServerPool
from harness.world.world import Launch, World

ROUNDS = 400
SUBJECT = """
import statistics, time
from types import SimpleNamespace
import torch
import torch.distributed as dist
from harness.rank.ledger import Book
from harness.rank.ledger_torch import Hook

INNER, OURS = [], []

class Timed(Hook):
    def _before(self, operation, kernel):
        def redispatch(*given):
            begin = time.perf_counter()
            try:
                return kernel.redispatch(*given)
            finally:
                INNER.append(time.perf_counter() - begin)

        before = super()._before(operation, SimpleNamespace(redispatch=redispatch))

        def timed(*given):
            INNER.clear()
            begin = time.perf_counter()
            try:
                return before(*given)
            finally:
                OURS.append(time.perf_counter() - begin - sum(INNER))

        return timed

def ping_pong(context, *, rounds):
    spec = SimpleNamespace(rank=context.rank, size=2, scratch=str(context._kept.parent), folder=".", world="")
    Timed(Book(spec), torch).install()
    tensor, times = torch.ones(1 << 18), []
    for number in range(rounds + 20):
        begin = time.perf_counter()
        for sender in (0, 1):
            if sender == context.rank:
                dist.send(tensor, 1 - context.rank)
            else:
                dist.recv(tensor, 1 - context.rank)
        times.append(time.perf_counter() - begin)
        if number == 19:
            times.clear(), OURS.clear()
    assert len(OURS) == 2 * rounds
    context.emit("measured", round=statistics.median(times), call=statistics.median(OURS), share=sum(OURS) / sum(times))
"""


def measure(pool: ServerPool, folder: Path, *, rounds: int = ROUNDS) -> dict[str, Any]:
    """Two ranks of gloo send 1 MiB to and fro.

    Returns:
        Of the slower rank: the median `round_seconds`, the median `call_seconds` inside the hook, and the `share` of
        the whole time that was spent there.

    Raises:
        SystemExit: a rank did not come to its end.
    """
    (folder / "subject.py").write_text(SUBJECT)
    launch = Launch(
        about={},
        size=2,
        backend="gloo",
        warm=True,
        entry="subject:ping_pong",
        folder=folder,
        arguments={"rounds": rounds},
        inputs={},
        seeds=[1, 2],
    )
    capture = World(launch, pool).run()
    told = [event.values for event in capture.events if event.name == "measured"]
    if len(told) != 2:
        raise SystemExit("the ledger was not measured: " + " ".join(log.decode() for log in capture.logs.values()))
    worst: Any = max(told, key=lambda values: float(str(values["share"])))
    return {"round_seconds": worst["round"], "call_seconds": worst["call"], "share": worst["share"]}


def show(found: dict[str, Any]) -> None:
    """Print the same for people."""
    print("the ledger, 2 ranks of gloo that send 1 MiB to and fro")
    print(f"  a round trip   {found['round_seconds'] * 1e6:.0f} us, of which each rank makes two calls")
    print(f"  in the hook    {found['call_seconds'] * 1e6:.1f} us a call, {found['share']:.2%} of the time")
