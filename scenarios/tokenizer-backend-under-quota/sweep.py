"""Table and plot of the two sweeps, from the evidence of their runs.

    python sweep.py QUOTA_RUN CHANCE_RUN PICTURE.svg > TABLE.md

A run is a folder with results.json. Every trial is counted, also those that the verdict holds void
because no request was refused in them: leaving those out would make failures look more frequent.
The same evidence gives the same bytes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.report import svg
from harness.stats.rates import wilson

CONFIDENCE = 0.95
WIDTH, HEIGHT, LEFT, TOP, HIGH, WIDE = 960.0, 320.0, 60.0, 50.0, 210.0, 370.0


@dataclass(frozen=True, kw_only=True)
class Point:
    """A cell of a sweep: loads per process.

    How many loads and pools (processes) failed, of how many.
    """

    threads: int
    ranks: int
    loads: tuple[int, int]
    pools: tuple[int, int]
    calls: int
    refused: int
    trials: int


def points(run: Path) -> list[Point]:
    """Count a run's events, cell by cell."""
    record = json.loads((run / "results.json").read_text())
    found = []
    for cell in record["judgement"]["cells"]:
        if cell["candidate"] is None:
            continue  # skipped: the environment could not be had
        loads, failed, pools, bad, calls, refused = 0, 0, 0, 0, 0, 0
        for trial in cell["candidate"]["trials"]:
            for line in (run / trial["evidence"]).read_text().splitlines():
                event = json.loads(line)
                values = event["values"]
                if event["name"] == "pool.done":
                    loads += values["loads"]
                    failed += values["failed"]
                    pools += 1
                    bad += values["failed"] > 0
                elif event["name"] == "hub.request" and values["role"] in (
                    "model_info",
                    "tree",
                    "templates",
                ):
                    calls += 1
                    refused += values["status"] == 429
        size, count = cell["ranks"], len(cell["candidate"]["trials"])
        if pools != size * count:
            sys.exit(
                f"{run.name}, {cell['id']}: {pools} pools told their end, {size * count} were"
                " started"
            )
        found.append(
            Point(
                threads=loads // pools, ranks=size, loads=(failed, loads), pools=(bad, pools), calls=calls,
                refused=refused, trials=count,
            )
        )  # fmt: skip
    return found


def rate(counted: tuple[int, int]) -> str:
    """A share with its 95 % interval (Wilson)."""
    low, high = wilson(*counted, confidence=CONFIDENCE)
    return f"{counted[0]}/{counted[1]} = {counted[0] / counted[1]:.1%} ({low:.1%} to {high:.1%})"


def tables(quota: list[Point], chance: list[Point]) -> str:
    """Both sweeps as markdown."""
    head = "| loads at once | API calls a trial | refused | loads that failed | pools that failed |"
    lines = [head, "| --: " * 5 + "|"]
    lines += [
        f"| {one.threads * one.ranks} | {one.calls / one.trials:.0f} |"
        f" {one.refused / one.trials:.0f} | {rate(one.loads)} | {rate(one.pools)} |"
        for one in quota
    ]
    q = share(chance)
    lines += [
        "",
        "| loads in a pool (S) | loads that failed | pools that failed | 1 - (1 - q)^S |",
        "| --: " * 4 + "|",
    ]
    lines += [
        f"| {one.threads} | {rate(one.loads)} | {rate(one.pools)} |"
        f" {1 - (1 - q) ** one.threads:.1%} |"
        for one in chance
    ]
    total = sum(one.loads[1] for one in chance)
    lines += ["", f"q = {q:.4f}: the share of all {total} loads of the second sweep that failed."]
    return "\n".join(lines) + "\n"


def share(chance: list[Point]) -> float:
    """q: how often a single load failed, over all sizes."""
    return sum(one.loads[0] for one in chance) / sum(one.loads[1] for one in chance)


def plot(quota: list[Point], chance: list[Point]) -> bytes:
    """Left: loads that failed, by loads at once, under a quota.

    Right: pools that failed, by size, and the model.
    """
    q = share(chance)
    at_once = [p.threads * p.ranks for p in quota]
    shapes = axes(LEFT, "under a quota: share of loads that failed", "loads at once", at_once)
    shapes += marks(LEFT, [(p.threads * p.ranks, p.loads) for p in quota])
    right = LEFT + WIDE + 110
    sizes = [p.threads for p in chance]
    shapes += axes(
        right, "by chance: share of pools with a failed load", "loads in a pool (S)", sizes
    )
    # Every size between the first and the last, so that the model is seen as the curve it is.
    curve = [(size, 1 - (1 - q) ** size) for size in range(min(sizes), max(sizes) + 1)]
    path = " ".join(
        f"{svg.number(across(right, sizes, s))},{svg.number(up(value))}" for s, value in curve
    )
    shapes.append(
        f'<polyline points="{path}" fill="none" stroke="{svg.FAINT}" stroke-dasharray="4 3"/>'
    )
    shapes.append(
        svg.label(
            right + WIDE, up(0.1), f"- - 1-(1-q)^S, q = {q:.3f}", fill=svg.FAINT, anchor="end"
        )
    )
    shapes += marks(right, [(p.threads, p.pools) for p in chance])
    return svg.picture(
        WIDTH, HEIGHT, "Failures by number of concurrent loads, with a model", shapes
    )


def axes(left: float, title: str, below: str, ticks: list[int]) -> list[str]:
    """The frame of one plot."""
    shapes = [svg.label(left, TOP - 20, title)]
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        shapes.append(svg.box(left, up(value), WIDE, 0.5, svg.LINE))
        shapes.append(
            svg.label(left - 8, up(value) + 4, f"{value:.0%}", fill=svg.FAINT, anchor="end")
        )
    base = TOP + HIGH + 18
    shapes += [
        svg.label(across(left, ticks, n), base, str(n), fill=svg.FAINT, anchor="middle")
        for n in ticks
    ]
    shapes.append(
        svg.label(left + WIDE / 2, TOP + HIGH + 38, below, fill=svg.FAINT, anchor="middle")
    )
    return shapes


def marks(left: float, rows: list[tuple[int, tuple[int, int]]]) -> list[str]:
    """A bar for each interval, a square for each share."""
    ticks = [value for value, _ in rows]
    shapes = []
    for value, counted in rows:
        low, high = wilson(*counted, confidence=CONFIDENCE)
        x, y = across(left, ticks, value), up(counted[0] / counted[1])
        shapes.append(svg.tick(x, up(high), up(low), svg.INK))
        colour = svg.BAD if counted[0] else svg.GOOD
        shapes.append(svg.box(x - 4, y - 4, 8, 8, colour, title=f"{value}: {rate(counted)}"))
    return shapes


def across(left: float, ticks: list[int], value: int) -> float:
    """Where a number of loads stands: in proportion, with room at both ends."""
    return left + 15 + (WIDE - 30) * (value - min(ticks)) / max(1, max(ticks) - min(ticks))


def up(value: float) -> float:
    """Where a share stands."""
    return TOP + HIGH * (1 - value)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    swept = [points(Path(name)) for name in sys.argv[1:3]]
    Path(sys.argv[3]).write_bytes(plot(*swept))
    print(tables(*swept), end="")
