"""The appendix of a report: trials rank by rank, full diffs, measurements, environment, files.

It is a file of the evidence like a figure: the manifest lists it, the report states its sha256, and
a verifier renders it again from the record (docs/adr/0163).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from harness.forms.text import plural
from harness.record import facts
from harness.record.facts import SCENARIO_PATH, SOURCE_FOLDER
from harness.record.libraries import FOLDER as LIBRARY_FOLDER
from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Record, ScenarioSummary
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Evidence,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Table,
    Verbatim,
)
from harness.report.changed import changes_in_full, impact_in_full, library_diffs
from harness.report.environment import environment_in_full
from harness.report.figures import FOLDER as FIGURES
from harness.report.figures import figures
from harness.report.limits import tracebacks
from harness.report.markdown import render_markdown
from harness.report.reproduction import reproduction_in_full
from harness.report.shown_trial import (
    DIGEST_SHOWN,
    attribution,
    life_section,
    printed_section,
    standing_section,
    trial_table,
)
from harness.report.summary import NOTICES_SHOWN
from harness.report.trials import durations, failures, how_control_failed, shows_candidate
from harness.report.words import worst_first
from harness.stats.outcome import Arm
from harness.stats.provenance import FOLDER as LOADED_FOLDER
from harness.stats.verdict import CellVerdict

PATH = "appendix.md"


def evidence_among(names: Iterable[str]) -> list[str]:
    """Names of the files that a record is made from: not those that are made from the record."""
    made = (RECORD_PATH, PATH)
    return [name for name in names if name not in made and not name.startswith(f"{FIGURES}/")]


def files_of(record: Record, read: Callable[[str], bytes]) -> dict[str, bytes]:
    """Make every file beside the record that the manifest lists and that is made from the record.

    Args:
        record: the record.
        read: gives the bytes of an evidence file by its path.

    Returns:
        Path in the results folder to content.
    """
    return {**figures(record, read), PATH: render_appendix(record)}


def render_appendix(record: Record) -> bytes:
    """Render `appendix.md`, a pure function of the record."""
    title = Heading(1, Foreign(f"Appendix: {record.scenario.title}"))
    text = Paragraph(
        "This file belongs to ",
        Verbatim("report.md"),
        ", which states the verdict and the sha256 of this file.",
    )
    return render_markdown([title, text, *appendix_blocks(record)]).encode()


def appendix_blocks(record: Record) -> list[Block]:
    """Appendix as blocks below its title, for any renderer."""
    return [
        *reproduction_in_full(record),
        *_trials(record),
        *changes_in_full(record),
        *library_diffs(record),
        *impact_in_full(record),
        *environment_in_full(record),
        *_notices(record),
        *tracebacks(record),
        *_evidence(record),
        *_numbers(record),
    ]


def _trials(record: Record) -> list[Block]:
    """The shown trial of each arm, cell by cell, rank by rank."""
    blocks: list[Block] = [Heading(2, "Trials, rank by rank")]
    for position, cell in enumerate(worst_first(record.judgement.cells)):
        for arm in cell.arms:
            if arm in cell.samples:
                # What the report shows of its first cell is not repeated here.
                blocks += _trial(cell, arm, record.scenario, is_first=position == 0)
        blocks += durations(cell, record.scenario)
    return [*blocks, *_references(record)]


def _trial(
    cell: CellVerdict, arm: Arm, asked: ScenarioSummary, *, is_first: bool
) -> Iterator[Block]:
    sample = cell.samples[arm]
    tally = cell.arms[arm]
    yield Heading(3, Foreign(f"{cell.id}, {asked.arm(arm)} {sample.index}: {sample.outcome}"))
    yield trial_table(sample, cell)
    yield from life_section(cell, arm)
    if arm == "candidate":
        yield from failures(tally, asked)
    if is_first and (arm == "candidate") == shows_candidate(cell):
        return  # the report shows it
    if arm == "control":
        yield from how_control_failed(cell, tally, asked)
        return
    yield from attribution(cell, arm, asked)
    yield from standing_section(cell, arm, asked)
    yield from printed_section(sample, tally.trials[sample.index])


def _references(record: Record) -> list[Block]:
    """What the ranks were compared with: what it reported and kept, and how long each run of it
    took. Cells may share one.
    """
    references = {
        tuple(cell.reference.evidence): cell.reference
        for cell in record.judgement.cells
        if cell.reference is not None
    }
    if not references:
        return []
    is_a = bool(record.scenario.called)
    blocks: list[Block] = [Heading(2, "Runs of arm a" if is_a else "Runs of the reference")]
    for paths, reference in references.items():
        cells = [cell.id for cell in record.judgement.cells if cell.reference == reference]
        blocks.append(Heading(3, Foreign(f"Compared with {'; '.join(cells)}")))
        runs: list[Part] = ["The runs took "]
        for place, (path, ms) in enumerate(zip(paths, reference.ms, strict=True)):
            before = " and " if place == len(paths) - 1 else ", "
            runs += [before if place else "", Claim(f"{ms / 1000:.2f} s", (Evidence(path),))]
        rows: list[tuple[Part, ...]] = [
            (Verbatim(name), Foreign(value)) for name, value in reference.reported.items()
        ]
        rows += [
            (
                Verbatim(array.name),
                Foreign(f"{array.dtype} {array.shape}, sha256 {array.sha256[:DIGEST_SHOWN]}"),
            )
            for array in reference.arrays
        ]
        blocks.append(Paragraph(*runs, "."))
        if rows:
            blocks.append(Table(("reported or saved by rank 0", "value"), tuple(rows)))
    return blocks


def _notices(record: Record) -> list[Block]:
    """What stood out, where it is more than the first screen has."""
    notices = record.judgement.notices[NOTICES_SHOWN:]
    items = tuple(
        Claim(
            Foreign(f"{notice.text} ({plural(notice.trials, 'trial')})"),
            (Evidence(notice.path, notice.line),),
        )
        for notice in notices
    )
    return [Heading(2, "More notices"), BulletList(items)] if items else []


def _evidence(record: Record) -> list[Block]:
    trials = sum(
        len(tally.trials) for cell in record.judgement.cells for tally in cell.arms.values()
    )
    names = ", ".join(f"{word} as {name}" for name, word in record.scenario.called.items())
    named = f" ({names})" if names else ""
    rows: list[tuple[Part, ...]] = [
        (Claim("the scenario", (Evidence(SCENARIO_PATH),)), "the scenario file, byte for byte"),
        (
            Claim("facts about the run", (Evidence(facts.PATH),)),
            "time, machine, software and options of the run",
        ),
        (Verbatim("results.json"), "every number in the report"),
        (Verbatim(f"{SOURCE_FOLDER}/"), f"the code of each arm, as it ran{named}"),
        (
            Verbatim("evidence/<cell>/<arm>-<trial>/"),
            f"events, logs and stacks of {plural(trials, 'trial')}",
        ),
    ]
    if any(cell.ran is not None and cell.ran.lists for cell in record.judgement.cells):
        rows.append((Verbatim(f"{LOADED_FOLDER}/"), "other packages and files that ranks loaded"))
    if any(
        library.unloaded is not None or any(module.lines for module in library.modules)
        for library in record.libraries
    ):
        rows.append(
            (
                Verbatim(f"{LIBRARY_FOLDER}/"),
                (
                    "library modules that differ between the arms, and the RECORD files of these"
                    " libraries, named by their sha256"
                ),
            )
        )
    return [Heading(2, "Evidence files"), Table(("file", "content"), tuple(rows))]


def _numbers(record: Record) -> list[Block]:
    """How the numbers of the report are made."""
    arms = [record.scenario.arm(name) for name in ("candidate", "control")]
    notes = [
        (
            "The bound on a failure rate is the one-sided Clopper-Pearson upper bound at the"
            " scenario's confidence. The p-value comes from Fisher's exact test, one-sided,"
            f" {arms[1]} against {arms[0]}. A trial is void if the harness itself disturbed it, or"
            " if the events do not show that its fault took effect. Void trials are not counted; up"
            " to max_voids of them are replaced."
        )
    ]
    if record.scenario.faults:
        notes.append(
            "A fault counts only if events show that it took effect. Faults inside a rank are"
            " reported by the rank itself, and all other faults by the process that injects them."
        )
    if record.scenario.faults and not record.scenario.called:
        notes.append(
            "Without this proof, a trial of the candidate is void if its checks pass, and counts as"
            " failed if a check fails. A trial of the control without this proof counts only if it"
            " failed before the fault could take effect, or while the fault was still active."
        )
    return [Heading(2, "How the numbers are computed"), *map(Note, notes)]
