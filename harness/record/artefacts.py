"""Artefacts that ranks kept, as they lie in the evidence: each file once, by its digest.

Compared again by whoever has NumPy.

Without NumPy the comparison is judged by what the events hold of it, which has to hang together.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Collection, Mapping

from harness.checks.arrays import (
    AgainstCheck,
    Known,
    compares_arrays,
    needled,
    needles_in,
    note_needles,
    sides_of,
)
from harness.checks.finding import canonical
from harness.faults.perturb import TOLD, PerturbFault
from harness.forms.digest import sha256
from harness.forms.distribution import absence, missing
from harness.forms.strict_json import JSON
from harness.forms.text import plural
from harness.history import (
    ARTEFACT_COMPARED,
    ARTEFACT_FOUND,
    NEEDLES_TRIED,
    History,
    artefact_found,
)
from harness.numeric.array import HEADER_LIMIT, NotAnArray, header
from harness.numeric.arrays import ArrayFile
from harness.record.model import RecordError
from harness.record.trial_reader import TrialReader
from harness.scenario import Scenario
from harness.stats.ends import harness_error
from harness.stats.verdict import Judgement

FOLDER = "evidence/artefacts"
LARGE = 1 << 30
"""Bytes of the largest file that is an artefact."""
PER_TRIAL = 32 << 20
PER_RUN = 256 << 20
"""Bytes of artefacts that the evidence holds.

Of what is beyond, it holds digest, shape and comparison.
"""


def path_of(values: Mapping[str, JSON]) -> str:
    """Where an artefact lies, by the values of the event that tells of it."""
    suffix = ".npy" if "dtype" in values else ".bin"
    if values.get("dtype") == "bfloat16":
        suffix = ".bfloat16.npy"
    return f"{FOLDER}/{values.get('sha256')}{suffix}"


def room_of(scenario: Scenario) -> int:
    """Bytes of artefacts that the evidence of a run of this scenario holds."""
    asked = scenario.world.artefacts
    return PER_RUN if asked is None else min(asked, PER_RUN)


class Arrays(TrialReader):
    """Those of one run, heard trial by trial.

    Attributes:
        compared: how many comparisons were worked out again from the arrays.
        left: how many were not, because an array is not in the evidence, or NumPy is not here.
    """

    def __init__(self, scenario: Scenario, read: Callable[[str], bytes]) -> None:
        self._checks = {check.id: check for check in compares_arrays(scenario.checks)}
        self._changes = [
            fault for fault in scenario.faults if isinstance(fault, PerturbFault) and fault.artefact
        ]
        self._read = read
        self._stored: dict[str, tuple[str, Mapping[str, JSON]]] = {}
        self._left_out: list[tuple[str, int, int]] = []
        self._known: dict[tuple[str, str, str], dict[str, JSON] | str] = {}
        self._can = missing("numpy") is None
        self._most = room_of(scenario)
        self._needled = needled(scenario.checks)
        self._pricked: Known = {}
        self._refused: set[tuple[str, str]] = set()
        self._untried: dict[tuple[str, str], str] = {}
        self.compared = self.left = 0

    def hear(self, evidence: str, history: History) -> None:
        """Take one trial, by the path of its events.

        Raises:
            RecordError: a comparison is not what the arrays give.
        """
        self._hear_found(evidence, history)
        self._hear_changed(evidence, history)
        self._hear_needles(evidence, history)
        asked = self._asked(history)
        for (check, rank), pair in asked.items():
            stated = [
                one
                for one in history.noted(ARTEFACT_COMPARED, rank)
                if one.event.values.get("check") == check
            ]
            if not stated and harness_error(history) is not None:
                continue
            if len(stated) != 1:
                many = "not compared" if not stated else f"compared {len(stated)} times"
                raise RecordError(
                    f"{evidence}: the arrays of check {check} on rank {rank} were {many}"
                )
            values = stated[0].event.values
            if [values.get("found"), values.get("expected")] != [one.get("sha256") for one in pair]:
                raise RecordError(
                    f"{evidence}, line {stated[0].line}: the compared arrays differ from the saved"
                    " ones"
                )
            if not self._can or not all(one.get("stored") is True for one in pair):
                self.left += 1
                continue
            self.compared += 1
            if self._differs(self._checks[check], pair, values):
                place = f"{evidence}, line {stated[0].line}"
                raise RecordError(
                    f"{place}: repeating the comparison of the arrays of check {check} on rank"
                    f" {rank} gives a different result from the recorded one"
                )
        for seen in history.seen:
            event = seen.event
            compared = (event.by, event.name) == ("harness", ARTEFACT_COMPARED)
            if compared and (str(event.values.get("check")), event.rank) not in asked:
                raise RecordError(f"{evidence}, line {seen.line}: no check compares these arrays")

    def _hear_needles(self, evidence: str, history: History) -> None:
        """Take what was tried with wrong arrays: in the candidate's trials, by every check that has
        a tolerance.

        Where one was refused in a cell nothing more has to be tried there: the other trials may
        tell of none.
        """
        cell = str(history.about().get("cell"))
        noted = [
            seen
            for seen in history.seen
            if (seen.event.by, seen.event.name) == ("harness", NEEDLES_TRIED)
        ]
        asked = {
            check.id: check for check in self._needled if history.about().get("arm") == "candidate"
        }
        for seen in noted:
            if seen.event.values.get("check") not in asked or seen.event.rank is not None:
                raise RecordError(
                    f"{evidence}, line {seen.line}: this test with changed arrays does not belong to a"
                    " check that requires one"
                )
        for name, check in asked.items():
            stated = [
                dict(seen.event.values) for seen in noted if seen.event.values.get("check") == name
            ]
            sides = list(sides_of(check, history))
            if not stated:
                if sides and harness_error(history) is None:
                    self._untried.setdefault((cell, name), evidence)
                continue
            if any(found is not None and found.is_refused for found in map(needles_in, stated)):
                self._refused.add((cell, name))
            files = [
                values for expected, others in sides for values in (expected, *others.values())
            ]
            if not self._can or not all(one.get("stored") is True for one in files):
                continue
            again = list(note_needles(check, history, file=self._file, known=self._pricked))
            if canonical(list(again)) != canonical(list(stated)):
                raise RecordError(
                    f"{evidence}: repeating the tests of check {name} with changed arrays gives results"
                    " that differ from the recorded ones"
                )

    def _file(self, values: Mapping[str, JSON]) -> ArrayFile:
        return ArrayFile(path_of(values), self._read(path_of(values)))

    def _hear_changed(self, evidence: str, history: History) -> None:
        """Take what a fault changed of an array that is here: it must be what the fault makes of
        what it was.
        """
        arm = history.about().get("arm")
        for fault in self._changes:
            for rank in fault.ranks.of(history.size) if fault.arm in (None, arm) else ():
                if (artefact := artefact_found(history, rank, fault.what)) is None:
                    continue
                for seen in history.said(rank, TOLD):
                    values_told = seen.event.values
                    values = artefact.event.values
                    if (
                        values_told.get("fault") != fault.id
                        or "why" in values_told
                        or values.get("stored") is not True
                    ):
                        continue
                    path = path_of(values)
                    before = fault.before(
                        self._read(path), path, values_told, fault.asked(history, rank)
                    )
                    if sha256(before) != values_told.get("was"):
                        place = f"{evidence}, line {seen.line}"
                        raise RecordError(
                            f"{place}: {fault.what} does not have the value that the fault"
                            f" {fault.id} sets"
                        )

    def _asked(self, history: History) -> dict[tuple[str, int], list[Mapping[str, JSON]]]:
        """Check and rank of each comparison that the harness makes of a trial, with both that are
        compared.
        """
        asked = {}
        is_reference = history.about().get("arm") == "reference"
        for check in self._checks.values():
            if is_reference and check.of[0] != "reference":
                continue
            for rank in range(history.size) if is_reference else check.ranks.of(history.size):
                name = str(check.of[1])
                other, whose = check.other(history, rank=rank)
                pair = [
                    artefact_found(history, rank, name),
                    artefact_found(other, whose, name) if other else None,
                ]
                values = [one.event.values for one in pair if one is not None]
                if len(values) == len(pair):
                    asked[check.id, rank] = values
        return asked

    def _hear_found(self, evidence: str, history: History) -> None:
        """Take what ranks kept: each once by its name, of the size that its shape asks, and stored
        where there was room.
        """
        stored = dict[str, int]()
        left_out = list[tuple[str, int]]()
        for rank in range(history.size):
            names = set()
            for seen in history.noted(ARTEFACT_FOUND, rank):
                values = seen.event.values
                place = f"{evidence}, line {seen.line}"
                if "artefact" not in values:
                    continue
                name = str(values["artefact"])
                many = values.get("bytes")
                if name in names or not isinstance(many, int) or not 0 <= many <= LARGE:
                    raise RecordError(f"{place}: {name} was found twice, or has an impossible size")
                names.add(name)
                if "dtype" in values and not could_have(values, many):
                    raise RecordError(
                        f"{place}: {name} has a size that does not match its shape and dtype"
                    )
                if values.get("stored") is True:
                    stored[path_of(values)] = many
                    self._stored.setdefault(path_of(values), (place, values))
                    if any(
                        self._stored[path_of(values)][1].get(key) != values.get(key)
                        for key in OF_A_FILE
                    ):
                        raise RecordError(
                            f"{place}: {name} is a file that another event describes differently"
                        )
                else:
                    left_out.append((place, many))
        self._left_out += [(place, many, sum(stored.values())) for place, many in left_out]

    def demand(self, judgement: Judgement, names: Collection[str]) -> None:
        """Demand that the files are those that the events name, with the content that they name.

        Raises:
            RecordError: one is missing, of nobody, or another.
        """
        del judgement
        if lacking := sorted(self._untried.keys() - self._refused):
            cell, name = lacking[0]
            raise RecordError(
                f"{self._untried[lacking[0]]}: check {name} was never tested with changed arrays"
                f" in cell {cell}"
            )
        there = {name for name in names if name.startswith(f"{FOLDER}/")}
        if odd := sorted(self._stored.keys() ^ there):
            raise RecordError(
                f"{odd[0]} is " + ("missing" if odd[0] in self._stored else "not from any rank")
            )
        for name in sorted(there):
            content = self._read(name)
            (place, values) = self._stored[name]
            if name.removeprefix(f"{FOLDER}/").partition(".")[0] != sha256(content):
                raise RecordError(f"{name} differs from the file that its rank kept ({place})")
            if any(values.get(key) != value for key, value in _said_of(name, content).items()):
                raise RecordError(
                    f"{name} does not have the size, shape or dtype that its event states ({place})"
                )
        total = sum(int(values["bytes"]) for _, values in self._stored.values())
        for place, many, of_the_trial in self._left_out:
            if many + of_the_trial <= PER_TRIAL and many + total <= self._most:
                raise RecordError(
                    f"{place}: an artefact is missing from the evidence, although it fits within the size limits"
                )

    @property
    def description(self) -> str:
        """Return what was worked out again; empty where no arrays were compared."""
        parts = [f"{plural(self.compared, 'array comparison')} repeated"] if self.compared else []
        if self.left:
            why = "an array is not in the evidence" if self._can else absence("numpy")
            parts.append(f"{self.left} judged from their events only ({why})")
        return ", ".join(parts)

    def _differs(
        self, check: AgainstCheck, pair: list[Mapping[str, JSON]], stated: Mapping[str, JSON]
    ) -> bool:
        """Return whether two arrays do not give the comparison that is stated.

        Ranks often keep the same.
        """
        paths = [path_of(values) for values in pair]
        key = (check.id, paths[0], paths[1])
        if key not in self._known:
            try:
                files = [ArrayFile(path, self._read(path)) for path in paths]
                self._known[key] = check.compare(files[0], files[1])
            except NotAnArray as error:
                self._known[key] = str(error)
        known = self._known[key]
        comparison = stated.get("comparison")
        if isinstance(known, str):
            return stated.get("why") is None or comparison is not None
        if not isinstance(comparison, dict):
            return True
        return not check.agrees(comparison, known)


OF_A_FILE = ("bytes", "dtype", "shape")


def could_have(values: Mapping[str, JSON], many: int) -> bool:
    """Return whether a file of so many bytes can hold an array of the shape and dtype that an event
    tells.
    """
    bits = re.fullmatch(r"[a-z]+?(8|16|32|64)|bool", str(values["dtype"]))
    shape = values.get("shape")
    if (
        bits is None
        or not isinstance(shape, list)
        or not all(isinstance(size, int) for size in shape)
    ):
        return False
    rest = many - math.prod(shape) * int(bits[1] or 8) // 8
    return 0 < rest <= HEADER_LIMIT + 12


def _said_of(name: str, content: bytes) -> dict[str, JSON]:
    """Return what an event has to say of a file."""
    if name.endswith(".bin"):
        return {"bytes": len(content), "dtype": None, "shape": None}
    try:
        head = header(io.BytesIO(content), name=name)
    except NotAnArray as error:
        raise RecordError(f"{name} is not an array: {error}") from None
    return {"bytes": len(content), "dtype": head.dtype, "shape": list(head.shape)}
