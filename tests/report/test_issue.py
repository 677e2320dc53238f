"""The text for an issue: it stands alone, calls nobody, tells of no machine, and stays within its
length.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from harness.record.model import LibraryChange, ModuleChange, Record
from harness.report.issue import LONGEST, MODULES_NAMED, MOST_LINES, render_issue, without_places
from tests.kit.records import cell, record
from tests.report.test_rendering import FOREIGN
from tests.stats.test_verdict import broken, clean, judged

LOG = (
    'Traceback (most recent call last):\n  File "/home/alice/work/code/subject.py", line'
    " 3\nAssertionError: see #12\n"
)
CALL = re.compile(r"(?<![\w`])@\w|(?<![\w&])#\d|\bGH-\d", re.IGNORECASE)


def made(**more: Any) -> Record:
    """A record whose control failed with a traceback."""
    found = record(**more)
    judgement = judged(clean(59), [broken()] * 5)
    (one,) = judgement.cells
    sample = one.samples["control"]
    excerpt = {"rank": 1, "path": "evidence/x/rank-1.log", "text": "AssertionError"}
    sample = sample.model_validate({**sample.model_dump(), "printed": [excerpt]})
    one = one.model_copy(update={"samples": {**one.samples, "control": sample}})
    return found.model_copy(
        update={"judgement": judgement.model_copy(update={"cells": [one]}), "changed": ["-a", "+b"]}
    )


def issue(found: Record, log: str = LOG, source: str = "code\n") -> str:
    return render_issue(
        found, lambda name: (log if name.endswith(".log") else source).encode("utf-8", "replace")
    )


MADE = made()


def tokens(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def prose(text: str) -> str:
    """What a tracker reads for people and numbers: all text that is not code."""
    inline = [token for token in tokens(text) if token.type == "inline"]
    return "\n".join(
        child.content for token in inline for child in token.children or () if child.type == "text"
    )


def test_it_stands_alone() -> None:
    """Question, verdict, control, traceback, diff, versions and commands are in it.

    Nothing leads elsewhere.
    """
    text = issue(made(scenario={"question": "Do all ranks meet?"}))
    for part in (
        "## **PASS** Ranks meet",
        "**Question.** Do all ranks meet?",
        "AssertionError at `assert tokenizer` on rank 1.",
        "```diff\n-a\n+b\n```",
        "### The control, output of rank 1",
        "torch 2.13.0",
        "rankproof run scenarios/meet",
        "git checkout " + "ab" * 20,
        "`rankproof reproduce report.md`",
        "This text is not signed",
    ):
        assert part in text, part
    assert not re.search(r"\]\(|!\[|evidence/|results\.json", text)


def test_libraries_that_differ_are_named() -> None:
    """Where two releases are compared, their versions and the modules that differ are in one line
    each; their diffs are in the report.
    """
    modules = [
        ModuleChange(
            file=f"mlx_lm/m{number}.py",
            digests={},
            only={},
            removed=1,
            added=0,
            lines=["-a @bob"],
            more=0,
            why="",
        )
        for number in range(MODULES_NAMED + 2)
    ]
    library = LibraryChange(
        distribution="mlx-lm",
        versions={"control": "0.31.0", "candidate": None},
        alike=0,
        modules=modules,
        unloaded=None,
        untold=0,
    )
    other = library.model_copy(update={"distribution": "other", "modules": modules[:1]})
    text = issue(MADE.model_copy(update={"libraries": [library, other]}))
    differ = "; ranks loaded these modules that differ: mlx_lm/m0.py"
    assert f"- mlx-lm 0.31.0 and not installed{differ}, " in text
    assert "mlx_lm/m7.py and 2 more\n" in text
    assert f"- other 0.31.0 and not installed{differ}\n" in text
    assert "@bob" not in text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("at /home/alice/work/a.py:3", "at …/a.py:3"),
        ('File "/opt/x y/b.py"', 'File "…/x y/b.py"'),
        ('File "/usr/lib/python3.11/asyncio/b.py", line 3', 'File "…/b.py", line 3'),
        ("~/work/c.py and C:\\Users\\bob\\d.py", "…/c.py and …/d.py"),
        ("mail alice@host.example now", "mail … now"),
        (
            "https://example.org/a/b and harness/rank/x.py",
            "https://example.org/a/b and harness/rank/x.py",
        ),
        ("3 / 4 and a/b", "3 / 4 and a/b"),
        ("PATH=/usr/bin:/home/carol/bin", "PATH=…/bin:…/bin"),
        ("<script>x</script> is <b>bold</b>", "<script>x</script> is <b>bold</b>"),
        ("a <br/> b and </div>", "a <br/> b and </div>"),
        ("<a>/usr/lib/x.so</a>", "<a>…/x.so</a>"),
        ("opened </srv/data/x>", "opened <…/x>"),
        ("sed s/a/b/ and /ab+c/ and /x", "sed s/a/b/ and /ab+c/ and /x"),
        ("/root/c.py and /home/alice", "…/c.py and …"),
    ],
)
def test_folders_and_people_go(text: str, kept: str) -> None:
    """Of a path from the root of a machine the last name stays; addresses of people go.

    Other slashes stay.
    """
    assert without_places(text) == kept


def test_nobody_is_called() -> None:
    """What would notify a person or link an issue stands as code, wherever it comes from."""
    asks = "Does @alice see #12, GH-34, owner/name#56 and !78?"
    found = made(scenario={"question": asks, "title": f"@bob {asks}"})
    text = issue(found)
    assert "`@alice`" in text
    assert not CALL.search(prose(text)), CALL.findall(prose(text))
    assert "see #12" in text, "in a log it is code already"


@settings(max_examples=40)
@given(FOREIGN, FOREIGN)
def test_nothing_breaks_out_of_its_fence(log: str, source: str) -> None:
    """Whatever a log, a diff or a file holds, the headings are ours, and there is no HTML but what
    folds.
    """
    found = MADE.model_copy(update={"changed": source.split("\n")})
    text = issue(found, log, source)
    parsed = tokens(text)
    headings = [
        parsed[i + 1].content for i, token in enumerate(parsed) if token.type == "heading_open"
    ]
    assert headings == [
        "**PASS** Ranks meet",
        "The control, output of rank 1 (ranks=2,backend=gloo)",
        "Diff from the control to the candidate",
        "Versions",
        "How to reproduce it",
    ]
    html = "".join(token.content for token in parsed if token.type == "html_block")
    assert not re.sub(r"</?details>|<summary>[A-Z][\w .&#;]*</summary>", "", html).strip()


@pytest.mark.parametrize(
    ("count", "size"), [(1, 0), (7, 0), (1, 20_000), (1, 100_000), (60, 100_000)]
)
def test_it_is_never_too_long(count: int, size: int) -> None:
    """At most 60 lines and 65,000 characters, whatever there is, and what is left out is said."""
    cells = [cell(f"ranks={number}|" * 9, reasons=["because " * 80]) for number in range(count)]
    found = record(*cells, scenario={"question": "`@a`#1|" * 400})
    found = found.model_copy(update={"changed": ["+" + "|`" * 40] * (size // 80)})
    found.judgement.reasons.extend("<&|" * 300 for _ in range(count))
    text = issue(found, "x" * size, "&" * size)
    assert len(text) <= LONGEST
    assert text.count("\n") <= MOST_LINES
    assert count <= 6 or f"{count - 6} more cell" in text
    assert not size or "more lines." in text or "Omitted because of the length limit" in text
