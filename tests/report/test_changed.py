"""The section on what changed: which modules of a library stand there with a diff, and which
without, and why.
"""

from __future__ import annotations

from typing import Any

from harness.record.changed import RUN_LINES
from harness.record.model import LibraryChange, ModuleChange
from harness.report.changed import WITHOUT_DIFF, changed_section
from harness.report.markdown import render_markdown
from tests.kit.records import record

OLD, NEW = "a" * 64, "b" * 64


def module(file: str, **more: Any) -> ModuleChange:
    given = {
        "digests": {"control": [OLD], "candidate": [NEW]},
        "only": {},
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
        "untold": 0,
        **more,
    }
    library = LibraryChange(modules=list(modules), **given)
    return render_markdown(changed_section(record(changed=["-a", "+b"], libraries=[library])))


def test_a_diff_stands_folded_with_both_texts() -> None:
    """Its title counts the lines, what is cut is told, and who alone loaded the module."""
    text = section(
        module(
            "mlx_lm/p.py", lines=["@@ -1 +1 @@", "-a", "+b", "+c"], more=7, only={"control": [1, 2]}
        )
    )
    assert "### mlx-lm 1 and not there, as ranks loaded it" in text
    assert "Ranks loaded 3 files of it: 2 with the same content in both arms, 1 not." in text
    assert (
        "<summary>mlx_lm/p.py: 1 line removed, 2 added, 7 more lines of the diff not"
        " shown</summary>" in text
    )
    assert f"From [the control's text](evidence/library/{OLD}.py) to [the candidate's text]" in text
    assert "In the control only ranks 1, 2 loaded it." in text
    assert "```diff\n@@ -1 +1 @@\n-a\n+b\n+c\n```" in text


def test_what_has_no_diff_is_named_with_the_reason() -> None:
    """With a link to a text that is kept; so many of them, and the rest counted."""
    gone = {"control": [OLD], "candidate": list[str]()}
    text = section(
        module("long.py", more=900),
        module("gone.py", digests=gone, why="only one arm told of it", only={"control": [1]}),
        *(module(f"m{number}.so", why="not Python source") for number in range(WITHOUT_DIFF)),
    )
    assert (
        f"| `long.py` | 900 lines: beyond the {RUN_LINES} of a run |"
        f" [`{OLD[:12]}`](evidence/library/{OLD}.py) |" in text
    )
    assert (
        f"| `gone.py` | only one arm told of it; in the control only rank 1 | `{OLD[:12]}` | not"
        " told |" in text
    )
    assert "2 more files without a diff stand in the record." in text


def test_what_no_rank_told_is_said() -> None:
    """A library that differs and that nobody loaded a module of, and lists that were cut."""
    assert "No rank told a module of it." in section(alike=0)
    assert "of one rank 5 more files are not told" in section(module("a.py"), untold=5)
