"""Writes docs/findings/README.md from the bundles beside it.

Run `python docs/findings.py` after a bundle was added. `tests/docs` fails where the page is not
what this writes.
"""

from __future__ import annotations

import sys
import tarfile
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "findings"
SUFFIX = ".rankproof.tar.xz"
WIDTH = 120
HEAD = """\
# Findings in released libraries

Each row is a defect of a released library. Its bundle contains a signed run that shows both the defect and the right
behaviour, the code of the ranks, and a short script that needs only the library. Each report names the
versions that its run used; the other versions in the table are the author's statement and are not in the evidence.
Findings do not count for releases of Rankproof. `docs/findings.py` writes this page from the bundles.

To check a finding, to print it for an issue tracker, or to run it again:

    rankproof verify docs/findings/stop-string.rankproof.tar.xz --allowed-signers docs/findings/allowed_signers
    rankproof show --issue docs/findings/stop-string.rankproof.tar.xz --allowed-signers docs/findings/allowed_signers
    rankproof reproduce docs/findings/stop-string.rankproof.tar.xz --allowed-signers docs/findings/allowed_signers

`nox -s findings` runs each script on the newest release of its library. `allowed_signers` lists the key that signed the
bundles. When the wording of reports changed, the reports were rendered again from the same evidence and signed with
this key. [not-reproduced.md](not-reproduced.md) lists suspected defects that could not be shown.
"""
KINDS = (
    ("Defects without a known fixed release", "DEFECT", False),
    ("Defects with a known fixed release", "DEFECT", True),
    ("Behaviour that is not specified", "DIFFERS", False),
    ("Behaviour that is not specified, and that another release changed", "DIFFERS", True),
)


@dataclass(frozen=True)
class Bundle:
    """A bundle's finding."""

    name: str
    finding: FindingRecord
    title: str


def bundles(folder: Path = FOLDER) -> list[Bundle]:
    """Read the finding of every bundle."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with tarfile.open(path) as archive:
            file = archive.extractfile("run/results.json")
            assert file is not None
            record = Record.decode(file.read())
        if record.finding is None:
            raise SystemExit(f"{path.name}: its scenario states no finding")
        if record.word != "SHOWN":
            raise SystemExit(f"{path.name}: its finding is {record.word}")
        name = path.name.removesuffix(SUFFIX)
        found.append(Bundle(name, record.finding, record.scenario.title))
    return sorted(found, key=lambda one: (one.finding.stated.library, one.finding.stated.harm))


def page(found: Iterable[Bundle] | None = None) -> str:
    """Write the page."""
    listed = bundles() if found is None else list(found)
    parts = [HEAD]
    defects = [one for one in listed if one.finding.stated.label == "DEFECT"]
    unreported = sum(1 for one in defects if not one.finding.stated.reports)
    counts = f"{len(defects)} defects. No existing report was found for {unreported} of them."
    parts.append(f"{counts}\n")
    for heading, label, is_mended in KINDS:
        of_kind = [
            one
            for one in listed
            if one.finding.stated.label == label
            and (one.finding.stated.right is not None) == is_mended
        ]
        if of_kind:
            parts.append("\n".join((f"## {heading}", "", *_table(of_kind), "", *_texts(of_kind))))
    return "\n".join(parts)


def _table(found: Iterable[Bundle]) -> Iterator[str]:
    yield "| library | affected | first unaffected | harm | finding | reports |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for one in found:
        stated = one.finding.stated
        reports = ", ".join(stated.reports) or "none found"
        cells = (
            stated.library,
            ", ".join(stated.at_fault),
            stated.right or "",
            stated.harm,
            f"[{one.title}]({one.name}{SUFFIX})",
            reports,
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _texts(found: Iterable[Bundle]) -> Iterator[str]:
    for one in found:
        stated = one.finding.stated
        text = f"**{one.name}**: {stated.happens} {stated.should}"
        if stated.cause:
            text += f" {stated.cause}"
        if stated.searched:
            text += f" Searched: {stated.searched}"
        options = {"break_long_words": False, "break_on_hyphens": False}
        yield textwrap.fill(" ".join(text.split()), WIDTH, **options)
        yield ""


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parents[1]))

from harness.record.defect import FindingRecord  # noqa: E402
from harness.record.model import Record  # noqa: E402

if __name__ == "__main__":
    (FOLDER / "README.md").write_text(page(), encoding="utf-8")
