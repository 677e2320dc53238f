"""The trials of both arms, cell by cell: results by check and rank, and the negative control as it
failed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from harness.forms.text import plural
from harness.record.facts import SCENARIO_PATH
from harness.record.model import Record, ScenarioSummary
from harness.report.attribution import attribution
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Details,
    Evidence,
    Figure,
    Foreign,
    Heading,
    Paragraph,
    Part,
    Strong,
    Table,
    Text,
    Verbatim,
    first_open,
)
from harness.report.figures import distances_path, lanes_path, wires_path
from harness.report.wires import wires_section
from harness.report.words import control_in_words, ranks_in_words, worst_first
from harness.stats.outcome import Arm, Failure, Moment, Trial
from harness.stats.shown_trial import Excerpt, ShownCell, ShownRow, ShownTrial, Standing, Step
from harness.stats.tally import Tally
from harness.stats.verdict import CellVerdict

VALUE_LIMIT = 80
DIGEST = re.compile("[0-9a-f]{40,128}")
DIGEST_SHOWN = 12
FAILURES_SHOWN = 10
AMONG = ("a failure", "beside it")
COLUMNS = 8
GROUPS = 4
FAR = (
    "How far apart the arrays are, position by position, in units of what is allowed; above the"
    " line is beyond it:"
)
LIFE = (
    "The life of each rank in this trial. A tick is an event, named below: black as the rank says"
    " it, brown as the harness does, red for an error."
)


def ranks_section(record: Record) -> list[Block]:
    """Per cell: how often each check failed, and one trial rank by rank."""
    cells = worst_first(record.judgement.cells)
    parts = (
        (Foreign(f"{cell.id}: {cell.verdict}"), _candidate(cell, record.scenario)) for cell in cells
    )
    return [Heading(2, "Results by check and rank"), *first_open(parts)]


def _candidate(cell: CellVerdict, asked: ScenarioSummary) -> list[Block]:
    if cell.candidate is None:
        return [Paragraph(Strong("SKIPPED"), ": ", Foreign("; ".join(map(str, cell.reasons))))]
    section: list[Block] = []
    if trial := cell.samples.get("candidate"):
        section += [
            Paragraph(
                "One trial, ",
                Claim(
                    Verbatim(f"{asked.arm('candidate')} {trial.index}"), (Evidence(trial.evidence),)
                ),
                f", outcome {trial.outcome}:",
            ),
            trial_table(trial, cell),
            *_printed(trial, cell.candidate.trials[trial.index]),
            *_life(cell, "candidate"),
        ]
    section += _reference(cell, asked)
    section += _standing(cell, "candidate", asked)
    section += _failures(cell.candidate, asked)
    section += attribution(cell, "candidate", asked)
    section += _durations(cell, asked)
    return section


def printed_first(sample: ShownTrial, trial: Trial) -> Excerpt | None:
    """What the rank printed that failed first: it says more than what broke because of it."""
    first = trial.first.rank if trial.first is not None else None
    return next(
        (one for one in sample.printed if one.rank == first),
        sample.printed[-1] if sample.printed else None,
    )


def _printed(sample: ShownTrial, trial: Trial) -> list[Block]:
    excerpt = printed_first(sample, trial)
    if excerpt is None:
        return []
    who = Claim(f"rank {excerpt.rank} printed it", (Evidence(excerpt.path),))
    return [Paragraph("As ", who, ":"), Verbatim(excerpt.text, "text")]


def _without_an_error(cell: CellVerdict, trial: Trial, asked: ScenarioSummary) -> list[Block]:
    """A control's trial in which no rank failed by itself: what failed is a check alone, or
    nothing.
    """
    who = Claim(Verbatim(f"{asked.arm('control')} {trial.index}"), (Evidence(trial.evidence),))
    if not trial.failures:
        return [
            Paragraph("One trial, ", who, ": every rank came to its end, and every check held.")
        ]
    items = tuple(Foreign(f"{one.check}: {_why(one)}", 400) for one in trial.failures)
    stopped = (
        "the harness stopped the world"
        if cell.hung.get("control")
        else "every rank came to its end"
    )
    return [
        Paragraph(
            "One trial, ", who, f": no rank raised an error, {stopped}; these checks do not hold:"
        ),
        BulletList(items),
    ]


def _why(failure: Failure) -> str:
    """The reasons of a check, each once, with the ranks it is about."""
    alike: dict[str, list[int]] = {}
    whole = []
    for reason in failure.reasons:
        rank, _, text = reason.removeprefix("rank ").partition(": ")
        if reason.startswith("rank ") and rank.isdecimal():
            alike.setdefault(text, []).append(int(rank))
        else:
            whole.append(reason)
    return "; ".join(
        [*whole, *(f"{ranks_in_words(ranks)}: {text}" for text, ranks in alike.items())]
    )


def _life(cell: CellVerdict, arm: Arm) -> list[Block]:
    """The lanes of the ranks of a shown trial, and below them what every tick is."""
    figure = Figure(lanes_path(cell, arm), LIFE)
    pictures: list[Block] = [
        Figure(distances_path(cell, arm, check), f"{FAR} {check}.")
        for check in cell.samples[arm].compared
    ]
    items = []
    for line in cell.samples[arm].life:
        steps = [
            f"{step.name}{'' if step.by == 'rank' else f' ({step.by})'} {_ms(step)}"
            for step in line.steps
        ]
        more = [f"{plural(line.more, 'more event')}"] if line.more else []
        who = ranks_in_words(line.ranks) if line.ranks else "the world"
        how = f"; ended: {line.ended}" if line.ranks else ""
        items.append(Foreign(f"{who}: {', '.join([*steps, *more])}{how}", 4000))
    wires = cell.samples[arm].wires
    if wires is not None:
        pictures += wires_section(
            wires, picture=wires_path(cell, arm), evidence=cell.samples[arm].evidence
        )
    return [
        *pictures,
        figure,
        Details("What each tick is, in ms since the request", (BulletList(tuple(items)),)),
    ]


def _reference(cell: CellVerdict, asked: ScenarioSummary) -> list[Block]:
    """What the ranks were compared with: what it reported and kept, and how long each run of it
    took.
    """
    reference = cell.reference
    if reference is None:
        return []
    runs = [
        Claim(f"{ms / 1000:.2f} s", (Evidence(path),))
        for path, ms in zip(reference.evidence, reference.ms, strict=True)
    ]
    what = "a, rank for rank" if asked.called else "the reference, one process that holds the whole"
    text: list[Part] = [f"Compared with {what}; its runs took "]
    for place, run in enumerate(runs):
        text += [", " if place else "", run]
    rows: list[tuple[Part, ...]] = [
        (Verbatim(name), Foreign(value)) for name, value in reference.reported.items()
    ]
    rows += [
        (
            Verbatim(one.name),
            Foreign(f"{one.dtype} {one.shape}, sha256 {one.sha256[:DIGEST_SHOWN]}"),
        )
        for one in reference.arrays
    ]
    table = (
        [Table(("a's, rank 0" if asked.called else "the reference's", "value"), tuple(rows))]
        if rows
        else []
    )
    return [Paragraph(*text, "."), *table]


def _ms(step: Step) -> str:
    return f"{step.first_ms:.1f}" + (
        f" to {step.last_ms:.1f}" if step.last_ms != step.first_ms else ""
    )


def _standing(cell: CellVerdict, arm: Arm, asked: ScenarioSummary) -> list[Block]:
    """Where the ranks stood in the first trial of an arm whose world had to be stopped.

    Those at one place together.
    """
    hung = cell.hung.get(arm)
    if hung is None:
        return []
    trial = Claim(Verbatim(f"{asked.arm(arm)} {hung.index}"), (Evidence(hung.evidence, hung.line),))
    section: list[Block] = [
        Paragraph("Where the ranks stood when ", trial, " was stopped. ", Foreign(hung.proof))
    ]
    alike: dict[tuple[str, ...], list[Standing]] = {}
    for one in hung.ranks:
        alike.setdefault(tuple(one.calls), []).append(one)
    for calls, there in alike.items():
        who = ranks_in_words([one.rank for one in there]).capitalize()
        section += [
            Paragraph(
                Claim(who, (Evidence(hung.evidence, there[0].line),)), ", innermost call first:"
            ),
            Verbatim("\n".join(calls), "text"),
        ]
    return section


def trial_table(trial: ShownTrial, cell: CellVerdict) -> Table:
    """A trial as a table: a row per check, a column per rank.

    A value links to the line that shows it.

    Of more ranks than fit beside each other those that showed the same share a row.
    """
    failures = Counter(
        failure.check
        for one in (cell.candidate.trials if cell.candidate else ())
        for failure in one.failures
    )
    of_candidate = cell.candidate if trial is cell.samples.get("candidate") else None
    wide = cell.ranks > COLUMNS
    header: tuple[Part, ...] = (
        "check",
        *(("ranks", "value") if wide else (f"rank {n}" for n in range(cell.ranks))),
    )
    rows: list[tuple[Part, ...]] = []
    for row in trial.rows:
        failed = (
            () if of_candidate is None else (f"{failures[row.check]} of {of_candidate.counted}",)
        )
        if not wide:
            rows.append(
                (
                    Verbatim(row.check),
                    *(_value(trial, row, rank) for rank in range(cell.ranks)),
                    *failed,
                )
            )
            continue
        rows += [(Verbatim(row.check), who, value, *failed) for who, value in _shared(trial, row)]
    for row in trial.values:
        seen = () if of_candidate is None else ("not checked",)
        if wide:
            rows += [(Verbatim(row.check), who, value, *seen) for who, value in _shared(trial, row)]
        else:
            rows.append(
                (
                    Verbatim(row.check),
                    *(_value(trial, row, rank) for rank in range(cell.ranks)),
                    *seen,
                )
            )
    return Table(header + (() if of_candidate is None else ("failed trials",)), tuple(rows))


def _shared(trial: ShownTrial, row: ShownRow) -> Iterator[tuple[str, Part]]:
    """The answers to a check in a large world: the ranks that gave one together, those on which it
    fails first.
    """
    if not row.cells:
        yield "the world", _value(trial, row, 0)
        return
    for passed in (False, True):
        alike: dict[str, list[int]] = {}
        for one in row.cells:
            if one.passed == passed:
                alike.setdefault(one.shown, []).append(one.rank)
        groups = list(alike.values())
        # Where every rank has its own, as of a pid, one is an example.
        shown = groups if len(groups) <= GROUPS else groups[: 1 if passed else GROUPS]
        for ranks in shown:
            yield ranks_in_words(ranks), _value(trial, row, ranks[0])
        if left := sorted(rank for ranks in groups[len(shown) :] for rank in ranks):
            word = "hold" if passed else "FAIL"
            yield (
                ranks_in_words(left),
                f"{word}, with {len(groups) - len(shown)} other values: see the events",
            )


def _answer(row: ShownRow, rank: int) -> ShownCell:
    return next(one for one in row.cells if one.rank == rank)


def _value(trial: ShownTrial, row: ShownRow, rank: int) -> Part:
    if not row.cells:
        text = "holds" if row.passed else row.reason
        return _shown(trial, text, row.line) if rank == 0 else ""
    if rank not in [one.rank for one in row.cells]:
        return "not asked"
    answer = _answer(row, rank)
    text = answer.shown or ("holds" if answer.passed else "fails")
    return _shown(trial, text, answer.line, failed=not answer.passed)


def _shown(trial: ShownTrial, text: str, line: int | None, *, failed: bool = False) -> Part:
    # A digest is compared, not read: its beginning is enough here, the evidence holds all of it.
    value: Part = Foreign(
        f"{text[:DIGEST_SHOWN]}..." if DIGEST.fullmatch(text) else text, VALUE_LIMIT
    )
    if failed:
        value = Text(Strong("FAILS"), " ", value)
    return Claim(value, (Evidence(trial.evidence, line),))


def _failures(tally: Tally, asked: ScenarioSummary) -> list[Block]:
    failed = [trial for trial in tally.trials if trial.outcome == "fail"]
    if not failed:
        return []
    rows: list[tuple[Part, ...]] = []
    for trial in failed[:FAILURES_SHOWN]:
        first = trial.first
        checks = ", ".join(failure.check for failure in trial.failures)
        reason = (
            trial.failures[0].reasons[0] if trial.failures and trial.failures[0].reasons else ""
        )
        rows.append(
            (
                Claim(
                    f"{asked.arm('candidate')} {trial.index}",
                    (Evidence(trial.evidence, None if first is None else first.line),),
                ),
                Foreign(checks, 200),
                Foreign(_happened(first) if first is not None else reason, 200),
                (
                    f"{len(trial.consequences)} more"
                    if trial.apart
                    else plural(len(trial.consequences), "consequence")
                ),
            )
        )
    more = len(failed) - len(rows)
    said, names = "what failed first, and how many failures followed it", ("first failure", "then")
    if any(trial.apart for trial in failed):
        said, names = (
            "one failure of each, and how many more; which of two machines was first, nobody knows",
            AMONG,
        )
    section: list[Block] = [
        Paragraph(f"Failed trials; {said}:"),
        Table(("trial", "checks that do not hold", *names), tuple(rows)),
    ]
    if more:
        section.append(Paragraph(f"... and {plural(more, 'more failed trial')}."))
    return section


def _happened(moment: Moment) -> str:
    return f"{'world' if moment.rank is None else f'rank {moment.rank}'}: {moment.what}"


def _durations(cell: CellVerdict, asked: ScenarioSummary) -> list[Block]:
    if cell.candidate is None or not cell.candidate.trials:
        return []
    times = sorted(trial.ms for trial in cell.candidate.trials)
    last = cell.candidate.trials[-1].evidence
    median, longest = times[len(times) // 2] / 1000, times[-1] / 1000
    text = (
        f"A trial of {asked.the('candidate')} took {median:.2f} s (median), {longest:.2f} s at"
        " most."
    )
    return [Paragraph(Claim(text, (Evidence(last),)))]


def control_section(record: Record) -> list[Block]:
    """What shows that these checks can fail."""
    section: list[Block] = [
        Heading(2, "The defect" if record.scenario.called else "Negative control")
    ]
    if record.scenario.must_fail is None:
        return [
            *section,
            Paragraph("The scenario has no control: nothing shows that these checks can fail."),
        ]
    what = (
        "The same scenario on code that its author calls broken, in the same run. It must fail like"
        " this: "
    )
    if record.scenario.called:
        what = (
            "B once more, in the same run, and one element of what a rank reports or keeps is"
            " changed before anybody sees it; which one follows from the seed. It must fail like"
            " this: "
        )
    section.append(
        Paragraph(
            what,
            Claim(Foreign(record.scenario.must_fail), (Evidence(SCENARIO_PATH),)),
            ".",
        )
    )
    ran = [
        (cell, cell.control)
        for cell in worst_first(record.judgement.cells)
        if cell.control and cell.control.trials
    ]
    return section + first_open(
        (
            Foreign(f"{cell.id}: {control_in_words([cell], '').strip()}"),
            _control(cell, control, record.scenario),
        )
        for cell, control in ran
    )


def _control(cell: CellVerdict, control: Tally, asked: ScenarioSummary) -> list[Block]:
    section: list[Block] = []
    if control.otherwise:
        section += [
            Paragraph("What it did instead:"),
            BulletList(
                tuple(
                    Foreign(f"in {plural(what.count, 'trial')}: {what.text}")
                    for what in control.otherwise
                )
            ),
        ]
    sample = cell.samples.get("control")
    if sample is None:
        return section
    trial = control.trials[sample.index]
    moments = [moment for moment in (trial.first, *trial.consequences) if moment is not None]
    alike: dict[str, list[Moment]] = {}
    for moment in moments:
        alike.setdefault("world" if moment.rank is None else moment.what, []).append(moment)
    rows: list[tuple[Part, ...]] = [
        (
            (
                ranks_in_words(sorted(one.rank for one in group if one.rank is not None))
                if group[0].rank is not None
                else "world"
            ),
            " to ".join(dict.fromkeys(f"{one.ms:.1f}" for one in (group[0], group[-1]))) + " ms",
            Claim(Foreign(group[0].what, 200), (Evidence(trial.evidence, group[0].line),)),
            "by our clock" if trial.apart else "first" if position == 0 else "followed",
        )
        for position, group in enumerate(alike.values())
    ]
    if rows:
        section += [
            Paragraph(
                "One trial, ",
                Claim(
                    Verbatim(f"{asked.arm('control')} {trial.index}"), (Evidence(trial.evidence),)
                ),
                ", in order of time:",
            ),
            Table(("ranks", "after", "how they failed", "order"), tuple(rows)),
        ]
    else:
        section += _without_an_error(cell, trial, asked)
    section += attribution(cell, "control", asked)
    section += [*_life(cell, "control"), *_standing(cell, "control", asked)]
    section += _printed(sample, trial)
    section.append(Details("Every check of this trial, rank by rank", (trial_table(sample, cell),)))
    return section
