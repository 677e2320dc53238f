"""What is installed in an environment of an arm: the names at the top of a RECORD."""

from __future__ import annotations

import importlib.metadata
import re

from hypothesis import example, given
from hypothesis import strategies as st

from harness.run.arms.packages import _tops

# The same in one expression over the whole text.
LINES = re.compile(r'^"?([^/,\n"]+)[/,]', re.MULTILINE)


def over_the_whole(record: str) -> set[str]:
    return {top.partition(".")[0] for top in LINES.findall(record)}


@given(st.text('ab."/,\n\r\v', max_size=40))
@example('"a,b.py",sha256=c/d,1\n')
@example("a\nb/c.py,,\n/d,,\n")
def test_each_line_says_what_the_expression_finds_in_it(record: str) -> None:
    """Folders that are seen once and lines without one give the names that each line alone
    gives.
    """
    assert _tops(record) == over_the_whole(record)


def test_the_distributions_here_are_read_alike() -> None:
    """So do the RECORDs that installers really write."""
    records = [one.read_text("RECORD") or "" for one in importlib.metadata.distributions()]
    assert any("numpy" in _tops(record) for record in records)
    assert [_tops(record) for record in records] == [over_the_whole(record) for record in records]
