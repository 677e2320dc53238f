"""The ranks' ledgers, as they lie in the evidence: held against each other once more, by whoever
has the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.checks.finding import canonical
from harness.checks.ledgers import asks_digests, asks_ledgers
from harness.forms.digest import mark
from harness.history import LEDGERS_COMPARED, History, artefact_found
from harness.ledger.file import ARTEFACT, LARGEST
from harness.ledger.outside.account import account
from harness.record.artefacts import path_of
from harness.record.model import RecordError
from harness.record.trial_reader import TrialReader
from harness.scenario import Scenario
from harness.stats.ends import harness_error


class Ledgers(TrialReader):
    """Those of one run, heard trial by trial.

    Attributes:
        compared: how many trials' ledgers were held against each other again.
        left: how many were not, because one is not in the evidence.
    """

    def __init__(self, scenario: Scenario, read: Callable[[str], bytes]) -> None:
        self._checks = scenario.checks
        self._observed = "collectives" in scenario.observe
        self._read = read
        self.compared = self.left = 0

    def hear(self, evidence: str, history: History) -> None:
        """Take one trial, by the path of its events.

        Raises:
            RecordError: what is noted of its ledgers is not what they give.
        """
        noted = [
            seen
            for seen in history.seen
            if (seen.event.by, seen.event.name) == ("harness", LEDGERS_COMPARED)
        ]
        wanted = self._observed and history.about().get("arm") != "reference"
        if not noted and (not wanted or harness_error(history) is not None):
            return
        if len(noted) != 1 or not wanted or noted[0].event.rank is not None:
            raise RecordError(f"{evidence}: the ranks' ledgers were compared {len(noted)} times")
        found: dict[int, Mapping[str, Any]] = {}
        for rank in range(history.size):
            if (seen := artefact_found(history, rank, ARTEFACT)) is not None:
                found[rank] = seen.event.values
        if not all(values.get("stored") is True for values in found.values()):
            self.left += 1
            return
        self.compared += 1
        again = account(
            {
                rank: self._read(path_of(values))
                for rank, values in found.items()
                if values["bytes"] <= LARGEST
            },
            size=history.size,
            world=mark(self._read(evidence).partition(b"\n")[0]),
            asked=asks_ledgers(self._checks, size=history.size),
            transferred=asks_digests(self._checks, size=history.size),
        )
        if canonical(again) != canonical(dict(noted[0].event.values)):
            raise RecordError(
                f"{evidence}, line {noted[0].line}: the ranks' ledgers give something else"
            )

    @property
    def description(self) -> str:
        """Return what was worked out again; empty where no calls were observed."""
        parts = [f"the ledgers of {self.compared} trials compared again"] if self.compared else []
        if self.left:
            parts.append(
                f"those of {self.left} judged by what the events hold of them (not all are in the"
                " evidence)"
            )
        return ", ".join(parts)
