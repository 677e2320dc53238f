"""`index.html` over a folder of runs: every run with its verdict, and a picture of each scenario.

The page is one file without a script: filters are form controls that the style sheet reads. It
loads nothing, and all text goes through `escape.html`. Links lead to reports below the page's
folder. A run that was not verified has no verdict here, whatever its files say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from statistics import median
from typing import Any, Self
from urllib.parse import quote

from harness.forms.text import plural
from harness.report import escape, svg
from harness.report.stylesheet import STYLE

NOT_VERIFIED = "NOT VERIFIED"
VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE", "SKIPPED")
# Cells of a run that are listed in its row; the others are folded.
CELLS_SHOWN = 2
QUESTION_LIMIT = 240
NAME_LIMIT = 80
# Runs in one picture: the newest.
DRAWN = 60
COMMIT_SHOWN = 9

MEANING = (
    "A verdict is shown only for a run that <code>rankproof verify</code> accepts, or that your own"
    " key signed (MINE). Times are UTC. Page made"
)
# By this the command knows a page that it may write anew.
MARK = '<meta name="generator" content="rankproof view">'
DEFAULT_MARK = '<meta name="rankproof-signers" content="default">'
HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<title>Rankproof runs</title>
"""
LOOKS = """\
.filters{display:flex;flex-wrap:wrap;gap:.4rem 1.4rem;align-items:center;margin:1rem 0;
font-size:.875rem}
.filters select{font:inherit;max-width:18rem}
main .runs td:first-child{min-width:8.5rem}.runs td:first-child .q{max-width:17rem}.runs td{
min-width:0}.runs td:nth-child(2){min-width:20rem}
.runs .q{display:block;color:var(--faint);font-size:.8125rem;line-height:1.4;max-width:40rem}
.runs .cells span{display:block}.runs time,.runs code{white-space:nowrap}
.runs details{margin:0;border:0}.runs summary{padding:0}.runs details>.cells{display:block;
margin:.2rem 0 0}
.refused{--word:var(--bad);--tint:var(--bad-soft)}
.charts{display:flex;flex-wrap:wrap;gap:1rem}.charts figure{margin:0}
.charts figure svg{min-width:0;width:auto}
"""


@dataclass(frozen=True)
class ListedCell:
    """One cell of a run.

    Attributes:
        id: name of the cell.
        verdict: its word.
        failed: trials of the candidate that failed.
        counted: trials of the candidate that count.
    """

    id: str
    verdict: str
    failed: int = 0
    counted: int = 0


@dataclass(frozen=True)
class ListedRun:
    """One run, as its row shows it.

    Attributes:
        path: folder of the report, or the bundle, from the page's folder.
        name: the same from the folder that is shown.
        verdict: word of the run; empty where it was not verified.
        refusal: why it was not verified: the word of the verification, and in a sentence `why`.
        is_expected: whether the verdict is the one that the scenario states.
        scenario: id of the scenario.
        title: of the scenario.
        question: of the scenario.
        cells: of the run, in order.
        commit: of the code, empty where it is not known.
        is_changed: whether the working tree differed from the commit.
        made: when, as the signer states: `2026-01-31T12:00:00Z`.
        signer: name of the signer; `MINE` for the reader's own key.
        seconds: median duration of a trial of the candidate.
        verified: when this was verified.
        page: file of the report that the row links to.
        is_certified: whether a certificate signed it, which ends by itself.
    """

    path: str
    name: str
    verified: str
    verdict: str = ""
    refusal: str = ""
    why: str = ""
    is_expected: bool = True
    scenario: str = ""
    title: str = ""
    question: str = ""
    cells: list[ListedCell] = field(default_factory=list)
    commit: str = ""
    is_changed: bool | None = None
    made: str = ""
    signer: str = ""
    seconds: float | None = None
    page: str = ""
    is_certified: bool = False

    @property
    def word(self) -> str:
        """Word of the row: a verdict only where it was verified."""
        return self.verdict if self.verdict and not self.refusal else NOT_VERIFIED

    def encode(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def decode(cls, values: dict[str, Any]) -> Self:
        """Read back what `encode` gave.

        Raises:
            TypeError, KeyError: it is not that.
        """
        cells = [ListedCell(**cell) for cell in values["cells"]]
        return cls(**{**values, "cells": cells})


def render_runs(
    runs: Sequence[ListedRun],
    *,
    place: str,
    made: str,
    unread: Sequence[str] = (),
    is_default: bool = True,
) -> bytes:
    """Render the page.

    Args:
        runs: in any order.
        place: the folder, as its reader names it.
        made: when the page was made.
        unread: what could not be searched for runs, with the reason.
        is_default: whether the signers are those of a page that is made without options.
    """
    newest_first = sorted(runs, key=lambda run: (run.made, run.path), reverse=True)
    scenarios = sorted({run.scenario for run in runs if run.scenario})
    signers = sorted({run.signer for run in runs if run.signer})
    lines = (
        HEAD.rstrip("\n"),
        MARK,
        *([DEFAULT_MARK] if is_default else []),
        f"<style>\n{STYLE}{LOOKS}{_filter_rules(scenarios, signers)}</style>",
        "</head>",
        "<body>",
        f"<h1>Runs in {escape.html(place)}</h1>",
        f'<p class="note">{_counts(runs)} {MEANING} {_time(made)}.</p>',
        *(
            f'<p class="note">Not searched: {escape.html(what, QUESTION_LIMIT)}</p>'
            for what in unread
        ),
        "<main>",
        _filters(scenarios, signers),
        _table(newest_first, scenarios, signers),
        *_charts(newest_first, scenarios),
        "</main>",
        "</body>",
        "</html>",
    )
    return ("\n".join(line for line in lines if line) + "\n").encode(errors="replace")


def _counts(runs: Sequence[ListedRun]) -> str:
    if not runs:
        return "There is no run here."
    words = [run.word for run in runs]
    parts = [f"{words.count(word)} {word}" for word in (*VERDICTS, NOT_VERIFIED) if word in words]
    others = sum(word not in (*VERDICTS, NOT_VERIFIED) for word in words)
    parts += [f"{others} without a verdict"] if others else []
    return f"{plural(len(runs), 'run')}: {', '.join(parts)}."


# -- filters ---------------------------------------------------------------------------------------


def _kind(word: str) -> str:
    return "refused" if word == NOT_VERIFIED else re.sub("[^a-z]", "", word.lower()) or "other"


def _filter_rules(scenarios: Sequence[str], signers: Sequence[str]) -> str:
    """Hide a row where a control that it does not fit is chosen."""
    rules = [
        f"body:has(#show-{kind}:not(:checked)) tr.{kind}{{display:none}}"
        for kind in map(_kind, (*VERDICTS, NOT_VERIFIED))
    ]
    for name, values in (("scenario", scenarios), ("signer", signers)):
        rules += [
            f'body:has(#{name} option[value="{number}"]:checked) tr.run:not(.{name}-{number})'
            "{display:none}"
            for number in range(len(values))
        ]
    return "\n".join(rules) + "\n"


def _filters(scenarios: Sequence[str], signers: Sequence[str]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" id="show-{_kind(word)}" checked> {word}</label>\n'
        for word in (*VERDICTS, NOT_VERIFIED)
    )
    chosen = ""
    for name, values in (("scenario", scenarios), ("signer", signers)):
        options = "".join(
            f'<option value="{number}">{escape.html(value, NAME_LIMIT)}</option>'
            for number, value in enumerate(values)
        )
        chosen += (
            f'<label>{name} <select id="{name}"><option value="">all</option>{options}</select>'
            "</label>\n"
        )
    return f'<form class="filters" autocomplete="off">\n{boxes}{chosen}</form>'


# -- rows ------------------------------------------------------------------------------------------


def _table(runs: Sequence[ListedRun], scenarios: Sequence[str], signers: Sequence[str]) -> str:
    head = ("verdict", "scenario and question", "cells", "commit", "made", "signed by")
    numbers = {
        "scenario": {name: number for number, name in enumerate(scenarios)},
        "signer": {name: number for number, name in enumerate(signers)},
    }
    rows = "".join(_row(run, head, numbers) for run in runs)
    names = "".join(f"<th>{name}</th>" for name in head)
    return (
        '<div class="scroll" tabindex="0"><table class="runs">\n'
        f"<thead><tr>{names}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>"
    )


def _row(run: ListedRun, head: Sequence[str], numbers: dict[str, dict[str, int]]) -> str:
    kinds = ["run", _kind(run.word)]
    for name, value in (("scenario", run.scenario), ("signer", run.signer)):
        if value in numbers[name]:
            kinds.append(f"{name}-{numbers[name][value]}")
    cells = (_verdict(run), _what(run), _cells(run), _commit(run), *_when_and_who(run))
    shown = "".join(
        f'<td data-of="{name}"><span>{cell}</span></td>'
        for name, cell in zip(head, cells, strict=True)
    )
    return f'<tr class="{" ".join(kinds)}">{shown}</tr>\n'


def _verdict(run: ListedRun) -> str:
    word = f'<strong class="w {_kind(run.word)}">{escape.html(run.word)}</strong>'
    if run.refusal:
        why = f"{run.refusal}: {run.why}" if run.why else run.refusal
        return f'{word}<span class="q">{escape.html(why, QUESTION_LIMIT)}</span>'
    return word if run.is_expected else f'{word}<span class="q">not as expected</span>'


def _what(run: ListedRun) -> str:
    name = run.title or run.name
    link = link_to(run)
    # Text that runs from right to left stays in its own place.
    shown = f'<a href="{link}"><bdi>{escape.html(name, QUESTION_LIMIT)}</bdi></a>'
    if not run.question:
        return shown
    question = escape.html(run.question, QUESTION_LIMIT)
    return f'{shown}<span class="q"><bdi>{question}</bdi></span>'


def link_to(run: ListedRun) -> str:
    """Link from the page to a file of a run.

    `./` keeps a name with a colon from being read as an address.
    """
    path = f"{run.path}/{run.page}" if run.page else run.path
    return escape.html(f"./{quote(path, safe='/', errors='surrogateescape')}")


def _cells(run: ListedRun) -> str:
    lines = [_cell(cell) for cell in run.cells]
    if len(lines) <= CELLS_SHOWN:
        return f'<span class="cells">{"".join(lines)}</span>'
    counts = ", ".join(
        f"{len(list(group))} {escape.html(word, NAME_LIMIT)}"
        for word, group in groupby(sorted(cell.verdict for cell in run.cells))
    )
    return (
        f"<details><summary>{plural(len(lines), 'cell')}: {counts}</summary>"
        f'<span class="cells">{"".join(lines)}</span></details>'
    )


def _cell(cell: ListedCell) -> str:
    trials = f", {cell.failed} of {cell.counted} failed" if cell.counted else ""
    name = escape.html(cell.id, NAME_LIMIT)
    return f"<span>{name}: {escape.html(cell.verdict, NAME_LIMIT)}{trials}</span>"


def _commit(run: ListedRun) -> str:
    if not run.commit:
        return "unknown" if run.verdict else ""
    changed = "" if run.is_changed is False else ", changed"
    return f"<code>{escape.html(run.commit[:COMMIT_SHOWN])}</code>{changed}"


def _when_and_who(run: ListedRun) -> tuple[str, str]:
    word = "refused" if run.refusal else "verified"
    checked = f'<span class="q">{word} {_time(run.verified)}</span>'
    return _time(run.made), f"<bdi>{escape.html(run.signer, NAME_LIMIT)}</bdi>{checked}"


def _time(stated: str) -> str:
    shown = stated.replace("T", " ").removesuffix("Z")[:16]
    return f"<time>{escape.html(shown)}</time>"


# -- pictures --------------------------------------------------------------------------------------

LEFT = 64.0
TOP = 26.0
HIGH = 110.0
STEP = 16.0
BELOW = 34.0
COLOURS = {"PASS": svg.GOOD, "FAIL": svg.BAD, "INCONCLUSIVE": svg.DOUBT}


def _charts(runs: Sequence[ListedRun], scenarios: Sequence[str]) -> Iterable[str]:
    """Draw the failure rate and the seconds of each scenario that has several runs, oldest
    first.
    """
    for name in scenarios:
        kept = [run for run in runs if run.scenario == name and run.word in COLOURS][:DRAWN]
        if len(kept) < 2:
            continue
        oldest_first = kept[::-1]
        rates = [(run, failure_rate(run)) for run in oldest_first]
        seconds = [(run, run.seconds) for run in oldest_first]
        yield f'<section>\n<h2>{escape.html(name, NAME_LIMIT)}</h2>\n<div class="charts">'
        yield _chart(rates, title="failure rate of the candidate", unit="%", scale=100.0)
        yield _chart(seconds, title="seconds of a trial (median)", unit=" s", scale=1.0)
        yield "</div>\n</section>"


def failure_rate(run: ListedRun) -> float | None:
    """Share of the candidate's trials that failed, over all cells; None where none counts."""
    counted = sum(cell.counted for cell in run.cells)
    return sum(cell.failed for cell in run.cells) / counted if counted else None


def _chart(
    values: Sequence[tuple[ListedRun, float | None]], *, title: str, unit: str, scale: float
) -> str:
    """Draw one bar for each run, with the commits below."""
    known = [value * scale for _, value in values if value is not None]
    top = max(known, default=0.0) or 1.0
    width = max(LEFT + STEP * len(values) + 12.0, 260.0)
    shapes = [svg.label(0.0, 12.0, title)]
    for mark in (0.0, top):
        y = TOP + HIGH * (1 - mark / top)
        shapes.append(svg.line(LEFT, y, width - 6.0, y, svg.LINE))
        shapes.append(svg.label(LEFT - 4.0, y + 4.0, f"{mark:.3g}{unit}", anchor="end"))
    labelled = ""
    for position, (run, value) in enumerate(values):
        x = LEFT + 4.0 + STEP * position
        if value is not None:
            height = max(1.5, HIGH * value * scale / top)
            about = (
                f"{run.commit[:COMMIT_SHOWN] or run.made}: {value * scale:.4g}{unit}, {run.word}"
            )
            colour = COLOURS[run.word]
            shapes.append(svg.box(x, TOP + HIGH - height, STEP - 4.0, height, colour, title=about))
        # One label for all runs of a commit, at the first of them, where there is space.
        if run.commit != labelled and position % 4 == 0:
            shapes.append(svg.label(x, TOP + HIGH + 16.0, run.commit[:7], fill=svg.FAINT))
            labelled = run.commit
    drawn = svg.picture(width, TOP + HIGH + BELOW, title, shapes).decode()
    return f'<figure><div class="scroll" tabindex="0">{drawn}</div></figure>'


def median_seconds(milliseconds: Sequence[float]) -> float | None:
    """Return the median in seconds; None of nothing."""
    return round(median(milliseconds) / 1000, 6) if milliseconds else None
