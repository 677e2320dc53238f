"""A run as markdown that stands alone: `rankproof show --issue` prints it to paste into an issue
tracker, and the summary of a CI job takes a few lines of it.

Nothing in it leads into the evidence, which is not there: claims lose their links, and figures go.
Nothing in it calls anybody by accident: what a tracker would take for a person or for another issue
stands as code. Nothing in it tells of the machine: folders are cut from paths, and addresses of
people go. What is left out for length is said.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.forms.text import bounded, joined, plural
from harness.record.arms import compared
from harness.record.changed import COMMENTS_ALONE
from harness.record.defect import FindingRecord
from harness.record.facts import installed
from harness.record.model import LibraryChange, Record
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Details,
    Foreign,
    Heading,
    Paragraph,
    Part,
    Strong,
    Table,
    Terms,
    Text,
    Verbatim,
)
from harness.report.environment import COMPUTING
from harness.report.finding import finding_terms, shown_in_words
from harness.report.markdown import render_markdown
from harness.report.shown_trial import printed_first
from harness.report.summary import control_in_words, summary, without_word
from harness.report.view import Basis, View
from harness.report.words import answer, percent, worst_first
from harness.stats.outcome import Arm
from harness.stats.verdict import CellVerdict

LONGEST = 65_000
"""Characters; trackers take 65,536."""
MOST_LINES = 60
DIFF_LINES = 12
LOG_LIMIT = 8_000
LOG_LINES = 12
CELLS_SHOWN = 6
REASONS_SHOWN = 4
REASON_LIMIT = 400
MODULES_NAMED = 8
FINDING_LABELS = ("What happens", "Expected", "Cause")
# What trackers link or notify: people, issues and requests by number, commits.
CALLS = re.compile(
    r"(?<![\w`])@[A-Za-z0-9][\w/.-]*|[#!$%&~][0-9]+\b|\b[Gg][Hh]-[0-9]+\b|\b[0-9a-f]{40}\b"
)
# The home folder of somebody; then all folders above the last name of a path that begins at a root.
# Not the path of an address such as https://host/path. A path begins where no word goes on, and has
# a name before its last slash: `</b>` has none, and neither has `/x`, where there is no folder.
HOME = re.compile(r"(?:(?<![A-Za-z])[A-Za-z]:)?[/\\](?:home|Users)[/\\][^/\\\s\"'`<>|:;,)\]]+")
STEP = r"[/\\](?![/\\])[\w.@+~-]+"
FOLDERS = re.compile(
    rf"(?<![^\s\"'`(\[{{<>=,;|:…])(?:(?:~|…|[A-Za-z]:)(?:{STEP})*|(?:{STEP})+)"
    r"[/\\](?![/\\])(?=[\w.@+~-])"
)
ADDRESS = re.compile(r"\b[\w.+-]+@[\w-]+[\w.-]*")

Read = Callable[[str], bytes]


@dataclass(frozen=True, kw_only=True)
class Section:
    """Part of the text that can be left out where room is short."""

    name: str
    blocks: tuple[Block, ...]


Mark = Callable[[Sequence[Block]], Iterable[Block]]


def render_issue(record: Record, read: Read, mark: Mark = iter) -> str:
    """Render the text, of at most 60 lines and 65,000 characters.

    Args:
        record: the record.
        read: gives the bytes of a file of the evidence by its path.
        mark: what is done to the blocks before they are rendered: where the report did not verify,
            `unverified`.
    """
    head = _head(record)
    sections = list(_sections(record, read))
    if record.finding is not None:
        head = _finding_head(record, record.finding)
        sections = list(_finding_sections(record.finding, read))
    for kept in range(len(sections), -1, -1):
        left = ", ".join(section.name for section in sections[kept:])
        note = (
            [
                Paragraph(
                    f"Omitted because of the length limit: {left}. See the report for the rest."
                )
            ]
            if left
            else []
        )
        there = [block for section in sections[:kept] for block in section.blocks]
        blocks = mark([*head, *there, *note, *_foot(record)])
        text = render_markdown([alone(block) for block in blocks])
        if len(text) <= LONGEST and text.count("\n") <= MOST_LINES:
            break
    return text


def _head(record: Record) -> list[Block]:
    shown = f"Finding {record.word}" if record.scenario.role == "upstream" else record.word
    title = record.headline
    blocks = summary(record)
    terms = next(block for block in blocks if isinstance(block, Terms))
    table = next(block for block in blocks if isinstance(block, Table))
    reasons = [Foreign(reason, REASON_LIMIT) for reason in record.judgement.reasons[:REASONS_SHOWN]]
    more = len(table.rows) - CELLS_SHOWN
    left = len(record.judgement.reasons) - REASONS_SHOWN
    return [
        Heading(2, Text(Strong(shown), " ", Foreign(title, 200))),
        without_word(terms),
        Table(table.header, table.rows[:CELLS_SHOWN], table.align),
        *([Paragraph(f"{plural(more, 'more cell')}, none of them worse.")] if more > 0 else []),
        *([BulletList(tuple(reasons))] if reasons else []),
        *([Paragraph(f"{plural(left, 'more reason')}.")] if left > 0 else []),
    ]


def _finding_head(record: Record, finding: FindingRecord) -> list[Block]:
    """What a maintainer of the library needs first."""
    word = "" if record.word == "SHOWN" else f"{record.word}: "
    stated = finding.stated
    terms = dict(finding_terms(record))
    here = record.run.environment
    there = installed(record.run, "control")[1]
    companions = "".join(
        f", {name} {there[name]}" for name in COMPUTING if name in there and name != stated.library
    )
    python = finding.runs["control"].python
    machine = f"Tested with Python {python}{companions} on {here.system} {here.machine}"
    right = f"fixed in {stated.right}" if stated.right else "first fixed release: not known"
    versions = f"{joined(stated.at_fault)}, possibly others; {right}. {machine}."
    kept = [(name, terms[name]) for name in FINDING_LABELS if name in terms]
    rows: list[tuple[str, Part]] = [
        *kept,
        ("Affected versions", Foreign(versions, REASON_LIMIT)),
        ("Reports", terms["Reports"]),
        ("Frequency", shown_in_words(record)),
    ]
    # A list has no empty lines: the script has to fit below it.
    items = tuple(Text(Strong(f"{name}."), " ", value) for name, value in rows)
    return [Heading(2, Foreign(f"{word}{record.headline}", 200)), BulletList(items)]


def _finding_sections(finding: FindingRecord, read: Read) -> Iterator[Section]:
    run = finding.runs["control"]
    text = read(finding.script).decode("utf-8", "backslashreplace").rstrip("\n")
    how = f"exited with {run.how}" if run.code is not None else run.how
    said: list[Block] = []
    if run.says:
        script = Verbatim(finding.stated.script)
        says = Verbatim(run.says)
        said.append(Paragraph(script, f" {how}. The last line of its output was: ", says))
    blocks = (Heading(3, finding.stated.script), Verbatim(text, "python"), *said)
    # What our ranks printed would lead a maintainer astray: the script needs nothing of ours.
    yield Section(name="the script", blocks=blocks)


def _sections(record: Record, read: Read) -> Iterator[Section]:
    """Parts in the order of what a reader of an issue needs: the last ones go first where room is
    short.
    """
    yield from _failures(record, read)
    if record.changed:
        asked = record.scenario
        older, newer = map(asked.the, compared(record.arms))
        diff = Verbatim("\n".join(record.changed[:DIFF_LINES]), "diff")
        more = len(record.changed) - DIFF_LINES
        rest = [Paragraph(f"... and {plural(more, 'more line')}.")] if more > 0 else []
        title = Heading(3, f"Diff from {older} to {newer}")
        yield Section(name="the diff", blocks=(title, diff, *rest))
    if record.libraries:
        items = tuple(map(_library_in_words, record.libraries))
        yield Section(name="the libraries that differ", blocks=(BulletList(items),))
    yield Section(name="the versions", blocks=(Heading(3, "Versions"), _versions(record)))
    yield Section(name="how to reproduce it", blocks=tuple(_reproduce(record)))


def _library_in_words(library: LibraryChange) -> Foreign:
    """Versions of a library that the arms have, and the modules that ranks loaded and that differ,
    the most changed first.
    """
    versions = " and ".join(version or "not installed" for version in library.versions.values())
    differ = [module.file for module in library.modules if module.why != COMMENTS_ALONE]
    files = ", ".join(differ[:MODULES_NAMED])
    more = len(differ) - MODULES_NAMED
    rest = f" and {more} more" if more > 0 else ""
    which = f"; ranks loaded these modules that differ: {files}{rest}" if files else ""
    return Foreign(f"{library.distribution} {versions}{which}")


def _failures(record: Record, read: Read) -> Iterator[Section]:
    """Yield what the ranks printed that failed first: of the control, and of the candidate where it
    failed.
    """
    arms: tuple[Arm, ...] = ("control", "candidate")
    for arm in arms:
        shown = next(
            (
                printed
                for cell in worst_first(record.judgement.cells)
                if (printed := _printed(cell, arm, read))
            ),
            None,
        )
        if shown is not None:
            cell, how, text = shown
            name = record.scenario.the(arm)
            who = Foreign(f"{name[0].upper()}{name[1:]}, {how} ({cell.id})")
            log = Verbatim(text, "text", LOG_LIMIT)
            yield Section(name=f"the output of {name}", blocks=(Heading(3, who), log))


def _printed(cell: CellVerdict, arm: Arm, read: Read) -> tuple[CellVerdict, str, str] | None:
    """Traceback, or where a hung rank stood: the cell, what it is, the text."""
    if (hung := cell.hung.get(arm)) is not None and hung.ranks:
        return (
            cell,
            f"stack of rank {hung.ranks[0].rank}, innermost call first",
            "\n".join(hung.ranks[0].calls),
        )
    sample = cell.samples.get(arm)
    tally = cell.arms.get(arm)
    if sample is None or tally is None or sample.outcome != "fail":
        return None
    excerpt = printed_first(sample, tally.trials[sample.index])
    if excerpt is None:
        return None
    lines = read(excerpt.path).decode("utf-8", "backslashreplace").splitlines()
    # What counts stands at the end of a log.
    left = len(lines) - LOG_LINES
    text = "\n".join([*([f"... ({left} earlier lines)"] if left > 0 else []), *lines[-LOG_LINES:]])
    return cell, f"output of rank {excerpt.rank}", text


def _versions(record: Record) -> Block:
    here = record.run.environment
    versions = {package.name.lower(): package.version for package in here.packages}
    harness = ", ".join(f"{name} {versions[name]}" for name in COMPUTING if name in versions)
    whose = " (in the harness's environment)" if record.run.environments else ""
    items = [
        (
            f"rankproof {record.run.rankproof}, {here.implementation} {here.python};"
            f" {harness or 'ML packages: none'}{whose}"
        ),
        (
            f"{here.system} {here.release} {here.machine}, {here.cpu},"
            f" {plural(here.cores, 'core')}; GPU: {here.gpu or 'none found'}"
        ),
    ]
    arms_by_environment: dict[str, list[str]] = {}
    for arm, environment in sorted(record.run.environments.items()):
        named = ", ".join(
            f"{name} {version}" for name, version in installed(record.run, arm)[1].items()
        )
        arms_by_environment.setdefault(f"Python {environment.python}; {named}", []).append(arm)
    items += [
        f"environment of the {' and the '.join(arms)}: {text}"
        for text, arms in arms_by_environment.items()
    ]
    return BulletList(tuple(Foreign(item, 1200) for item in items))


def _reproduce(record: Record) -> Iterator[Block]:
    source = record.run.source
    run = record.run
    lines = [f"git checkout {source.commit}"] if source.commit else []
    place = shlex.quote(source.place or f"FOLDER-OF-{record.scenario.id}")
    again = " ".join(
        ["rankproof", "run", place, *(f"--set {shlex.quote(given)}" for given in run.overrides)]
    )
    lines.append(f"{again}   # the scenario {record.scenario.id}")
    yield Heading(3, "How to reproduce it")
    if source.dirty:
        yield Paragraph(
            "The working tree had uncommitted changes, which are in the report's bundle but not in"
            " the commit."
        )
    yield Verbatim("\n".join(lines), "sh")
    yield Paragraph(
        "The report and its bundle contain the scenario and the subject, so this works too: ",
        Verbatim("rankproof reproduce report.md"),
        ".",
    )


def _foot(record: Record) -> list[Block]:
    return [
        Paragraph(
            "Made by ",
            Verbatim("rankproof show --issue"),
            " from run ",
            Verbatim(record.run.id),
            ". This text is not signed. To verify the result, run ",
            Verbatim("rankproof verify"),
            " on the report.",
        )
    ]


def alone(block: Block) -> Block:
    """Block without evidence, calls and folders."""
    match block:
        case Heading(level, text):
            return Heading(level, _quiet(text))
        case Paragraph(parts):
            return Paragraph(*map(_quiet, parts))
        case Table(header, rows, align):
            return Table(
                tuple(map(_quiet, header)), tuple(tuple(map(_quiet, row)) for row in rows), align
            )
        case Verbatim(_, "python", _):
            return block  # a script, which has to run as it is printed
        case Verbatim(text, language, limit):
            # A blank at the end of a line only matters where a diff tells of it.
            lines = (
                text.split("\n")
                if language == "diff"
                else [line.rstrip() for line in text.split("\n")]
            )
            return Verbatim(without_places("\n".join(lines)), language, limit)
        case BulletList(items):
            return BulletList(tuple(map(_quiet, items)))
        case Terms(rows):
            return Terms(tuple((name, _quiet(value)) for name, value in rows))
        case Details(summary, inner):
            return Details(summary, tuple(map(alone, inner)))
        case _:
            return block


def _quiet(part: Part) -> Part:
    match part:
        case Claim(text, _):
            return _quiet(text)
        case Text(parts):
            return Text(*map(_quiet, parts))
        case Verbatim(text, language, limit):
            return Verbatim(without_places(text), language, limit)
        case Foreign(text, limit):
            # Cut before it is taken apart, so that the limit holds for all of it.
            return Text(*_without_calls(without_places(bounded(text, limit))))
        case _:
            return part


def _without_calls(text: str) -> Iterator[Part]:
    end = 0
    for match in CALLS.finditer(text):
        yield Foreign(text[end : match.start()])
        yield Verbatim(match[0])
        end = match.end()
    yield Foreign(text[end:])


def without_places(text: str) -> str:
    """Text in which no path begins at the root of a machine, and no address says who or where."""
    return FOLDERS.sub("…/", HOME.sub("…", ADDRESS.sub("…", text)))


SUMMARY_REASONS = 10
SUMMARY_CELLS = 50


def render_step_summary(basis: Basis) -> bytes:
    """Render the summary of a CI job, as markdown that ends with a blank line."""
    record = basis.record
    judgement = record.judgement
    rows = tuple(
        (
            Foreign(cell.id),
            Strong(cell.verdict),
            f"{cell.candidate.failed} / {cell.candidate.counted}" if cell.candidate else "-",
            percent(cell.candidate.upper) if cell.candidate else "-",
            f"{cell.control.as_stated} / {cell.control.counted}" if cell.control else "-",
        )
        for cell in worst_first(judgement.cells)[:SUMMARY_CELLS]
    )
    arms = [record.scenario.arm(name) for name in ("candidate", "control")]
    counts = [
        f"{arms[0]}: failed / counted",
        "failure rate below",
        f"{arms[1]}: as required / counted",
    ]
    header = ("cell", "verdict", *counts)
    expected = f", expected {record.scenario.expects}" if record.scenario.expects else ""
    reasons = [Foreign(reason, 400) for reason in judgement.reasons[:SUMMARY_REASONS]]
    word = f"Finding {record.word}" if record.scenario.role == "upstream" else record.word
    lines: list[Block] = [
        Heading(3, Text(Strong(word), " ", Foreign(record.headline, 200))),
        Paragraph(answer(record), f" Role: {record.scenario.role}{expected}."),
        Paragraph(
            f"{'Defect' if record.scenario.called else 'Control'}: ", control_in_words(record)
        ),
        Table(header, rows, ("left", "left", "right", "right", "right")),
        *([BulletList(tuple(reasons))] if reasons else []),
        Paragraph("Report: ", Verbatim(basis.report), ", run ", Verbatim(record.run.id), "."),
    ]
    return (render_markdown(map(alone, lines)) + "\n").encode()


VIEW = View(
    name="step-summary.md", media_type="text/markdown", checked=False, render=render_step_summary
)
