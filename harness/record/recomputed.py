"""Notes of the harness about ranks' ledgers and about many artefacts together, worked out again by
whoever has the files; artefacts for that need NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.checks.accounted import accounted, files_of, found_of, is_asked, note_accounts
from harness.checks.finding import canonical
from harness.checks.ledgers import asks_digests, asks_ledgers
from harness.forms.digest import mark
from harness.forms.distribution import missing
from harness.forms.strict_json import JSON
from harness.forms.text import plural
from harness.history import ARTEFACTS_ACCOUNTED, LEDGERS_COMPARED, History, artefact_found
from harness.ledger.file import ARTEFACT, LARGEST
from harness.ledger.outside.account import account
from harness.numeric.arrays import ArrayFile
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
            raise RecordError(
                f"{evidence}: unexpected number of comparisons of the ranks' ledgers: {len(noted)}"
            )
        ledgers: dict[int, Mapping[str, Any]] = {}
        for rank in range(history.size):
            if (seen := artefact_found(history, rank, ARTEFACT)) is not None:
                ledgers[rank] = seen.event.values
        if not all(values.get("stored") is True for values in ledgers.values()):
            self.left += 1
            return
        self.compared += 1
        # Each has a size: `Arrays` has heard the trial before, and refuses one without.
        again = account(
            {
                rank: self._read(path_of(values))
                for rank, values in ledgers.items()
                if values["bytes"] <= LARGEST
            },
            size=history.size,
            world=mark(self._read(evidence).partition(b"\n")[0]),
            asked=asks_ledgers(self._checks, size=history.size),
            transferred=asks_digests(self._checks, size=history.size),
        )
        if canonical(again) != canonical(dict(noted[0].event.values)):
            raise RecordError(
                f"{evidence}, line {noted[0].line}: repeating the comparison of the ranks' ledgers"
                " gives a different result from the recorded one"
            )

    @property
    def description(self) -> str:
        """Return what was worked out again; empty where no calls were observed."""
        parts = [f"the ledgers of {self.compared} trials compared again"] if self.compared else []
        if self.left:
            parts.append(
                f"the ledgers of {self.left} judged from their events only (not all ledgers are in"
                " the evidence)"
            )
        return ", ".join(parts)


class Accounts(TrialReader):
    """Those of one run, heard trial by trial.

    Attributes:
        made: how many were made again.
        left: how many were not, because an artefact is not in the evidence, or NumPy is not here.
    """

    def __init__(self, scenario: Scenario, read: Callable[[str], bytes]) -> None:
        self._checks = {check.id: check for check in accounted(scenario.checks)}
        self._read = read
        self._can = missing("numpy") is None
        self._known: dict[str, bytes] = {}
        self.made = self.left = 0

    def hear(self, evidence: str, history: History) -> None:
        """Take one trial, by the path of its events.

        Raises:
            RecordError: an account is missing, there are two, or it is not what the artefacts give.
        """
        stated: dict[str, tuple[Mapping[str, JSON], int]] = {}
        for seen in history.seen:
            event = seen.event
            if (event.by, event.name) != ("harness", ARTEFACTS_ACCOUNTED):
                continue
            name = str(event.values.get("check"))
            if name in stated or name not in self._checks or event.rank is not None:
                raise RecordError(
                    f"{evidence}, line {seen.line}: this result belongs to no check, or it is a"
                    " duplicate"
                )
            stated[name] = event.values, seen.line
        for name, check in self._checks.items():
            wanted = is_asked(check, history)
            if name not in stated and (not wanted or harness_error(history) is not None):
                continue
            if not wanted or name not in stated:
                raise RecordError(
                    f"{evidence}: the result of check {name} is missing, or is present although the"
                    " check does not apply"
                )
            values, line = stated[name]
            if values.get("files") != files_of(check, history):
                raise RecordError(
                    f"{evidence}, line {line}: the artefacts used by check {name} differ from the"
                    " saved ones"
                )
            if not self._can or not all(
                one.get("stored") is True for one in found_of(check, history).values()
            ):
                self.left += 1
                continue
            self.made += 1
            (again,) = note_accounts([check], history, file=self._file)
            if canonical(again) != canonical(dict(values)):
                raise RecordError(
                    f"{evidence}, line {line}: recomputing check {name} from these artefacts gives"
                    " a different result from the recorded one"
                )

    def _file(self, values: Mapping[str, JSON]) -> ArrayFile:
        path = path_of(values)
        if path not in self._known:  # those of the reference are asked for again in each trial
            self._known[path] = self._read(path)
        return ArrayFile(path, self._known[path])

    @property
    def description(self) -> str:
        """Return what was made again; empty where no check asks for an account."""
        parts = [f"{plural(self.made, 'artefact check')} repeated"] if self.made else []
        if self.left:
            parts.append(f"{self.left} judged from their events only")
        return ", ".join(parts)
