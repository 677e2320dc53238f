"""What a wrong output comes from, as far as the run tells: excluded, found, and what remains."""

from __future__ import annotations

from harness.record.model import ScenarioSummary
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Evidence,
    Foreign,
    Paragraph,
    Part,
    Verbatim,
)
from harness.stats.outcome import Arm
from harness.stats.verdict import CellVerdict

WORDS = {"excluded": "excluded", "found": "found", "open": "not looked at"}


def attribution(cell: CellVerdict, arm: Arm, asked: ScenarioSummary) -> list[Block]:
    """The block of one arm in one cell; nothing where no output of it was wrong."""
    found = cell.attributions.get(arm)
    if found is None:
        return []
    who = Claim(Verbatim(f"{asked.arm(arm)} {found.index}"), (Evidence(found.evidence),))
    text: list[Part] = ["Attribution of ", Verbatim(", ".join(found.checks)), " in ", who, ": "]
    text += [Foreign(found.remains, 1000), "."]
    if found.first_rung is not None:
        rung = "this one" if found.first_rung == cell.ranks else f"that of {found.first_rung}"
        text.append(f" The smallest world that computes it wrong is {rung}.")
    if found.where:
        text += [" First difference: ", Foreign(found.where), "."]
    items = tuple(
        Foreign(f"{WORDS[one.word]}: {one.what} ({one.why})", 1000) for one in found.causes
    )
    return [Paragraph(*text), BulletList(items)]
