"""The section on what changed: how much of a library differs, and which of its modules have a diff
there, and which have none, and why.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.record.changed import COMMENTS_ALONE
from harness.record.libraries import RUN_LINES
from harness.record.model import LibraryChange, ModuleChange
from harness.report.changed import (
    IN_SHORT,
    WITHOUT_DIFF,
    changed_section,
    library_diffs,
    library_summaries,
)
from harness.report.markdown import render_markdown
from tests.kit.records import record

OLD, NEW = "a" * 64, "b" * 64


def module(file: str, **more: Any) -> ModuleChange:
    given = {
        "digests": {"control": [OLD], "candidate": [NEW]},
        "only": {},
        "removed": 0,
        "added": 0,
        "lines": [],
        "more": 0,
        "why": "",
        **more,
    }
    return ModuleChange(file=file, **given)


def section(*modules: ModuleChange, **more: Any) -> str:
    given = {
        "distribution": "mlx-lm",
        "versions": {"control": "1", "candidate": None},
        "alike": 2,
        "unloaded": [],
        "untold": 0,
        **more,
    }
    library = LibraryChange(modules=list(modules), **given)
    made = record(changed=["-a", "+b"], libraries=[library])
    return render_markdown([*changed_section(made), *library_diffs(made)])


def test_a_diff_is_folded_with_both_texts() -> None:
    """Its title counts the changed lines of the whole module, and says what is left out of the
    diff; below it is which ranks loaded the module.
    """
    text = section(
        module(
            "mlx_lm/p.py",
            removed=3,
            added=1,
            lines=["@@ -1 +1 @@", "-a", "+b"],
            more=2,
            only={"control": [1, 2]},
        )
    )
    assert "### mlx-lm: 1 in the control, not installed in the candidate" in text
    assert "Ranks loaded 3 files from mlx-lm: 2 are identical in both arms and 1 differs." in text
    who = "ranks 1, 2 of the control and all ranks of the candidate"
    assert f"| `mlx_lm/p.py` | 3 lines removed, 1 added | {who} |" in text
    assert (
        "<summary>mlx_lm/p.py: 3 lines removed, 1 added; 2 more lines of the diff are not"
        " shown</summary>" in text
    )
    older = f"[the control's source code](evidence/library/{OLD}.py)"
    assert f"Differences between {older} and [the candidate's source code]" in text
    assert f". The file was loaded by {who}." in text
    assert "```diff\n@@ -1 +1 @@\n-a\n+b\n```" in text


def test_the_summary_lists_the_most_changed_modules() -> None:
    """So many of them, in the order of the record, and no module that differs in comments alone:
    such a module is counted.
    """
    many = [
        module(f"m{number:02}.py", added=90 - number, lines=["+a"])
        for number in range(IN_SHORT + 2)
    ]
    text = section(*many, module("years.py", why=COMMENTS_ALONE), alike=0)
    counts = f"{IN_SHORT + 2} differ and 1 differs only in its leading comments."
    assert f"Ranks loaded {IN_SHORT + 3} files from mlx-lm: {counts}" in text
    short, _, diffs = text.partition("## Diffs of mlx-lm")
    assert f"These {IN_SHORT} files changed most; the appendix has their diffs:" in short
    rows = [line for line in short.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [f"m{number:02}.py" for number in range(IN_SHORT)]
    assert rows[0].endswith("| 0 lines removed, 90 added | all ranks |")
    assert f"| `years.py` | {COMMENTS_ALONE} | all ranks |" in diffs
    assert diffs.index("m00.py") < diffs.index("m11.py")


def test_what_has_no_diff_is_named_with_the_reason() -> None:
    """With a link to a text that is kept; so many of them, and the rest counted."""
    gone = {"control": [OLD], "candidate": list[str]()}
    text = section(
        module("long.py", more=900),
        module("gone.py", digests=gone, why="not comparable", only={"control": [1]}),
        *(module(f"m{number}.so", why="not Python source") for number in range(WITHOUT_DIFF)),
    )
    assert f"{WITHOUT_DIFF + 1} differ and 1 was loaded in only one arm." in text
    assert (
        f"| `long.py` | 900 lines; a report shows at most {RUN_LINES} | all ranks |"
        f" [`{OLD[:12]}`](evidence/library/{OLD}.py) |" in text
    )
    assert (
        f"| `gone.py` | not comparable | rank 1 of the control | `{OLD[:12]}` | not reported |"
        in text
    )
    assert "The record lists 2 more files without a diff." in text


@pytest.mark.parametrize(
    ("count", "rest"), [(1, "."), (IN_SHORT, "."), (IN_SHORT + 3, " and 3 more.")]
)
def test_modules_that_no_rank_loaded_are_named(count: int, rest: str) -> None:
    """So many in the summary with a count of the rest, and all of them beside the diffs."""
    names = [f"mlx_lm/models/m{number:02}.py" for number in range(count)]
    text = section(unloaded=names, alike=3)
    short, _, diffs = text.partition("## Diffs of mlx-lm")
    what = "1 other module differs" if count == 1 else f"{count} other modules differ"
    them = "it" if count == 1 else "them"
    listed = ", ".join(f"`{name}`" for name in names[:IN_SHORT])
    unloaded = f"{what} between the releases, but no rank reported loading {them}: {listed}{rest}"
    assert unloaded in short
    assert (names[-1] in diffs) == (count > IN_SHORT)


def test_what_is_unknown_is_said() -> None:
    """A library of which no rank reported a file, lists that were cut, ranks that are programs, and
    a release without a RECORD.
    """
    assert "No rank reported loading a file from mlx-lm." in section(alike=0)
    assert "omits up to 5 files." in section(module("a.py"), untold=5)
    versions: dict[str, str | None] = {"control": "1", "candidate": "2"}
    unknown = section(unloaded=None, versions=versions)
    assert "Which other modules of mlx-lm differ is unknown, because" in unknown
    assert "is unknown" not in section(unloaded=None)
    library = LibraryChange(
        distribution="mlx-lm", versions=versions, alike=0, modules=[], unloaded=[], untold=0
    )
    made = record(scenario={"program": ["./serve"]}, libraries=[library])
    text = render_markdown(library_summaries(made))
    assert "which do not report which files they load from mlx-lm." in text
    assert "No rank" not in text
