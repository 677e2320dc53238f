"""What a report shows of measurements: of many ranks those with the largest values, and below them
all.
"""

from __future__ import annotations

from harness.report.markdown import render_markdown
from harness.report.report import report_blocks
from harness.stats.measured import summarise
from tests.kit.records import cell, record


def test_the_ranks_with_the_largest_values_come_first() -> None:
    """Of nine ranks the three that took longest are above, whichever they are, and every one is in
    the fold.
    """
    seconds = [0.1, 7.0, 0.2, 0.3, 9.0, 0.4, 0.5, 8.0, 6.0]
    wide = cell("ranks=9", candidate=["pass"] * 5, control=["fail"] * 5)
    rows = [
        {
            **wide["measured"][0],
            "rank": rank,
            "arms": {"candidate": summarise([value] * 5).model_dump()},
        }
        for rank, value in enumerate(seconds)
    ]
    page = render_markdown(
        report_blocks(record({**wide, "ranks": 9, "measured": rows}), manifest_digest="1" * 64)
    )
    section = page.split("## Measured impact")[1].split("\n## ")[0]
    above, _, folded = section.partition("<details>")
    assert "The 3 ranks with the largest values of the candidate; below them all 9." in above
    assert [
        line.split("|")[2].strip() for line in above.splitlines() if "time to load" in line
    ] == ["4", "7", "1"]
    assert [
        line.split("|")[2].strip() for line in folded.splitlines() if "time to load" in line
    ] == list("012345678")
