"""Blocks as styled text for a terminal; its `plain` is what goes where there is none.

No control sequence of anybody else's gets through, and lines are no longer than asked for where
that is possible. Nothing here is signed, so how wide a character is may depend on the version of
rich.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from rich.console import Console
from rich.text import Text as Line

from harness.forms.text import visible
from harness.record.model import Record
from harness.report import blocks, escape
from harness.report.blocks import Block, Part
from harness.report.figures import GRID, legend, square
from harness.report.words import worst_first

NARROWEST = 6
STYLES = {
    **dict.fromkeys(("PASS", "IDENTICAL", "REPRODUCED", "SHOWN"), "bold green"),
    **dict.fromkeys(("FAIL", "NOT REPRODUCED", "NOT SHOWN"), "bold red"),
    **dict.fromkeys(("INCONCLUSIVE", "SKIPPED"), "bold yellow"),
}
# A trial: its sign and style.
SIGNS = {
    "pass": ("■", "green"),
    "fail": ("×", "bold red"),
    "stated": ("⊠", "blue"),
    "unstated": ("?", "bold yellow"),
}
SIGNS |= {"void": ("-", "dim"), "held": ("□", "blue")}
DIFF = {"+": "green", "-": "red", "@": "cyan"}
PAPER = Console(color_system=None)  # rich asks for one to wrap a text on


def render_terminal(
    document: Iterable[Block], width: int = 100, *, record: Record | None = None
) -> Line:
    """Blocks as one text with a blank line between them.

    Code is not wrapped, so that it can be copied.

    Args:
        document: what to render.
        width: columns.
        record: draws the trials as signs in place of a picture; without it the picture is named.
    """
    return Line("\n").join(_lines([_drawn(block, record) for block in document], max(width, 20)))


def _drawn(block: Block, record: Record | None) -> Block | list[Line]:
    if record is None or not isinstance(block, blocks.Figure) or block.path != GRID:
        return block
    lines = []
    for cell in worst_first(record.judgement.cells):
        for arm, tally in cell.arms.items():
            signs = Line()
            for kind, _ in (square(arm, trial) for trial in tally.trials):
                signs.append(*SIGNS[kind])
            lines.append(Line.assemble(visible(f"{cell.id} {record.scenario.arm(arm)}: "), signs))
    key = (Line.assemble(SIGNS[kind], f" {word}") for kind, _, word in legend(record))
    return [*lines, Line("   ").join(key)]


def _lines(document: Iterable[Block | list[Line]], width: int) -> list[Line]:
    lines: list[Line] = []
    for block in document:
        lines += [Line()] if lines else []
        if isinstance(block, list):
            lines += [piece for line in block for piece in wrap(line, width)]
        else:
            lines += _block(block, width)
    return lines


def _block(block: Block, width: int) -> list[Line]:
    match block:
        case blocks.Heading(level, text):
            title = _inline(text)
            title.stylize("bold")
            if level != 2:
                return [title]
            return [title, Line("-" * min(width, title.cell_len))]
        case blocks.Paragraph(parts):
            return wrap(_inline(blocks.Text(*parts)), width)
        case blocks.Table():
            return _table(block, width)
        case blocks.Verbatim(text, language, limit):
            styles = DIFF if language == "diff" else {}
            lines = escape.code_block(text, limit, is_diff=language == "diff")
            return [Line(f"    {line}".rstrip(), styles.get(line[:1], "")) for line in lines]
        case blocks.Figure(path, alt):
            return wrap(Line.assemble("[", _inline(alt), f": {path}]"), width)
        case blocks.Note(text):
            return _hang("Note: ", _inline(text), width)
        case blocks.BulletList(items):
            return [line for item in items for line in _hang("* ", _inline(item), width)]
        case blocks.Terms(rows):
            room = max((len(name) for name, _ in rows), default=0) + 2
            return [
                line
                for name, value in rows
                for line in _hang(name.ljust(room), _inline(value), width)
            ]
        case blocks.Details(summary, inner):
            body = _lines(inner, max(width - 2, 20))
            return [*wrap(_inline(summary), width), Line(), *(_after("  ", line) for line in body)]
        case _:
            assert_never(block)


def _inline(part: Part) -> Line:
    match part:
        case str():
            return Line(visible(part))
        case blocks.Strong(text):
            return Line(visible(text), STYLES.get(text.strip(), "bold"))
        case blocks.Foreign(text, limit) | blocks.Verbatim(text, _, limit):
            return Line(visible(text, limit))
        case blocks.Text(parts):
            return Line().join(map(_inline, parts))
        case blocks.Claim(text, evidence):
            # Whole paths would be most of what a terminal shows: the trial is named beside them.
            places = [
                f"{reference.path.rpartition('/')[2]}:{reference.line}"
                for reference in evidence
                if reference.line
            ]
            return Line.assemble(
                _inline(text), (f" ({', '.join(places)})" if places else "", "dim")
            )
        case _:
            assert_never(part)


def _hang(mark: str, text: Line, width: int) -> list[Line]:
    lines = wrap(text, width - len(mark))
    head = Line(mark, "bold" if mark.strip(" *") else "")
    return [_after(" " * len(mark) if number else head, line) for number, line in enumerate(lines)]


def _after(mark: str | Line, line: Line) -> Line:
    whole = Line.assemble(mark, line)
    whole.rstrip()
    return whole


def _table(table: blocks.Table, width: int) -> list[Line]:
    rows = [[_inline(cell) for cell in row] for row in (table.header, *table.rows)]
    for cell in rows[0]:
        cell.stylize("bold")
    widths = [max(row[i].cell_len for row in rows) for i in range(len(table.header))]
    room = width - 2 * (len(widths) - 1)
    # A word is only broken where nothing else helps.
    words = [
        max(len(word) for row in rows for word in row[i].plain.split() or [""])
        for i in range(len(widths))
    ]
    while sum(widths) > room and (
        loose := [i for i, word in enumerate(words) if widths[i] > max(word, NARROWEST)]
    ):
        widths[max(loose, key=widths.__getitem__)] -= 1
    while sum(widths) > room and max(widths) > NARROWEST:
        widest = widths.index(max(widths))
        widths[widest] = max(
            NARROWEST, min(widths[widest] - 1, widths[widest] - (sum(widths) - room) // len(widths))
        )
    align = table.align or ("left",) * len(widths)
    head, *body = (_row(row, widths, align) for row in rows)
    return [
        *head,
        Line("  ".join("-" * w for w in widths)),
        *(line for lines in body for line in lines),
    ]


def _row(row: list[Line], widths: list[int], align: tuple[str, ...]) -> list[Line]:
    cells = [wrap(cell, w) for cell, w in zip(row, widths, strict=True)]
    lines = []
    for i in range(max(len(cell) for cell in cells)):
        pieces = [cell[i] if i < len(cell) else Line() for cell in cells]
        for piece, w, side in zip(pieces, widths, align, strict=True):
            piece.align(side, w)  # type: ignore[arg-type]
        lines.append(_after("", Line("  ").join(pieces)))
    return lines


def wrap(line: Line, width: int) -> list[Line]:
    """Line as lines of at most `width` columns, broken at blanks, inside a word only where the
    word is too long.
    """
    lines = list(line.wrap(PAPER, width, overflow="fold")) or [Line()]
    for piece in lines:
        piece.rstrip()
    return lines
