"""What a report shows of measurements: the rank with the largest value, and all in the appendix."""

from __future__ import annotations

from harness.report.appendix import render_appendix
from harness.report.report import render
from harness.stats.measured import summarise
from tests.kit.records import cell, record


def test_the_rank_with_the_largest_value_is_shown() -> None:
    """Of nine ranks the report has the one that took longest, whichever it is, and the appendix
    every one.
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
    made = record({**wide, "ranks": 9, "measured": rows})
    page = render(made, manifest_digest="1" * 64).decode()
    section = page.split("## Measured impact")[1].split("\n## ")[0]
    assert "the rank with the largest value of the candidate; all ranks are in the" in section
    assert ranks_of(section) == ["4"]
    assert ranks_of(render_appendix(made).decode()) == list("012345678")


def ranks_of(text: str) -> list[str]:
    return [line.split("|")[2].strip() for line in text.splitlines() if "time to load" in line]
