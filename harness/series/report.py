"""What the reports of all series have in common: how they begin, what their evidence is, how to
check it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness.record.model import PATH
from harness.report.blocks import (
    Block,
    BulletList,
    Evidence,
    Heading,
    Paragraph,
    Part,
    Table,
    Verbatim,
)
from harness.report.markdown import render_markdown
from harness.series.series import SeriesFacts

RECORD = Evidence(PATH)


def document(
    facts: SeriesFacts,
    body: Iterable[Block],
    *,
    title: str,
    answer: Paragraph,
    files: Sequence[tuple[Part, ...]],
    manifest_digest: str,
) -> bytes:
    """Render the body of `report.md`: the answer first, the evidence last.

    Args:
        facts: of the series.
        body: what stands between.
        title: of the report.
        answer: what came out.
        files: files of the evidence, each with what it holds.
        manifest_digest: sha256 of the manifest, 64 hex digits.
    """
    key = facts.signer.key if facts.signer is not None else "SHA256:..."
    blocks: list[Block] = [
        Heading(1, title),
        answer,
        # The verifier reads the time from exactly this line.
        Paragraph("Made: ", Verbatim(facts.made)),
        *body,
        Heading(2, "Evidence"),
        Table(("file", "what it holds"), tuple(files)),
        # The verifier looks for exactly this line.
        Paragraph("Manifest: ", Verbatim("MANIFEST.sha256"), " sha256 ", Verbatim(manifest_digest)),
        Heading(2, "Check it yourself"),
        Verbatim(
            f"rankproof verify report.md --signer {key}\nsha256sum --quiet -c MANIFEST.sha256", "sh"
        ),
    ]
    return render_markdown(blocks).encode()


def section(title: str, items: Sequence[Part], nothing: str = "Nothing.") -> Iterator[Block]:
    """A heading and a list; without items a sentence."""
    yield Heading(2, title)
    yield BulletList(tuple(items)) if items else Paragraph(nothing)
