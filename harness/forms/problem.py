"""Problems of a file that people write: what is wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic_core import PydanticCustomError

from harness.forms.text import SHOWN_LIMIT, printable, quoted

Path = tuple[str | int, ...]
Kind = Literal["error", "note"]

PROBLEM_LIMIT = 100
"""Problems of one file that are reported; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of one file. Line and column count from 1, columns in Unicode code points.

    ``key`` is the dotted path of the key, ``subject.control.must_fail.ranks`` or
    ``checks[2].kind``; the document as a whole is the empty path. ``kind`` is ``error`` or ``note``
    (advice; the scenario loads).
    """

    file: str
    line: int
    column: int
    key: str
    found: str
    message: str
    suggestion: str | None = None
    kind: Kind = "error"

    def __str__(self) -> str:
        key = f"{printable(self.key, limit=120)}: " if self.key else ""
        note = "note: " if self.kind == "note" else ""
        found = f"; found {printable(self.found)}" if self.found else ""
        hint = f"; did you mean {quoted(self.suggestion)}?" if self.suggestion is not None else ""
        # A message may name ids and axes of the file, so it is not safer than a found value.
        message = printable(self.message, limit=800)
        return (
            f"{printable(self.file, limit=200)}:{self.line}:{self.column}:"
            f" {note}{key}{message}{found}{hint}"
        )


class ScenarioError(Exception):
    """Refusal of a scenario, a policy or a file of rules: the one exception for what such a file
    says.

    ``problems`` holds all problems of the file, ordered by position; problems of ``--set``
    overrides follow.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = ordered(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def complaint(
    message: str, *, suggestion: str | None = None, at: str | int | None = None
) -> PydanticCustomError:
    """Build an error whose message is ours as it stands; ``at`` names the key or item inside that
    it is about.
    """
    # The message travels as context: pydantic would read braces in a template.
    return PydanticCustomError(
        "complaint", "{message}", {"message": message, "suggestion": suggestion, "at": at}
    )


def ordered(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sort problems by position, drop exact repeats, and keep the first hundred with a count of the
    rest.
    """
    unique = sorted(
        set(problems), key=lambda p: (p.file == "--set", p.file, p.line, p.column, p.key, p.message)
    )
    if len(unique) <= PROBLEM_LIMIT:
        return tuple(unique)
    last = unique[PROBLEM_LIMIT]
    rest = f"{len(unique) - PROBLEM_LIMIT} more problems follow; fix these first"
    return (*unique[:PROBLEM_LIMIT], Problem(last.file, last.line, last.column, "", "", rest))


def shown(value: Any) -> str:
    """Say in a few words what a value from the file is, for ``Problem.found``."""
    match value:
        case None:
            return "nothing"
        case bool() | int() | float():
            return json.dumps(value)
        case str():
            return printable(f'"{value}"' if len(value) < SHOWN_LIMIT - 2 else f'"{value}')
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
    return type(value).__name__


def key_path(path: Path) -> str:
    """Write a path as people do: ``checks[2].kind``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def closest(word: object, allowed: Sequence[str]) -> str | None:
    """Return the allowed word that was probably meant, or None."""
    if not isinstance(word, str) or not 0 < len(word) <= 64:
        return None
    folded = {name.lower().replace("_", "-"): name for name in allowed}
    near = difflib.get_close_matches(word.lower().replace("_", "-"), list(folded), n=1, cutoff=0.6)
    return folded[near[0]] if near else None


class Draft(Protocol):
    """Parts of a scenario that could be read: a kind's lint asks them of the document it is in."""

    @property
    def checks(self) -> Mapping[int, Any]:
        """Checks that could be read, by their place in the list."""

    @property
    def faults(self) -> Mapping[int, Any]:
        """Faults that could be read, by their place in the list."""

    @property
    def must_fail(self) -> Any:
        """How the control must fail, or None."""

    @property
    def deadline(self) -> float | None:
        """`world.deadline` in seconds; None where it could not be read."""

    @property
    def after_failure(self) -> float | None:
        """`world.after_failure` in seconds; None where it could not be read."""

    def sizes(self) -> tuple[int, ...]:
        """World sizes that occur, ascending."""

    def has(self, *path: str | int) -> bool:
        """Tell whether the document has a value at a path."""

    def at(self, *path: str | int) -> Any:
        """Return the value at a path, or None."""

    def problem(
        self,
        path: Path,
        message: str,
        *,
        at_key: bool = False,
        suggestion: str | None = None,
        kind: Literal["error", "note"] = "error",
    ) -> Problem:
        """Build a problem at a path of the document."""
