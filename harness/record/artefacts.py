"""What ranks kept, as it lies in the evidence: each file once, by its digest; compared again by whoever has NumPy.

Without NumPy the comparison is judged by what the events hold of it, which has to hang together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from harness.checks.arrays import AgainstCheck, compares_arrays
from harness.forms.digest import sha256
from harness.forms.extras import absence, missing
from harness.forms.strict_json import JSON
from harness.history import ARTEFACT_COMPARED, ARTEFACT_FOUND, History, artefact_found
from harness.numeric.array import NotAnArray
from harness.numeric.arrays import ArrayFile
from harness.record.model import RecordError
from harness.scenario import Scenario

FOLDER = "evidence/artefacts"


def path_of(values: Mapping[str, JSON]) -> str:
    """Where an artefact lies, by the values of the event that tells of it."""
    suffix = ".bfloat16.npy" if values.get("dtype") == "bfloat16" else ".npy" if "dtype" in values else ".bin"
    return f"{FOLDER}/{values.get('sha256')}{suffix}"


class Arrays:
    """Those of one run, heard trial by trial.

    Attributes:
        compared: how many comparisons were worked out again from the arrays.
        left: how many were not, because an array is not in the evidence, or NumPy is not here.
    """

    def __init__(self, scenario: Scenario, read: Callable[[str], bytes]) -> None:
        self._checks = {check.id: check for check in compares_arrays(scenario.checks)}
        self._read = read
        self._stored: dict[str, str] = {}
        self._known: dict[tuple[str, str, str], dict[str, JSON] | str] = {}
        self._can = missing("numpy") is None
        self.compared = self.left = 0

    def hear(self, evidence: str, history: History) -> None:
        """Take one trial, by the path of its events.

        Raises:
            RecordError: a comparison is not what the arrays give.
        """
        for rank in range(history.size):
            for seen in history.noted(ARTEFACT_FOUND, rank):
                if seen.event.values.get("stored") is True:
                    self._stored[path_of(seen.event.values)] = f"{evidence}, line {seen.line}"
            for seen in history.noted(ARTEFACT_COMPARED, rank):
                check = self._checks.get(str(seen.event.values.get("check")))
                if check is None:
                    raise RecordError(f"{evidence}, line {seen.line}: arrays were compared that no check compares")
                name = str(check.of[1])
                other, whose = check.other(history, rank=rank)
                pair = [artefact_found(history, rank, name), artefact_found(other, whose, name) if other else None]
                values = [one.event.values for one in pair if one is not None]
                if not self._can or len(values) < 2 or not all(one.get("stored") is True for one in values):
                    self.left += 1
                    continue
                self.compared += 1
                if self._differs(check, values, seen.event.values):
                    place = f"{evidence}, line {seen.line}"
                    raise RecordError(f"{place}: the arrays of check {check.id} on rank {rank} differ otherwise")

    def demand(self, names: Collection[str]) -> None:
        """The files are those that the events name, with the content that they name.

        Raises:
            RecordError: one is missing, of nobody, or another.
        """
        there = {name for name in names if name.startswith(f"{FOLDER}/")}
        if odd := sorted(self._stored.keys() ^ there):
            raise RecordError(f"{odd[0]} is " + ("missing" if odd[0] in self._stored else "of no rank"))
        for name in sorted(there):
            if name.removeprefix(f"{FOLDER}/").partition(".")[0] != sha256(self._read(name)):
                raise RecordError(f"{name} is not what its rank kept ({self._stored[name]})")

    @property
    def description(self) -> str:
        """What was worked out again; empty where no arrays were compared."""
        parts = [f"{self.compared} comparisons of arrays worked out again"] if self.compared else []
        if self.left:
            why = "an array is not in the evidence" if self._can else absence("numpy")
            parts.append(f"{self.left} judged by what the events hold of them ({why})")
        return ", ".join(parts)

    def _differs(self, check: AgainstCheck, pair: list[Mapping[str, JSON]], stated: Mapping[str, JSON]) -> bool:
        """Whether two arrays do not give the comparison that is stated. Ranks often keep the same."""
        paths = [path_of(values) for values in pair]
        key = (check.id, paths[0], paths[1])
        if key not in self._known:
            try:
                files = [ArrayFile(path, self._read(path)) for path in paths]
                self._known[key] = check.compare(files[0], files[1])
            except NotAnArray as error:
                self._known[key] = str(error)
        found, comparison = self._known[key], stated.get("comparison")
        if isinstance(found, str):
            return stated.get("why") is None or comparison is not None
        return not isinstance(comparison, dict) or not check.agrees(comparison, found)
