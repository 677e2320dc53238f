"""One trial shown rank by rank, so that a reader sees real values and not only counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal

from harness.checks import Finding
from harness.forms.model import Model
from harness.stats.describe import shown
from harness.stats.outcome import Trial

EXCERPT_LINES = 12
EXCERPT_LIMIT = 2_000


class ShownCell(Model):
    """What one check saw on one rank, and the line of the trial's events that shows it."""

    rank: int
    passed: bool
    shown: str
    line: int | None = None


class ShownRow(Model):
    """One check over the ranks it asked."""

    check: str
    kind: str
    passed: bool
    cells: list[ShownCell]
    reason: str = ""
    line: int | None = None


class Excerpt(Model):
    """The last lines a rank printed, as it printed them."""

    rank: int
    path: str
    text: str


class ShownTrial(Model):
    """One trial: which it is, what every check saw, and the end of what failed ranks printed."""

    index: int
    evidence: str
    outcome: Literal["pass", "fail", "void"]
    rows: list[ShownRow]
    printed: list[Excerpt]


def make(
    trial: Trial, findings: Sequence[Finding], *, read: Callable[[str], bytes], names: Collection[str]
) -> ShownTrial:
    """Make the sample of a trial from its findings and its logs."""
    failed = sorted({rank for failure in trial.failures for rank in failure.ranks})
    printed = []
    for rank in failed:
        path = log_path(trial.evidence, rank)
        if path in names:
            printed.append(Excerpt(rank=rank, path=path, text=_tail(read(path))))
    return ShownTrial(
        index=trial.index,
        evidence=trial.evidence,
        outcome=trial.outcome,
        rows=[_row(finding) for finding in findings],
        printed=printed,
    )


def log_path(evidence: str, rank: int) -> str:
    """Where a rank's log lies, beside the trial's events."""
    return f"{evidence.rpartition('/')[0]}/rank-{rank}.log"


def _row(finding: Finding) -> ShownRow:
    cells = [
        ShownCell(
            rank=found.rank,
            passed=found.passed,
            shown=found.reason if found.observed is None else shown(found.observed),
            line=found.line,
        )
        for found in finding.ranks
    ]
    return ShownRow(
        check=finding.check,
        kind=finding.kind,
        passed=finding.passed,
        cells=cells,
        reason=finding.reason,
        line=finding.line,
    )


def _tail(log: bytes) -> str:
    lines = log.decode("utf-8", "backslashreplace").splitlines()
    return "\n".join(lines[-EXCERPT_LINES:])[-EXCERPT_LIMIT:]
