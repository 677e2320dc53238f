"""The sections on what changed (revisions, the diff from control to candidate, and the libraries
that differ) and on the measured impact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.forms.text import joined, numbered, plural
from harness.record import facts
from harness.record.arms import compared
from harness.record.changed import COMMENTS_ALONE
from harness.record.facts import PATCH_FOLDER, SCENARIO_PATH, SOURCE_FOLDER, RevisionFacts
from harness.record.libraries import RUN_LINES, text_path
from harness.record.model import PATH as RECORD_PATH
from harness.record.model import LibraryChange, ModuleChange, Record, ScenarioSummary
from harness.report.blocks import (
    Block,
    Claim,
    Details,
    Evidence,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Table,
    Text,
    Verbatim,
)
from harness.report.words import quantity, worst_first
from harness.stats.measured import Measured, MeasuredSummary
from harness.stats.verdict import CellVerdict

RUN = Evidence(facts.PATH)
RECORD = Evidence(RECORD_PATH)
IN_SHORT = 10
"""Modules that a summary lists, and modules that it names because no rank loaded them."""
WITHOUT_DIFF = 50
"""Modules that are named without a diff; the record holds all of them."""
DIFF_SHOWN = 40
"""Lines of the difference between the arms in the report; the appendix has all that the record has.
"""


def changed_section(record: Record) -> list[Block]:
    """Return what the arms differ in."""
    section: list[Block] = [Heading(2, "What changed")]
    older, newer = compared(record.arms)
    if older not in record.arms:
        return [*section, Paragraph("The scenario has no control to compare the candidate with.")]
    folders = tuple(
        Evidence(f"{SOURCE_FOLDER}/{arm}/{file}")
        for arm in (newer, older)
        for file in entry_files(record, arm)
    )
    section += [*_revisions(record), *_sides(record)]
    if not record.changed:
        return [
            *section,
            Paragraph(
                Claim("The two arms are the same code with the same arguments.", folders or (RUN,))
            ),
        ]
    section += [
        Paragraph(
            Claim(
                f"Diff from {record.scenario.the(older)} to {record.scenario.the(newer)}",
                folders or (RUN,),
            )
        ),
        Verbatim("\n".join(record.changed[:DIFF_SHOWN]), "diff"),
    ]
    more = len(record.changed) - DIFF_SHOWN
    if more > 0:
        section.append(Paragraph(f"... and {plural(more, 'more line')}: see the appendix."))
    return [*section, *library_summaries(record)]


def changes_in_full(record: Record) -> list[Block]:
    """Return the difference between the arms where the report shows only the beginning of it."""
    if len(record.changed) <= DIFF_SHOWN:
        return []
    older, newer = compared(record.arms)
    title = f"What changed from {record.scenario.the(older)} to {record.scenario.the(newer)}"
    return [Heading(2, title), Verbatim("\n".join(record.changed), "diff")]


def entry_files(record: Record, arm: str) -> list[str]:
    """Files of an arm that its ranks begin with, by their paths in its folder."""
    if record.scenario.program:
        return [word for word in record.scenario.program if word in record.arms[arm].files]
    module = record.scenario.entry.partition(":")[0].replace(".", "/")
    return [
        file for file in (f"{module}.py", f"{module}/__init__.py") if file in record.arms[arm].files
    ]


def _sides(record: Record) -> list[Block]:
    """Return what a and b of a comparison are."""
    if not record.scenario.called:
        return []
    sides = compared(record.arms)
    arguments: list[Part] = [Verbatim(record.arms[name].arguments) for name in sides]
    environments_made = [record.run.environments.get(name) for name in sides]
    environments: list[Part] = [
        (
            "the environment of the harness"
            if environment is None
            else f"its own environment, Python {environment.python}"
        )
        for environment in environments_made
    ]
    revisions: list[Part] = [
        (
            _commit(revision)
            if (revision := record.arms[name].revision) is not None
            else "the files as the run used them"
        )
        for name in sides
    ]
    rows: list[tuple[Part, ...]] = [
        ("with", *arguments),
        ("code", *revisions),
        ("ran in", *environments),
    ]
    return [Table(("", *(record.scenario.arm(name) for name in sides)), tuple(rows))]


def _commit(revision: RevisionFacts) -> Foreign:
    patched = ", patched" if revision.patch else ""
    return Foreign(f"{revision.rev}, commit {revision.commit[:12]}{patched}")


def _revisions(record: Record) -> list[Block]:
    """Which commit each arm was laid out from, where one was."""
    if not any(arm.revision for arm in record.arms.values()):
        return []
    rows: list[tuple[Part, ...]] = []
    for name, arm in sorted(record.arms.items(), reverse=True):
        if name == "control" and record.scenario.called:
            continue  # b once more
        called = record.scenario.arm(name)
        if (revision := arm.revision) is None:
            rows.append(
                (
                    called,
                    Claim("the files as the run used them; see the commit above", (RUN,)),
                    "",
                    "",
                    "",
                )
            )
            continue
        patch: Part = "none"
        if revision.patch is not None:
            patch = Claim(
                Verbatim(f"sha256 {revision.patch[:12]}"),
                (Evidence(f"{PATCH_FOLDER}/{name}.patch"),),
            )
        repository = revision.repo or "the scenario's"
        place = Foreign(f"{repository}, {revision.folder}" if revision.folder else repository)
        commit = Claim(Text(Foreign(revision.rev), ": ", Verbatim(revision.commit[:12])), (RUN,))
        rows.append((called, commit, Verbatim(revision.tree[:12]), patch, place))
    return [Table(("arm", "revision", "tree", "patch", "repository, folder"), tuple(rows))]


def library_summaries(record: Record) -> list[Block]:
    """Return for each library how many modules differ, and the most changed ones."""
    return [
        block
        for library in record.libraries
        for block in _library_summary(library, record.scenario)
    ]


def library_diffs(record: Record) -> list[Block]:
    """Return the diffs of the modules that ranks loaded, and all that has no diff by name."""
    return [
        block
        for library in record.libraries
        for block in _library_details(library, record.scenario)
    ]


def _library_summary(library: LibraryChange, asked: ScenarioSummary) -> Iterator[Block]:
    releases = [
        f"{version or 'not installed'} in {asked.the(arm)}"
        for arm, version in library.versions.items()
    ]
    yield Heading(3, Foreign(f"{library.distribution}: {', '.join(releases)}"))
    yield Paragraph(Claim(Foreign(_counts(library, asked)), (RECORD,)))
    if library.untold:
        left = f"A rank's list of loaded files omits up to {plural(library.untold, 'file')}."
        yield Paragraph(Claim(left, (RECORD,)))
    differ = [module for module in library.modules if module.why != COMMENTS_ALONE]
    if len(differ) > IN_SHORT:
        yield Paragraph(f"These {IN_SHORT} files changed most; the appendix has their diffs:")
    if differ:
        rows = tuple(
            (
                Verbatim(module.file),
                Foreign(module.why or _changed_lines(module)),
                Foreign(_loaded_by(module, asked)),
            )
            for module in differ[:IN_SHORT]
        )
        yield Table(("file", "change", "loaded by"), rows)
    yield from _unloaded(library, IN_SHORT)


def _counts(library: LibraryChange, asked: ScenarioSummary) -> str:
    name = library.distribution
    count = len(library.modules) + library.alike
    if not count and asked.program:
        return f"The ranks are programs, which do not report which files they load from {name}."
    if not count:
        return f"No rank reported loading a file from {name}."
    comments = sum(module.why == COMMENTS_ALONE for module in library.modules)
    alone = sum(not all(module.digests.values()) for module in library.modules)
    parts = [
        _counted(library.alike, "is identical in both arms", "are identical in both arms"),
        _counted(len(library.modules) - comments - alone, "differs", "differ"),
        _counted(alone, "was loaded in only one arm", "were loaded in only one arm"),
        _counted(comments, COMMENTS_ALONE, "differ only in their leading comments"),
    ]
    said = list(filter(None, parts))
    loaded = f"Ranks loaded {plural(count, 'file')} from {name}"
    if len(said) > 1:
        return f"{loaded}: {joined(said)}."
    how = f"it {said[0].removeprefix('1 ')}" if count == 1 else f"all {said[0]}"
    return f"{loaded}; {how}."


def _counted(count: int, one: str, many: str) -> str:
    if not count:
        return ""
    return f"{count} {one if count == 1 else many}"


def _changed_lines(module: ModuleChange) -> str:
    return f"{plural(module.removed, 'line')} removed, {module.added} added"


def _loaded_by(module: ModuleChange, asked: ScenarioSummary) -> str:
    """Return which ranks of which arm reported that they loaded a module."""
    if not module.only and all(module.digests.values()):
        return "all ranks"
    ranks = []
    for arm, digests in module.digests.items():
        who = numbered("rank", module.only[arm]) if arm in module.only else "all ranks"
        ranks += [f"{who} of {asked.the(arm)}"] if digests else []
    return " and ".join(ranks)


def _unloaded(library: LibraryChange, most: int) -> Iterator[Block]:
    """Yield the names of the modules that differ and that no rank reported."""
    if library.unloaded is None and all(library.versions.values()):
        unknown = (
            f"Which other modules of {library.distribution} differ is unknown, because the evidence"
            " does not contain the RECORD of both releases."
        )
        yield Paragraph(Claim(Foreign(unknown), (RECORD,)))
    if not library.unloaded:
        return
    count = plural(len(library.unloaded), "other module")
    verb, them = ("differs", "it") if len(library.unloaded) == 1 else ("differ", "them")
    names: list[Part] = []
    for file in library.unloaded[:most]:
        names += [", " if names else "", Verbatim(file)]
    more = len(library.unloaded) - most
    rest = f" and {more} more." if more > 0 else "."
    words = f"{count} {verb} between the releases, but no rank reported loading {them}: "
    yield Paragraph(Claim(Text(words, *names, rest), (RECORD,)))


def _library_details(library: LibraryChange, asked: ScenarioSummary) -> Iterator[Block]:
    if library.modules or library.unloaded:
        yield Heading(2, Foreign(f"Diffs of {library.distribution}"))
    yield from (_diff(module, asked) for module in library.modules if module.lines)
    others = [module for module in library.modules if not module.lines]
    if others:
        rows = tuple(
            (
                Verbatim(module.file),
                Foreign(module.why or f"{module.more} lines; a report shows at most {RUN_LINES}"),
                Foreign(_loaded_by(module, asked)),
                *(_digests(module, arm) for arm in library.versions),
            )
            for module in others[:WITHOUT_DIFF]
        )
        arms = map(asked.arm, library.versions)
        yield Table(("file", "why the diff is omitted", "loaded by", *arms), rows)
    if len(others) > WITHOUT_DIFF:
        more = plural(len(others) - WITHOUT_DIFF, "more file")
        yield Paragraph(Claim(f"The record lists {more} without a diff.", (RECORD,)))
    if len(library.unloaded or ()) > IN_SHORT:
        yield from _unloaded(library, WITHOUT_DIFF)


def _diff(module: ModuleChange, asked: ScenarioSummary) -> Block:
    """Return the diff of a module, folded; its title says how much changed."""
    title = f"{module.file}: {_changed_lines(module)}"
    if module.more:
        verb = "is" if module.more == 1 else "are"
        title += f"; {plural(module.more, 'more line')} of the diff {verb} not shown"
    before, after = (
        Claim(f"{asked.the(arm)}'s source code", (Evidence(text_path(digest)),))
        for arm, digests in module.digests.items()
        for digest in digests
    )
    inner = (
        Paragraph(
            "Differences between ",
            before,
            " and ",
            after,
            Foreign(f". The file was loaded by {_loaded_by(module, asked)}."),
        ),
        Verbatim("\n".join(module.lines), "diff"),
    )
    return Details(Foreign(title), inner)


def _digests(module: ModuleChange, arm: str) -> Part:
    """Return what an arm loaded of a module, by sha256; with the text where it is kept."""
    if not (digests := module.digests[arm]):
        return "not reported"
    words = Verbatim(", ".join(digest[:12] for digest in digests))
    if module.why:
        return words
    return Claim(words, tuple(Evidence(text_path(digest)) for digest in digests))


def impact_section(record: Record) -> list[Block]:
    """Return what was measured in the worst cell, of each measurement the rank with the largest
    value; nothing where nothing was measured.
    """
    measured = worst_first(cell for cell in record.judgement.cells if cell.measured)
    if not measured:
        return []
    cell = measured[0]
    rows = [max(group, key=_median) for group in _by_id(cell.measured)]
    text = (
        f"{cell.id}, the rank with the largest value of {record.scenario.the('candidate')}; all"
        " ranks are in the appendix:"
    )
    table = _table(rows, _first_of(cell), record.scenario)
    return [Heading(2, "Measured impact"), Paragraph(Foreign(text)), table]


def impact_in_full(record: Record) -> list[Block]:
    """Return what was measured on every rank of each cell."""
    section: list[Block] = [Heading(2, "Measured on every rank")]
    measured = worst_first(cell for cell in record.judgement.cells if cell.measured)
    if not measured:
        return []
    for cell in measured:
        table = _table(cell.measured, _first_of(cell), record.scenario)
        section += [Heading(3, Foreign(cell.id)), table]
    section.append(
        Note(
            "Medians over the counted trials, with a 95% interval from order statistics. With"
            " fewer than six values, the interval is their range. Worlds ran one at a time. Memory"
            " is the growth of the rank's private memory since the subject began. A rank that did"
            " not reach the end of a measurement was not measured."
        )
    )
    return section


def _first_of(cell: CellVerdict) -> str:
    """Path of the events of the first trial of the candidate."""
    if cell.candidate is None or not cell.candidate.trials:
        return SCENARIO_PATH
    return cell.candidate.trials[0].evidence


def _table(rows: Sequence[Measured], evidence: str, asked: ScenarioSummary) -> Table:
    arms = [asked.arm(name) for name in ("candidate", "control")]
    header = ("measured", "rank", *arms, " / ".join(arms))
    return Table(
        header,
        tuple(_row(row, evidence) for row in rows),
        ("left", "right", "right", "right", "right"),
    )


def _by_id(rows: Sequence[Measured]) -> Iterator[list[Measured]]:
    for name in dict.fromkeys(row.id for row in rows):
        yield [row for row in rows if row.id == name]


def _median(row: Measured) -> float:
    return row.arms["candidate"].median if "candidate" in row.arms else 0.0


def _row(row: Measured, evidence: str) -> tuple[Part, ...]:
    candidate = row.arms.get("candidate")
    control = row.arms.get("control")
    ratio = (
        f"{candidate.median / control.median:.2f}"
        if candidate and control and control.median > 0
        else "-"
    )
    what = Foreign(f"{row.id}: {row.what}")
    return (
        what,
        str(row.rank),
        _spread(candidate, row.unit, evidence),
        _spread(control, row.unit, evidence),
        ratio,
    )


def _spread(summary: MeasuredSummary | None, unit: str, evidence: str) -> Part:
    if summary is None:
        return "not measured"
    low = quantity(summary.low, unit)
    high = quantity(summary.high, unit)
    return Claim(
        f"{quantity(summary.median, unit)} ({low} to {high}, n = {summary.count})",
        (Evidence(evidence),),
    )
