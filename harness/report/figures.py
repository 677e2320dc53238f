"""The figures of a report: the grid of trials, and the lanes of ranks of one trial.

Drawn by us, so that their bytes are the same everywhere and a verifier can draw them again.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.history import History
from harness.record.model import Record
from harness.report import svg
from harness.report.distances import distances
from harness.report.wires import wires_picture
from harness.report.words import ranks_in_words, worst_first
from harness.stats import shown_trial
from harness.stats.outcome import Trial
from harness.stats.shown_trial import lifelines
from harness.stats.verdict import CellVerdict

FOLDER = "evidence/figures"
GRID = f"{FOLDER}/trials.svg"
SQUARE, GAP, PER_ROW = 10.0, 2.0, 60
LEFT, RIGHT, TOP = 230.0, 20.0, 26.0
KEY = 190.0
LANE, BETWEEN = 16.0, 8.0
WIDTH = 960.0
# What becomes of a trial: what its square says beside colour, and what that means.
SQUARES = {
    "pass": ("", "candidate passed"),
    "fail": ("×", "candidate failed"),
    "stated": ("×", "control failed as stated"),
    "unstated": ("?", "control did not fail as stated"),
    "void": ("", "void, not counted"),
    "held": ("=", "control held as stated"),
}
WORDS_OF_A_COMPARISON = {
    "pass": "b passed",
    "fail": "b failed",
    "stated": "defect seen as stated",
    "unstated": "defect not seen as stated",
}
FILLS = {
    "pass": (svg.GOOD, svg.GOOD),
    "fail": (svg.BAD, svg.BAD),
    "stated": (svg.PAPER, svg.STATED),
    "unstated": (svg.DOUBT, svg.DOUBT),
    "void": (svg.PAPER, svg.FAINT),
    "held": (svg.PAPER, svg.STATED),
}
# Up to so many ranks have a lane each; of more those that went the same way share one.
LANES = 8
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
            title = f"{cell.id}, {record.scenario.arm(arm)} {sample.index}"
            drawings[lanes_path(cell, arm)] = rank_lanes(history, title=title)
            for check, ranks in shown_trial.distances(history).items():
                drawings[distances_path(cell, arm, check)] = distances(check, ranks, title=title)
            if sample.wires is not None:
                drawings[wires_path(cell, arm)] = wires_picture(sample.wires, title=title)
    return drawings


def sample_paths(cell: CellVerdict) -> list[str]:
    """Where the pictures of a cell's sample trials lie."""
    return [
        path
        for arm, sample in sorted(cell.samples.items())
        for path in (
            lanes_path(cell, arm),
            *(distances_path(cell, arm, check) for check in sample.compared),
            *([wires_path(cell, arm)] if sample.wires is not None else []),
        )
    ]


def legend(record: Record) -> list[tuple[str, str, str]]:
    """Kind of square, sign and word, of those that can be in a record."""
    held = any(cell.control_holds for cell in record.judgement.cells)
    return [
        (kind, sign, WORDS_OF_A_COMPARISON.get(kind, word) if record.scenario.called else word)
        for kind, (sign, word) in SQUARES.items()
        if kind != "held" or held
    ]


def lanes_path(cell: CellVerdict, arm: str) -> str:
    """Where the lanes of a cell's sample trial lie."""
    return f"{FOLDER}/{cell.slug}-{arm}.svg"


def distances_path(cell: CellVerdict, arm: str, check: str) -> str:
    """Where the picture of a check of arrays in a cell's sample trial lies."""
    return f"{FOLDER}/{cell.slug}-{arm}-{check}.svg"


def wires_path(cell: CellVerdict, arm: str) -> str:
    """Where the picture of the hosts and wires of a cell's sample trial lies."""
    # With a dot, which no id of a check has.
    return f"{FOLDER}/{cell.slug}-{arm}.wires.svg"


def trial_grid(record: Record) -> bytes:
    """A square per trial: a row per arm of each cell, the worst cell first, in the order the trials
    were planned.
    """
    shapes: list[str] = []
    y, width = TOP, LEFT + PER_ROW * (SQUARE + GAP) + RIGHT
    for cell in worst_first(record.judgement.cells):
        for arm, tally in cell.arms.items():
            called = record.scenario.arm(arm)
            shapes.append(svg.label(8, y + 9, f"{cell.id} {called}"[:40]))
            for position, trial in enumerate(tally.trials):
                row, column = divmod(position, PER_ROW)
                kind, word = square(arm, trial)
                x, top = LEFT + column * (SQUARE + GAP), y + row * (SQUARE + GAP)
                shapes += _square(x, top, kind, title=f"{called} {trial.index}: {word}")
            y += (1 + (max(1, len(tally.trials)) - 1) // PER_ROW) * (SQUARE + GAP) + 4
    kinds = legend(record)
    for position, (kind, _, word) in enumerate(kinds):
        x = 8.0 + position * min(KEY, (width - 8) / len(kinds))
        shapes += [*_square(x, 6, kind, title=word), svg.label(x + 14, 15, word, fill=svg.FAINT)]
    return svg.picture(width, y + 6, f"Trials of {record.scenario.id}", shapes)


def _square(x: float, y: float, kind: str, *, title: str) -> list[str]:
    """A shape of its own for each kind, so that it can be told without its colour."""
    fill, stroke = FILLS[kind]
    shapes = [svg.frame(x, y, SQUARE, fill, stroke, title=title, dashed=kind == "void")]
    sign = stroke if fill == svg.PAPER else svg.PAPER
    if SQUARES[kind][0] == "×":
        near, far = 2.5, SQUARE - 2.5
        shapes += [
            svg.line(x + near, y + near, x + far, y + far, sign, width=1.5),
            svg.line(x + near, y + far, x + far, y + near, sign, width=1.5),
        ]
    elif SQUARES[kind][0]:
        shapes.append(
            svg.label(
                x + SQUARE / 2, y + SQUARE - 1.5, SQUARES[kind][0], fill=sign, anchor="middle"
            )
        )
    return shapes


def square(arm: str, trial: Trial) -> tuple[str, str]:
    """The kind of a trial's square, and in words what became of the trial."""
    if trial.outcome == "void":
        return "void", f"void, {trial.void}"
    if arm == "control" and trial.as_stated and trial.outcome == "pass":
        return "held", "held as stated"
    if arm == "control":
        return (
            ("stated", "failed as stated")
            if trial.as_stated
            else ("unstated", str(trial.otherwise or trial.outcome))
        )
    return ("pass", "pass") if trial.outcome == "pass" else ("fail", "fail")


def rank_lanes(history: History, *, title: str) -> bytes:
    """One lane per rank over time: its life, its events as ticks, how it ended, and what the
    harness did to it.

    In a large world ranks with the same events in the same order share a lane, on which the ticks
    of all of them are.
    """
    begin = history.start_ns()
    span = max(1.0, (history.seen[-1].event.ns - begin) / 1e6 if history.seen else 1.0)
    scale = (WIDTH - LEFT - RIGHT) / span

    def at(ns: int) -> float:
        return LEFT + (ns - begin) / 1e6 * scale

    lanes = (
        [[rank] for rank in range(history.size)]
        if history.size <= LANES
        else [line.ranks for line in lifelines(history) if line.ranks]
    )
    bottom = TOP + len(lanes) * (LANE + BETWEEN)
    shapes = _axis(span, scale, bottom)
    for position, ranks in enumerate(lanes):
        y = TOP + position * (LANE + BETWEEN)
        started = [seen for rank in ranks for seen in history.served(rank, "rank.started")[:1]]
        pid = (
            f", pid {started[0].event.pid}"
            if len(ranks) == 1 and started and started[0].event.pid
            else ""
        )
        shapes.append(svg.label(8, y + 12, f"{ranks_in_words(ranks)}{pid}"[:38]))
        if started:
            ends = [history.exit(rank) for rank in ranks]
            last = max(end.event.ns if end else history.seen[-1].event.ns for end in ends)
            good = all(end is not None and end.event.values.get("code") == 0 for end in ends)
            x = at(min(seen.event.ns for seen in started))
            shapes.append(
                svg.box(
                    x, y, max(1.0, at(last) - x), LANE, svg.GOOD if good else svg.BAD, opacity=0.2
                )
            )
        for seen in history.seen:
            event = seen.event
            if event.rank not in ranks or event.name in ("rank.started", "rank.exited"):
                continue
            stroke = (
                svg.BAD
                if event.name == "rank.error"
                else svg.INK
                if event.by == "rank"
                else svg.DOUBT
            )
            whose = f", rank {event.rank}" if len(ranks) > 1 else ""
            words = f"{event.name}, {(event.ns - begin) / 1e6:.1f} ms{whose}"
            thick = 2.0 if event.name in NAMED or event.by != "rank" else 1.0
            shapes.append(svg.tick(at(event.ns), y, y + LANE, stroke, title=words, width=thick))
    for seen in history.seen:
        if seen.event.rank is None and seen.event.name in (
            "world.deadline",
            "world.stopped",
            "world.start",
        ):
            stroke = svg.FAINT if seen.event.name == "world.start" else svg.BAD
            shapes.append(
                svg.tick(at(seen.event.ns), TOP - 4, bottom, stroke, title=seen.event.name)
            )
    return svg.picture(
        WIDTH, bottom + 22, title, [svg.label(8, 14, title[:100], fill=svg.FAINT), *shapes]
    )


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
