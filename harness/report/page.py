"""`report.html`: the report as one page that stands alone, a view of the record.

It holds no script and loads nothing; what logs say is text in it. The verdict, the question, the
answer and the table of cells come first: one screen has to be enough for whoever decides about a
release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Record
from harness.report import escape
from harness.report.blocks import Block, Foreign, Heading
from harness.report.figures import GRID, SQUARES, legend, sample_paths, square
from harness.report.html import anchor, inline, render_html
from harness.report.report import blocks
from harness.report.stylesheet import STYLE
from harness.report.summary import without_word
from harness.report.view import Basis, View
from harness.report.words import worst_first

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
WORDS = {
    "pass": "passed",
    "fail": "failed",
    "stated": "failed as stated",
    "unstated": "not as stated",
    "void": "void",
    "held": "held as stated",
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
    report = blocks(record, manifest_digest=basis.manifest_digest)
    start = next(
        i for i, block in enumerate(report) if isinstance(block, Heading) and block.level == 2
    )
    # The title is in the header already, and so is a verdict of which nothing more is said.
    first, sections = (
        [without_word(block) for block in report[1:start]],
        list(_sections(report[start:])),
    )
    pictures = {GRID: _grid(record)} | {
        path: basis.read(path).decode()
        for cell in record.judgement.cells
        for path in sample_paths(cell)
    }
    word, title = record.judgement.verdict, record.scenario.title
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
    """What was tested and when, and what this page is, in one line."""
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
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def _grid(record: Record) -> str:
    """The trials as squares that wrap where the screen ends, which a drawing does not."""
    rows = []
    for cell in worst_first(record.judgement.cells):
        for arm, tally in cell.arms.items():
            name = record.scenario.arm(arm)
            drawn = [(trial, *square(arm, trial)) for trial in tally.trials]
            boxes = "".join(
                f'<i class="{kind}"'
                f' title="{escape.html(f"{name} {trial.index}: {word}", 400)}">{SQUARES[kind][0]}</i>'
                for trial, kind, word in drawn
            )
            counts = Counter(kind for _, kind, _ in drawn)
            summary = ", ".join(f"{counts[kind]} {WORDS[kind]}" for kind in SQUARES if counts[kind])
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
