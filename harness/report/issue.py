"""`rankproof show --issue`: a run as one markdown text that stands alone, to paste into an issue tracker.

Nothing in it leads into the evidence, which is not there: claims lose their links, and figures go. Nothing in it calls
anybody by accident: what a tracker would take for a person or for another issue stands as code. Nothing in it tells of
the machine: folders are cut from paths, and what is before the @ of an address too. What is left out for length is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.forms.text import plural
from harness.record.facts import SCENARIO_PATH, SOURCE_FOLDER
from harness.record.model import Record
from harness.report import blocks
from harness.report.blocks import Block, Part
from harness.report.markdown import render_markdown
from harness.report.report import entry_files
from harness.report.summary import summary
from harness.report.trials import printed_first
from harness.report.words import worst_first
from harness.stats.verdict import CellVerdict

LONGEST = 65_000
"""Characters; trackers take 65,536."""
DIFF_LIMIT, LOG_LIMIT, FILE_LIMIT = 16_000, 6_000, 12_000
CELLS_SHOWN, REASONS_SHOWN = 30, 8
COMPUTING = ("torch", "transformers", "tokenizers", "mlx", "numpy", "rankproof")
# What trackers link or notify: people, issues and requests by number, commits.
CALLS = re.compile(r"(?<![\w`])@[A-Za-z0-9][\w/.-]*|[#!$%&~][0-9]+\b|\b[Gg][Hh]-[0-9]+\b|\b[0-9a-f]{40}\b")
# A path of the machine, but not the path of an address such as https://host/path.
FOLDERS = re.compile(r"(?<![\w.:/~-])(?:~|[A-Za-z]:)?(?:[/\\][\w.@+~ -]*?[\w.@+~-])+[/\\](?=[\w.@+~-]+)")
ADDRESS = re.compile(r"\b[\w.+-]+@(?=[\w-]+)[\w.-]+")

Read = Callable[[str], bytes]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the text that can be left out where there is no room for it."""

    name: str
    blocks: tuple[Block, ...]


def render_issue(record: Record, read: Read) -> str:
    """Render the text, of at most 65,000 characters.

    Args:
        record: the record.
        read: gives the bytes of a file of the evidence by its path.
    """
    head, sections = _head(record), list(_sections(record, read))
    for kept in range(len(sections), -1, -1):
        left = ", ".join(section.name for section in sections[kept:])
        note = [blocks.Paragraph(f"Left out for length: {left}. The report has all of it.")] if left else []
        there = [block for section in sections[:kept] for block in section.blocks]
        text = render_markdown([_alone(block) for block in (*head, *there, *note, *_foot(record))])
        if len(text) <= LONGEST:
            break
    return text


def _head(record: Record) -> list[Block]:
    word, title = record.judgement.verdict, record.scenario.title
    said = summary(record)
    terms = next(block for block in said if isinstance(block, blocks.Terms))
    table = next(block for block in said if isinstance(block, blocks.Table))
    reasons = [blocks.Foreign(reason, 400) for reason in record.judgement.reasons[:REASONS_SHOWN]]
    more = len(table.rows) - CELLS_SHOWN
    left = len(record.judgement.reasons) - REASONS_SHOWN
    return [
        blocks.Heading(2, blocks.Text(blocks.Strong(word), " ", blocks.Foreign(title, 200))),
        terms,
        blocks.Table(table.header, table.rows[:CELLS_SHOWN], table.align),
        *([blocks.Paragraph(f"{plural(more, 'more cell')}, none of them worse.")] if more > 0 else []),
        *([blocks.BulletList(tuple(reasons))] if reasons else []),
        *([blocks.Paragraph(f"{plural(left, 'more reason')}.")] if left > 0 else []),
    ]


def _sections(record: Record, read: Read) -> Iterator[Section]:
    """Parts in the order of what a reader of an issue needs: the last go first where there is no room."""
    yield from _failures(record)
    if record.changed:
        diff = blocks.Verbatim("\n".join(record.changed), "diff", DIFF_LIMIT)
        yield Section(name="the diff", blocks=(blocks.Heading(3, "From the control to the candidate"), diff))
    yield Section(name="the versions", blocks=(blocks.Heading(3, "Versions"), _versions(record)))
    yield Section(name="how to reproduce it", blocks=tuple(_reproduce(record)))
    files = [("the scenario", SCENARIO_PATH, "yaml")]
    files += [
        (f"the candidate's {name}", f"{SOURCE_FOLDER}/candidate/{name}", "")
        for name in entry_files(record, "candidate")
    ]
    for name, path, language in files:
        text = blocks.Verbatim(read(path).decode("utf-8", "backslashreplace"), language, FILE_LIMIT)
        yield Section(name=name, blocks=(blocks.Details(f"{name[0].upper()}{name[1:]}", (text,)),))


def _failures(record: Record) -> Iterator[Section]:
    """What the ranks printed that failed first: of the control, and of the candidate where it failed."""
    for arm in ("control", "candidate"):
        shown = next((found for cell in worst_first(record.judgement.cells) if (found := _printed(cell, arm))), None)
        if shown is not None:
            cell, rank, text = shown
            who = blocks.Foreign(f"The {arm}, as rank {rank} printed it ({cell.id})")
            log = blocks.Verbatim(text, "text", LOG_LIMIT)
            yield Section(name=f"what the {arm} printed", blocks=(blocks.Heading(3, who), log))


def _printed(cell: CellVerdict, arm: str) -> tuple[CellVerdict, str, str] | None:
    """A traceback, or where a hung rank stood."""
    if arm == "control" and (hung := cell.hung.get("control")) is not None and hung.ranks:
        return cell, f"{hung.ranks[0].rank} stood, innermost call first; nobody", "\n".join(hung.ranks[0].calls)
    sample = cell.samples.get("control" if arm == "control" else "candidate")
    tally = cell.arms.get("control" if arm == "control" else "candidate")
    if sample is None or tally is None or sample.outcome != "fail":
        return None
    excerpt = printed_first(sample, tally.trials[sample.index])
    return None if excerpt is None else (cell, str(excerpt.rank), excerpt.text)


def _versions(record: Record) -> Block:
    here = record.run.environment
    versions = {package.name.lower(): package.version for package in here.packages}
    harness = ", ".join(f"{name} {versions[name]}" for name in COMPUTING if name in versions)
    rows: list[tuple[Part, ...]] = [
        ("rankproof", blocks.Foreign(record.run.rankproof)),
        ("Python", blocks.Foreign(f"{here.implementation} {here.python}")),
        ("packages", blocks.Foreign(harness or "none of those that compute")),
        ("system", blocks.Foreign(f"{here.system} {here.release} {here.machine}")),
        ("processor", blocks.Foreign(f"{here.cpu}, {plural(here.cores, 'core')}; GPU: {here.gpu or 'none'}")),
    ]
    for arm, own in sorted(record.run.environments.items()):
        named = ", ".join(f"{one.name} {one.version}" for one in own.packages)
        rows.append((f"environment of the {arm}", blocks.Foreign(f"Python {own.python}; {named}", 800)))
    return blocks.Table(("what", "version"), tuple(rows))


def _reproduce(record: Record) -> Iterator[Block]:
    source, run = record.run.source, record.run
    lines = [f"git checkout {source.commit}"] if source.commit else []
    place = source.scenario or f"FOLDER-OF-{record.scenario.id}"
    lines.append(" ".join(["rankproof", "run", place, *(f"--set {given!r}" for given in run.overrides)]))
    yield blocks.Heading(3, "How to reproduce it")
    if source.dirty:
        yield blocks.Paragraph(
            "The tree was changed since the commit: the report's bundle has the changes, the commit not."
        )
    yield blocks.Verbatim("\n".join(lines), "sh")
    yield blocks.Paragraph("Or from the report or its bundle: ", blocks.Verbatim("rankproof reproduce report.md"), ".")


def _foot(record: Record) -> list[Block]:
    return [
        blocks.Paragraph(
            "Made by ",
            blocks.Verbatim("rankproof show --issue"),
            " from run ",
            blocks.Verbatim(record.run.id),
            ". This text is not signed; the report is what can be verified.",
        )
    ]


def _alone(block: Block) -> Block:
    """A block without evidence, calls and folders."""
    match block:
        case blocks.Heading(level, text):
            return blocks.Heading(level, _quiet(text))
        case blocks.Paragraph(parts):
            return blocks.Paragraph(*map(_quiet, parts))
        case blocks.Table(header, rows, align):
            return blocks.Table(tuple(map(_quiet, header)), tuple(tuple(map(_quiet, row)) for row in rows), align)
        case blocks.Verbatim(text, language, limit):
            return blocks.Verbatim(without_places(text), language, limit)
        case blocks.BulletList(items):
            return blocks.BulletList(tuple(map(_quiet, items)))
        case blocks.Terms(rows):
            return blocks.Terms(tuple((name, _quiet(value)) for name, value in rows))
        case blocks.Details(summary, inner):
            return blocks.Details(summary, tuple(map(_alone, inner)))
        case _:
            return block


def _quiet(part: Part) -> Part:
    match part:
        case blocks.Claim(text, _):
            return _quiet(text)
        case blocks.Text(parts):
            return blocks.Text(*map(_quiet, parts))
        case blocks.Verbatim(text, language, limit):
            return blocks.Verbatim(without_places(text), language, limit)
        case blocks.Foreign(text, limit):
            # Cut before it is taken apart, so that the limit holds for all of it.
            text = without_places(text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit} more)")
            return blocks.Text(*_without_calls(text))
        case _:
            return part


def _without_calls(text: str) -> Iterator[Part]:
    end = 0
    for match in CALLS.finditer(text):
        yield blocks.Foreign(text[end : match.start()])
        yield blocks.Verbatim(match[0])
        end = match.end()
    yield blocks.Foreign(text[end:])


def without_places(text: str) -> str:
    """A text in which no path begins at the root of a machine, and no address says who or where."""
    return FOLDERS.sub("…/", ADDRESS.sub("…", text))
