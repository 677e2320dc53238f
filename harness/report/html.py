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
from harness.report.blocks import Block, Foreign, Heading, Part
from harness.report.figures import GRID, SQUARES, legend, sample_paths, square
from harness.report.report import report_blocks
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
    report = report_blocks(record, manifest_digest=basis.manifest_digest)
    start = next(
        i for i, block in enumerate(report) if isinstance(block, Heading) and block.level == 2
    )
    # The title is in the header already, and so is a verdict of which nothing more is said.
    first = [without_word(block) for block in report[1:start]]
    sections = list(_sections(report[start:]))
    pictures = {GRID: _grid(record)} | {
        path: basis.read(path).decode()
        for cell in record.judgement.cells
        for path in sample_paths(cell)
    }
    word = record.judgement.verdict
    title = record.scenario.title
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


# The figures are drawn with the colours of harness.report.svg; on the page they follow its theme.
STYLE = """\
:root{color-scheme:light dark;--page:#fff;--soft:#f6f7f8;--ink:#1c2126;--faint:#5b6570;--line:#dde1e6;
--link:#0a58b5;--good:#1a7f37;--good-soft:#e9f6ec;--bad:#b42318;--bad-soft:#fdeeec;--doubt:#8a6100;
--doubt-soft:#fbf3dd;--none:#5b6570;--none-soft:#eef0f2;--info:#0a58b5;--info-soft:#e8f0fb;
--mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
@media(prefers-color-scheme:dark){:root{--page:#12161b;--soft:#1a1f26;--ink:#e4e8ec;--faint:#98a3ae;--line:#2d343c;
--link:#7cb5ff;--good:#58c472;--good-soft:#14281b;--bad:#ff8479;--bad-soft:#331918;--doubt:#e0b34a;
--doubt-soft:#2e2611;--none:#98a3ae;--none-soft:#232931;--info:#7cb5ff;--info-soft:#142338}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0 auto;padding:1rem clamp(1rem,4vw,3rem) 3rem;max-width:84rem;background:var(--page);color:var(--ink);
font:400 .9375rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif;
overflow-wrap:anywhere}
a{color:var(--link);text-decoration:none}a:hover,a:focus-visible{text-decoration:underline}
header{display:grid;grid-template-columns:auto 1fr;gap:.2rem 1.5rem;align-items:center;padding:.8rem 1.4rem;
border-radius:.6rem;background:var(--tint);border-left:.4rem solid var(--word)}
header .verdict{grid-row:span 2;margin:0;color:var(--word);font-size:clamp(1.5rem,3.4vw,2.4rem);font-weight:700;
letter-spacing:.02em;line-height:1.1;overflow-wrap:normal}
header.inconclusive .verdict{font-size:clamp(1.3rem,2.4vw,1.8rem)}
header .verdict small{display:block;font-size:1rem;font-weight:600}
h1{margin:0;font-size:clamp(1.1rem,2vw,1.4rem);font-weight:600;line-height:1.3}
header .which{margin:0;color:var(--faint);font-size:.8125rem}
.pass{--word:var(--good);--tint:var(--good-soft)}.fail,.fails{--word:var(--bad);--tint:var(--bad-soft)}
.finding,.finding .pass{--word:var(--info);--tint:var(--info-soft)}
.inconclusive{--word:var(--doubt);--tint:var(--doubt-soft)}.skipped{--word:var(--none);--tint:var(--none-soft)}
h2{margin:2.4rem 0 .6rem;padding-top:1.2rem;border-top:1px solid var(--line);font-size:1.15rem;font-weight:600}
h3{margin:1.4rem 0 .5rem;font-size:1rem;font-weight:600}
dl.terms{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.1rem;margin:.9rem 0 .4rem;line-height:1.42}
dl.terms dt{padding-top:.1em}dl.terms dd{max-width:62rem}
p,ul{margin:.55rem 0;max-width:62rem}ul{padding-left:1.2rem}
.note,.proof,figcaption{color:var(--faint);font-size:.8125rem}
code,pre{font-family:var(--mono);font-size:.85em}
pre{margin:.7rem 0;padding:.8rem 1rem;overflow-x:auto;overflow-wrap:normal;border-radius:.45rem;background:var(--soft);
line-height:1.45}pre code{font-size:.8125rem}
.ins{color:var(--good)}.del{color:var(--bad)}.at{color:var(--faint)}
.scroll{overflow-x:auto}.scroll:focus-visible,pre:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{width:100%;border-collapse:collapse;margin:.7rem 0;font-size:.875rem;font-variant-numeric:tabular-nums}
th{color:var(--faint);font-weight:500;font-size:.8125rem;vertical-align:bottom}
th,td{padding:.4rem .9rem .4rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;
overflow-wrap:break-word;min-width:4.5rem}td:first-child{min-width:5.4rem}
main>section:first-child td:first-child{min-width:min(13.8rem,40vw)}
th.right,td.right{min-width:5rem;text-align:right}th.center,td.center{text-align:center}
tr>:last-child{padding-right:0}
.w{display:inline-block;padding:.05em .55em;border-radius:1em;background:var(--tint);color:var(--word);
font-size:.8125em;letter-spacing:.02em;overflow-wrap:normal}
details{margin:.5rem 0;border:1px solid var(--line);border-radius:.45rem}
summary{padding:.5rem .9rem;cursor:pointer;font-weight:500}
details[open]>summary{border-bottom:1px solid var(--line)}
details>:not(summary){margin-left:.9rem;margin-right:.9rem}
figure{margin:1rem 0}figcaption{margin-top:.3rem}
figure svg{display:block;min-width:44rem;max-width:none;width:100%;height:auto}
svg [fill="#ffffff"]{fill:transparent}svg [fill="#1f2328"]{fill:var(--ink)}svg [fill="#59636e"]{fill:var(--faint)}
svg [fill="#2da44e"]{fill:var(--good)}svg [fill="#cf222e"]{fill:var(--bad)}svg [fill="#bf8700"]{fill:var(--doubt)}
svg [stroke="#1f2328"]{stroke:var(--ink)}svg [stroke="#59636e"]{stroke:var(--faint)}
svg [stroke="#d0d7de"]{stroke:var(--line)}svg [stroke="#cf222e"]{stroke:var(--bad)}
svg [stroke="#bf8700"]{stroke:var(--doubt)}
.grid .row{display:grid;grid-template-columns:minmax(11rem,23.5rem) 1fr;gap:.1rem 1rem;padding:.15rem 0;
font-size:.8125rem}
.grid b{font-weight:400;color:var(--faint)}
.squares{display:flex;flex-wrap:wrap;gap:2px;align-content:center}
.grid i{display:inline-block;width:12px;height:12px;border:1px solid;border-radius:2px;
font:700 10px/10px var(--mono);text-align:center;vertical-align:-1px;overflow:hidden}
.grid i.pass{background:var(--good);border-color:var(--good)}
.grid i.fail{background:var(--bad);border-color:var(--bad);color:var(--page)}
.grid i.stated{color:var(--info)}.grid i.void{border-style:dashed;color:var(--faint)}
.grid i.unstated{background:var(--doubt);border-color:var(--doubt);color:var(--page)}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin-top:.5rem;color:var(--faint);font-size:.8125rem}
dt{color:var(--faint);font-size:.8125rem}dd{margin:0}
nav{margin:1.6rem 0 0;font-size:.875rem}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:0;padding:0;list-style:none;max-width:none}
footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--line);color:var(--faint);font-size:.8125rem}
@media(min-width:46.01rem){td:first-child code{white-space:nowrap}}
@media(max-width:46rem){
dl.terms{grid-template-columns:1fr;gap:0}dl.terms dd{margin-bottom:.45rem}
header{grid-template-columns:1fr;padding:.9rem 1rem}header .verdict{grid-row:auto}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table,tbody,tr,td{display:block;min-width:0}
tr{margin:.5rem 0;padding:.35rem .7rem;border:1px solid var(--line);border-radius:.45rem}
td,td.right,td.center{display:flex;justify-content:space-between;gap:1rem;padding:.18rem 0;border:0;text-align:right;
overflow-wrap:anywhere}
td:first-child{text-align:left;font-weight:600}
td::before{content:attr(data-of);flex:0 1 45%;color:var(--faint);text-align:left;font-size:.8125rem}
td:first-child::before,td[data-of=""]::before{content:none}
td>span{min-width:0}
.grid .row{grid-template-columns:1fr;padding:.3rem 0}
figure svg{min-width:40rem}}
@media print{:root{--page:#fff;--soft:#f6f7f8;--ink:#000;--faint:#444;--line:#ccc;--link:#000}
body{max-width:none;padding:0;font-size:9.5pt}.scroll{overflow:visible}table{font-size:7.5pt;line-height:1.35}
th,td{padding:.2rem .5rem .2rem 0;font-size:inherit;min-width:4.5em;overflow-wrap:anywhere}.proof{font-size:inherit}
th:first-child,td:first-child{min-width:9em}td:first-child code{white-space:normal}
nav{display:none}pre{white-space:pre-wrap;overflow-wrap:anywhere}
details::details-content{content-visibility:visible;block-size:auto}
figure svg{min-width:0;max-width:100%}h2,h3,summary{break-after:avoid}tr,figure,header{break-inside:avoid}
figure:has(.grid){break-inside:auto}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
