"""What a kind's lint may ask of the document that it is in: a scenario of which some parts may not
be readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from harness.forms.problem import Path, Problem


class Draft(Protocol):
    """The parts of a scenario that could be read."""

    @property
    def checks(self) -> Mapping[int, Any]:
        """The checks that could be read, by their place in the list."""

    @property
    def faults(self) -> Mapping[int, Any]:
        """The faults that could be read, by their place in the list."""

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
        """The world sizes that occur, ascending."""

    def has(self, *path: str | int) -> bool:
        """Whether the document has a value at a path."""

    def at(self, *path: str | int) -> Any:
        """The value at a path, or None."""

    def problem(
        self,
        path: Path,
        message: str,
        *,
        at_key: bool = False,
        suggestion: str | None = None,
        kind: Literal["error", "note"] = "error",
    ) -> Problem:
        """A problem at a path of the document."""
