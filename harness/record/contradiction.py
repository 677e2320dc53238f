"""What evidence says that cannot all be true: each kind with a word of its own, which verification refuses by.

The words of this list are for evidence that was changed and signed again. A forgery that is consistent with itself has
none: docs/verify.md lists both.
"""

from __future__ import annotations

from enum import StrEnum

from harness.record.model import RecordError


class Word(StrEnum):
    """What is contradicted, in the order in which it is told where there is more than one."""

    SHARED = "EVENTS SHARED"
    TRIAL = "EVENTS OF ANOTHER TRIAL"
    TIME = "EVENTS OUT OF TIME"
    SECONDS = "SECONDS TOO SHORT"
    PLAN = "TRIALS NOT PLANNED"
    SKIP = "SKIP CONTRADICTED"


class Contradiction(RecordError):
    """Evidence that contradicts itself. No run writes it, whatever happened to its ranks."""

    def __init__(self, word: Word, message: str) -> None:
        super().__init__(message)
        self.word = word
