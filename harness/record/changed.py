"""What differs between the code of the arms: a unified diff from control to candidate, or from a to
b.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

from harness.history import History
from harness.record.arms import compared
from harness.record.facts import SOURCE_FOLDER
from harness.record.model import ArmSummary
from harness.record.trial_reader import TrialReader
from harness.scenario import CALLED

LINES = 200
FILE_LINES = 200
LOADED_LINES = 600


class Changed(TrialReader):
    """The files in which two arms differ, and which of them ranks loaded; heard trial by trial."""

    def __init__(self, arms: Mapping[str, ArmSummary], read: Callable[[str], bytes]) -> None:
        self._arms = arms
        self._read = read
        self._loaded: set[str] = set()

    def hear(self, evidence: str, history: History) -> None:
        """Take the files of the arm that the ranks of a trial loaded."""
        del evidence
        for rank in range(history.size):
            for seen in history.said(rank, "subject.loaded"):
                modules = seen.event.values.get("modules")
                for module in modules if isinstance(modules, list) else ():
                    if isinstance(module, dict) and isinstance(file := module.get("file"), str):
                        self._loaded.add(file)

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
                "file differs that no rank loaded"
                if silent == 1
                else "files differ that no rank loaded"
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
