"""How far apart arrays are, position by position, as a picture: above the line is beyond the
limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness.report import svg
from harness.report.words import ranks_in_words

WIDTH, LEFT, RIGHT, TOP, HEIGHT, BETWEEN = 960.0, 230.0, 20.0, 30.0, 56.0, 26.0
# Powers of ten that are drawn: from a millionth of the limit to a thousand times it.
LOWEST, HIGHEST = -6.0, 3.0
RANKS = 8


def distances(check: str, ranks: Mapping[int, Sequence[float | None]], *, title: str) -> bytes:
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
    rows = list(alike.items())[:RANKS]
    shapes = [
        svg.label(
            8, 14, f"{title}: {check}, by position; the line is the limit"[:110], fill=svg.FAINT
        )
    ]
    for place, (values, whose) in enumerate(rows):
        y = TOP + place * (HEIGHT + BETWEEN)
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
    return svg.picture(WIDTH, TOP + len(rows) * (HEIGHT + BETWEEN), f"{title}: {check}", shapes)


def _height(value: float | None) -> float:
    """Of a bar, on a logarithmic scale; where there is not any distance there is not a bar."""
    if value == 0:
        return 0.0
    power = HIGHEST if value is None or value <= 0 else min(HIGHEST, max(LOWEST, math.log10(value)))
    return max(1.0, HEIGHT * (power - LOWEST) / (HIGHEST - LOWEST))
