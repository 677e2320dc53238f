"""Causes of a wrong output, as far as this run tells: what was looked at and holds, what does not,
what is open.

Each sentence follows from a check of the same trial or from another cell of the same run; nothing
is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from harness.checks import Check, Finding
from harness.checks.arrays import AgainstCheck
from harness.checks.equivalent import EquivalentCheck, parity_of, tokens_of
from harness.forms.model import Model
from harness.forms.text import numbered, plural
from harness.history import History
from harness.scenario import Cell, Scenario
from harness.stats.ends import short
from harness.stats.outcome import Arm
from harness.stats.tally import Tally

Word = Literal["excluded", "found", "open"]
# What checks of these kinds say is or is not the cause, in the words of the report.
_OF_ALL = (
    ("the ranks do not have the sharded checkpoint", ("shards-cover",)),
    ("a rank does not participate", ("influence",)),
    ("the environments of the ranks differ", ("environment-agrees",)),
)
CAUSES = (
    *_OF_ALL,
    ("the ranks' collective calls differ", ("ledger-agrees",)),
    ("a collective returns wrong elements", ("collective-correct",)),
    ("received data differs from what was sent", ("transfers-intact",)),
    ("ranks differ where they must agree", ("agree",)),
)
ONE = "already wrong in a world with one rank"
TOKENS = "the ranks generate different tokens"


class Cause(Model):
    """One thing that an output can be wrong by.

    Attributes:
        word: excluded by what was looked at, found there, or open: nothing of this run tells.
        what: the cause.
        why: what tells it.
    """

    word: Word
    what: str
    why: str


class Attribution(Model):
    """Of the first trial of an arm in which what ranks computed was wrong.

    Attributes:
        index: number of the trial.
        evidence: path of its events.
        checks: those of its output that failed.
        where: the first layer that differs, where hidden states were kept; else empty.
        first_rung: the smallest world of the same kind that is wrong; None where no smaller one
            ran.
        causes: each with what tells it.
    """

    index: int
    evidence: str
    checks: list[str]
    where: str
    first_rung: int | None
    causes: list[Cause]

    @property
    def remains(self) -> str:
        """Return what is left, in one sentence.

        That two things are wrong in a trial does not say that one made the other.
        """
        causes = [cause.what for cause in self.causes if cause.word == "found"]
        also = [what for what in causes if what != ONE]
        parts = [ONE] if ONE in causes else []
        parts += [f"also wrong there: {'; '.join(also)}"] if also else []
        return (
            "; ".join(parts)
            or "the cause is unknown, because this run ruled out every cause that it checked"
        )


def output_checks(checks: Sequence[Check]) -> list[Check]:
    """Those that compare what ranks computed with what it should be."""
    compares = [
        check for check in checks if isinstance(check, AgainstCheck) and check.of[0] is not None
    ]
    return [check for check in checks if isinstance(check, EquivalentCheck) or check in compares]


def attribute(
    scenario: Scenario, index: int, evidence: str, findings: Sequence[Finding], history: History
) -> Attribution | None:
    """Return what one trial tells by itself; None where none of its outputs is wrong.

    A check that could compare nothing shows no wrong output.
    """
    by_id = {finding.check: finding for finding in findings}
    wrong = [
        check
        for check in output_checks(scenario.checks)
        if any(
            not (part.passed or part.uncompared or part.missing) for part in by_id[check.id].ranks
        )
    ]
    if not wrong:
        return None
    causes = []
    for what, kinds in CAUSES:
        asked = [by_id[check.id] for check in scenario.checks if check.kind in kinds]
        causes.append(_cause(what, asked, kinds))
    if history.size > 1:
        causes += _of_tokens([tokens_of(history, rank) for rank in range(history.size)])
    return Attribution(
        index=index,
        evidence=evidence,
        checks=[check.id for check in wrong],
        where=next(filter(None, (_where(check, history) for check in wrong)), ""),
        first_rung=None,
        causes=causes,
    )


def _cause(what: str, asked: Sequence[Finding], kinds: Sequence[str]) -> Cause:
    if not asked:
        return Cause(
            word="open", what=what, why=f"the scenario has no check of kind {' or '.join(kinds)}"
        )
    names = ", ".join(finding.check for finding in asked)
    for finding in asked:
        parts = [part for part in finding.ranks if not part.passed]
        if shown := [part for part in parts if not (part.uncompared or part.missing)]:
            why = f"check {finding.check}, rank {shown[0].rank}: {short(shown[0].reason)}"
            return Cause(word="found", what=what, why=why)
        if parts or finding.reason:
            return Cause(
                word="open", what=what, why=f"check {finding.check} had nothing to compare"
            )
    return Cause(
        word="excluded", what=what, why=f"check {names} passed on every rank that it covers"
    )


def _of_tokens(said: Sequence[Mapping[int, list[int]]]) -> list[Cause]:
    """Return whether the ranks generated the same; nothing where none says what it generated."""
    if not any(said):
        return []
    telling = [rank for rank, tokens in enumerate(said) if tokens]
    first = telling[0]
    if other := [rank for rank in telling if said[rank] != said[first]]:
        why = f"{numbered('rank', other)} and rank {first} generated different tokens"
        return [Cause(word="found", what=TOKENS, why=why)]
    if silent := [rank for rank, tokens in enumerate(said) if not tokens]:
        return [
            Cause(word="open", what=TOKENS, why=f"{numbered('rank', silent)} did not report any")
        ]
    return [Cause(word="excluded", what=TOKENS, why="every rank generated the same tokens")]


def _where(check: Check, history: History) -> str:
    """Return the first layer that differs, of all ranks the least."""
    parity = parity_of(check, history) if isinstance(check, EquivalentCheck) else None
    layers = [
        (rank, rank_parity.layer)
        for rank, rank_parity in enumerate(parity.ranks if parity else ())
        if rank_parity.layer is not None
    ]
    if not layers:
        return ""
    rank, least = min(
        layers, key=lambda item: (item[1].layer, not item[1].part, item[1].part, item[0])
    )
    part = f", {least.part}" if least.part else ""
    return (
        f"layer {least.layer}{part}, on rank {rank}, position {least.at.position} of prompt"
        f" {least.at.prompt}"
    )


def on_rungs(
    attribution: Attribution,
    cell: Cell,
    others: Sequence[tuple[Cell, Tally | None]],
    *,
    compared: Mapping[str, Attribution],
) -> Attribution:
    """Add what smaller worlds of the same run tell.

    Args:
        attribution: of the cell.
        cell: whose axes the others have to share; its backend too, but for a world of one.
        others: every cell with the counts of the same arm; None where it did not run.
        compared: by the id of their cells, the attributions of the same arm: a trial in which
            nothing could be compared fails the check as well, and tells of no wrong output.
    """
    below = sorted(
        (
            (other, counts)
            for other, counts in others
            if counts is not None
            and counts.counted
            and other.ranks < cell.ranks
            and dict(other.axes) == dict(cell.axes)
            and other.hosts == cell.hosts
            and (other.backend == cell.backend or other.ranks == 1)
        ),
        key=lambda pair: (pair[0].ranks, pair[0].backend != cell.backend),
    )
    failed = {other.id: _wrong(counts, attribution.checks) for other, counts in below}
    wrong = {
        other.id
        for other, _ in below
        if other.id in compared and {*compared[other.id].checks} & {*attribution.checks}
    }
    decided = [other for other, _ in below if other.id in wrong or not failed[other.id]]
    ones = [other for other, _ in below if other.ranks == 1]
    if cell.ranks == 1:
        cause = Cause(
            word="found",
            what=ONE,
            why="this world has one rank, so it needs no communication between ranks",
        )
    elif not ones:
        cause = Cause(word="open", what=ONE, why="no world with one rank was run")
    elif ones[0] not in decided:
        many = plural(failed[ones[0].id], "trial")
        cause = Cause(
            word="open", what=ONE, why=f"{many} of cell {ones[0].id} failed with nothing to compare"
        )
    elif failed[ones[0].id]:
        cause = Cause(
            word="found",
            what=ONE,
            why=f"{plural(failed[ones[0].id], 'trial')} of cell {ones[0].id} failed",
        )
    else:
        cause = Cause(word="excluded", what=ONE, why=f"cell {ones[0].id} computes it correctly")
    wrong_at = [other.ranks for other in decided if other.id in wrong]
    first = min([*wrong_at, cell.ranks]) if decided or cell.ranks == 1 else None
    return attribution.model_copy(
        update={"first_rung": first, "causes": [cause, *attribution.causes]}
    )


def _wrong(counts: Tally, checks: Sequence[str]) -> int:
    """In how many trials of an arm one of these checks failed."""
    return sum(
        any(failure.check in checks for failure in trial.failures) for trial in counts.trials
    )


def climb(
    cells: Sequence[Cell],
    attributions: Sequence[Mapping[Arm, Attribution]],
    arms: Sequence[Mapping[Arm, Tally]],
) -> list[dict[Arm, Attribution]]:
    """Return the attributions of all cells, with what smaller worlds tell of each."""

    def compared(arm: Arm) -> dict[str, Attribution]:
        return {
            cell.id: of_cell[arm]
            for cell, of_cell in zip(cells, attributions, strict=True)
            if arm in of_cell
        }

    return [
        {
            arm: on_rungs(
                attribution,
                cell,
                [(other, counts.get(arm)) for other, counts in zip(cells, arms, strict=True)],
                compared=compared(arm),
            )
            for arm, attribution in of_cell.items()
        }
        for cell, of_cell in zip(cells, attributions, strict=True)
    ]
