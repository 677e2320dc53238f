"""`report.html`: the report as one page that stands alone, a view of the record.

It holds no script and loads nothing; what logs say is text in it. The verdict, the question, the answer and the table
of cells come first: one screen has to be enough for whoever decides about a release.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.forms.text import plural
from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Record
from harness.report import escape
from harness.report.blocks import Block, Foreign, Heading, Table
from harness.report.figures import GRID, SQUARES, lanes_path, square
from harness.report.html import anchor, inline, render_html
from harness.report.report import blocks
from harness.report.stylesheet import STYLE
from harness.report.view import Basis, View

CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
HEAD = f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{CSP}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">"""
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
    start = next(i for i, block in enumerate(report) if isinstance(block, Heading) and block.level == 2)
    head, sections = report[:start], list(_sections(report[start:]))
    pictures = {GRID: _grid(record)} | {
        path: basis.read(path).decode()
        for cell in record.judgement.cells
        for path in (lanes_path(cell, arm) for arm in sorted(cell.samples))
    }
    facts = next(block for block in head if isinstance(block, Table))
    word = record.judgement.verdict
    top = [_section(section, pictures) for section in sections[:1]]
    rest = [_section(section, pictures) for section in sections[1:]]
    title = record.scenario.title
    lines = (
        HEAD,
        f"<title>{escape.html(word)}: {escape.html(title, 200)}</title>",
        f"<style>\n{STYLE}</style>",
        "</head>",
        "<body>",
        f'<header class="{word.lower()}">',
        f'<p class="verdict">{escape.html(word)}</p>',
        f"<h1>{inline(Foreign(title))}</h1>",
        f'<p class="which">{_which(record)}</p>',
        "</header>",
        "<main>",
        *top,
        _facts(facts),
        _contents(sections[1:]),
        *rest,
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
    source = record.run.source
    state = {True: "changed since", False: "clean", None: "unknown whether changed"}[source.dirty]
    commit = f"commit <code>{escape.html(source.commit[:12])}</code>, {state}" if source.commit else "commit unknown"
    parts = (
        commit,
        f"made {escape.html(record.run.made)}",
        f"scenario <code>{escape.html(record.scenario.id)}</code>",
        'a view; signed is <a href="./report.md">report.md</a>',
    )
    return " · ".join(parts)


def _facts(table: Table) -> str:
    # The verdict is above already.
    pairs = "".join(
        f"<div><dt>{inline(name)}</dt><dd>{inline(value)}</dd></div>\n"
        for name, value in table.rows
        if name != "verdict"
    )
    return f'<section class="facts">\n<h2>This report</h2>\n<dl>\n{pairs}</dl>\n</section>'


def _contents(sections: Sequence[Sequence[Block]]) -> str:
    headings = [section[0] for section in sections if isinstance(section[0], Heading)]
    links = "".join(f'<li><a href="#{anchor(heading)}">{inline(heading.text)}</a></li>' for heading in headings)
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def _grid(record: Record) -> str:
    """The trials as squares that wrap where the screen ends, which a drawing does not."""
    rows = []
    for cell in record.judgement.cells:
        for arm, tally in cell.arms.items():
            drawn = [square(arm, trial) for trial in tally.trials]
            boxes = "".join(
                f'<i class="{SQUARES[fill]}" title="{escape.html(f"{arm} {trial.index}: {word}", 400)}"></i>'
                for trial, (fill, word) in zip(tally.trials, drawn, strict=True)
            )
            good = sum(SQUARES[fill] == "good" for fill, _ in drawn)
            summary = f"{good} of {plural(len(drawn), 'trial')} as it must be"
            rows.append(
                f'<div class="row"><span class="of">{inline(Foreign(cell.id))} <b>{arm}</b></span>'
                f'<span class="squares" role="img" aria-label="{summary}">{boxes}</span></div>\n'
            )
    key = "".join(
        f'<span><i class="{kind}"></i> {word}</span> '
        for kind, word in (("good", "as it must be"), ("bad", "not as it must be"), ("doubt", "void"))
    )
    return f'<div class="grid">\n{"".join(rows)}<div class="key">{key}</div>\n</div>'


VIEW = View(name="report.html", media_type="text/html", checked=True, render=render_page)
