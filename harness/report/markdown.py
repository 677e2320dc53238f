"""Blocks as GitHub-flavoured markdown.

The same blocks give the same bytes everywhere: no clock, no locale, no dictionary order. No line
ends with a blank and the text ends with one newline, so that editors and whitespace fixers leave a
signed report alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from harness.report import blocks, escape
from harness.report.blocks import Block, Part

if TYPE_CHECKING:
    from collections.abc import Iterable

_RULE = {None: "---", "left": ":--", "center": ":-:", "right": "--:"}


# Characters of markdown up to which a claim's text carries the link itself.
LINKED_VALUE = 110


def render_markdown(document: Iterable[Block]) -> str:
    """Blocks as markdown, a blank line between them; an empty string for no blocks."""
    text = "\n\n".join(_block(block) for block in document)
    return f"{text}\n" if text else ""


def _block(block: Block) -> str:
    match block:
        case blocks.Heading(level, text):
            return f"{'#' * level} {_inline(text).strip() or '&#32;'}"
        case blocks.Paragraph(parts):
            return _line(blocks.Text(*parts))
        case blocks.Table():
            return _table(block)
        case blocks.Verbatim(text, language, limit):
            lines = escape.code_block(text, limit, is_diff=language == "diff")
            mark = escape.fence(lines)
            return "\n".join((f"{mark}{language}", *lines, mark))
        case blocks.Figure(path, alt):
            return f"![{_inline(alt)}]({blocks.Evidence(path).target})"
        case blocks.Note(text):
            return f"> **Note:** {_line(text)}"
        case blocks.BulletList(items):
            return "\n".join(f"- {_line(item)}" for item in items)
        case blocks.Terms(rows):
            return "\n\n".join(
                _line(blocks.Text(blocks.Strong(f"{name}."), " ", value)) for name, value in rows
            )
        case blocks.Details(summary, folded):
            most = summary.limit if isinstance(summary, blocks.Foreign) else None
            words = escape.html(
                summary.text if isinstance(summary, blocks.Foreign) else summary, most
            )
            inner = render_markdown(folded)
            return f"<details><summary>{words}</summary>\n\n{inner}\n</details>" if inner else ""
        case _:
            assert_never(block)


def _line(part: Part) -> str:
    return escape.block_start(_inline(part)) or "&#32;"


def _inline(part: Part) -> str:
    match part:
        case str():
            return escape.markdown(part)
        case blocks.Foreign(text, limit):
            return escape.markdown(text, limit)
        case blocks.Strong(text):
            # Markdown does not see bold where a blank follows the mark.
            return f"**{escape.markdown(text.strip())}**" if text.strip() else ""
        case blocks.Verbatim(text, _, limit):
            return escape.inline_code(text, limit)
        case blocks.Text(parts):
            return "".join(_inline(inner) for inner in parts)
        case blocks.Claim(text, evidence):
            shown = _inline(text)
            # A short value is its own link; a sentence stays a sentence, with its evidence behind
            # it.
            if len(evidence) == 1 and 0 < len(shown) <= LINKED_VALUE and "`" not in shown[1:-1]:
                return f"[{shown}]({evidence[0].target})"
            return f"{shown} ({', '.join(_link(reference) for reference in evidence)})"
        case _:
            assert_never(part)


def _link(reference: blocks.Evidence) -> str:
    return f"[{escape.markdown(reference.label)}]({reference.target})"


def _table(table: blocks.Table) -> str:
    rules = [_RULE[align] for align in table.align or (None,) * len(table.header)]
    rows = [_row(table.header), f"| {' | '.join(rules)} |", *(_row(row) for row in table.rows)]
    return "\n".join(rows)


def _row(cells: tuple[Part, ...]) -> str:
    return f"| {' | '.join(_inline(cell) for cell in cells)} |"
