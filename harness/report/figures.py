"""The figures of a report: the grid of trials, and the lanes of ranks of one trial.

Drawn by us, so that their bytes are the same everywhere and a verifier can draw them again.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.history import History
from harness.record.model import Record
from harness.report import svg
from harness.stats.outcome import Trial
from harness.stats.verdict import CellVerdict

FOLDER = "evidence/figures"
GRID = f"{FOLDER}/trials.svg"
SQUARE, GAP, PER_ROW = 10.0, 2.0, 60
LEFT, RIGHT, TOP = 230.0, 20.0, 26.0
LANE, BETWEEN = 16.0, 8.0
WIDTH = 960.0
SQUARES = {svg.GOOD: "good", svg.BAD: "bad", svg.DOUBT: "doubt"}
NAMED = ("backend.ready", "ready", "subject.begin", "subject.end", "rank.error")


def figures(record: Record, read: Callable[[str], bytes]) -> dict[str, bytes]:
    """Draw every figure of a record.

    Args:
        record: the record.
        read: gives the bytes of an evidence file by its path.

    Returns:
        Path in the results folder to the SVG's bytes.
    """
    drawings = {GRID: trial_grid(record)}
    for cell in record.judgement.cells:
        for arm, sample in sorted(cell.samples.items()):
            history = History.read(read(sample.evidence), size=cell.ranks)
            drawings[lanes_path(cell, arm)] = rank_lanes(history, title=f"{cell.id}, {arm} {sample.index}")
    return drawings


def lanes_path(cell: CellVerdict, arm: str) -> str:
    """Where the lanes of a cell's sample trial lie."""
    return f"{FOLDER}/{cell.slug}-{arm}.svg"


def trial_grid(record: Record) -> bytes:
    """A square per trial: a row per arm of each cell, in the order the trials were planned."""
    shapes: list[str] = []
    y = TOP
    for cell in record.judgement.cells:
        for arm, tally in cell.arms.items():
            shapes.append(svg.label(8, y + 9, f"{cell.id} {arm}"[:40]))
            for position, trial in enumerate(tally.trials):
                row, column = divmod(position, PER_ROW)
                fill, word = square(arm, trial)
                x, top = LEFT + column * (SQUARE + GAP), y + row * (SQUARE + GAP)
                shapes.append(svg.box(x, top, SQUARE, SQUARE, fill, title=f"{arm} {trial.index}: {word}"))
            y += (1 + (max(1, len(tally.trials)) - 1) // PER_ROW) * (SQUARE + GAP) + 4
    key = ((svg.GOOD, "as it must be"), (svg.BAD, "not as it must be"), (svg.DOUBT, "void"))
    for position, (fill, word) in enumerate(key):
        x = LEFT + position * 140
        shapes += [svg.box(x, 6, SQUARE, SQUARE, fill), svg.label(x + 14, 15, word, fill=svg.FAINT)]
    width = LEFT + PER_ROW * (SQUARE + GAP) + RIGHT
    return svg.picture(width, y + 6, f"Trials of {record.scenario.id}", shapes)


def square(arm: str, trial: Trial) -> tuple[str, str]:
    """The colour of a trial's square, and what it means: a control's is good when it failed as stated."""
    if trial.outcome == "void":
        return svg.DOUBT, f"void, {trial.void}"
    if arm == "control":
        return (svg.GOOD, "failed as stated") if trial.as_stated else (svg.BAD, str(trial.otherwise or trial.outcome))
    return (svg.GOOD, "pass") if trial.outcome == "pass" else (svg.BAD, "fail")


def rank_lanes(history: History, *, title: str) -> bytes:
    """One lane per rank over time: its life, its events as ticks, how it ended, and what the harness did to it."""
    begin = history.start_ns()
    span = max(1.0, (history.seen[-1].event.ns - begin) / 1e6 if history.seen else 1.0)
    scale = (WIDTH - LEFT - RIGHT) / span

    def at(ns: int) -> float:
        return LEFT + (ns - begin) / 1e6 * scale

    bottom = TOP + history.size * (LANE + BETWEEN)
    shapes = _axis(span, scale, bottom)
    for rank in range(history.size):
        y = TOP + rank * (LANE + BETWEEN)
        started, ended = history.served(rank, "rank.started"), history.exit(rank)
        pid = started[0].event.pid if started else None
        shapes.append(svg.label(8, y + 12, f"rank {rank}" + (f", pid {pid}" if pid else "")))
        if started:
            last = ended.event.ns if ended else history.seen[-1].event.ns
            good = ended is not None and ended.event.values.get("code") == 0
            x = at(started[0].event.ns)
            shapes.append(svg.box(x, y, max(1.0, at(last) - x), LANE, svg.GOOD if good else svg.BAD, opacity=0.2))
        for seen in history.seen:
            event = seen.event
            if event.rank != rank or event.name in ("rank.started", "rank.exited"):
                continue
            stroke = svg.BAD if event.name == "rank.error" else svg.INK if event.by == "rank" else svg.DOUBT
            words = f"{event.name}, {(event.ns - begin) / 1e6:.1f} ms"
            thick = 2.0 if event.name in NAMED or event.by != "rank" else 1.0
            shapes.append(svg.tick(at(event.ns), y, y + LANE, stroke, title=words, width=thick))
    for seen in history.seen:
        if seen.event.rank is None and seen.event.name in ("world.deadline", "world.stopped", "world.start"):
            stroke = svg.FAINT if seen.event.name == "world.start" else svg.BAD
            shapes.append(svg.tick(at(seen.event.ns), TOP - 4, bottom, stroke, title=seen.event.name))
    return svg.picture(WIDTH, bottom + 22, title, [svg.label(8, 14, title[:100], fill=svg.FAINT), *shapes])


def _axis(span: float, scale: float, bottom: float) -> list[str]:
    """Five marks of the time since the request, in milliseconds."""
    shapes = []
    for position in range(5):
        ms = span * position / 4
        x = LEFT + ms * scale
        shapes.append(svg.tick(x, TOP - 4, bottom, svg.LINE))
        anchor = "start" if position == 0 else "end" if position == 4 else "middle"
        shapes.append(svg.label(x, bottom + 14, f"{ms:.0f} ms", fill=svg.FAINT, anchor=anchor))
    return shapes
