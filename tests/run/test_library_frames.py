"""A control that fails inside an installed library, at a stated line of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.reason import DeviationCode
from tests.kit.commands import SCENARIO, Ran

pytestmark = [pytest.mark.slow, pytest.mark.whole]

# yaml is installed beside us, and pure Python: what it raises it raises in files of its own.
SUBJECT = """
import yaml

def meet(context, *, broken):
    thing = yaml.safe_load("[1, 2" if broken and context.rank else "[1, 2]")
    context.emit("met", thing=thing)
"""


def stated(file: str, source: str) -> str:
    return SCENARIO.replace(
        "error: AssertionError, source: assert thing",
        f"error: ParserError, file: {file}, source: '{source}'",
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "source", "code"),
    [
        ("yaml/parser.py", None, None),
        ("yaml/parser.py", "raise NothingLikeIt", DeviationCode.OTHER_SOURCE),
        ("yaml/scanner.py", None, DeviationCode.OTHER_SOURCE),
    ],
)
def test_the_line_is_the_last_one_in_the_stated_file(
    scenario: Callable[..., Path],
    rankproof: Callable[..., Ran],
    file: str,
    source: str | None,
    code: DeviationCode | None,
) -> None:
    """As stated only where that file of the library raised it, at that line."""
    raised = 'raise ParserError("while parsing a flow sequence", self.marks[-1],'
    text = stated(file, source or raised)
    if code is not None:  # one trial shows where it failed
        text = text.replace("candidate: 5, control: 2", "candidate: 1, control: 1")
    ran = rankproof("run", str(scenario({"scenario.yaml": text, "subject.py": SUBJECT})))
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    assert [what.code for what in cell.control.otherwise] == ([] if code is None else [code]), (
        ran.out
    )
    assert ran.code == (0 if code is None else 2)


@pytest.mark.parametrize("file", ["/usr/lib/x.py", "../x.py", "x.so", "a//b.py"])
def test_a_file_is_named_from_its_package_down(
    scenario: Callable[..., Path], rankproof: Callable[..., Ran], file: str
) -> None:
    """A path of one machine means nothing on another; and a file without a line is not a place."""
    linted = rankproof("lint", str(scenario({"scenario.yaml": stated(file, "x")})))
    assert "must_fail.file: must be the path of a library's file" in linted.out + linted.err
    bare = SCENARIO.replace("source: assert thing", "message: x, file: yaml/parser.py")
    linted = rankproof("lint", str(scenario({"scenario.yaml": bare})))
    assert (
        "must_fail.file: is not enough to identify the place; add source, the text of that line in this file"
        in linted.out + linted.err
    )
