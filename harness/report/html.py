"""`report.html`: blocks as HTML, and the report as one page that stands alone.

The page holds no script and loads nothing; what logs say is text in it. The verdict, the question,
the answer and the table of cells come first: one screen has to be enough for whoever decides about
a release. All text goes through `escape.html`; a link leads to a plain path beside the page, never
to an address. The same blocks give the same bytes everywhere, so that a verifier can draw the page
again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Record
from harness.report import blocks, escape
from harness.report.appendix import appendix_blocks
from harness.report.blocks import Block, Foreign, Heading, Part
from harness.report.figures import GRID, SQUARES, legend, sample_paths, square
from harness.report.report import report_blocks
from harness.report.stylesheet import STYLE
from harness.report.summary import without_word
from harness.report.view import Basis, View
from harness.report.words import worst_first

# Characters up to which a claim's text carries the link itself: a sentence stays a sentence.
LINKED_VALUE = 80
WORDS = frozenset({"PASS", "FAIL", "FAILS", "INCONCLUSIVE", "SKIPPED"})
_SIGNS = {"+": "ins", "-": "del", "@": "at"}


def render_html(document: Iterable[Block], *, pictures: Mapping[str, str]) -> str:
    """Blocks as HTML elements, one a line.

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
    """Id of a heading, made of the tool's own words."""
    text = heading.text if isinstance(heading.text, str) else ""
    return re.sub("[^a-z]+", "-", text.lower()).strip("-")


def _block(block: Block, pictures: Mapping[str, str]) -> str:
    match block:
        case blocks.Heading(level, text):
            name = anchor(block) if level == 2 else ""
            place = f' id="{name}"' if name else ""
            return f"<h{level}{place}>{inline(text)}</h{level}>"
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
            body = render_html(inner, pictures=pictures)
            return f"<details><summary>{inline(summary)}</summary>\n{body}</details>"
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
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody></table></div>"
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
    return f'<a href="{_target(reference)}">{escape.html(reference.label)}</a>'


def _target(reference: blocks.Evidence) -> str:
    # `./`: whatever the path begins with, it is never read as the scheme of an address.
    return f"./{reference.target}"


CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action"
    " 'none'"
)
HEAD = f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{CSP}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">"""
# What became of the trials of one arm, beside its row of squares.
OUTCOMES = {
    "pass": "passed",
    "fail": "failed",
    "stated": "failed as required",
    "unstated": "not as required",
    "void": "void",
    "held": "held as required",
}
FOOT = """\
<footer>
<p>This page is a view. It was drawn from <code>{record}</code>, sha256 <code>{digest}</code>, and is not signed itself:
<code>rankproof verify</code> checks the signed <code>report.md</code>, judges the evidence again, and draws this page
again, byte for byte.</p>
</footer>"""


def render_page(basis: Basis) -> bytes:
    """Render the page."""
    record = basis.record
    report = report_blocks(record, manifest_digest=basis.manifest_digest)
    start = next(
        i for i, block in enumerate(report) if isinstance(block, Heading) and block.level == 2
    )
    # Title and time are in the header already, and so is a verdict of which nothing more is said.
    first = [without_word(block) for block in report[1 : start - 1]]
    sections = list(_sections(report[start:]))
    pictures = {GRID: _grid(record)} | {
        path: basis.read(path).decode()
        for cell in record.judgement.cells
        for path in sample_paths(cell)
    }
    word = record.word
    title = record.headline
    is_upstream = record.scenario.role == "upstream"
    # What is found in somebody else's code is neither a release nor a fix, so it does not look like
    # one.
    shown = f"Finding<small>{escape.html(word)}</small>" if is_upstream else escape.html(word)
    lines = (
        HEAD,
        (
            f"<title>{'Finding, ' if is_upstream else ''}{escape.html(word)}:"
            f" {escape.html(title, 200)}</title>"
        ),
        f"<style>\n{STYLE}</style>",
        "</head>",
        f"<body{' class=' + chr(34) + 'finding' + chr(34) if is_upstream else ''}>",
        f'<header class="{"finding" if is_upstream else word.lower()}">',
        f'<p class="verdict">{shown}</p>',
        f"<h1>{inline(Foreign(title))}</h1>",
        f'<p class="which">{_which(record)}</p>',
        "</header>",
        "<main>",
        _section(first, pictures),
        _contents(sections),
        *(_section(section, pictures) for section in sections),
        '<details id="appendix"><summary>Appendix</summary>',
        *(_section(section, pictures) for section in _sections(appendix_blocks(record))),
        "</details>",
        "</main>",
        FOOT.format(record=RECORD_PATH, digest=basis.record_digest),
        "</body>",
        "</html>",
    )
    return ("\n".join(lines) + "\n").encode()


def _sections(report: Sequence[Block]) -> Iterable[list[Block]]:
    section: list[Block] = []
    for block in report:
        if isinstance(block, Heading) and block.level == 2 and section:
            yield section
            section = []
        section.append(block)
    yield section


def _section(section: Sequence[Block], pictures: dict[str, str]) -> str:
    return f"<section>\n{render_html(section, pictures=pictures)}</section>"


def _which(record: Record) -> str:
    """Return what was tested and when, and what this page is, in one line."""
    parts = (
        f"scenario <code>{escape.html(record.scenario.id)}</code>",
        f"made {escape.html(record.run.made)}",
        'a view; signed is <a href="./report.md">report.md</a>',
    )
    return " · ".join(parts)


def _contents(sections: Sequence[Sequence[Block]]) -> str:
    headings = [section[0] for section in sections if isinstance(section[0], Heading)]
    links = "".join(
        f'<li><a href="#{anchor(heading)}">{inline(heading.text)}</a></li>' for heading in headings
    )
    links += '<li><a href="#appendix">Appendix</a></li>'
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def _grid(record: Record) -> str:
    """Trials as squares that wrap where the screen ends, which a drawing does not."""
    rows = []
    for cell in worst_first(record.judgement.cells):
        for arm, tally in cell.arms.items():
            name = record.scenario.arm(arm)
            drawn = [(trial, *square(arm, trial)) for trial in tally.trials]
            boxes = "".join(
                f'<i class="{kind}" title="{escape.html(f"{name} {trial.index}: {word}", 400)}">'
                f"{SQUARES[kind][0]}</i>"
                for trial, kind, word in drawn
            )
            counts = Counter(kind for _, kind, _ in drawn)
            summary = ", ".join(
                f"{counts[kind]} {OUTCOMES[kind]}" for kind in SQUARES if counts[kind]
            )
            rows.append(
                f'<div class="row"><span class="of">{inline(Foreign(cell.id))} <b>{name}:'
                f' {summary}</b></span><span class="squares" role="img"'
                f' aria-label="{summary}">{boxes}</span></div>\n'
            )
    key = "".join(
        f'<span><i class="{kind}">{sign}</i> {word}</span> ' for kind, sign, word in legend(record)
    )
    return f'<div class="grid">\n{"".join(rows)}<div class="key">{key}</div>\n</div>'


VIEW = View(name="report.html", media_type="text/html", checked=True, render=render_page)
