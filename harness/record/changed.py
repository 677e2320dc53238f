"""Differences between two arms: of any two Python modules, and of the arms' own code."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.forms.text import bounded
from harness.history import History
from harness.record.arms import compared
from harness.record.facts import SOURCE_FOLDER
from harness.record.model import ArmSummary
from harness.record.trial_reader import TrialReader
from harness.scenario import CALLED
from harness.stats.provenance import loaded_files

LINE_LIMIT = 500
"""Characters of a line of difference."""
LINES_COMPARED = 20_000
COMMENTS_ALONE = "differs only in its leading comments"


@dataclass(frozen=True)
class TextDifference:
    """Difference between two texts.

    Attributes:
        lines: of a unified diff, without the names of the files.
        removed: how many lines only the first text has.
        added: how many lines only the second text has.
        why: in words, why there is no diff; empty where there is one.
    """

    lines: list[str] = field(default_factory=list)
    removed: int = 0
    added: int = 0
    why: str = ""


HEAD = re.compile(rb"(?:[ \t\f]*(?:#[^\r\n\0]*)?(?:\r?\n|\Z))*")
CODING = re.compile(rb"coding[:=]")
HUNK = re.compile(r"@@ -(\d+)(,\d+|) \+(\d+)(,\d+|) @@")


def difference(before: bytes, after: bytes) -> TextDifference:
    """Compare two Python modules from their first statements on.

    Copyright and licence stand before that, and nothing there is executed. Comments further down
    and docstrings are compared like code: a syntax tree would leave comments out, but which text
    has one depends on the version of Python, and every verifier must find the same difference.

    Lines end at line feeds alone, so that whatever else ends a line is seen; what is not UTF-8 is
    escaped. Tables of very many short lines are not compared: that takes minutes.
    """
    heads = (_head(before), _head(after))
    old = _lines(before)
    new = _lines(after)
    if max(len(old), len(new)) > LINES_COMPARED:
        return TextDifference(why=f"more than {LINES_COMPARED} lines: not compared")
    if before[len(heads[0]) :] == after[len(heads[1]) :]:
        return TextDifference(why=COMMENTS_ALONE)
    left_out = [len(_lines(head)) for head in heads]
    diff = difflib.unified_diff(old[left_out[0] :], new[left_out[1] :], lineterm="", n=3)
    lines = [HUNK.sub(lambda hunk: _moved(hunk, left_out), line) for line in list(diff)[2:]]
    return TextDifference(
        lines=[bounded(line, LINE_LIMIT) for line in lines],
        removed=sum(line.startswith("-") for line in lines),
        added=sum(line.startswith("+") for line in lines),
        why="" if lines else "the texts look the same, but their bytes differ",
    )


def _head(text: bytes) -> bytes:
    """Return the comments and blank lines before the first statement of a module.

    Empty where they may mean something to Python: one of the first two lines names the encoding, or
    they are not UTF-8.
    """
    found = HEAD.match(text)
    if found is None or any(map(CODING.search, text.split(b"\n", 2)[:2])):
        return b""
    try:
        found[0].decode()
    except UnicodeDecodeError:
        return b""
    return found[0]


def _moved(hunk: re.Match[str], lines: list[int]) -> str:
    """Return the title of a hunk with line numbers of the whole files."""
    return f"@@ -{int(hunk[1]) + lines[0]}{hunk[2]} +{int(hunk[3]) + lines[1]}{hunk[4]} @@"


def _lines(text: bytes) -> list[str]:
    lines = text.decode("utf-8", "backslashreplace").split("\n")
    return [*lines[:-1], *([lines[-1], "\\ No newline at end of file"] if lines[-1] else [])]


LINES = 200
FILE_LINES = 200
LOADED_LINES = 600


class ChangedCode(TrialReader):
    """Files in which two arms differ, and which of them ranks loaded; heard trial by trial."""

    def __init__(self, arms: Mapping[str, ArmSummary], read: Callable[[str], bytes]) -> None:
        self._arms = arms
        self._read = read
        self._loaded: set[str] = set()

    def hear(self, evidence: str, history: History) -> None:
        """Take the files of the arm that the ranks of a trial loaded."""
        del evidence
        for rank in range(history.size):
            self._loaded.update(file for file, _ in loaded_files(history, rank))

    def lines(self, environment: Sequence[str]) -> list[str]:
        """Return the diff: arguments, environments, files.

        Files that ranks loaded come first, the shortest diff of them first, and no file takes the
        place of all others: of two commits of another project most files that differ were loaded by
        nobody.
        """
        other, _ = compared(self._arms)
        if other not in self._arms:
            return []
        before = self._arms[other]
        after = self._arms["candidate"]
        lines: list[str] = []
        if before.arguments != after.arguments:
            lines += [f"-with: {before.arguments}", f"+with: {after.arguments}"]
        lines += environment
        differ = [
            file
            for file in sorted(before.files.keys() | after.files.keys())
            if before.files.get(file) != after.files.get(file)
        ]
        mine = [file for file in differ if file in self._loaded]
        if not mine:
            for file in differ:
                lines += self._diff(other, file)
            return _cut(lines, LINES)
        diffs = sorted((self._diff(other, file) for file in mine), key=lambda one: (len(one), one))
        for diff in diffs:
            lines += _cut(diff, FILE_LINES)
        lines = _cut(lines, LOADED_LINES)
        if silent := len(differ) - len(mine):
            what = (
                "file that no rank loaded differs"
                if silent == 1
                else "files that no rank loaded differ"
            )
            lines.append(f"... ({silent} more {what}: compare the folders in {SOURCE_FOLDER})")
        return lines

    def _diff(self, other: str, file: str) -> list[str]:
        called: Mapping[str, str] = CALLED if other == "reference" else {}
        old, new = (
            (
                self._read(f"{SOURCE_FOLDER}/{arm}/{file}")
                .decode("utf-8", "backslashreplace")
                .splitlines()
                if file in self._arms[arm].files
                else []
            )
            for arm in (other, "candidate")
        )
        names = [f"{called.get(arm, arm)}/{file}" for arm in (other, "candidate")]
        return list(difflib.unified_diff(old, new, names[0], names[1], lineterm="", n=3))


def _cut(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    return [
        *lines[:most],
        f"... ({len(lines) - most} more lines: compare the folders in {SOURCE_FOLDER})",
    ]
