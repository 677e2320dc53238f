"""One row of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Word = Literal["same", "changed", "cannot tell"]
Kind = Literal["verdict", "candidate", "control", "check", "time", "measured", "environment", "scenario"]
DECIDING: frozenset[Kind] = frozenset({"verdict", "candidate", "control", "check"})


@dataclass(frozen=True)
class Row:
    """What one thing is in either record.

    Attributes:
        kind: what it is about.
        cell: the cell, or empty where it is about the whole run.
        what: its name.
        values: what it is in the first record and in the second, in words.
        word: what comparing says.
        how: the test behind the word; empty where the values are simply compared.
        more: further trials, on each side, that would settle a `cannot tell`; None where nobody can say.
    """

    kind: Kind
    cell: str
    what: str
    values: tuple[str, str]
    word: Word
    how: str = ""
    more: int | None = None

    @property
    def decides(self) -> bool:
        """Whether the answer of the whole comparison depends on it."""
        return self.kind in DECIDING
