"""What one run shows about the version that it ran, and the word that follows.

A version is AT FAULT only where it fails as the faulty end does: a version that is too old for the
scenario fails as well, and says nothing about the defect. It is RIGHT only where enough trials held
for the defect to have shown, if it were as frequent as at the faulty end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from harness.forms.distribution import normal
from harness.forms.model import parse_json
from harness.forms.text import plural
from harness.history import SLIPS, History
from harness.reason import VerdictCode
from harness.record.model import Record
from harness.scenario import Scenario
from harness.scenario.environment import satisfies
from harness.series.bisect.walk import Word
from harness.stats.profile import signature_of
from harness.stats.provenance import LoadedList, path_of
from harness.stats.rates import least_trials, lower_bound, upper_bound
from harness.stats.tally import Tally
from harness.stats.verdict import CellVerdict

Side = Literal["candidate", "control"]


@dataclass(frozen=True, kw_only=True)
class CellCount:
    """The trials of one cell: how many counted, how many failed, and in which ways."""

    counted: int
    failed: int
    ways: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """What a run shows, before it is held against the faulty end.

    Attributes:
        cells: by id, those that ran.
        failed: whether the version failed; None where the run does not tell.
        why: why it does not tell; empty where it does.
    """

    cells: Mapping[str, CellCount]
    failed: bool | None
    why: str = ""

    @property
    def counted(self) -> int:
        """Trials that counted, over all cells."""
        return sum(cell.counted for cell in self.cells.values())

    @property
    def failures(self) -> int:
        """Trials that failed, over all cells."""
        return sum(cell.failed for cell in self.cells.values())

    @property
    def ways(self) -> frozenset[str]:
        """Every way in which a trial failed."""
        return frozenset[str]().union(*(cell.ways for cell in self.cells.values()))


def facts_of(
    scenario: Scenario,
    record: Record,
    *,
    side: Side,
    release: tuple[str, str],
    read: Callable[[str], bytes],
) -> StepFacts:
    """Return what a run shows about a version.

    Args:
        scenario: that was run.
        record: of the run.
        side: the arm that ran the version: the candidate, or the control of an unchanged run.
        release: normal name of the package, and its version.
        read: gives the bytes of an evidence file by its path.
    """
    ran = [cell for cell in record.judgement.cells if cell.verdict != "SKIPPED"]
    if not ran:
        reasons = [str(reason) for cell in record.judgement.cells for reason in cell.reasons]
        return StepFacts(cells={}, failed=None, why=reasons[0] if reasons else "no cell ran")
    cells = {cell.id: _count(cell, side, read) for cell in ran}
    shown = StepFacts(cells=cells, failed=None)
    why = _other_version(scenario, ran, side=side, release=release, read=read)
    failed: bool | None = None
    if side == "control":
        # How a control has to fail is stated, and a run that passed has proved that it did.
        failed = True
        why = why or _first_reason(cell for cell in ran if cell.verdict != "PASS")
    elif any(cell.verdict == "FAIL" for cell in ran):
        failed = True
        why = why or _slip(scenario, shown)
    elif all(_holds(cell) for cell in ran):
        failed = False
        if shown.failures:
            why = why or f"{shown.failures} of {plural(shown.counted, 'trial')} failed"
    else:
        why = why or _first_reason(cell for cell in ran if not _holds(cell))
    return StepFacts(cells=cells, failed=None if why else failed, why=why)


def word_of(facts: StepFacts, fault: StepFacts | None, *, confidence: float) -> tuple[Word, str]:
    """Return the word of a version and why.

    Args:
        facts: what its run shows.
        fault: what the run of the faulty end shows; None where no end is at fault.
        confidence: of the bounds of both failure rates.
    """
    if facts.failed is None:
        return "CANNOT TELL", facts.why
    if facts.failed:
        strange = sorted(facts.ways - fault.ways) if fault is not None else []
        if strange:
            return "CANNOT TELL", f"it fails differently from the faulty end: {strange[0]}"
        return "AT FAULT", "; or ".join(sorted(facts.ways))
    for name, faulty in fault.cells.items() if fault is not None else ():
        if not faulty.failed:
            continue
        cell = facts.cells.get(name)
        if cell is None:
            return "CANNOT TELL", f"the cell {name}, in which the faulty end fails, did not run"
        least = lower_bound(faulty.failed, faulty.counted, confidence=confidence)
        if upper_bound(0, cell.counted, confidence=confidence) >= least:
            return "CANNOT TELL", _may_be_chance(cell, faulty, least, confidence)
    return "RIGHT", ""


def _may_be_chance(cell: CellCount, faulty: CellCount, least: float, confidence: float) -> str:
    """Say that a version held in too few trials, and how many would do."""
    needed = least_trials(
        lambda trials: upper_bound(0, trials, confidence=confidence) < least,
        more_than=cell.counted,
    )
    more = f"; set --trials {needed}" if needed else ""
    return (
        f"no trial of {cell.counted} failed, but the faulty end fails only in {faulty.failed} of"
        f" {faulty.counted}, so this may be chance{more}"
    )


def _count(cell: CellVerdict, side: Side, read: Callable[[str], bytes]) -> CellCount:
    tally: Tally | None = cell.arms.get(side)
    if tally is None:
        return CellCount(counted=0, failed=0, ways=frozenset())
    signatures = [
        signature_of(trial, History.read(read(trial.evidence), size=cell.ranks))
        for trial in tally.trials
        if trial.outcome == "fail"
    ]
    ways = {signature.description() for signature in signatures if signature is not None}
    over = tally.starts  # trials of one start of a server are not independent
    return CellCount(
        counted=tally.counted if over is None else over.counted,
        failed=tally.failed if over is None else over.failed,
        ways=frozenset(ways),
    )


def _holds(cell: CellVerdict) -> bool:
    """Return whether the candidate held.

    A scenario without a control never passes. In a bisect the faulty end is the control.
    """
    codes = {reason.code for reason in cell.reasons}
    return cell.verdict == "PASS" or (
        cell.verdict == "INCONCLUSIVE" and codes == {VerdictCode.NO_CONTROL}
    )


def _first_reason(cells: Iterable[CellVerdict]) -> str:
    return next((f"{cell.verdict}: {cell.reasons[0]}" for cell in cells if cell.reasons), "")


def _slip(scenario: Scenario, shown: StepFacts) -> str:
    """Return that the version fails by what a missing function raises too, unless that is stated;
    else empty.
    """
    control = scenario.subject.control
    stated = control.must_fail.error if control is not None else None
    for way in sorted(shown.ways):
        error = way.partition(" ")[0].partition(";")[0]
        if error != stated and (error in SLIPS or error == "ModuleNotFoundError"):
            return f"it raises {way}, like a version without the function that the scenario calls"
    return ""


def _other_version(
    scenario: Scenario,
    ran: Iterable[CellVerdict],
    *,
    side: Side,
    release: tuple[str, str],
    read: Callable[[str], bytes],
) -> str:
    """Return how what ranks loaded differs from the version that was asked for; empty where it does
    not.
    """
    name, version = release
    if scenario.subject.program is not None or scenario.services:
        return ""  # what programs load, nobody tells
    lists = {
        digest for cell in ran if cell.ran is not None for digest in cell.ran.lists.get(side, ())
    }
    listings = [parse_json(LoadedList, read(path_of(digest))) for digest in sorted(lists)]
    releases = [release for listing in listings for release in listing.releases]
    others = [other for listing in listings for other in listing.others]
    # What the repository declares is listed one by one, as its RECORD has it.
    releases += [(other.package, other.release) for other in others if other.record == "as"]
    imported: set[str] = set()
    for module, found in releases:
        if normal(found.rpartition(" ")[0]) == name:
            imported.add(module)
            if not satisfies(found.rpartition(" ")[2], version):
                return f"a rank loaded {found}, not {version}"
    if not imported:
        return (
            f"no rank loaded {name} {version} from its environment, because the subject does not"
            " import it, or finds another module with that name first (PYTHONPATH, its own folder)"
        )
    for other in others:
        if other.package in imported and normal(other.distribution or "") != name:
            return f"a rank also loaded a {other.package} that is not from {name} {version}"
    return ""
