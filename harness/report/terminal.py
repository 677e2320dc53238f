"""Blocks as plain text for a terminal: no colour, no control sequence, lines no longer than asked for where possible.

Nothing here is signed, so the width of a character may come from this Python's Unicode tables.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, assert_never

from harness.forms.text import visible
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Code,
    Details,
    Evidence,
    Figure,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Strong,
    Table,
    Text,
)
from harness.report.escape import escape_code_block

if TYPE_CHECKING:
    from collections.abc import Iterable

NARROWEST = 6


def render_terminal(blocks: Iterable[Block], width: int = 100) -> str:
    """The blocks as text with a blank line between them. Code blocks are not wrapped, so that they can be copied."""
    text = "\n\n".join("\n".join(_block(block, max(width, 20))) for block in blocks)
    return f"{text}\n" if text else ""


def _block(block: Block, width: int) -> list[str]:
    match block:
        case Heading(level, text):
            words = _inline(text)
            return [words, ("=" if level == 1 else "-") * min(width, columns(words))] if level < 3 else [words]
        case Paragraph(parts):
            return wrap(_inline(Text(*parts)), width)
        case Table():
            return _table(block, width)
        case Code(text, _, limit):
            return [f"    {line}".rstrip() for line in escape_code_block(text, limit)]
        case Figure(path, alt):
            return wrap(f"[{_inline(alt)}: {path}]", width)
        case Note(text):
            return _hang("Note: ", _inline(text), width)
        case BulletList(items):
            return [line for item in items for line in _hang("* ", _inline(item), width)]
        case Details(summary, inner):
            body = render_terminal(inner, width - 2).splitlines()
            return [*wrap(_inline(summary), width), "", *(f"  {line}".rstrip() for line in body)]
        case _:
            assert_never(block)


def _inline(part: Part) -> str:
    match part:
        case str() | Strong():
            return visible(part.text if isinstance(part, Strong) else part)
        case Foreign(text, limit) | Code(text, _, limit):
            return visible(text, limit)
        case Text(parts):
            return "".join(_inline(inner) for inner in parts)
        case Claim(text, evidence):
            # Paths would be most of what a terminal shows; the line tells where to look in the trial named above.
            places = [place for reference in evidence if (place := _place(reference))]
            return _inline(text) + (f" ({', '.join(places)})" if places else "")
        case _:
            assert_never(part)


def _place(reference: Evidence) -> str:
    return f"line {reference.line}" if reference.line else ""


def _hang(mark: str, text: str, width: int) -> list[str]:
    lines = wrap(text, width - len(mark))
    return [f"{mark if number == 0 else ' ' * len(mark)}{line}" for number, line in enumerate(lines)]


def _table(table: Table, width: int) -> list[str]:
    rows = [[_inline(cell) for cell in row] for row in (table.header, *table.rows)]
    widths = [max(columns(row[i]) for row in rows) for i in range(len(table.header))]
    room = width - 2 * (len(widths) - 1)
    while sum(widths) > room and max(widths) > NARROWEST:
        widest = widths.index(max(widths))
        widths[widest] = max(NARROWEST, min(widths[widest] - 1, widths[widest] - (sum(widths) - room) // len(widths)))
    align = table.align or ("left",) * len(widths)
    lines = [line for row in rows for line in _table_row(row, widths, align)]
    head = len(_table_row(rows[0], widths, align))
    return [*lines[:head], "  ".join("-" * w for w in widths), *lines[head:]]


def _table_row(row: list[str], widths: list[int], align: tuple[str, ...]) -> list[str]:
    cells = [wrap(cell, w) for cell, w in zip(row, widths, strict=True)]
    height = max(len(cell) for cell in cells)
    return [
        "  ".join(
            _pad(cell[i] if i < len(cell) else "", w, side) for cell, w, side in zip(cells, widths, align, strict=True)
        ).rstrip()
        for i in range(height)
    ]


def _pad(text: str, width: int, side: str) -> str:
    blank = max(0, width - columns(text))
    left = {"left": 0, "center": blank // 2, "right": blank}[side]
    return " " * left + text + " " * (blank - left)


def columns(text: str) -> int:
    """How many columns a terminal takes for `text`: two for wide characters, none for combining ones."""
    return len(text) if text.isascii() else sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrap(text: str, width: int) -> list[str]:
    """`text` as lines of at most `width` columns, broken at blanks, inside a word only where the word is too long."""
    lines, line = [], ""
    for word in text.split(" "):
        rest = word
        if line and columns(line) + 1 + columns(rest) <= width:
            line = f"{line} {rest}"
            continue
        if line:
            lines.append(line)
        while columns(rest) > width:
            cut = _fits(rest, width)
            lines.append(rest[:cut])
            rest = rest[cut:]
        line = rest
    return [*lines, line]


def _fits(text: str, width: int) -> int:
    used = 0
    for position, character in enumerate(text):
        used += _columns(character)
        if used > width:
            return max(1, position)
    return len(text)
