"""Two records of one scenario, row by row: same, changed, or cannot tell.

Rates are compared over pairs (McNemar) only where every trial of either side has one of the other
side with its seed. Else they are compared over the counts of all trials (Fisher), so that none is
left out. Void trials are among those that decide this, and outcomes do not: a test that is chosen
by its result finds too much. Where a cell keeps its services, starts are counted in place of
trials, since trials of one start depend on it.
`changed` needs p < 5 %; `same` needs the difference to be bounded by the margin: for the candidate
the failure rate that the scenario accepts, for the control half, since it is a demonstration and no
estimate. Between the two nothing is claimed, and the row says how many more trials would settle it.

Times are `changed` where their 95 % intervals are apart, and `same` where the ratio lies within 0.8
and 1.25. They come from the machine as much as from the code, so they never decide the answer; nor
do environment and scenario.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from harness.forms.text import plural
from harness.record.model import Record
from harness.record.reproduced import differences
from harness.report.blocks import (
    Block,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Strong,
    Table,
    Verbatim,
)
from harness.report.summary import tree_state
from harness.scenario import SIGNIFICANT, trials_needed
from harness.stats.measured import MeasuredSummary, summarise
from harness.stats.outcome import Trial
from harness.stats.rates import (
    fisher_two_sided,
    least_trials,
    lower_bound,
    mcnemar,
    pairs_to_tell,
    trials_to_tell,
    upper_bound,
)
from harness.stats.tally import StartCounts, Tally
from harness.stats.verdict import CellVerdict

Word = Literal["same", "changed", "cannot tell"]
Kind = Literal[
    "verdict", "candidate", "control", "check", "time", "measured", "environment", "scenario"
]
DECIDING: frozenset[Kind] = frozenset({"verdict", "candidate", "control", "check"})
ABSENT = "none"
CONTROL_MARGIN = 0.5
RATIO = (0.8, 1.25)
ENOUGH = 6
DEPENDENT = "trials of one start of the services are not independent"
ONE_KEEPS = "only one of the runs keeps its services for more than one trial"

_RateKind: TypeAlias = Literal["candidate", "control", "check"]
_Ruling: TypeAlias = tuple[Word, str, int | None]


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
        more: further trials, on each side, that would settle a `cannot tell`; None where nobody can
            say.
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
        """Tell whether the answer of the whole comparison depends on it."""
        return self.kind in DECIDING


class OtherScenario(ValueError):
    """Two records that answer different questions; the message names both."""


@dataclass(frozen=True, kw_only=True)
class ComparedRuns:
    """What comparing found, in the order of the first record's cells.

    Attributes:
        pairs: trials of the candidate that share their seed with one of the other record, over all
            cells.
        rows: every row; those of kind `verdict`, `candidate`, `control` and `check` decide the
            word.
    """

    pairs: int
    rows: tuple[Row, ...]

    @property
    def word(self) -> Word:
        """`changed` beats `cannot tell` beats `same`."""
        words = {row.word for row in self.rows if row.decides}
        order: tuple[Word, ...] = ("changed", "cannot tell", "same")
        return next((word for word in order if word in words), "cannot tell")


@dataclass(frozen=True)
class _Accepted:
    """Difference of two rates that counts as none, and the confidence of its bound."""

    margin: float
    confidence: float


@dataclass(frozen=True)
class _Sides:
    """Counted trials of one arm of one cell in both records, and which of them share a seed.

    Attributes:
        are_paired: whether every trial that was made, also a void one, has one of the other side.
        starts: of both sides, where one of them keeps its services: then trials are not
            independent, and starts are counted in their place. None of a side that keeps none.
    """

    first: tuple[Trial, ...]
    second: tuple[Trial, ...]
    pairs: tuple[tuple[Trial, Trial], ...]
    are_paired: bool
    starts: tuple[StartCounts | None, StartCounts | None] | None = None


def compare(first: Record, second: Record) -> ComparedRuns:
    """Compare two records.

    Raises:
        OtherScenario: they are of two scenarios.
    """
    scenario = first.scenario
    other_scenario = second.scenario
    if scenario.id != other_scenario.id:
        raise OtherScenario(
            f"{scenario.id} and {other_scenario.id} are different scenarios; compare two runs of"
            " the same scenario"
        )
    accepted = _Accepted(
        margin=max(scenario.accept_rate, other_scenario.accept_rate),
        confidence=max(scenario.accept_confidence, other_scenario.accept_confidence),
    )
    known = {cell.id: cell for cell in second.judgement.cells}
    rows: list[Row] = []
    pairs = 0
    for cell in first.judgement.cells:
        match = known.pop(cell.id, None)
        if match is None:
            rows.append(_missing(cell, second_lacks=True))
            continue
        if cell.candidate and match.candidate:
            pairs += len(_sides(cell.candidate, match.candidate).pairs)
        rows += _cell(cell, match, accepted)
    rows += [_missing(cell, second_lacks=False) for cell in known.values()]
    return ComparedRuns(pairs=pairs, rows=(*rows, *_surroundings(first, second)))


def _missing(cell: CellVerdict, *, second_lacks: bool) -> Row:
    words = (cell.verdict, "no such cell") if second_lacks else ("no such cell", cell.verdict)
    how = "only one of the records has this cell"
    return Row("verdict", cell.id, "verdict", words, "cannot tell", how)


def _cell(left: CellVerdict, right: CellVerdict, accepted: _Accepted) -> Iterator[Row]:
    rows: list[Row] = []
    if left.candidate is not None and right.candidate is not None:
        sides = _sides(left.candidate, right.candidate)
        rows.append(_rate("candidate", left.id, "trials that failed", sides, accepted))
        rows += _checks(left, right, sides, accepted)
    if left.control is not None and right.control is not None:
        sides = _sides(left.control, right.control)
        half = _Accepted(CONTROL_MARGIN, accepted.confidence)
        rows.append(_rate("control", left.id, "trials that failed as required", sides, half))
    elif (left.control is None) != (right.control is None) and left.candidate and right.candidate:
        words = _two("there is one" if cell.control else "there is none" for cell in (left, right))
        rows.append(Row("control", left.id, "negative control", words, "changed", ""))
    yield _verdict(left, right, rows)
    yield from rows
    if left.candidate is not None and right.candidate is not None:
        yield _duration(left.id, _sides(left.candidate, right.candidate))
    yield from _measured(left, right)


def _verdict(left: CellVerdict, right: CellVerdict, rows: Sequence[Row]) -> Row:
    words = (left.verdict, right.verdict)
    word: Word = "cannot tell"
    how = "the verdicts differ, but the trials do not show that the two runs differ"
    if "SKIPPED" in words:
        how = "a skipped cell shows nothing"
    elif left.verdict == right.verdict:
        word = "same"
        how = ""
    elif any(row.word == "changed" for row in rows):
        word = "changed"
        how = "see the rows that changed"
    return Row("verdict", left.id, "verdict", words, word, how)


def _sides(left: Tally, right: Tally) -> _Sides:
    first, second = (
        tuple(trial for trial in tally.trials if trial.outcome != "void") for tally in (left, right)
    )
    known = {(trial.index, trial.seed): trial for trial in second}
    pairs = tuple(
        (trial, known[trial.index, trial.seed])
        for trial in first
        if (trial.index, trial.seed) in known
    )
    made, other = ({(trial.index, trial.seed) for trial in tally.trials} for tally in (left, right))
    starts = (left.starts, right.starts)
    return _Sides(first, second, pairs, made == other, starts if any(starts) else None)


def _rate(
    kind: _RateKind,
    cell: str,
    what: str,
    sides: _Sides,
    accepted: _Accepted,
    check: str | None = None,
) -> Row:
    """One rate: how often trials failed, failed a check, or (of a control) failed as required."""
    if sides.starts is not None and check is None:
        return _rate_of_starts(kind, cell, what, sides.starts, accepted)

    def hit(trial: Trial) -> bool:
        if check is not None:
            return any(failure.check == check for failure in trial.failures)
        return bool(trial.as_stated) if kind == "control" else trial.outcome == "fail"

    hits = [sum(map(hit, side)) for side in (sides.first, sides.second)]
    totals = [len(sides.first), len(sides.second)]
    shown = _two(f"{count} of {total}" for count, total in zip(hits, totals, strict=True))
    if sides.starts is not None:  # in how many starts a check failed is not in a record
        return Row(kind, cell, what, shown, "cannot tell", DEPENDENT)
    if sides.are_paired and sides.pairs:
        word, how, more = _paired(sides, hit, accepted)
        return Row(kind, cell, what, shown, word, how, more)
    word, how, more = _counted(hits, totals, accepted)
    if sides.pairs:
        how += f"; only {plural(len(sides.pairs), 'pair')}, so all trials are counted"
    return Row(kind, cell, what, shown, word, how, more)


def _rate_of_starts(
    kind: _RateKind,
    cell: str,
    what: str,
    sides: tuple[StartCounts | None, StartCounts | None],
    accepted: _Accepted,
) -> Row:
    """How often starts of the services failed, or (of a control) failed as required."""
    what = what.replace("trials", "starts of the services")
    hits: list[int] = []
    totals: list[int] = []
    shown: list[str] = []
    for counts in sides:
        if counts is None:
            shown.append("one for each trial")
            continue
        hits.append(counts.as_stated if kind == "control" else counts.failed)
        totals.append(counts.counted)
        shown.append(f"{hits[-1]} of {totals[-1]}")
    if len(hits) < len(sides):
        return Row(kind, cell, what, _two(shown), "cannot tell", ONE_KEEPS)
    word, how, more = _counted(hits, totals, accepted)
    return Row(kind, cell, what, _two(shown), word, how, more)


def _paired(sides: _Sides, hit: Callable[[Trial], bool], accepted: _Accepted) -> _Ruling:
    count = len(sides.pairs)
    only_first = sum(hit(left) and not hit(right) for left, right in sides.pairs)
    only_second = sum(hit(right) and not hit(left) for left, right in sides.pairs)
    apart = only_first + only_second
    p_value = mcnemar(only_first, only_second)
    how = f"{apart} of {count} pairs differ, McNemar p = {p_value:.2g}"
    if p_value < SIGNIFICANT:
        return "changed", how, None
    if upper_bound(apart, count, confidence=accepted.confidence) < accepted.margin:
        return "same", f"{how}; fewer than {accepted.margin:.0%} differ", None
    needed = pairs_to_tell(only_first, only_second, count) or least_trials(
        lambda pairs: upper_bound(apart, pairs, confidence=accepted.confidence) < accepted.margin,
        more_than=count,
    )
    return "cannot tell", how, max(1, needed - count) if needed else None


def _counted(hits: Sequence[int], totals: Sequence[int], accepted: _Accepted) -> _Ruling:
    margin = accepted.margin
    confidence = accepted.confidence
    if not all(totals):
        return "cannot tell", "one side has no counted trials", None
    p_value = fisher_two_sided(hits[0], totals[0], hits[1], totals[1])
    how = f"Fisher p = {p_value:.2g}"
    if p_value < SIGNIFICANT:
        return "changed", how, None
    counts = list(zip(hits, totals, strict=True))
    low = [lower_bound(count, total, confidence=confidence) for count, total in counts]
    high = [upper_bound(count, total, confidence=confidence) for count, total in counts]
    if max(high[0] - low[1], high[1] - low[0]) < margin:
        return "same", f"{how}; the rates differ by less than {margin:.0%}", None
    rates = [count / total for count, total in counts]
    needed = trials_to_tell(*rates) or (
        trials_needed(below=margin, confidence=confidence) if not sum(hits) else None
    )
    return "cannot tell", how, max(1, needed - min(totals)) if needed else None


def _checks(
    left: CellVerdict, right: CellVerdict, sides: _Sides, accepted: _Accepted
) -> Iterator[Row]:
    """Yield a row for each check that failed somewhere.

    The others never did, in any trial of either run.
    """
    failed = Counter(
        check
        for side in (sides.first, sides.second)
        for trial in side
        for check in {f.check for f in trial.failures}
    )
    for check in sorted(failed):
        yield _rate("check", left.id, f"{check} failed", sides, accepted, check)
    checks = [_asked(cell) for cell in (left, right)]
    for check in sorted(checks[0] ^ checks[1]):
        words = _two("checked" if check in each else "not checked" for each in checks)
        how = "only one of the scenarios has this check"
        yield Row("check", left.id, check, words, "changed", how)


def _asked(cell: CellVerdict) -> set[str]:
    """Checks of the candidate's sample trial."""
    sample = cell.samples.get("candidate")
    return {row.check for row in sample.rows} if sample is not None else set()


def _duration(cell: str, sides: _Sides) -> Row:
    times = [
        summarise([trial.ms / 1000 for trial in side]) if side else None
        for side in (sides.first, sides.second)
    ]
    return _summaries("time", cell, "a trial of the candidate took", times, "s")


def _measured(left: CellVerdict, right: CellVerdict) -> Iterator[Row]:
    known = {(row.id, row.rank): row for row in right.measured}
    for row in left.measured:
        match = known.get((row.id, row.rank))
        summaries = [
            each.arms.get("candidate") if each is not None else None for each in (row, match)
        ]
        what = f"{row.id} on rank {row.rank}"
        yield _summaries("measured", left.id, what, summaries, row.unit)


def _summaries(
    kind: Kind, cell: str, what: str, sides: Sequence[MeasuredSummary | None], unit: str
) -> Row:
    left, right = sides
    shown = _interval(left, unit), _interval(right, unit)
    if left is None or right is None:
        return Row(kind, cell, what, shown, "cannot tell", "not measured in both")
    if min(left.count, right.count) < ENOUGH:
        how = f"fewer than {ENOUGH} values, too few for a 95% interval"
        lacking = ENOUGH - min(left.count, right.count)
        return Row(kind, cell, what, shown, "cannot tell", how, lacking)
    ratio = f"ratio of medians {right.median / left.median:.2f}" if left.median > 0 else ""
    if left.high < right.low or right.high < left.low:
        how = f"{ratio}; the intervals do not overlap".removeprefix("; ")
        return Row(kind, cell, what, shown, "changed", how)
    alike = left == right or (
        left.low > 0 and RATIO[0] <= right.low / left.high and right.high / left.low <= RATIO[1]
    )
    return Row(kind, cell, what, shown, "same" if alike else "cannot tell", ratio)


def _two(values: Iterable[str]) -> tuple[str, str]:
    first, second = values
    return first, second


def _interval(summary: MeasuredSummary | None, unit: str) -> str:
    if summary is None:
        return "not measured"
    digits = 3 if unit == "s" else 0
    return (
        f"{summary.median:.{digits}f} {unit} ({summary.low:.{digits}f} to"
        f" {summary.high:.{digits}f}, n = {summary.count})"
    )


def _surroundings(first: Record, second: Record) -> Iterator[Row]:
    """Yield a row for each difference, or one that says there is none."""
    here = _question(first)
    there = _question(second)
    names = [
        name for name in sorted(here.keys() | there.keys()) if here.get(name) != there.get(name)
    ]
    for name in names:
        yield Row(
            "scenario", "", name, (here.get(name, ABSENT), there.get(name, ABSENT)), "changed"
        )
    if not names:
        yield Row("scenario", "", "scenario, code and inputs", ("", ""), "same")
    changes = differences(None, first.run, second.run)
    for change in changes:
        yield Row("environment", "", change.what, (change.then, change.now), "changed")
    if not changes:
        packages = len(first.run.environment.packages)
        what = f"machine, interpreter, variables and {packages} packages"
        yield Row("environment", "", what, ("", ""), "same")


def _question(record: Record) -> dict[str, str]:
    scenario = record.scenario
    run = record.run
    rows = {
        "scenario file": f"sha256 {scenario.sha256[:12]}",
        "set on the command line": "  ".join(run.overrides) or ABSENT,
        "root seed": scenario.seed,
        "trials planned": f"{scenario.candidate_trials} candidate, {scenario.control_trials} control",
        "accepted failure rate": f"{scenario.accept_rate:.3g} at {scenario.accept_confidence:.0%}",
        "control must fail": scenario.must_fail or ABSENT,
        "commit": _commit(record),
        "home folder of the ranks": run.room.home,
    }
    for name, arm in record.arms.items():
        rows[f"arguments of the {name}"] = arm.arguments
        rows |= {f"{name}: {file}": f"sha256 {digest[:12]}" for file, digest in arm.files.items()}
        if arm.revision is not None:
            rows[f"revision of the {name}"] = arm.revision.commit[:12]
    rows |= {f"input {given.name}": f"sha256 {given.digest[:12]}" for given in run.inputs}
    return rows | _services(record)


def _services(record: Record) -> dict[str, str]:
    """Return what was started of each service. Cells may differ, so each has rows of its own."""
    rows = {}
    for cell in record.judgement.cells:
        for service in cell.services:
            name = f"{service.name} of the {record.scenario.arm(service.arm)} ({cell.id})"
            rows[f"program of {name}"] = service.command_line
            rows[f"processes of {name}"] = str(service.processes)
            rows[f"{name} is kept for each"] = service.keep
    return rows


def _commit(record: Record) -> str:
    source = record.run.source
    return f"{source.commit[:12]}, {tree_state(record)}" if source.commit else "unknown"


# -- a comparison as blocks, for terminal and markdown, and as JSON --------------------------------


SECTIONS: tuple[tuple[str, frozenset[Kind]], ...] = (
    ("Results", frozenset({"verdict", "candidate", "control", "check"})),
    ("Times and measurements", frozenset({"time", "measured"})),
    ("Scenario", frozenset({"scenario"})),
    ("Environment", frozenset({"environment"})),
)
NOTE = (
    "Changed: p < 5%. Same: the difference is below what the scenario accepts (half for the"
    " control). Times: changed if the 95% intervals do not overlap, same if their ratio is"
    " between 0.8 and 1.25; they do not decide the answer. More: further trials on each side that"
    " would settle it, at a power of 80%."
)


def blocks(
    comparison: ComparedRuns, first: Record, second: Record, *, verified: tuple[bool, bool]
) -> Iterator[Block]:
    """Comparison as blocks; `verified` says of each record whether it was."""
    yield Heading(1, Foreign(f"{first.scenario.id}: {first.run.id} and {second.run.id}"))
    pairs = (
        f"{plural(comparison.pairs, 'pair')} of trials share their seed"
        if comparison.pairs
        else "no trials share their seed"
    )
    yield Paragraph(Strong(comparison.word.upper()), f": {pairs}.")
    sides = zip("AB", (first, second), verified, strict=True)
    yield Table(
        ("", "run", "made", "commit", "verdict", "verified"),
        tuple(
            (
                name,
                Verbatim(record.run.id),
                Verbatim(record.run.made),
                Verbatim((record.run.source.commit or "unknown")[:12]),
                Strong(record.word),
                "yes" if good else Strong("NO"),
            )
            for name, record, good in sides
        ),
    )
    for title, kinds in SECTIONS:
        rows = [row for row in comparison.rows if row.kind in kinds]
        yield Heading(2, title)
        # What is about the whole run has neither cell nor test.
        cut = slice(0, None) if any(row.cell for row in rows) else slice(1, 5)
        header: tuple[Part, ...] = ("cell", "what", "A", "B", "word", "how", "more")
        yield Table(header[cut], tuple(_row(row)[cut] for row in rows))
    yield Note(NOTE)


def as_json(
    comparison: ComparedRuns, first: Record, second: Record, *, verified: tuple[bool, bool]
) -> dict[str, Any]:
    """Comparison for machines."""
    return {
        "word": comparison.word,
        "pairs": comparison.pairs,
        "scenario": first.scenario.id,
        "runs": [
            {
                "run": record.run.id,
                "made": record.run.made,
                "commit": record.run.source.commit,
                "verdict": record.word,
                "verified": good,
            }
            for record, good in zip((first, second), verified, strict=True)
        ],
        "rows": [{**dataclasses.asdict(row), "decides": row.decides} for row in comparison.rows],
    }


def _row(row: Row) -> tuple[Part, ...]:
    word: Part = row.word if row.word == "same" else Strong(row.word)
    more = f"{row.more}" if row.more is not None else ""
    first, second = (Foreign(value, 200) for value in row.values)
    return Foreign(row.cell), Foreign(row.what, 200), first, second, word, row.how, more
