"""The report: sections assembled from the record, nothing typed.

Every statement about this run is a claim with its evidence. The order of sections mirrors a
reader's questions: what was asked, what came out, can these checks fail at all, what was changed,
where, and what is not shown.
"""

from __future__ import annotations

from harness.forms.text import plural
from harness.record import facts
from harness.record.facts import SCENARIO_PATH, SOURCE_FOLDER
from harness.record.libraries import FOLDER as LIBRARY_FOLDER
from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Record
from harness.record.reproduced import GROUPS, REPRODUCED_PATH, RunComparison, is_shown
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Details,
    Evidence,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Strong,
    Table,
    Text,
    Verbatim,
)
from harness.report.changed import changed_section, impact_section
from harness.report.environment import environment_section
from harness.report.limits import limits_section
from harness.report.markdown import render_markdown
from harness.report.summary import scenario_in_words, summary
from harness.report.trials import control_section, faults_section, ranks_section
from harness.report.words import answer
from harness.stats.provenance import FOLDER as LOADED_FOLDER
from harness.stats.reproduction import CellAnswer

RUN = Evidence(facts.PATH)
RECORD = Evidence(RECORD_PATH)


def render(record: Record, *, manifest_digest: str) -> bytes:
    """Render the body of `report.md`.

    Args:
        record: the record.
        manifest_digest: sha256 of `MANIFEST.sha256`, 64 hex digits.
    """
    return render_markdown(report_blocks(record, manifest_digest=manifest_digest)).encode()


def report_blocks(record: Record, *, manifest_digest: str) -> list[Block]:
    """Report as blocks, for any renderer."""
    return [
        *summary(record),
        *reproduction_section(record),
        *ranks_section(record),
        *control_section(record),
        *faults_section(record),
        *changed_section(record),
        *impact_section(record),
        *environment_section(record),
        *limits_section(record),
        *_conclusion(record),
        *_identity(record),
        *_evidence(record, manifest_digest),
        *_check_it(record),
    ]


def _conclusion(record: Record) -> list[Block]:
    return [Heading(2, "Conclusion"), Paragraph(Claim(answer(record), (RECORD,)))]


def _identity(record: Record) -> list[Block]:
    return [
        Heading(2, "This report"),
        Table(("what", "this report"), tuple(scenario_in_words(record))),
    ]


def _evidence(record: Record, manifest_digest: str) -> list[Block]:
    trials = sum(
        len(tally.trials) for cell in record.judgement.cells for tally in cell.arms.values()
    )
    said = ", ".join(f"{word} as {name}" for name, word in record.scenario.called.items())
    named = f" ({said})" if said else ""
    rows: tuple[tuple[Part, ...], ...] = (
        (Claim("the scenario, byte for byte", (Evidence(SCENARIO_PATH),)), "what was asked"),
        (Claim("the facts of the run", (RUN,)), "when, where, with what"),
        (Claim("the record", (Evidence("results.json"),)), "every number above"),
        (Verbatim(f"{SOURCE_FOLDER}/"), f"the code of each arm, as it ran{named}"),
        (
            Verbatim("evidence/<cell>/<arm>-<trial>/"),
            f"events, logs and stacks of {plural(trials, 'trial')}",
        ),
    )
    if any(cell.ran is not None and cell.ran.lists for cell in record.judgement.cells):
        rows += (
            (
                Verbatim(f"{LOADED_FOLDER}/"),
                "which packages and files beside that ranks had loaded",
            ),
        )
    if any(
        library.unloaded is not None or any(module.lines for module in library.modules)
        for library in record.libraries
    ):
        rows += (
            (
                Verbatim(f"{LIBRARY_FOLDER}/"),
                "modules and RECORDs of libraries that differ between the arms, by sha256",
            ),
        )
    return [
        Heading(2, "Evidence"),
        Table(("file", "what it holds"), rows),
        # The verifier looks for exactly this line.
        Paragraph("Manifest: ", Verbatim("MANIFEST.sha256"), " sha256 ", Verbatim(manifest_digest)),
    ]


def _check_it(record: Record) -> list[Block]:
    key = record.run.signer.key if record.run.signer is not None else "SHA256:..."
    lines = [
        (
            f"rankproof verify report.md --signer {key}   # if that is the fingerprint its maker"
            " gave you"
        ),
        "sha256sum --quiet -c MANIFEST.sha256",
    ]
    place = record.run.source.scenario or f"the folder of {record.scenario.id}"
    again = ["rankproof", "run", place, *(f"--set {given}" for given in record.run.overrides)]
    return [
        Heading(2, "Check it yourself"),
        Verbatim("\n".join(lines), "sh"),
        Paragraph("Run it again at the same commit: ", Verbatim(" ".join(again))),
    ]


REPRODUCED = Evidence(REPRODUCED_PATH)
ROWS = 60


def reproduction_section(record: Record) -> list[Block]:
    """Return the section; nothing for a run that reproduces no other."""
    comparison = record.comparison
    reproduces = record.run.reproduces
    if comparison is None or reproduces is None:
        return []
    blocks: list[Block] = [
        Heading(2, "Reproduction"),
        Table(
            ("what", ""),
            (
                ("answer", Strong(comparison.result.answer)),
                (
                    "report",
                    Claim(
                        Text(Verbatim(comparison.id), ", made ", Foreign(comparison.made)),
                        (REPRODUCED,),
                    ),
                ),
                ("its signature", Claim(Foreign(comparison.signed), (REPRODUCED,))),
                ("its verdict", Claim(comparison.verdict, (REPRODUCED,))),
                ("source", Claim(Foreign(reproduces.source), (RUN,))),
                (
                    "candidate",
                    Claim(
                        Foreign(reproduces.candidate or "that of the report, file by file"), (RUN,)
                    ),
                ),
                *_varied_rows(record),
            ),
        ),
        Table(
            ("cell", "answer", "same verdict?", "same failure?", "same numbers?"),
            tuple(_cell_row(cell) for cell in comparison.result.cells),
        ),
    ]
    reasons = [
        Foreign(f"{cell.id}: {reason}", 640)
        for cell in comparison.result.cells
        for reason in cell.reasons
    ]
    reasons += [
        Foreign(
            f"{cell.id}: {plural(cell.more_trials, 'more trial')} would settle it, if they go on as"
            " here"
        )
        for cell in comparison.result.cells
        if cell.more_trials
    ]
    if reasons:
        blocks += [Paragraph("Reasons:"), BulletList(tuple(reasons))]
    for cell in comparison.result.cells:
        if cell.arms:
            blocks.append(
                Details(
                    Foreign(f"{cell.id}: failures and numbers, then and here"),
                    tuple(_details(cell)),
                )
            )
    blocks += _differences(comparison)
    blocks.append(
        Note(
            "The same failure is the same cause (error, function, source line, ranks), the same"
            " checks and the same state of every fault; consequences, pids, times and folders are"
            " left out. The counts are kept apart by Fisher's exact test, two-sided, at 5 % over"
            " all cells together. Numbers are compared between trials of one seed and one outcome,"
            " at the level that the check declares; they do not decide the answer."
        )
    )
    return blocks


def _varied_rows(record: Record) -> list[tuple[Part, ...]]:
    """Return what a second pass changes on purpose, and whether its facts show it."""
    varied = record.run.reproduces.varied if record.run.reproduces is not None else None
    if varied is None:
        return []
    before, after = (
        "not there" if value is None else value for value in (varied.before, varied.after)
    )
    change = Foreign(f"{varied.what}: {after} instead of {before}", 300)
    return [
        ("changed on purpose", Claim(change, (RUN,))),
        ("the change took effect", Claim("yes" if is_shown(varied, record.run) else "NO", (RUN,))),
        ("the pass without it", Claim(Verbatim(varied.beside), (RUN,))),
    ]


def _cell_row(cell: CellAnswer) -> tuple[Part, ...]:
    verdict = f"{'yes' if cell.same_verdict else 'no'}: {cell.then} then, {cell.now} here"
    return (
        Foreign(cell.id),
        Strong(cell.answer),
        Claim(verdict, (REPRODUCED, RUN)),
        Claim(cell.same_failure, (REPRODUCED,)),
        Claim(cell.same_numbers, (REPRODUCED,)),
    )


def _details(cell: CellAnswer) -> list[Block]:
    rows: list[tuple[Part, ...]] = []
    for arm in cell.arms:
        counts = (
            f"{arm.failed_then} of {arm.counted_then}",
            f"{arm.failed_now} of {arm.counted_now}",
        )
        rows.append((arm.arm, "failed", counts[0], counts[1], f"{arm.p_value:.2g}"))
        for failure in sorted(arm.failures_then.keys() | arm.failures_now.keys())[:ROWS]:
            then = arm.failures_then.get(failure, 0)
            now = arm.failures_now.get(failure, 0)
            rows.append((arm.arm, Foreign(failure, 300), str(then), str(now), ""))
    blocks: list[Block] = [
        Table(("arm", "failure", "trials then", "trials here", "p"), tuple(rows))
    ]
    if cell.numbers:
        numbers = tuple(
            (
                row.arm,
                Verbatim(row.check),
                row.level,
                f"{row.same} of {row.compared}" if row.compared else "not compared",
            )
            for row in cell.numbers
        )
        blocks.append(
            Table(("arm", "check", "level", "same, of trials with the same seed"), numbers)
        )
    return blocks


def _differences(comparison: RunComparison) -> list[Block]:
    same = (
        f"{comparison.packages_same} of {plural(comparison.packages_all, 'package')} are the same"
        " file by file"
    )
    known = (
        f"Same environment by construction: {comparison.environment}"
        if comparison.environment
        else "Nothing makes the environments the same by construction"
    )
    blocks: list[Block] = [Paragraph(Claim(Foreign(f"{known}; {same}."), (REPRODUCED, RUN)))]
    for group in GROUPS:
        rows: list[tuple[Part, ...]] = [
            (Foreign(difference.what), Foreign(difference.then, 200), Foreign(difference.now, 200))
            for difference in comparison.differences
            if difference.group == group
        ]
        if not rows:
            verb = "is " if group == "known to matter" else ""
            blocks.append(Paragraph(Claim(f"No difference that {verb}{group}.", (REPRODUCED, RUN))))
        elif group == "rarely matters":
            table = Table(("what", "then", "here"), tuple(rows[:ROWS]))
            blocks.append(
                Details(f"{plural(len(rows), 'difference')} that rarely matter", (table,))
            )
        else:
            blocks += [
                Paragraph(f"Differences ({group}):"),
                Table(("what", "then", "here"), tuple(rows[:ROWS])),
            ]
    return blocks
