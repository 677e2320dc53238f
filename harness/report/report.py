"""The report: sections assembled from the record, nothing typed.

Every statement about this run is a claim with its evidence. The first screen answers; then there is
one table per cell, and what a sceptic asks next. The rest is in the appendix.
"""

from __future__ import annotations

import shlex

from harness.forms.digest import sha256
from harness.record.model import Record
from harness.report import appendix
from harness.report.blocks import Block, Heading, Paragraph, Verbatim
from harness.report.changed import changed_section, impact_section
from harness.report.environment import environment_section
from harness.report.limits import limits_section
from harness.report.markdown import render_markdown
from harness.report.reproduction import reproduction_section
from harness.report.services import services_section
from harness.report.summary import summary
from harness.report.trials import control_section, faults_section, results_section


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
        *results_section(record),
        *services_section(record),
        *control_section(record),
        *faults_section(record),
        *changed_section(record),
        *impact_section(record),
        *environment_section(record),
        *limits_section(record),
        *_check_it(record, manifest_digest),
    ]


def _check_it(record: Record, manifest_digest: str) -> list[Block]:
    """What this report is bound to, and how to check it."""
    appended = sha256(appendix.render_appendix(record))
    key = record.run.signer.key if record.run.signer is not None else "SHA256:..."
    lines = [
        f"rankproof verify report.md --signer {key}   # if its maker gave you this fingerprint",
        "sha256sum --quiet -c MANIFEST.sha256",
    ]
    place = record.run.source.place
    if place is not None:
        given = [f"--set {shlex.quote(one)}" for one in record.run.overrides]
        again = " ".join(["rankproof", "run", shlex.quote(place), *given])
        lines.append(f"{again}   # at the same commit")
    return [
        Heading(2, "Check it yourself"),
        Paragraph("Appendix: ", Verbatim(appendix.PATH), " sha256 ", Verbatim(appended)),
        # The verifier looks for exactly this line.
        Paragraph("Manifest: ", Verbatim("MANIFEST.sha256"), " sha256 ", Verbatim(manifest_digest)),
        Verbatim("\n".join(lines), "sh"),
    ]
