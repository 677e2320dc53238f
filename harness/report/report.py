"""The report: sections assembled from the record, nothing typed.

Every statement about this run is a claim with its evidence. The order of sections mirrors a reader's questions: what
was asked, what came out, can these checks fail at all, what was changed, where, and what is not shown.
"""

from __future__ import annotations

from harness.forms.text import plural
from harness.record import facts
from harness.record.facts import PATCH_FOLDER, SCENARIO_PATH, SOURCE_FOLDER
from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Record
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Evidence,
    Figure,
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
from harness.report.environment import environment_section
from harness.report.faults import faults_section
from harness.report.figures import GRID
from harness.report.impact import impact_section
from harness.report.limits import limits_section
from harness.report.markdown import render_markdown
from harness.report.reproduction import head_rows, reproduction_section
from harness.report.trials import control_section, ranks_section
from harness.report.words import answer, percent
from harness.stats.provenance import FOLDER as LOADED_FOLDER
from harness.stats.verdict import CellVerdict

RUN = Evidence(facts.PATH)
RECORD = Evidence(RECORD_PATH)
LINE_LIMIT = 160


def render(record: Record, *, manifest_digest: str) -> bytes:
    """Render the body of `report.md`.

    Args:
        record: the record.
        manifest_digest: sha256 of `MANIFEST.sha256`, 64 hex digits.
    """
    return render_markdown(blocks(record, manifest_digest=manifest_digest)).encode()


def blocks(record: Record, *, manifest_digest: str) -> list[Block]:
    """The report as blocks, for any renderer."""
    return [
        *_head(record),
        *_summary(record),
        *reproduction_section(record),
        *ranks_section(record),
        *control_section(record),
        *faults_section(record),
        *_changed(record),
        *impact_section(record),
        *environment_section(record),
        *limits_section(record),
        *_conclusion(record),
        *_evidence(record, manifest_digest),
        *_check_it(record),
    ]


def _head(record: Record) -> list[Block]:
    run, source = record.run, record.run.source
    commit: Part = Verbatim(source.commit[:12]) if source.commit else f"unknown ({source.why_unknown})"
    state = {True: "changed since", False: "clean", None: "unknown whether changed"}[source.dirty]
    tree: Part = Text(commit, f", {state}") if source.commit else commit
    rows: list[tuple[Part, ...]] = [
        ("verdict", Strong(record.judgement.verdict)),
        ("scenario", Text(Verbatim(record.scenario.id), ", role ", Verbatim(record.scenario.role))),
        ("scenario file, sha256", Claim(Verbatim(record.scenario.sha256), (Evidence(SCENARIO_PATH),))),
        ("report", Verbatim(run.id)),
        ("commit", Claim(tree, (RUN,))),
        ("root seed", Claim(Verbatim(record.scenario.seed), (Evidence(SCENARIO_PATH),))),
        ("rankproof", Verbatim(run.rankproof)),
    ]
    rows += head_rows(record)
    if record.scenario.use is not None:
        rows.append(
            ("subject", Claim(Text("ready subject ", Verbatim(record.scenario.use)), (Evidence(SCENARIO_PATH),)))
        )
    if record.scenario.of is not None:
        what = f"what is {record.scenario.of}, not the repository's code"
        rows.append(("subject is", Claim(what, (Evidence(SCENARIO_PATH),))))
    if run.overrides:
        rows.append(("set on the command line", Claim(Verbatim("  ".join(run.overrides)), (RUN,))))
    if run.challenge is not None:
        rows.append(("challenge", Claim(Verbatim(run.challenge), (RUN,))))
    if record.scenario.expects:
        met = "as expected" if record.judgement.as_expected else "NOT as expected"
        rows.append(("expected verdict", Text(Verbatim(record.scenario.expects), f": {met}")))
    return [
        Heading(1, Foreign(record.scenario.title)),
        Table(("this report", ""), tuple(rows)),
        Paragraph("Made: ", Verbatim(run.made)),
    ]


def _summary(record: Record) -> list[Block]:
    section: list[Block] = [
        Heading(2, "Summary"),
        Paragraph(Strong("Question."), " ", Foreign(record.scenario.question)),
        Paragraph(Strong("Answer."), " ", Claim(answer(record), (RECORD,))),
        Table(
            (
                "cell",
                "verdict",
                "candidate: failed / counted",
                f"failure rate below (asked: {percent(record.scenario.accept_rate)})",
                "control: as stated / counted",
                "p",
                "void",
            ),
            tuple(_cell_row(cell) for cell in record.judgement.cells),
            ("left", "left", "right", "right", "right", "right", "right"),
        ),
    ]
    if record.judgement.reasons:
        section += [
            Paragraph("Reasons:"),
            BulletList(tuple(Foreign(reason, LINE_LIMIT * 4) for reason in record.judgement.reasons)),
        ]
    section.append(Figure(GRID, "Every trial as a square: as it must be, not as it must be, or void."))
    section.append(
        Note(
            "The bound is the one-sided Clopper-Pearson upper bound at the scenario's confidence; p is Fisher's exact "
            "test, one-sided, control against candidate. A void trial is one that the harness itself spoiled, or whose "
            "fault has no proof; it is replaced and not counted."
        )
    )
    return section


def _cell_row(cell: CellVerdict) -> tuple[Part, ...]:
    if cell.candidate is None:
        return Foreign(cell.id), Strong(cell.verdict), "-", "-", "-", "-", "-"
    candidate, control = cell.candidate, cell.control
    first = candidate.trials[0].evidence if candidate.trials else facts.PATH
    counted: Part = Claim(f"{candidate.failed} / {candidate.counted}", (Evidence(first),))
    bound = percent(candidate.upper)
    if candidate.voids:
        bound += f" ({percent(candidate.upper_with_voids)} if void trials had failed)"
    stated: Part = "no control"
    p_value = "-"
    if control is not None and control.trials:
        stated = Claim(f"{control.as_stated} / {control.counted}", (Evidence(control.trials[0].evidence),))
        p_value = f"{control.p_value:.2g}" if control.p_value is not None else "-"
    voids = candidate.voids + (control.voids if control else 0)
    return Foreign(cell.id), Strong(cell.verdict), counted, bound, stated, p_value, str(voids)


def _changed(record: Record) -> list[Block]:
    section: list[Block] = [Heading(2, "What changed")]
    if "control" not in record.arms:
        return [*section, Paragraph("The scenario has no control to compare the candidate with.")]
    folders = tuple(
        Evidence(f"{SOURCE_FOLDER}/{arm}/{file}") for arm in record.arms for file in _entry_file(record, arm)
    )
    section += _revisions(record)
    if not record.changed:
        return [
            *section,
            Paragraph(Claim("The two arms are the same code with the same arguments.", folders or (RUN,))),
        ]
    return [
        *section,
        Paragraph(Claim("From the control to the candidate:", folders or (RUN,))),
        Verbatim("\n".join(record.changed), "diff"),
    ]


def _revisions(record: Record) -> list[Block]:
    """Which commit each arm was laid out from, where one was."""
    if not any(arm.revision for arm in record.arms.values()):
        return []
    rows: list[tuple[Part, ...]] = []
    for name, arm in sorted(record.arms.items(), reverse=True):
        if (revision := arm.revision) is None:
            rows.append((name, Claim("the files as they stood, see the commit above", (RUN,)), "", "", ""))
            continue
        patch: Part = "none"
        if revision.patch is not None:
            patch = Claim(Verbatim(f"sha256 {revision.patch[:12]}"), (Evidence(f"{PATCH_FOLDER}/{name}.patch"),))
        place = Foreign(
            f"{revision.repo or 'the scenario' + chr(39) + 's'}{', ' + revision.folder if revision.folder else ''}"
        )
        commit = Claim(Text(Foreign(revision.rev), ": ", Verbatim(revision.commit)), (RUN,))
        rows.append((name, commit, Verbatim(revision.tree[:12]), patch, place))
    return [Table(("arm", "revision", "tree", "patch", "repository, folder"), tuple(rows))]


def _entry_file(record: Record, arm: str) -> list[str]:
    if record.scenario.program:
        return [word for word in record.scenario.program if word in record.arms[arm].files]
    module = record.scenario.entry.partition(":")[0].replace(".", "/")
    return [file for file in (f"{module}.py", f"{module}/__init__.py") if file in record.arms[arm].files]


def _conclusion(record: Record) -> list[Block]:
    return [Heading(2, "Conclusion"), Paragraph(Claim(answer(record), (RECORD,)))]


def _evidence(record: Record, manifest_digest: str) -> list[Block]:
    trials = sum(len(tally.trials) for cell in record.judgement.cells for tally in cell.arms.values())
    rows: tuple[tuple[Part, ...], ...] = (
        (Claim("the scenario, byte for byte", (Evidence(SCENARIO_PATH),)), "what was asked"),
        (Claim("the facts of the run", (RUN,)), "when, where, with what"),
        (Claim("the record", (Evidence("results.json"),)), "every number above"),
        (Verbatim(f"{SOURCE_FOLDER}/"), "the code of each arm, as it ran"),
        (Verbatim("evidence/<cell>/<arm>-<trial>/"), f"events, logs and stacks of {plural(trials, 'trial')}"),
    )
    if any(cell.ran is not None and cell.ran.lists for cell in record.judgement.cells):
        rows += ((Verbatim(f"{LOADED_FOLDER}/"), "which packages and files beside that ranks had loaded"),)
    return [
        Heading(2, "Evidence"),
        Table(("file", "what it holds"), rows),
        # The verifier looks for exactly this line.
        Paragraph("Manifest: ", Verbatim("MANIFEST.sha256"), " sha256 ", Verbatim(manifest_digest)),
    ]


def _check_it(record: Record) -> list[Block]:
    lines = [
        "rankproof verify report.md --signer SHA256:...   # the fingerprint its maker gave you",
        "sha256sum --quiet -c MANIFEST.sha256",
    ]
    place = record.run.source.scenario or f"the folder of {record.scenario.id}"
    again = ["rankproof", "run", place, *(f"--set {given}" for given in record.run.overrides)]
    return [
        Heading(2, "Check it yourself"),
        Verbatim("\n".join(lines), "sh"),
        Paragraph("Run it again at the same commit: ", Verbatim(" ".join(again))),
    ]
