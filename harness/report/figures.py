"""The figures of a report: the grid of trials, and the lanes of ranks of one trial.

Drawn by us, so that their bytes are the same everywhere and a verifier can draw them again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from harness.forms.text import plural
from harness.history import History
from harness.record.model import Record
from harness.report import svg
from harness.report.words import quantity, ranks_in_words, worst_first
from harness.stats import shown_trial
from harness.stats.outcome import Trial
from harness.stats.shown_trial import ShownLink, ShownStrike, Wires, lifelines
from harness.stats.verdict import CellVerdict

FOLDER = "evidence/figures"
GRID = f"{FOLDER}/trials.svg"
SQUARE = 10.0
GAP = 2.0
PER_ROW = 60
LEFT = 230.0
RIGHT = 20.0
TOP = 26.0
KEY = 190.0
LANE = 16.0
BETWEEN = 8.0
WIDTH = 960.0
# What becomes of a trial: what its square says beside colour, and what that means.
SQUARES = {
    "pass": ("", "candidate passed"),
    "fail": ("×", "candidate failed"),
    "stated": ("×", "control failed as required"),
    "unstated": ("?", "control did not fail as required"),
    "void": ("", "void, not counted"),
    "held": ("=", "control held as required"),
}
WORDS_OF_A_COMPARISON = {
    "pass": "b passed",
    "fail": "b failed",
    "stated": "defect seen as required",
    "unstated": "defect not seen as required",
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
                drawings[distances_path(cell, arm, check)] = distances_picture(
                    check, ranks, title=title
                )
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
    """Draw a square per trial: a row per arm of each cell, the worst cell first, in the order the
    trials were planned.
    """
    shapes: list[str] = []
    y = TOP
    width = LEFT + PER_ROW * (SQUARE + GAP) + RIGHT
    for cell in worst_first(record.judgement.cells):
        for arm, tally in cell.arms.items():
            called = record.scenario.arm(arm)
            shapes.append(svg.label(8, y + 9, f"{cell.id} {called}"[:40]))
            for position, trial in enumerate(tally.trials):
                row, column = divmod(position, PER_ROW)
                kind, word = square(arm, trial)
                x = LEFT + column * (SQUARE + GAP)
                top = y + row * (SQUARE + GAP)
                shapes += _square(x, top, kind, title=f"{called} {trial.index}: {word}")
            y += (1 + (max(1, len(tally.trials)) - 1) // PER_ROW) * (SQUARE + GAP) + 4
    kinds = legend(record)
    for position, (kind, _, word) in enumerate(kinds):
        x = 8.0 + position * min(KEY, (width - 8) / len(kinds))
        shapes += [*_square(x, 6, kind, title=word), svg.label(x + 14, 15, word, fill=svg.FAINT)]
    return svg.picture(width, y + 6, f"Trials of {record.scenario.id}", shapes)


def _square(x: float, y: float, kind: str, *, title: str) -> list[str]:
    """Shape of its own for each kind, so that it can be told without its colour."""
    fill, stroke = FILLS[kind]
    shapes = [svg.frame(x, y, SQUARE, fill, stroke, title=title, dashed=kind == "void")]
    sign = stroke if fill == svg.PAPER else svg.PAPER
    if SQUARES[kind][0] == "×":
        near = 2.5
        far = SQUARE - 2.5
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
    """Kind of a trial's square, and in words what became of the trial."""
    if trial.outcome == "void":
        return "void", f"void, {trial.void}"
    if arm == "control" and trial.as_stated and trial.outcome == "pass":
        return "held", "held as required"
    if arm == "control":
        return (
            ("stated", "failed as required")
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
            stroke = svg.INK if event.by == "rank" else svg.DOUBT
            if event.name == "rank.error":
                stroke = svg.BAD
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
        anchor = {0: "start", 4: "end"}.get(position, "middle")
        shapes.append(svg.label(x, bottom + 14, f"{ms:.0f} ms", fill=svg.FAINT, anchor=anchor))
    return shapes


HEIGHT = 56.0
DISTANCES_TOP = 30.0
DISTANCES_BETWEEN = 26.0
# Powers of ten that are drawn: from a millionth of the limit to a thousand times it.
LOWEST = -6.0
HIGHEST = 3.0
DISTANCES_RANKS = 8


def distances_picture(
    check: str, ranks: Mapping[int, Sequence[float | None]], *, title: str
) -> bytes:
    """Draw one row of bars for each rank; ranks with the same distances share one.

    Args:
        check: the id of the check.
        ranks: rank to the largest distance in each stretch of positions, in units of the limit (KL
            divergences in nats); None is beyond any.
        title: which trial it is.
    """
    alike: dict[tuple[float | None, ...], list[int]] = {}
    for rank, values in ranks.items():
        alike.setdefault(tuple(values), []).append(rank)
    rows = list(alike.items())[:DISTANCES_RANKS]
    shapes = [
        svg.label(
            8, 14, f"{title}: {check}, by position; the line is the limit"[:110], fill=svg.FAINT
        )
    ]
    for place, (values, whose) in enumerate(rows):
        y = DISTANCES_TOP + place * (HEIGHT + DISTANCES_BETWEEN)
        limit = y + HEIGHT - HEIGHT * (0.0 - LOWEST) / (HIGHEST - LOWEST)
        shapes.append(svg.label(8, y + HEIGHT / 2, ranks_in_words(whose)[:38]))
        wide = (WIDTH - LEFT - RIGHT) / len(values)
        for position, value in enumerate(values):
            high = _height(value)
            beyond = value is None or value > 1
            word = "beyond any limit" if value is None else f"{value:g} of the limit"
            if high:
                x = LEFT + position * wide
                fill = svg.BAD if beyond else svg.GOOD
                shapes.append(
                    svg.box(
                        x,
                        y + HEIGHT - high,
                        max(wide, 0.5),
                        high,
                        fill,
                        title=f"{position}: {word}",
                    )
                )
        shapes.append(svg.line(LEFT, limit, WIDTH - RIGHT, limit, svg.INK))
        shapes.append(svg.label(LEFT - 6, limit + 4, "limit", fill=svg.FAINT, anchor="end"))
        shapes.append(svg.line(LEFT, y + HEIGHT, WIDTH - RIGHT, y + HEIGHT, svg.LINE))
    return svg.picture(
        WIDTH, DISTANCES_TOP + len(rows) * (HEIGHT + DISTANCES_BETWEEN), f"{title}: {check}", shapes
    )


def _height(value: float | None) -> float:
    """Of a bar, on a logarithmic scale; where there is not any distance there is not a bar."""
    if value == 0:
        return 0.0
    power = HIGHEST if value is None or value <= 0 else min(HIGHEST, max(LOWEST, math.log10(value)))
    return max(1.0, HEIGHT * (power - LOWEST) / (HIGHEST - LOWEST))


BOX = 72.0
HIGH = 32.0
WIRES_LEFT = 50.0
WIRES_TOP = 24.0
ACROSS = 440.0
NEAREST = 80.0
FARTHEST = 160.0
ROW = 30.0
MORE = 13.0
# Of more hosts those are drawn on whose links something was done, and then the first.
HOSTS = 8
LETTER = 5.6


def wires_picture(wires: Wires, *, title: str) -> bytes:
    """Draw the hosts in a row, and below them a line for each two that were joined and spoke, or
    were struck.
    """
    hosts = _drawn_hosts(wires)
    apart = min(FARTHEST, max(NEAREST, ACROSS / max(1, len(hosts) - 1)))
    place = {host: WIRES_LEFT + position * apart for position, host in enumerate(hosts)}
    right = WIRES_LEFT + (len(hosts) - 1) * apart + BOX / 2 + 24
    sent = {(link.source, link.target): link for link in wires.links}
    struck = [
        strike
        for strike in wires.strikes
        if any(set(link) <= place.keys() for link in strike.links)
    ]
    shapes = [svg.label(8, 14, f"{title}: test hosts and their wires"[:110], fill=svg.FAINT)]
    y = WIRES_TOP + HIGH + 22
    rows: list[str] = []
    for host, peer in ((host, peer) for host in hosts for peer in hosts if host < peer):
        there = sent.get((host, peer))
        back = sent.get((peer, host))
        done = [
            strike
            for strike in struck
            if [host, peer] in strike.links or [peer, host] in strike.links
        ]
        if there is None and back is None and not done:
            continue
        stroke = svg.BAD if done else svg.INK
        rows.append(svg.line(place[host], y, place[peer], y, stroke, width=2.5 if done else 1.5))
        rows += [svg.box(place[end] - 3, y - 3, 6, 6, stroke) for end in (host, peer)]
        rows.append(_wire_label(right, y + 4, f"→ {_carried(there)} · ← {_carried(back)}", svg.INK))
        for strike in done:
            y += MORE
            ways = "".join(
                arrow
                for arrow, link in (("→", [host, peer]), ("←", [peer, host]))
                if link in strike.links
            )
            rows.append(
                _wire_label(
                    right,
                    y + 4,
                    f"{ways} {strike.fault} at rank {strike.rank}: {struck_packets(strike)}",
                    svg.BAD,
                )
            )
        y += ROW
    for host, x in place.items():
        known = wires.hosts[host]
        shapes.append(svg.line(x, WIRES_TOP + HIGH, x, y - 12, svg.LINE))
        words = f"{known.name}, {known.address}, {ranks_in_words(known.ranks)}"
        shapes.append(svg.box(x - BOX / 2, WIRES_TOP, BOX, HIGH, svg.NONE, title=words))
        shapes.append(svg.label(x, WIRES_TOP + 13, known.name[:11], anchor="middle"))
        ranks = ranks_in_words(known.ranks) if known.ranks else "no rank"
        fits = len(ranks) * LETTER <= BOX
        shapes.append(
            svg.label(
                x,
                WIRES_TOP + 26,
                ranks if fits else f"{len(known.ranks)} ranks",
                fill=svg.FAINT,
                anchor="middle",
            )
        )
    if len(wires.hosts) > len(hosts):
        rows.append(
            svg.label(
                8,
                y + 4,
                f"{len(wires.hosts) - len(hosts)} more hosts are not drawn",
                fill=svg.FAINT,
            )
        )
        y += ROW
    return svg.picture(WIDTH, y, title, [*shapes, *rows])


def _drawn_hosts(wires: Wires) -> Sequence[int]:
    named = Counter(end for strike in wires.strikes for link in strike.links for end in link)
    first = sorted(range(len(wires.hosts)), key=lambda host: (-min(named[host], 1), host))
    return sorted(first[:HOSTS])


def _carried(link: ShownLink | None) -> str:
    if link is None:
        return "nothing"
    lost = f", {link.lost} not accepted" if link.lost else ""
    return f"{plural(link.packets, 'packet')}, {quantity(link.bytes, 'bytes')}{lost}"


def _wire_label(x: float, y: float, text: str, fill: str) -> str:
    return svg.label(x, y, text[: int((WIDTH - x - 8) / LETTER)], fill=fill)


def struck_packets(strike: ShownStrike) -> str:
    """To how many of the packets that it matched a fault was done, in words."""
    return f"applied to {strike.struck} of {plural(strike.matched, 'packet')}"
