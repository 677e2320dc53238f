"""Libraries that the arms have in different releases: which modules differ, and their diffs."""

from __future__ import annotations

from collections.abc import Iterator

from harness.forms.text import numbered, plural
from harness.record.changed import COMMENTS_ALONE
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
    Paragraph,
    Part,
    Table,
    Text,
    Verbatim,
)

RECORD = Evidence(RECORD_PATH)
IN_SHORT = 10
"""Modules that a summary lists, and modules that it names because no rank loaded them."""
WITHOUT_DIFF = 50
"""Modules that are named without a diff; the record holds all of them."""


def library_summaries(record: Record) -> list[Block]:
    """Return for each library how many modules differ, and the most changed ones."""
    return [block for library in record.libraries for block in _summary(library, record.scenario)]


def library_diffs(record: Record) -> list[Block]:
    """Return the diffs of the modules that ranks loaded, and all that has no diff by name."""
    return [block for library in record.libraries for block in _details(library, record.scenario)]


def _summary(library: LibraryChange, asked: ScenarioSummary) -> Iterator[Block]:
    releases = [
        f"{version or 'not installed'} in {asked.the(arm)}"
        for arm, version in library.versions.items()
    ]
    yield Heading(3, Foreign(f"{library.distribution}: {', '.join(releases)}"))
    yield Paragraph(Claim(Foreign(_counts(library, asked)), (RECORD,)))
    if library.untold:
        left = f"A rank's list of loaded files leaves out up to {plural(library.untold, 'file')}."
        yield Paragraph(Claim(left, (RECORD,)))
    differ = [module for module in library.modules if module.why != COMMENTS_ALONE]
    if len(differ) > IN_SHORT:
        yield Paragraph(f"These {IN_SHORT} files changed most; the appendix has all diffs:")
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
        return f"The ranks are programs, which do not report the files of {name} that they load."
    if not count:
        return f"No rank reported that it loaded a file of {name}."
    comments = sum(module.why == COMMENTS_ALONE for module in library.modules)
    alone = sum(not all(module.digests.values()) for module in library.modules)
    parts = [
        _counted(library.alike, "is identical in both arms", "are identical in both arms"),
        _counted(len(library.modules) - comments - alone, "differs", "differ"),
        _counted(alone, "was loaded in one arm", "were loaded in one arm"),
        _counted(
            comments, COMMENTS_ALONE, "differ only in the comments before their first statements"
        ),
    ]
    return f"Ranks loaded {plural(count, 'file')} of {name}: {', '.join(filter(None, parts))}."


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}" if count else ""


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
    verb = "differs" if len(library.unloaded) == 1 else "differ"
    names: list[Part] = []
    for file in library.unloaded[:most]:
        names += [", " if names else "", Verbatim(file)]
    more = len(library.unloaded) - most
    rest = f" and {more} more." if more > 0 else "."
    words = f"No rank reported loading {count} that {verb} between the releases: "
    yield Paragraph(Claim(Text(words, *names, rest), (RECORD,)))


def _details(library: LibraryChange, asked: ScenarioSummary) -> Iterator[Block]:
    if library.modules or library.unloaded:
        yield Heading(2, Foreign(f"Diffs of {library.distribution}"))
    yield from (_diff(module, asked) for module in library.modules if module.lines)
    others = [module for module in library.modules if not module.lines]
    if others:
        rows = tuple(
            (
                Verbatim(module.file),
                Foreign(module.why or f"{module.more} lines, beyond the {RUN_LINES} of a report"),
                Foreign(_loaded_by(module, asked)),
                *(_digests(module, arm) for arm in library.versions),
            )
            for module in others[:WITHOUT_DIFF]
        )
        arms = map(asked.arm, library.versions)
        yield Table(("file", "diff left out because", "loaded by", *arms), rows)
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
        Claim(f"{asked.the(arm)}'s text", (Evidence(text_path(digest)),))
        for arm, digests in module.digests.items()
        for digest in digests
    )
    inner = (
        Paragraph(
            "From ", before, " to ", after, Foreign(f", loaded by {_loaded_by(module, asked)}.")
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
