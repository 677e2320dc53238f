"""The trials of both arms, cell by cell: results by check and rank, and the negative control as it
failed.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.forms.text import plural
from harness.record.facts import SCENARIO_PATH
from harness.record.model import Record, ScenarioSummary
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Details,
    Evidence,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Strong,
    Table,
    Verbatim,
    first_open,
)
from harness.report.shown_trial import (
    DIGEST_SHOWN,
    attribution,
    life_section,
    printed_section,
    standing_section,
    trial_table,
)
from harness.report.words import control_in_words, ranks_in_words, worst_first
from harness.stats.outcome import Failure, Moment, Strike, Trial
from harness.stats.tally import Tally
from harness.stats.verdict import CellVerdict

FAILURES_SHOWN = 10
AMONG = ("a failure", "beside it")


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
            *printed_section(trial, cell.candidate.trials[trial.index]),
            *life_section(cell, "candidate"),
        ]
    section += _reference(cell, asked)
    section += standing_section(cell, "candidate", asked)
    section += _failures(cell.candidate, asked)
    section += attribution(cell, "candidate", asked)
    section += _durations(cell, asked)
    return section


def _without_an_error(cell: CellVerdict, trial: Trial, asked: ScenarioSummary) -> list[Block]:
    """Show a control's trial in which no rank failed by itself: what failed is a check alone, or
    nothing.
    """
    who = Claim(Verbatim(f"{asked.arm('control')} {trial.index}"), (Evidence(trial.evidence),))
    if not trial.failures:
        return [
            Paragraph("One trial, ", who, ": every rank came to its end, and every check held.")
        ]
    items = tuple(Foreign(f"{failure.check}: {_why(failure)}", 400) for failure in trial.failures)
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
    """Reasons of a check, each once, with the ranks it is about."""
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


def _reference(cell: CellVerdict, asked: ScenarioSummary) -> list[Block]:
    """Return what the ranks were compared with: what it reported and kept, and how long each run of
    it took.
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
            Verbatim(array.name),
            Foreign(f"{array.dtype} {array.shape}, sha256 {array.sha256[:DIGEST_SHOWN]}"),
        )
        for array in reference.arrays
    ]
    whose = "a's, rank 0" if asked.called else "the reference's"
    table = [Table((whose, "value"), tuple(rows))] if rows else []
    return [Paragraph(*text, "."), *table]


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
    said = "what failed first, and how many failures followed it"
    names = ("first failure", "then")
    if any(trial.apart for trial in failed):
        said = (
            "one failure of each, and how many more; which of two machines was first, nobody knows"
        )
        names = AMONG
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
    median = times[len(times) // 2] / 1000
    longest = times[-1] / 1000
    text = (
        f"A trial of {asked.the('candidate')} took {median:.2f} s (median), {longest:.2f} s at"
        " most."
    )
    return [Paragraph(Claim(text, (Evidence(last),)))]


def _order(trial: Trial, position: int) -> str:
    """When a failure came among those of its trial; of two machines nobody knows."""
    if trial.apart:
        return "by our clock"
    return "first" if position == 0 else "followed"


def control_section(record: Record) -> list[Block]:
    """Return what shows that these checks can fail."""
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
    section += [*life_section(cell, "control"), *standing_section(cell, "control", asked)]
    section += printed_section(sample, trial)
    section.append(Details("Every check of this trial, rank by rank", (trial_table(sample, cell),)))
    return section


VOIDS_SHOWN = 10
LINES_SHOWN = 4
SCENARIO = Evidence(SCENARIO_PATH)


def faults_section(record: Record) -> list[Block]:
    """Return what was planned, what struck, what is proved, and which trials are void for want of a
    proof.
    """
    section: list[Block] = [Heading(2, "Faults")]
    if not record.scenario.faults:
        return [*section, Paragraph("Nothing was done to the ranks on purpose.")]
    of_one_arm = any(fault.arm is not None for fault in record.scenario.faults)
    done = (
        f"Done to the ranks on purpose, in both arms{' unless one is named' if of_one_arm else ''}:"
    )
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
    section += first_open((Foreign(cell.id), tuple(_cell(record, cell))) for cell in ran)
    proof = (
        "A fault counts only where events show that it took effect. What is done inside a rank is"
        " shown by the rank's own word, what is done from outside by the process that did it."
    )
    void = (
        "A trial of the candidate without the proof is void if its checks hold, and failed if they"
        " do not; a trial of the control without it counts only if it had failed before the fault"
        " struck or was over."
    )
    section.append(Note(proof if record.scenario.called else f"{proof} {void}"))
    return section


def _cell(record: Record, cell: CellVerdict) -> Iterator[Block]:
    rows: list[tuple[Part, ...]] = []
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
            rows.append(
                (
                    Verbatim(fault.id),
                    Verbatim(fault.kind),
                    record.scenario.arm(arm),
                    *map(str, counts),
                    _example(struck),
                )
            )
    header = ("fault", "kind", "arm", "planned", "struck", "proved", "undone", "one of them")
    yield Table(
        header, tuple(rows), ("left", "left", "left", "right", "right", "right", "right", "left")
    )
    void = [
        (arm, trial)
        for arm, tally in cell.arms.items()
        for trial in tally.trials
        if trial.outcome == "void"
    ]
    if void:
        shown = [
            Claim(
                Foreign(f"{record.scenario.arm(arm)} {trial.index}: {trial.void}"),
                (Evidence(trial.evidence),),
            )
            for arm, trial in void[:VOIDS_SHOWN]
        ]
        yield Paragraph("Void trials:")
        yield BulletList(tuple(shown))
    if len(void) > VOIDS_SHOWN:
        yield Paragraph(f"... and {plural(len(void) - VOIDS_SHOWN, 'more void trial')}.")


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
    return Claim(
        Foreign(f"trial {trial.index}, rank {strike.rank}: {how}{strike.description}", 200),
        evidence,
    )
