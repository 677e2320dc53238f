"""Protocol of whoever reads every trial of a run while its record is worked out.

`harness.record.assemble` has a list of them. What is to be held against the evidence of all trials
is one more class in that list, in a file of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from harness.history import History
from harness.stats.verdict import Judgement


class TrialReader(Protocol):
    """Base of a reader of all trials; what it leaves out does nothing."""

    @property
    def description(self) -> str:
        """Return what it worked out again, in words; empty where there was nothing."""
        return ""

    def hear(self, evidence: str, history: History) -> None:
        """Take one trial, or one run of a reference, each once.

        Args:
            evidence: path of its events in the results folder.
            history: its events.

        Raises:
            Contradiction: it says what cannot be.
            RecordError: it is not what the scenario or a file of the evidence asks for.
        """
        del evidence, history

    def demand(self, judgement: Judgement, names: Collection[str]) -> None:
        """Hold what was taken against the whole run, when all trials were taken and judged.

        Args:
            judgement: what the trials were judged to be.
            names: paths of all files of the evidence.

        Raises:
            Contradiction, RecordError: as for `hear`.
        """
        del judgement, names
