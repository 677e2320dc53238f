"""Blocks as HTML, without script, for a page that stands alone.

All text goes through `escape.html`; a link leads to a plain path beside the page, never to an
address. The same blocks give the same bytes everywhere, so that a verifier can draw the page again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import assert_never
from urllib.parse import quote

from harness.report import blocks, escape
from harness.report.blocks import Block, Part

# Characters up to which a claim's text carries the link itself: a sentence stays a sentence.
LINKED_VALUE = 80
WORDS = frozenset({"PASS", "FAIL", "FAILS", "INCONCLUSIVE", "SKIPPED"})
_SIGNS = {"+": "ins", "-": "del", "@": "at"}


def render_html(document: Iterable[Block], *, pictures: Mapping[str, str]) -> str:
    """The blocks as HTML elements, one a line.

    Args:
        document: what to render.
        pictures: path of a figure to the HTML that stands for it; a figure that is not there shows
            its description.
    """
    return "".join(f"{_block(block, pictures)}\n" for block in document)


def inline(part: Part) -> str:
    """One part as HTML inside a line."""
    match part:
        case str():
            return escape.html(part)
        case blocks.Foreign(text, limit):
            # Text that runs from right to left stays in its own place.
            return f"<bdi>{escape.html(text, limit)}</bdi>"
        case blocks.Strong(text):
            word = text.strip()
            kind = f' class="w {word.lower()}"' if word in WORDS else ""
            return f"<strong{kind}>{escape.html(word)}</strong>"
        case blocks.Verbatim(text, _, limit):
            return f"<code>{escape.html(text, limit)}</code>"
        case blocks.Text(parts):
            return "".join(inline(inner) for inner in parts)
        case blocks.Claim(text, evidence):
            shown = inline(text)
            if len(evidence) == 1 and len(_plain(text)) <= LINKED_VALUE:
                return f'<a href="{_target(evidence[0])}">{shown}</a>'
            return (
                f"{shown} <span"
                f' class="proof">({", ".join(_link(reference) for reference in evidence)})</span>'
            )
        case _:
            assert_never(part)


def anchor(heading: blocks.Heading) -> str:
    """The id of a heading, made of the tool's own words."""
    text = heading.text if isinstance(heading.text, str) else ""
    return re.sub("[^a-z]+", "-", text.lower()).strip("-")


def _block(block: Block, pictures: Mapping[str, str]) -> str:
    match block:
        case blocks.Heading(level, text):
            name = anchor(block) if level == 2 else ""
            return f"<h{level}{f' id={chr(34)}{name}{chr(34)}' if name else ''}>{inline(text)}</h{level}>"
        case blocks.Paragraph(parts):
            return f"<p>{inline(blocks.Text(*parts))}</p>"
        case blocks.Table():
            return _table(block)
        case blocks.Verbatim(text, language, limit):
            lines = escape.code_block(text, limit, is_diff=language == "diff")
            shown = "\n".join(_code_line(line, language) for line in lines)
            return f'<pre tabindex="0"><code>{shown}</code></pre>'
        case blocks.Figure(path, alt):
            words = inline(alt)
            picture = pictures.get(path)
            if picture is None:
                return (
                    f'<p class="note">{words} <a'
                    f' href="{_target(blocks.Evidence(path))}">{escape.html(path)}</a></p>'
                )
            return (
                '<figure><div class="scroll"'
                f' tabindex="0">{picture}</div><figcaption>{words}</figcaption></figure>'
            )
        case blocks.Note(text):
            return f'<p class="note">{inline(text)}</p>'
        case blocks.BulletList(items):
            return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>"
        case blocks.Terms(rows):
            pairs = "".join(
                f"<dt>{inline(name)}</dt><dd>{inline(value)}</dd>\n" for name, value in rows
            )
            return f'<dl class="terms">\n{pairs}</dl>'
        case blocks.Details(summary, inner):
            return f"<details><summary>{inline(summary)}</summary>\n{render_html(inner, pictures=pictures)}</details>"
        case _:
            assert_never(block)


def _code_line(line: str, language: str) -> str:
    shown = escape.html(line)
    sign = _SIGNS.get(line[:1]) if language == "diff" else None
    return f'<span class="{sign}">{shown}</span>' if sign else shown


def _table(table: blocks.Table) -> str:
    align = table.align or ("left",) * len(table.header)
    names = [inline(cell) for cell in table.header]
    head = "".join(
        f'<th scope="col" class="{side}">{name}</th>'
        for name, side in zip(names, align, strict=True)
    )
    # On a narrow screen a row becomes a list of its own, and each value needs the name of its
    # column beside it.
    labels = [escape.html(_plain(cell)) for cell in table.header]
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td class="{side}" data-of="{label}"><span>{inline(cell)}</span></td>'
            for cell, side, label in zip(row, align, labels, strict=True)
        )
        + "</tr>\n"
        for row in table.rows
    )
    return (
        '<div class="scroll"'
        f' tabindex="0"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>'
    )


def _plain(part: Part) -> str:
    match part:
        case str():
            return part
        case blocks.Foreign() | blocks.Strong() | blocks.Verbatim():
            return part.text
        case blocks.Text(parts):
            return "".join(_plain(inner) for inner in parts)
        case blocks.Claim(text, _):
            return _plain(text)
        case _:
            assert_never(part)


def _link(reference: blocks.Evidence) -> str:
    label = "/".join(reference.path.split("/")[-2:]) + (
        f":{reference.line}" if reference.line else ""
    )
    return f'<a href="{_target(reference)}">{escape.html(label)}</a>'


def _target(reference: blocks.Evidence) -> str:
    # `./`: whatever the path begins with, it is never read as the scheme of an address.
    return (
        "./" + quote(reference.path, safe="/") + (f"#L{reference.line}" if reference.line else "")
    )
