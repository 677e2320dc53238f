"""The few shapes our figures are made of, as SVG text.

The same input gives the same bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.report import escape

INK = "#1f2328"
FAINT = "#59636e"
LINE = "#d0d7de"
GOOD = "#2da44e"
BAD = "#cf222e"
DOUBT = "#bf8700"
NONE = "#eaeef2"
STATED = "#0969da"
PAPER = "#ffffff"
# How far from a tick a pointer may be to see its name.
REACH = 7.0


def number(value: float) -> str:
    """Coordinate with one decimal, never `-0.0`."""
    text = f"{value:.1f}"
    return "0.0" if text == "-0.0" else text


def picture(width: float, height: float, title: str, shapes: Iterable[str]) -> bytes:
    """Return a whole file, with a title for readers who do not see it and a background for dark
    pages.
    """
    size = (
        f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)}'
        f' {number(height)}"'
    )
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif"'
            ' font-size="11">'
        ),
        f"<title>{escape.html(title)}</title>",
        f'<rect width="{number(width)}" height="{number(height)}" fill="#ffffff"/>',
        *shapes,
        "</svg>",
    ]
    return ("\n".join(lines) + "\n").encode()


# A shape takes its place and size as SVG does, one number each.
def box(
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str,
    *,
    title: str = "",
    opacity: float = 1.0,
) -> str:
    """Filled rectangle; `title` is shown where the reader points."""
    inner = f"<title>{escape.html(title)}</title>" if title else ""
    faint = f' fill-opacity="{number(opacity)}"' if opacity < 1 else ""
    place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f'<rect {place} fill="{fill}"{faint}>{inner}</rect>'


def label(x: float, y: float, text: str, *, fill: str = INK, anchor: str = "start") -> str:
    """Line of text; `y` is its base line."""
    return (
        f'<text x="{number(x)}" y="{number(y)}" fill="{fill}"'
        f' text-anchor="{anchor}">{escape.html(text)}</text>'
    )


def tick(
    x: float, top: float, bottom: float, stroke: str, *, title: str = "", width: float = 1.0
) -> str:
    """Vertical line; `title` is shown where the reader points, at it or close to it."""
    drawn = line(x, top, x, bottom, stroke, width=width)
    if not title:
        return drawn
    near = box(x - REACH / 2, top, REACH, bottom - top, PAPER, opacity=0.0)
    return f"<g><title>{escape.html(title)}</title>{drawn}{near}</g>"


def line(x: float, y: float, to_x: float, to_y: float, stroke: str, *, width: float = 1.0) -> str:
    """Straight line."""
    place = f'x1="{number(x)}" y1="{number(y)}" x2="{number(to_x)}" y2="{number(to_y)}"'
    return f'<line {place} stroke="{stroke}" stroke-width="{number(width)}"/>'


# As for `box`: place and size, and how it looks.
def frame(
    x: float, y: float, size: float, fill: str, stroke: str, *, title: str, dashed: bool = False
) -> str:
    """Square with a border inside its place."""
    place = (
        f'x="{number(x + 0.5)}" y="{number(y + 0.5)}" width="{number(size - 1)}"'
        f' height="{number(size - 1)}"'
    )
    gaps = ' stroke-dasharray="2 2"' if dashed else ""
    return (
        f'<rect {place} fill="{fill}"'
        f' stroke="{stroke}"{gaps}><title>{escape.html(title)}</title></rect>'
    )
