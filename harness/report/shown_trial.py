"""One trial of an arm, shown rank by rank: its checks, the life of its ranks, its wires, and where
they stood.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from harness.forms.text import plural
from harness.record.model import ScenarioSummary
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Details,
    Evidence,
    Figure,
    Foreign,
    Paragraph,
    Part,
    Strong,
    Table,
    Text,
    Verbatim,
)
from harness.report.figures import distances_path, lanes_path, struck_packets, wires_path
from harness.report.words import quantity, ranks_in_words
from harness.stats.outcome import Arm, Trial
from harness.stats.shown_trial import (
    Excerpt,
    ShownCell,
    ShownRow,
    ShownStrike,
    ShownTrial,
    Standing,
    Step,
    Wires,
)
from harness.stats.verdict import CellVerdict

# More than the record keeps of a value: what a check found is read whole.
VALUE_LIMIT = 640
DIGEST = re.compile("[0-9a-f]{40,128}")
DIGEST_SHOWN = 12
COLUMNS = 8
WORLD = "world:"
THE_WORLD = "the world"
GROUPS = 4
FAR = (
    "Distance between the arrays at each position, relative to the limit. Points above the line"
    " exceed the limit. Check:"
)
LIFE = (
    "Timeline of each rank in this trial. Each tick is an event, named below. Rank events are"
    " black, harness events are brown, and errors are red."
)


def printed_first(sample: ShownTrial, trial: Trial) -> Excerpt | None:
    """Return what the rank printed that failed first: it says more than what broke because of
    it.
    """
    first = trial.first.rank if trial.first is not None else None
    return next(
        (excerpt for excerpt in sample.printed if excerpt.rank == first),
        sample.printed[-1] if sample.printed else None,
    )


def printed_section(sample: ShownTrial, trial: Trial) -> list[Block]:
    """Return what the rank printed that failed first, where it printed anything."""
    excerpt = printed_first(sample, trial)
    if excerpt is None:
        return []
    who = Claim(f"Last output of rank {excerpt.rank}", (Evidence(excerpt.path),))
    return [Paragraph(who, ":"), Verbatim(excerpt.text, "text")]


def life_section(cell: CellVerdict, arm: Arm) -> list[Block]:
    """Lanes of the ranks of a shown trial, and below them what every tick is."""
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
        Details("Events in order of time, in ms since the request", (BulletList(tuple(items)),)),
    ]


def _ms(step: Step) -> str:
    return f"{step.first_ms:.1f}" + (
        f" to {step.last_ms:.1f}" if step.last_ms != step.first_ms else ""
    )


def standing_section(cell: CellVerdict, arm: Arm, asked: ScenarioSummary) -> list[Block]:
    """Where the ranks stood in the first trial of an arm whose world had to be stopped.

    Those at one place together.
    """
    hung = cell.hung.get(arm)
    if hung is None:
        return []
    trial = Claim(Verbatim(f"{asked.arm(arm)} {hung.index}"), (Evidence(hung.evidence, hung.line),))
    section: list[Block] = [
        Paragraph("Where the ranks were when ", trial, " was stopped. ", Foreign(hung.proof))
    ]
    alike: dict[tuple[str, ...], list[Standing]] = {}
    for standing in hung.ranks:
        alike.setdefault(tuple(standing.calls), []).append(standing)
    for calls, there in alike.items():
        who = f"Stack of {ranks_in_words([standing.rank for standing in there])}"
        section += [
            Paragraph(
                Claim(who, (Evidence(hung.evidence, there[0].line),)), ", innermost call first:"
            ),
            Verbatim("\n".join(calls), "text"),
        ]
    return section


def cell_table(cell: CellVerdict, asked: ScenarioSummary) -> list[Block]:
    """One trial of each arm side by side: a row per check, with the trials of each arm that failed
    it.

    Ranks that showed the same share an answer. What every world is checked for shares one row where
    no trial failed it.
    """
    shown = [(cell.samples[arm], tally) for arm, tally in cell.arms.items() if arm in cell.samples]
    if not shown:
        return [Paragraph("No trial counted.")]
    header: list[Part] = ["check"]
    failed: list[Counter[str]] = []
    for sample, tally in shown:
        name = Verbatim(f"{asked.arm(_arm_of(cell, sample))} {sample.index}")
        header += [Claim(name, (Evidence(sample.evidence),)), "failed"]
        failed.append(
            Counter(failure.check for trial in tally.trials for failure in trial.failures)
        )
    rows: list[tuple[Part, ...]] = []
    of_world: list[str] = []
    for position, row in enumerate(shown[0][0].rows):
        if row.check.startswith(WORLD) and not any(counts[row.check] for counts in failed):
            of_world.append(row.check.removeprefix(WORLD))
            continue
        answers: list[Part] = []
        for (sample, tally), counts in zip(shown, failed, strict=True):
            answers.append(_answers(sample, sample.rows[position], cell.ranks))
            answers.append(f"{counts[row.check]} of {tally.counted}")
        rows.append((Verbatim(row.check), *answers))
    for position, row in enumerate(shown[0][0].values):
        values = [
            part
            for sample, _ in shown
            for part in (_answers(sample, sample.values[position], cell.ranks), "not checked")
        ]
        rows.append((Verbatim(row.check), *values))
    if of_world:
        none = [part for _, tally in shown for part in ("holds", f"0 of {tally.counted}")]
        # Names of their own: a line may break between them, and a page breaks none of them.
        names: list[Part] = []
        for check in of_world:
            names += [", " if names else "", Verbatim(f"{'' if names else WORLD}{check}")]
        rows.append((Text(*names), *none))
    return [Table(tuple(header), tuple(rows))]


def _arm_of(cell: CellVerdict, sample: ShownTrial) -> Arm:
    return next(arm for arm, one in cell.samples.items() if one is sample)


def _answers(trial: ShownTrial, row: ShownRow, size: int) -> Part:
    """What the ranks answered to a check, those that failed it first: one answer, or one for each
    group of ranks.
    """
    groups = list(_shared(trial, row))
    whole = [ranks_in_words(list(range(size))), THE_WORLD]
    parts: list[Part] = []
    for who, value in groups:
        parts += ["; " if parts else "", *([] if who in whole else [f"{who}: "]), value]
    return Text(*parts)


def trial_table(trial: ShownTrial, cell: CellVerdict) -> Table:
    """Trial as a table: a row per check, a column per rank.

    A value links to the line that shows it.

    Of more ranks than fit beside each other those that showed the same share a row.
    """
    failures = Counter(
        failure.check
        for candidate_trial in (cell.candidate.trials if cell.candidate else ())
        for failure in candidate_trial.failures
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
    """Answers to a check in a large world: the ranks that gave one together, those on which it
    fails first.
    """
    if not row.cells:
        yield THE_WORLD, _value(trial, row, 0)
        return
    for passed in (False, True):
        alike: dict[str, list[int]] = {}
        for answer in row.cells:
            if answer.passed == passed:
                alike.setdefault(answer.shown, []).append(answer.rank)
        groups = list(alike.values())
        # Where every rank has its own, as of a pid, one is an example.
        most = 1 if passed and len(groups) > GROUPS else GROUPS
        shown = groups[:most]
        for ranks in shown:
            yield ranks_in_words(ranks), _value(trial, row, ranks[0])
        if left := sorted(rank for ranks in groups[len(shown) :] for rank in ranks):
            word = "holds" if passed else "FAILS"
            others = plural(len(groups) - len(shown), "other value")
            yield ranks_in_words(left), f"{word}, with {others}"


def _answer(row: ShownRow, rank: int) -> ShownCell:
    return next(answer for answer in row.cells if answer.rank == rank)


def _value(trial: ShownTrial, row: ShownRow, rank: int) -> Part:
    if not row.cells:
        text = "holds" if row.passed else row.reason
        return _shown(trial, text, row.line) if rank == 0 else ""
    if rank not in [cell.rank for cell in row.cells]:
        return "not covered"
    answer = _answer(row, rank)
    text = answer.shown or ("holds" if answer.passed else "")
    return _shown(trial, text, answer.line, failed=not answer.passed)


def _shown(trial: ShownTrial, text: str, line: int | None, *, failed: bool = False) -> Part:
    # A digest is compared, not read: its beginning is enough here, the evidence holds all of it.
    value: Part = Foreign(
        f"{text[:DIGEST_SHOWN]}..." if DIGEST.fullmatch(text) else text, VALUE_LIMIT
    )
    if failed:
        value = Text(Strong("FAILS"), ": ", value) if text else Strong("FAILS")
    return Claim(value, (Evidence(trial.evidence, line),))


CAUSES: dict[str, str] = {"excluded": "ruled out", "found": "found"}


def attribution(cell: CellVerdict, arm: Arm, asked: ScenarioSummary) -> list[Block]:
    """Block of one arm in one cell; nothing where no output of it was wrong."""
    findings = cell.attributions.get(arm)
    if findings is None:
        return []
    who = Claim(Verbatim(f"{asked.arm(arm)} {findings.index}"), (Evidence(findings.evidence),))
    text: list[Part] = ["Failure of ", Verbatim(", ".join(findings.checks)), " in ", who, ": "]
    text += [Foreign(findings.remains, 1000), "."]
    if findings.first_rung is not None:
        ranks = plural(findings.first_rung, "rank")
        text.append(f" The smallest world with a wrong result has {ranks}.")
    if findings.where:
        text += [" First difference: ", Foreign(findings.where), "."]
    items = [
        Foreign(f"{CAUSES[cause.word]}: {cause.what} ({cause.why})", 1000)
        for cause in findings.causes
        if cause.word != "open"
    ]
    # Where nothing was looked at there is nothing to read: one line says what else it could be.
    if left := [cause.what for cause in findings.causes if cause.word == "open"]:
        items.append(Foreign(f"not checked: {'; '.join(left)}", 2000))
    return [Paragraph(*text), BulletList(tuple(items))]


LINKS = 24
STRIKES = 12
ALT = (
    "The test hosts, with a line for each pair that exchanged packets: sent (→) and received (←)."
    " On a red line a fault was active; the count is the number of packets that it affected on all"
    " of its links."
)


def wires_section(wires: Wires, *, picture: str, evidence: str) -> list[Block]:
    """Figure, and below it every link and every fault in numbers.

    Args:
        wires: of the trial.
        picture: path of the figure.
        evidence: path of the trial's events.
    """
    links = sorted(wires.links, key=lambda link: (-link.bytes, link.source, link.target))
    rows: list[tuple[Part, ...]] = [
        (
            Claim(f"{link.source} → {link.target}", (Evidence(evidence, wires.line),)),
            f"{link.packets}",
            quantity(link.bytes, "bytes"),
            f"{link.lost}",
        )
        for link in links[:LINKS]
    ]
    table: list[Block] = [Table(("hosts", "packets", "bytes", "not accepted"), tuple(rows))]
    if len(links) > LINKS:
        table.append(
            Paragraph(f"... and {plural(len(links) - LINKS, 'more link')} with fewer bytes.")
        )
    items: list[Part] = [
        Claim(Foreign(_strike_in_words(strike)), (Evidence(evidence, strike.line),))
        for strike in wires.strikes
    ]
    if len(items) > STRIKES:
        items[STRIKES:] = [f"... and {len(items) - STRIKES} more"]
    section: list[Block] = [Figure(picture, ALT)] if rows or items else []
    section += [BulletList(tuple(items))] if items else []
    return section + ([Details("Traffic on each link", tuple(table))] if rows else [])


def _strike_in_words(strike: ShownStrike) -> str:
    links = ", ".join(f"{source} → {target}" for source, target in strike.links[:LINKS])
    more = f" and {len(strike.links) - LINKS} more" if len(strike.links) > LINKS else ""
    end = "the end" if strike.to_ms is None else f"{strike.to_ms:.1f} ms"
    time = f"from {strike.from_ms:.1f} ms to {end}"
    return (
        f"{strike.fault} at rank {strike.rank}: on {links}{more} {time}, {struck_packets(strike)}"
    )
