"""What test hosts cost: worlds on three of them beside worlds on one, and the wire beside loopback,
in turn.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from harness.backends import KINDS
from harness.world.control.pool import ServerPool
from harness.world.control.world import World
from harness.world.hosts.host import Hosts
from tests.bench.worlds import warm_world
from tests.kit.launches import launch_of

THREE = Hosts(count=3, of=(0, 1, 2))
WRITE, BYTES = 4096, 2**30
STREAM = """
import os, socket, time

def stream(context, *, write, total):
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if context.rank == 0:
        with socket.create_server(place) as server, server.accept()[0] as channel:
            room, taken, begin = bytearray(2**20), 0, time.monotonic()
            while count := channel.recv_into(room):
                taken += count
            context.emit("streamed", bytes=taken, seconds=time.monotonic() - begin)
        return
    while True:
        try:
            channel = socket.create_connection(place)
        except ConnectionRefusedError:
            time.sleep(0.002)
        else:
            break
    with channel:
        data = bytes(write)
        for _ in range(total // write):
            channel.sendall(data)
"""


def measure(pool: ServerPool, folder: Path, *, rounds: int) -> dict[str, Any]:
    """Seconds of worlds (minimum, median, 95th percentile, maximum) and gigabytes a second, with
    their ratios.

    Args:
        pool: of servers.
        folder: for the subjects.
        rounds: of ten worlds on each side, and one stream on each.
    """
    found: dict[str, Any] = {}
    for backend in ("gloo", "mlx-ring"):
        if KINDS[backend].refusal(size=3) is None:
            sides: dict[str, list[float]] = {"one": [], "three": []}
            for _ in range(10 * rounds):
                for name, places in (("one", None), ("three", THREE)):
                    sides[name].append(
                        warm_world(pool, folder, backend=backend, ranks=3, hosts=places)
                    )
            one, three = (spread(sides[name]) for name in ("one", "three"))
            found[backend] = {
                "one_host_seconds": one,
                "three_hosts_seconds": three,
                "ratio": three[1] / one[1],
            }
    rates = {
        name: statistics.median(rate(pool, folder, places=places) for _ in range(rounds))
        for name, places in (("loopback", None), ("wire", Hosts(count=2, of=(0, 1))))
    }
    return found | {f"{name}_gigabytes_per_second": value for name, value in rates.items()}


def spread(seconds: list[float]) -> list[float]:
    """Minimum, median, 95th percentile, maximum."""
    ordered = sorted(seconds)
    return [
        ordered[0],
        statistics.median(ordered),
        ordered[int(0.95 * (len(ordered) - 1))],
        ordered[-1],
    ]


def rate(pool: ServerPool, folder: Path, *, places: Hosts | None) -> float:
    """Gigabytes a second, from one rank to another, in writes of 4 KiB."""
    folder = folder / "stream"  # of one folder a server copies the code once
    folder.mkdir(exist_ok=True)
    (folder / "subject.py").write_text(STREAM)
    launch = launch_of(
        about={},
        size=2,
        backend="none",
        warm=True,
        entry="subject:stream",
        folder=folder,
        arguments={"write": WRITE, "total": BYTES},
        inputs={},
        seeds=[1, 2],
        hosts=places,
    )
    for event in World(launch, pool).run().events:
        if event.name == "streamed" and event.values["bytes"] == BYTES:
            return BYTES / 1e9 / float(event.values["seconds"])  # type: ignore[arg-type]
    raise SystemExit("the stream did not arrive")


def show(found: dict[str, Any]) -> None:
    """Print the same for people."""
    print("worlds of three ranks on three test hosts, beside one host")
    for backend in ("gloo", "mlx-ring"):
        if figures := found.get(backend):
            one, three = figures["one_host_seconds"], figures["three_hosts_seconds"]
            print(
                f"  {backend:<14} {three[1]:.3f} s (p95 {three[2]:.3f}), one host {one[1]:.3f} s"
                f" (p95 {one[2]:.3f})"
            )
            print(f"  {'ratio':<14} {figures['ratio']:.2f} times")
    wire, loopback = (found[f"{name}_gigabytes_per_second"] for name in ("wire", "loopback"))
    print(f"  {'the wire':<14} {wire:.2f} GB/s in writes of 4 KiB, loopback {loopback:.2f} GB/s")
