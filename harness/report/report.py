"""The report: sections assembled from the record, nothing typed.

Every statement about this run is a claim with its evidence. The order of sections mirrors a
reader's questions: what was asked, what came out, can these checks fail at all, what was changed,
where, and what is not shown.
"""

from __future__ import annotations

from harness.forms.text import plural
from harness.record import facts
from harness.record.changed import FOLDER as LIBRARY_FOLDER
from harness.record.facts import SCENARIO_PATH, SOURCE_FOLDER
from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Record
from harness.report.blocks import (
    Block,
    Claim,
    Evidence,
    Heading,
    Paragraph,
    Part,
    Table,
    Verbatim,
)
from harness.report.changed import changed_section, impact_section
from harness.report.environment import environment_section
from harness.report.limits import limits_section
from harness.report.markdown import render_markdown
from harness.report.reproduction import reproduction_section
from harness.report.summary import scenario_in_words, summary
from harness.report.trials import control_section, faults_section, ranks_section
from harness.report.words import answer
from harness.stats.provenance import FOLDER as LOADED_FOLDER

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
    if any(module.lines for library in record.libraries for module in library.modules):
        rows += (
            (
                Verbatim(f"{LIBRARY_FOLDER}/"),
                "modules of libraries that differ between the arms, by sha256",
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
