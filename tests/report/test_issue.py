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
from harness.report.issue import LONGEST, render_issue, without_places
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
    """Question, verdict, control, traceback, diff, versions, files and commands are in it.

    Nothing leads elsewhere.
    """
    text = issue(made(scenario={"question": "Do all ranks meet?"}))
    for part in (
        "## **PASS** Ranks meet",
        "**Question.** Do all ranks meet?",
        "AssertionError at `assert tokenizer` on rank 1.",
        "```diff\n-a\n+b\n```",
        "### The control, as rank 1 printed it",
        "| packages | torch 2.13.0 |",
        "rankproof run scenarios/meet",
        "git checkout " + "ab" * 20,
        "<summary>The scenario</summary>",
        "This text is not signed",
    ):
        assert part in text, part
    assert not re.search(r"\]\(|!\[|evidence/|results\.json", text)


def test_the_lines_of_a_library_go_along() -> None:
    """Where two releases are compared, the most changed modules come first, as long as there is
    room.
    """

    def change(file: str, lines: list[str]) -> ModuleChange:
        return ModuleChange(
            file=file,
            digests={},
            only={},
            removed=0,
            added=len(lines),
            lines=lines,
            more=0,
            why="",
        )

    modules = [
        change("mlx_lm/pipeline.py", ["-a @bob", "+b"]),
        change("mlx_lm/generate.py", ["+" + "x" * 15_990] * 2),
        change("mlx_lm/beyond.py", ["+c"]),
    ]
    library = LibraryChange(
        distribution="mlx-lm", versions={}, alike=0, modules=modules, unloaded=None, untold=0
    )
    other = library.model_copy(update={"modules": [change("mlx_lm/unlucky.py", ["+c"] * 3)]})
    text = issue(MADE.model_copy(update={"libraries": [library, other]}))
    first, second = (
        text.index("<summary>mlx-lm: mlx_lm/pipeline.py"),
        text.index("<summary>mlx-lm: mlx_lm/generate.py"),
    )
    assert first < second
    assert "```diff\n-a @bob\n+b\n```" in text
    assert "more characters" in text[second:]
    assert "mlx_lm/beyond.py" not in text
    assert text.index("mlx_lm/unlucky.py")


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
        "The control, as rank 1 printed it (ranks=2,backend=gloo)",
        "From the control to the candidate",
        "Versions",
        "How to reproduce it",
    ]
    html = "".join(token.content for token in parsed if token.type == "html_block")
    assert not re.sub(r"</?details>|<summary>[A-Z][\w .&#;]*</summary>", "", html).strip()


@pytest.mark.parametrize(
    ("count", "size"), [(1, 0), (31, 0), (1, 20_000), (1, 100_000), (60, 100_000)]
)
def test_it_is_never_too_long(count: int, size: int) -> None:
    """At most 65,000 characters, whatever there is to say, and what is left out is said."""
    cells = [cell(f"ranks={number}|" * 9, reasons=["because " * 80]) for number in range(count)]
    found = record(*cells, scenario={"question": "`@a`#1|" * 400})
    found = found.model_copy(update={"changed": ["+" + "|`" * 40] * (size // 80)})
    found.judgement.reasons.extend("<&|" * 300 for _ in range(count))
    text = issue(found, "x" * size, "&" * size)
    assert len(text) <= LONGEST
    assert count <= 30 or f"{count - 30} more cell" in text
    assert size <= 16_100 or "more characters)" in text or "Left out for length" in text
