"""The trials of both arms, cell by cell: what each check showed, how the control failed, and the
faults. What else there is to see of a trial is in the appendix.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.forms.text import plural
from harness.record.facts import SCENARIO_PATH
from harness.record.model import Record, ScenarioSummary
from harness.report.blocks import (
    Align,
    Block,
    BulletList,
    Claim,
    Evidence,
    Foreign,
    Heading,
    Paragraph,
    Part,
    Strong,
    Table,
    Verbatim,
    with_code,
)
from harness.report.shown_trial import (
    attribution,
    cell_table,
    printed_section,
    standing_section,
)
from harness.report.words import control_in_words, ranks_in_words, worst_first
from harness.stats.outcome import Moment, Strike, Trial, struck_in_words
from harness.stats.tally import Tally
from harness.stats.verdict import CellVerdict

FAILURES_SHOWN = 10
AMONG = ("a failure", "other failures")


def results_section(record: Record) -> list[Block]:
    """One table per cell: what each check showed in one trial of each arm, and how often it
    failed.
    """
    section: list[Block] = [Heading(2, "Results by cell")]
    for position, cell in enumerate(worst_first(record.judgement.cells)):
        section.append(Heading(3, Foreign(f"{cell.id}: {cell.verdict}")))
        if cell.candidate is None:
            reasons = Foreign("; ".join(map(str, cell.reasons)))
            section.append(Paragraph(Strong("SKIPPED"), ": ", reasons))
            continue
        section += cell_table(cell, record.scenario)
        if position == 0:
            section += _failed_trials(cell, record.scenario)
    return section


def _failed_trials(cell: CellVerdict, asked: ScenarioSummary) -> list[Block]:
    """How a trial of the candidate failed in the worst cell; the others are in the appendix."""
    sample = cell.samples.get("candidate")
    if cell.candidate is None or sample is None or not shows_candidate(cell):
        return []
    return [
        *attribution(cell, "candidate", asked),
        *standing_section(cell, "candidate", asked),
        *printed_section(sample, cell.candidate.trials[sample.index]),
    ]


def _without_an_error(cell: CellVerdict, trial: Trial, asked: ScenarioSummary) -> list[Block]:
    """Show a control's trial in which no rank failed by itself: what failed is a check alone, or
    nothing.
    """
    which = f"trial {trial.index} of {asked.the('control')}"
    who = Claim(which, (Evidence(trial.evidence),))
    if not trial.failures:
        return [Paragraph("In ", who, ", every rank exited on its own, and every check passed.")]
    stopped = (
        "the harness stopped the world"
        if cell.hung.get("control")
        else "every rank exited on its own"
    )
    noun = "check" if len(trial.failures) == 1 else "checks"
    names: list[Part] = []
    for failure in trial.failures:
        names += [", " if names else "", Verbatim(failure.check)]
    return [
        Paragraph(
            "In ",
            who,
            f", no rank raised an error, and {stopped}. The trial failed the {noun} ",
            *names,
            ".",
        )
    ]


def failures(tally: Tally, asked: ScenarioSummary) -> list[Block]:
    """Table of the trials of an arm that failed; nothing where none did."""
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
    said = "the first failure of each, and how many failures followed it"
    names = ("first failure", "then")
    if any(trial.apart for trial in failed):
        said = "one failure of each, and how many more; their order across machines is unknown"
        names = AMONG
    section: list[Block] = [
        Paragraph(f"Failed trials, with {said}:"),
        Table(("trial", "failed checks", *names), tuple(rows)),
    ]
    if more:
        section.append(Paragraph(f"... and {plural(more, 'more failed trial')}."))
    return section


def _happened(moment: Moment) -> str:
    return f"{'world' if moment.rank is None else f'rank {moment.rank}'}: {moment.what}"


def durations(cell: CellVerdict, asked: ScenarioSummary) -> list[Block]:
    """How long a trial of the candidate took."""
    if cell.candidate is None or not cell.candidate.trials:
        return []
    times = sorted(trial.ms for trial in cell.candidate.trials)
    last = cell.candidate.trials[-1].evidence
    median = times[len(times) // 2] / 1000
    longest = times[-1] / 1000
    text = (
        f"A trial of {asked.the('candidate')} took {median:.2f} s (median), {longest:.2f} s at"
        " most."
    )
    return [Paragraph(Claim(text, (Evidence(last),)))]


def _order(trial: Trial, position: int) -> str:
    """When a failure came among those of its trial; over two machines that is not known."""
    if trial.apart:
        return "unknown"
    return "first" if position == 0 else "followed"


def control_section(record: Record) -> list[Block]:
    """Return what shows that these checks can fail."""
    section: list[Block] = [
        Heading(2, "The defect" if record.scenario.called else "Negative control")
    ]
    if record.scenario.must_fail is None:
        return [
            *section,
            Paragraph("The scenario has no control."),
        ]
    what = (
        "The same scenario in the same run, on code that the author of the scenario says is"
        " broken. The control must fail in the following way: "
    )
    if record.scenario.called:
        what = (
            "B again in the same run, with one element changed before the comparison, in a value"
            " that a rank reports or an array that it keeps. The seed decides which element."
            " B with the defect must fail in the following way: "
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
    stated = [
        Foreign(f"{cell.id}: {control_in_words([cell], record.scenario.the('control'))}.")
        for cell, _ in ran
    ]
    if len(ran) == 1:
        section += map(Paragraph, stated)
    elif ran:
        section.append(BulletList(tuple(stated)))
    for cell, control in ran[:1]:
        # Where the candidate failed too, that is what a reader looks at first.
        shown = [] if shows_candidate(cell) else how_control_failed(cell, control, record.scenario)
        if shown and len(ran) > 1:
            section.append(Paragraph(Foreign(f"How it failed in {cell.id}:")))
        section += shown
    return section


def shows_candidate(cell: CellVerdict) -> bool:
    """Tell whether the report shows how the candidate failed in its first cell, not the control."""
    return cell.candidate is not None and cell.candidate.failed > 0


def how_control_failed(cell: CellVerdict, control: Tally, asked: ScenarioSummary) -> list[Block]:
    """One trial of the control in order of time, and what it did instead in others."""
    section: list[Block] = []
    if control.otherwise:
        section += [
            Paragraph("Other outcomes of its trials:"),
            BulletList(
                tuple(
                    with_code(f"in {plural(what.count, 'trial')}: {what.text}")
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
                ranks_in_words(sorted(moment.rank for moment in group if moment.rank is not None))
                if group[0].rank is not None
                else "world"
            ),
            " to ".join(dict.fromkeys(f"{moment.ms:.1f}" for moment in (group[0], group[-1])))
            + " ms",
            Claim(Foreign(group[0].what, 200), (Evidence(trial.evidence, group[0].line),)),
            _order(trial, position),
        )
        for position, group in enumerate(alike.values())
    ]
    if rows:
        section += [
            Paragraph(
                "Events of one trial (",
                Claim(
                    Verbatim(f"{asked.arm('control')} {trial.index}"), (Evidence(trial.evidence),)
                ),
                "), in chronological order:",
            ),
            Table(("ranks", "after", "how they failed", "order"), tuple(rows)),
        ]
    else:
        section += _without_an_error(cell, trial, asked)
    section += attribution(cell, "control", asked)
    section += standing_section(cell, "control", asked)
    section += printed_section(sample, trial)
    return section


VOIDS_SHOWN = 10
LINES_SHOWN = 2
SCENARIO = Evidence(SCENARIO_PATH)


def faults_section(record: Record) -> list[Block]:
    """Return what was planned, what struck, what is proved, and which trials are void for want of a
    proof.
    """
    section: list[Block] = [Heading(2, "Faults")]
    if not record.scenario.faults:
        return [*section, Paragraph("No faults were injected.")]
    of_one_arm = any(fault.arm is not None for fault in record.scenario.faults)
    done = f"Injected into both arms{', except where one arm is named' if of_one_arm else ''}:"
    section += [
        Paragraph(
            "The defect, injected into b by the harness:" if record.scenario.called else done
        ),
        BulletList(
            tuple(
                Claim(Foreign(f"{fault.id}: {fault.description}"), (SCENARIO,))
                for fault in record.scenario.faults
            )
        ),
    ]
    ran = [cell for cell in worst_first(record.judgement.cells) if cell.candidate is not None]
    rows = tuple(row for cell in ran for row in _strike_rows(record, cell))
    header = ("cell", "fault", "arm", "planned", "struck", "proved", "undone", "example")
    sides: tuple[Align, ...] = ("left",) * 3 + ("right",) * 4 + ("left",)
    section.append(Table(header, rows, sides))
    void = [
        Claim(
            Foreign(f"{cell.id}, {record.scenario.arm(arm)} {trial.index}: {trial.void}"),
            (Evidence(trial.evidence),),
        )
        for cell in ran
        for arm, tally in cell.arms.items()
        for trial in tally.trials
        if trial.outcome == "void"
    ]
    if void:
        section += [Paragraph("Void trials:"), BulletList(tuple(void[:VOIDS_SHOWN]))]
    if len(void) > VOIDS_SHOWN:
        more = plural(len(void) - VOIDS_SHOWN, "more void trial")
        section.append(Paragraph(f"... and {more}."))
    return section


def _strike_rows(record: Record, cell: CellVerdict) -> Iterator[tuple[Part, ...]]:
    """How often each fault was planned, struck, proved and undone in each arm of a cell."""
    for arm, tally in cell.arms.items():
        for fault in record.scenario.faults:
            if fault.arm not in (None, arm):
                continue
            struck = [
                (trial, strike)
                for trial in tally.trials
                for strike in trial.strikes
                if strike.fault == fault.id
            ]
            counts = (
                len(struck),
                sum(strike.struck for _, strike in struck),
                sum(strike.proved for _, strike in struck),
                sum(strike.undone for _, strike in struck),
            )
            yield (
                Foreign(cell.id),
                Verbatim(fault.id),
                record.scenario.arm(arm),
                *map(str, counts),
                _example(struck),
            )


def _example(struck: list[tuple[Trial, Strike]]) -> Part:
    """One strike that is proved, else one that is not, with the lines that show it."""
    ordered = [pair for pair in struck if pair[1].proved] or struck
    if not ordered:
        return "none"
    trial, strike = ordered[0]
    lines = strike.lines[-LINES_SHOWN:]
    evidence = tuple(Evidence(trial.evidence, line) for line in lines) or (
        Evidence(trial.evidence),
    )
    how = "" if strike.proved else "NOT proved: "
    whom = struck_in_words(strike.rank, strike.service)
    text = f"trial {trial.index}, {whom}: {how}{strike.description}"
    return Claim(Foreign(text, 200), evidence)
