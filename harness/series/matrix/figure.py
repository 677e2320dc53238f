"""The picture of a matrix: a row for each case, a column for each kind of check, a square for each backend."""

from __future__ import annotations

from collections.abc import Iterator

from harness.report import svg
from harness.series.matrix.record import MatrixCell, MatrixRecord

PATH = "evidence/figures/matrix.svg"
SQUARE, ROW, COLUMN, LEFT, TOP = 13.0, 19.0, 48.0, 190.0, 150.0
BORNE = "borne"
# How it came out: sign, fill, border, and what that means.
SIGNS = {
    "named": ("", svg.GOOD, svg.GOOD, "seen, on exactly its ranks, in every trial"),
    "held": ("=", svg.PAPER, svg.STATED, "borne in every trial"),
    "short": ("×", svg.BAD, svg.BAD, "not in every trial"),
    "doubt": ("?", svg.DOUBT, svg.DOUBT, "not proved in every trial"),
    "skipped": ("", svg.PAPER, svg.FAINT, "could not run here"),
}


def columns(record: MatrixRecord) -> list[str]:
    """The kinds of checks that have to see something, then what is borne."""
    kinds = sorted({sight.kind for cell in record.cells for sight in cell.sights})
    return [*kinds, BORNE] if any(cell.masked for cell in record.cells) else kinds


def draw(record: MatrixRecord) -> bytes:
    """Draw it; the same record gives the same bytes."""
    names = columns(record)
    backends = list(dict.fromkeys(cell.backend for cell in record.cells))
    cases = list(dict.fromkeys(cell.case for cell in record.cells))
    width = max(LEFT + len(names) * COLUMN + 120, 760.0)
    shapes = list(_legend(backends))
    for number, name in enumerate(names):
        x = LEFT + number * COLUMN + COLUMN / 2
        place = f'x="{svg.number(x)}" y="{svg.number(TOP - 12)}" fill="{svg.INK}"'
        turned = f'transform="rotate(-40 {svg.number(x)} {svg.number(TOP - 12)})"'
        shapes.append(f"<text {place} {turned}>{name}</text>")
    for row, case in enumerate(cases):
        y = TOP + row * ROW
        shapes += [svg.label(8, y + 11, case), svg.line(8, y + ROW - 2, width - 8, y + ROW - 2, svg.LINE, width=0.5)]
        for cell in (one for one in record.cells if one.case == case):
            for name, how, words in squares(cell):
                x = LEFT + names.index(name) * COLUMN + 8 + backends.index(cell.backend) * (SQUARE + 4)
                shapes += _square(x, y, how, title=f"{case} on {cell.backend}, {name}: {words}")
    return svg.picture(width, TOP + len(cases) * ROW + 8, "Faults against the checks that have to see them", shapes)


def squares(cell: MatrixCell) -> Iterator[tuple[str, str, str]]:
    """The squares of a cell: column, how it came out, and in words. Several checks of one kind share a square."""
    kinds = dict.fromkeys(sight.kind for sight in cell.sights)
    if cell.verdict == "SKIPPED":
        yield from ((kind, "skipped", cell.skipped) for kind in kinds or (BORNE,))
        return
    if cell.masked:
        how = "held" if cell.tolerated == cell.injected else "short" if cell.tolerated < cell.proved else "doubt"
        yield BORNE, how, f"{cell.tolerated} of {cell.injected} borne"
        return
    for kind in kinds:
        named = min(sight.named for sight in cell.sights if sight.kind == kind)
        how = "named" if named == cell.injected else "short" if named < cell.proved else "doubt"
        yield kind, how, f"{named} of {cell.injected} seen on exactly its ranks"


def _square(x: float, y: float, how: str, *, title: str) -> Iterator[str]:
    sign, fill, border, _ = SIGNS[how]
    yield svg.frame(x, y, SQUARE, fill, border, title=title, dashed=how == "skipped")
    if sign:
        ink = border if fill == svg.PAPER else svg.PAPER
        yield svg.label(x + SQUARE / 2, y + SQUARE - 3, sign, fill=ink, anchor="middle")


def _legend(backends: list[str]) -> Iterator[str]:
    yield svg.label(8, 16, f"In each column from left to right: {', '.join(backends)}")
    for number, (how, (_, _, _, words)) in enumerate(SIGNS.items()):
        y = 26 + number * 16
        yield from _square(8, y, how, title=words)
        yield svg.label(28, y + 11, words, fill=svg.FAINT)
