"""The first screen: verdict, question, what the candidate showed, how the control failed, what
stands out, what was not shown, who signed.

All of it comes from the record, so that a verifier can write it again and a page shows it before
anything else. Nothing on it is cut, but for texts of hundreds of characters that somebody else
wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harness.forms.text import joined, plural
from harness.record import facts
from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Record
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Evidence,
    Figure,
    Foreign,
    Heading,
    Paragraph,
    Part,
    Strong,
    Table,
    Terms,
    Text,
    Verbatim,
    with_code,
)
from harness.report.figures import GRID
from harness.report.finding import finding_terms
from harness.report.services import services_that_stand_out
from harness.report.words import percent, ranks_in_words, worst_first
from harness.stats.outcome import Trial
from harness.stats.shown_trial import WorstFinding
from harness.stats.tally import Tally, Way
from harness.stats.verdict import CellVerdict

RUN = Evidence(facts.PATH)
RECORD = Evidence(RECORD_PATH)
WAYS_SHOWN = 2
CELLS_SHOWN = 12
REASONS_SHOWN = 6
SIGNED = "Signed by"
CHECKS_SHOWN = 2
NOTICES_SHOWN = 3
UNSHOWN_SHOWN = 2
PLACE_LIMIT = 240
SENTENCE_LIMIT = 640
NUMBERS = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# What the harness measures anew in each trial: numbers of processes, and times.
MEASURED = re.compile(r"\bpid \d+|\b\d+(?:\.\d+)? m?s\b")
EXACT = ("at", "in", "after")
# Words with which `equivalent` gives its own scale.
NOISE = "times the noise limit"
UPSTREAM = (
    "This finding is about third-party code, so it does not count towards a release decision."
)


def summary(record: Record) -> list[Block]:
    """Return the first blocks of a report, from its title to the squares of its trials."""
    judgement = record.judgement
    arms = [record.scenario.arm(name) for name in ("candidate", "control")]
    blocks: list[Block] = [
        Heading(1, Foreign(record.headline)),
        Terms(tuple(_terms(record))),
        Table(
            (
                "cell",
                "verdict",
                f"{arms[0]} failed",
                "rate below",
                f"{arms[1]} as required",
                "p",
                "void",
            ),
            tuple(_cell_row(cell) for cell in worst_first(judgement.cells)),
            ("left", "left", "right", "right", "right", "right", "right"),
        ),
    ]
    if judgement.reasons:
        blocks += [Paragraph("Reasons:"), BulletList(tuple(_reasons(judgement.cells)))]
    return [
        *blocks,
        Figure(GRID, "Each square is a trial, and its colour and sign show the outcome."),
        # The verifier looks for exactly this line.
        Paragraph("Made: ", Verbatim(record.run.made)),
    ]


SHORT_HEADER = ("cell", "verdict", "failed", "rate below", "control", "p", "void")
"""For a table that has to fit 80 columns; the report's has the names of the arms."""


def first_screen(record: Record) -> list[Block]:
    """Return the summary for a reader with a screen of some 80 lines: of many cells or reasons the
    first, the worst cells first, and how many more there are.
    """
    blocks: list[Block] = []
    head, *rest = summary(record)
    assert isinstance(head, Heading)
    blocks.append(Heading(head.level, Text(Strong(record.word), "  ", head.text)))
    for block in rest:
        match block:
            case Table(_, rows, align):
                blocks.append(Table(SHORT_HEADER, rows[:CELLS_SHOWN], align))
                if len(rows) > CELLS_SHOWN:
                    more = plural(len(rows) - CELLS_SHOWN, "more cell")
                    blocks.append(Paragraph(f"{more}, none of them worse."))
            case BulletList(items) if len(items) > REASONS_SHOWN:
                more = plural(len(items) - REASONS_SHOWN, "more reason")
                blocks += [BulletList(items[:REASONS_SHOWN]), Paragraph(f"... and {more}.")]
            case Terms(rows):
                terms = Terms(tuple(row for row in rows if row[0] != SIGNED))
                blocks.append(without_word(terms))
            case Figure():
                pass  # the table has the same counts
            case _:
                blocks.append(block)
    return blocks[:-1]  # who signed it, and when it was made, `show` prints itself


def _reasons(cells: Sequence[CellVerdict]) -> Iterator[Part]:
    """Yield why cells are not PASS, each reason once, with the cells it is about."""
    about: dict[str, list[str]] = {}
    for cell in cells:
        for reason in cell.reasons:
            about.setdefault(str(reason), []).append(cell.id)
    ran = sum(1 for cell in cells if cell.reasons)
    for text, names in about.items():
        where = f"{'; '.join(names)}: " if len(names) < ran else ""
        yield Foreign(f"{where}{text}", 2 * SENTENCE_LIMIT)


def _terms(record: Record) -> Iterator[tuple[str, Part]]:
    yield "Verdict", _verdict(record)
    yield "Question", Foreign(record.scenario.question)
    yield from _tested(record)
    yield from finding_terms(record)
    candidate = record.scenario.arm("candidate")
    yield f"{candidate[0].upper()}{candidate[1:]}", _candidate(record)
    yield "Defect" if record.scenario.called else "Control", control_in_words(record)
    yield "Stands out", _stands_out(record)
    yield "Not shown", _not_shown(record)
    yield SIGNED, signer_in_words(record)
    yield "Code", _code(record)


def _tested(record: Record) -> Iterator[tuple[str, Part]]:
    """Name the ready subject and the inputs, where there are any: many runs ask the same question
    of other models and engines.
    """
    parts: list[Part] = []
    if record.scenario.use is not None:
        cells = record.judgement.cells
        ran = [cell for cell in cells if cell.candidate is not None]
        sizes = sorted({cell.ranks for cell in ran or cells})
        noun = "rank" if sizes == [1] else "ranks"
        parts += [Verbatim(record.scenario.use), f" over {joined(map(str, sizes))} {noun}"]
    for given in record.run.inputs:
        parts += ["; " if parts else "", "input ", Verbatim(given.name), ": "]
        parts += [Verbatim(given.given), ", sha256 ", Verbatim(given.digest)]
    if parts:
        yield "Tested", Text(Claim(Text(*parts), (RUN,)), ".")


def _verdict(record: Record) -> Part:
    word = Strong(record.word)
    if record.scenario.role == "upstream":
        return Text(
            word,
            ". ",
            UPSTREAM,
            *(
                ()
                if record.changed
                else (" Both arms run the same code, so this run does not test a fix.",)
            ),
        )
    if record.scenario.expects:
        met = (
            "as expected"
            if record.judgement.as_expected
            else f"NOT as expected ({record.scenario.expects})"
        )
        return Text(word, f", {met}. This is a test of Rankproof itself.")
    return word


def without_word(block: Block) -> Block:
    """Block below a title that gives the verdict already: without it where nothing more is said
    of it.
    """
    if not isinstance(block, Terms):
        return block
    return Terms(
        tuple((name, value) for name, value in block.rows if not isinstance(value, Strong))
    )


def control_in_words(record: Record) -> Part:
    """How the control failed, in how many trials.

    What it did instead where it did not fail as required.
    """
    cells = [
        cell for cell in record.judgement.cells if cell.control is not None and cell.control.counted
    ]
    tallies = [(cell, cell.control) for cell in cells if cell.control is not None]
    if record.scenario.must_fail is None:
        return "There is no control, so this run does not show that its checks can fail."
    if not tallies:
        return "The control was not run, so this run does not show that its checks can fail."
    must = [(cell, tally) for cell, tally in tallies if not cell.control_holds]
    counted = sum(tally.counted for _, tally in must)
    stated = sum(tally.as_stated or 0 for _, tally in must)
    who = "B with the defect" if record.scenario.called else "The control"
    parts: list[Part] = [
        f"{who} failed as required in {stated} of {plural(counted, 'trial')}{': ' if stated else ''}"
    ]
    ways = sorted(_ways(must), key=lambda item: -item[1])
    for position, (way, count, where, evidence) in enumerate(ways[:WAYS_SHOWN]):
        place: tuple[Part, ...] = ()
        if way.place:
            shown = Verbatim(way.place, limit=PLACE_LIMIT)
            is_reason = way.where == "because"
            place = (" (", shown, ")") if is_reason else (f" {way.where} ", shown)
        text = Text(
            with_code(way.what), *place, f" on {where}", f" ({count})" if count != stated else ""
        )
        parts += ["; " if position else "", Claim(text, (evidence,))]
    if len(ways) > WAYS_SHOWN:
        parts.append(f"; and in {plural(len(ways) - WAYS_SHOWN, 'other way')}")
    if held := [tally for cell, tally in tallies if cell.control_holds]:
        counts = sum(tally.as_stated or 0 for tally in held), sum(tally.counted for tally in held)
        parts.append(
            f". In the other cells it held as required in {counts[0]} of {plural(counts[1], 'trial')}"
        )
    parts += _instead(tallies)
    return Text(*parts, ".")


def _instead(tallies: Sequence[tuple[CellVerdict, Tally]]) -> list[Part]:
    """What trials of the control did that did not go as required: the most frequent, and how many
    did something else. Texts that differ only in numbers are one.
    """
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for _, tally in tallies:
        for what in tally.otherwise:
            key = NUMBERS.sub("#", what.text)
            counts[key] += what.count
            examples.setdefault(key, what.text)
    if not counts:
        return []
    (key, count), *rest = counts.most_common()
    parts: list[Part] = [
        f". Instead, in {plural(count, 'trial')}: ",
        with_code(examples[key], SENTENCE_LIMIT),
    ]
    if rest:
        trials = sum(number for _, number in rest)
        parts.append(f"; and {plural(len(rest), 'other way')} in {plural(trials, 'trial')}")
    return parts


def _candidate(record: Record) -> Part:
    """How many trials of the candidate failed and what bound follows, and how: its failures, or
    else what its checks saw at worst.
    """
    ran = [cell.candidate for cell in record.judgement.cells if cell.candidate is not None]
    counted = sum(tally.counted for tally in ran)
    failed = sum(tally.failed for tally in ran)
    voids = sum(tally.voids for tally in ran)
    if not counted:
        return "None of its trials counted."
    required = f"required: below {percent(record.scenario.accept_rate)}"
    confidence = f"{record.scenario.accept_confidence:.0%} confidence"
    bound = max(tally.upper for tally in ran)
    pessimistic = max(tally.upper_with_voids for tally in ran)
    in_cells = f" in {len(ran)} cells" if len(ran) > 1 else ""
    count = f"{failed} of {plural(counted, 'trial')}{in_cells} failed"
    of_what = "the failure rate"
    if any(tally.starts is not None for tally in ran):
        starts = sum(tally.starts.counted for tally in ran if tally.starts is not None)
        bad = sum(tally.starts.failed for tally in ran if tally.starts is not None)
        count += f", and {bad} of {plural(starts, 'start')} of the services"
        of_what = "the failure rate of a start"
    # A bound of 100% bounds nothing.
    where = " in each cell" if len(ran) > 1 else ""
    limits = f" ({required})"
    if bound < 1:
        spoiled = f", or {percent(pessimistic)} if void trials had failed" if voids else ""
        below = f"below {percent(bound)}{where}{spoiled}"
        limits = f", so {of_what} is {below} ({confidence}; {required})"
    details = failures_in_words(record) or _worst(record)
    return Text(Claim(f"{count}{limits}", (RECORD,)), ". ", details)


def failures_in_words(record: Record) -> Part | None:
    """Return what failed first in the candidate's trials that failed, the most frequent first; None
    where none failed.

    Reasons of checks that differ only in pids and times are one. What a rank raised is compared as
    it stands: its numbers are the subject's.
    """
    failed = [
        trial
        for cell in record.judgement.cells
        for trial in (cell.candidate.trials if cell.candidate else ())
        if trial.outcome == "fail"
    ]
    alike: dict[str, list[Trial]] = {}
    for trial in failed:
        what = _what_failed(trial)
        key = what if trial.first is not None else MEASURED.sub("#", what)
        alike.setdefault(key, []).append(trial)
    if not alike:
        return None
    parts: list[Part] = []
    ways = sorted(alike.items(), key=lambda item: -len(item[1]))
    for _, trials in ways[:WAYS_SHOWN]:
        what = _what_failed(trials[0])
        are_equal = all(_what_failed(trial) == what for trial in trials)
        except_for = "" if are_equal else " (equal except for pids and times)"
        ranks = sorted(
            {trial.first.rank for trial in trials if trial.first and trial.first.rank is not None}
        )
        first = "" if any(trial.apart for trial in trials) else "first "
        several = "one of " if len(ranks) > 1 else ""
        where = f", {first}on {several}{ranks_in_words(ranks)}" if ranks else ""
        claim = Claim(Text(with_code(what, SENTENCE_LIMIT), where), (Evidence(trials[0].evidence),))
        parts += [
            "; " if parts else "",
            f"{len(trials)} of {plural(len(failed), 'failed trial')}{except_for}: ",
            claim,
        ]
    more = len(ways) - WAYS_SHOWN
    return Text(*parts, f"; and {plural(more, 'other way')}" if more > 0 else "", ".")


def _what_failed(trial: Trial) -> str:
    """What a rank raised first, or else the first check that failed, with its reason. What the
    harness checks of every world comes first: it may explain the others.
    """
    if trial.first is not None:
        return trial.first.what
    ordered = sorted(trial.failures, key=lambda failure: not failure.check.startswith("world:"))
    if not ordered:
        return "it failed"
    failure = ordered[0]
    others = len(ordered) - 1
    more = f" (and {plural(others, 'other check')})" if others else ""
    return f"check `{failure.check}` failed: {failure.reasons[0] if failure.reasons else ''}{more}"


def _worst(record: Record) -> Part:
    """What the checks of a candidate without failures found at worst: those that came nearest to a
    limit, or else those that compared a value.
    """
    cells = [cell for cell in record.judgement.cells if cell.worst]
    by_check: dict[str, tuple[CellVerdict, WorstFinding]] = {}
    for cell in cells:
        for found in cell.worst:
            known = by_check.get(found.check)
            if known is None or (found.share or 0.0) > (known[1].share or 0.0):
                by_check[found.check] = cell, found
    told = [pair for pair in by_check.values() if pair[1].share is not None]
    told.sort(key=lambda pair: -(pair[1].share or 0.0))
    if not told:
        told = [pair for pair in by_check.values() if pair[1].is_value]
    told = told[:CHECKS_SHOWN]
    parts: list[Part] = []
    for cell, found in told:
        parts += [_seen(found, cell, several=len(cells) > 1), " "]
    more = len(by_check) - len(told)
    if told and more:
        parts.append(f"{plural(more, 'other check')} also passed in every trial.")
    elif more:
        parts.append(f"{plural(more, 'check')} passed in every trial.")
    elif parts:
        parts.pop()  # a line must not end with a blank
    return Text(*parts)


def _seen(found: WorstFinding, cell: CellVerdict, *, several: bool) -> Part:
    """One check's worst finding as a sentence, with its scale, its ranks and its trial.

    Without a scale it is what the first trial showed, and says so.
    """
    whole = found.ranks == list(range(cell.ranks)) and cell.ranks > 1
    who = "every rank" if whole else ranks_in_words(found.ranks)
    trial = f"trial {found.index}{f' of {cell.id}' if several else ''}"
    evidence = (Evidence(found.evidence, found.line),)
    if found.share is None:
        held = Foreign(f" passed in every trial; in {trial}, {who} reported ")
        value = Verbatim(found.shown, limit=SENTENCE_LIMIT)
        return Text(Claim(Text("The check ", Verbatim(found.check), held, value), evidence), ".")
    scale = "" if NOISE in found.shown else f"{share_in_words(found.share)}, "
    seen = Foreign(found.shown, SENTENCE_LIMIT)
    text = Text("Worst result of ", Verbatim(found.check), f", on {who}: ", seen)
    return Text(Claim(Text(text, Foreign(f" ({scale}{trial})")), evidence), ".")


def share_in_words(share: float) -> str:
    """Say how much of a limit was used, without rounding to the limit what is not the limit."""
    if share > 1:
        return f"{share:.6g} times the limit"
    percents = 100 * share
    # A share below the limit must not be rounded up to it.
    if 99.95 <= percents < 100:
        return "over 99.9% of the limit"
    return f"{percents:.3g}% of the limit"


def _stands_out(record: Record) -> Part:
    """What the run noticed beside the question, and what of it a reader should know first."""
    notices = record.judgement.notices
    parts: list[Part] = []
    for notice in notices[:NOTICES_SHOWN]:
        times = f" ({plural(notice.trials, 'trial')})" if notice.trials > 1 else ""
        text = Text(Foreign(notice.text.rstrip("."), SENTENCE_LIMIT), times)
        parts += [Claim(text, (Evidence(notice.path, notice.line),)), ". "]
    more = len(notices) - NOTICES_SHOWN
    if more > 0:
        parts.append(f"{plural(more, 'more notice')}: see the appendix. ")
    if record.run.source.dirty is not False and record.run.source.commit is not None:
        had = "had" if record.run.source.dirty else "may have had"
        parts.append(
            f"The working tree {had} uncommitted changes, so the commit does not identify the code"
            " that ran. "
        )
    parts += [
        Text("The scenario does not pin the input ", Verbatim(given.name), ". ")
        for given in record.run.inputs
        if not given.pinned
    ]
    if outside := sorted({name for cell in record.judgement.cells for name in cell.outside}):
        parts.append(
            f"{plural(len(outside), 'module')} came from outside the arm's folder and its"
            " environment, so the evidence does not contain their code. "
        )
    for sentence in services_that_stand_out(record):
        parts += [sentence, ". "]
    parts += _of_trials(record)
    if not parts:
        return _searched(record)
    # A line must not end with a blank.
    last = parts[-1]
    if isinstance(last, str):
        parts[-1] = last.rstrip()
    return Text(*parts)


def _searched(record: Record) -> str:
    """Say which trials were searched and showed nothing. The logs of those that failed are not: the
    report shows why they failed.
    """
    ran = [cell.candidate for cell in record.judgement.cells if cell.candidate is not None]
    counted = sum(tally.counted for tally in ran)
    failed = sum(tally.failed for tally in ran)
    where = f"In the {plural(counted, 'trial')} of {record.scenario.the('candidate')}"
    if not counted:
        return "There was no trial to search for notices, Python warnings and tracebacks."
    if not failed:
        return f"{where}, no rank reported a notice or printed a Python warning or a traceback."
    reported = f"{where}, no rank reported a notice."
    if failed == counted:
        return f"{reported} Logs are searched only where a trial passed, and all of these failed."
    return (
        f"{reported} In the {counted - failed} that passed, no rank printed a Python warning or a"
        f" traceback; the logs of the {failed} that failed were not searched."
    )


def _ways(tallies: Sequence[tuple[CellVerdict, Tally]]) -> Iterator[tuple[Way, int, str, Evidence]]:
    """Each way in which it failed: with the trials, the ranks in words over all cells, and a trial
    that shows it.

    Ways whose places differ in numbers alone are one: the first is the example.
    """
    alike: dict[tuple[str, str, str], list[tuple[CellVerdict, Tally, Way]]] = {}
    for cell, tally in tallies:
        for way in tally.how:
            # Lines of source that differ in numbers are different lines.
            place = way.place if way.where in EXACT else NUMBERS.sub("#", way.place)
            key = (way.what, way.where, place)
            alike.setdefault(key, []).append((cell, tally, way))
    for group in alike.values():
        ranks: dict[str, set[int]] = {}
        trials: dict[str, int] = {}
        for cell, tally, way in group:
            ranks.setdefault(cell.id, set()).update(way.ranks)
            # Of one trial several ways may be in the group.
            trials[cell.id] = min(trials.get(cell.id, 0) + way.count, tally.as_stated or 0)
        cells = {cell.id: cell for cell, _, _ in group}
        _, tally, way = group[0]
        evidence = Evidence(tally.trials[way.first].evidence)
        sets = {(cell.id, tuple(way.ranks)) for cell, _, way in group}
        where = over_cells(cells, ranks)
        if len(sets) > len(cells):
            where = SOME_OF.get(where, f"at least one of {where}")
        yield way, sum(trials.values()), where, evidence


SOME_OF: Final = {
    "every rank": "at least one rank",
    "every rank but 0": "at least one rank except 0",
    "every rank but the last": "at least one rank except the last",
}


def over_cells(cells: Mapping[str, CellVerdict], ranks: Mapping[str, set[int]]) -> str:
    """Say which ranks of each cell, in words: as one rule where there is one.

    Args:
        cells: the cells by their ids.
        ranks: the ranks in each of them.
    """
    sets = {tuple(sorted(of_cell)) for of_cell in ranks.values()}
    if all(ranks[name] == set(range(cell.ranks)) for name, cell in cells.items()):
        return "every rank" if len(cells) > 1 else ranks_in_words(next(iter(sets)))
    if len(sets) == 1:
        return ranks_in_words(next(iter(sets)))
    if all(ranks[name] == set(range(1, cell.ranks)) for name, cell in cells.items()):
        return "every rank but 0"
    if all(ranks[name] == {cell.ranks - 1} for name, cell in cells.items()):
        return "the last rank"
    if all(ranks[name] == set(range(cell.ranks - 1)) for name, cell in cells.items()):
        return "every rank but the last"
    each_cell = "; ".join(ranks_in_words(each) for each in sorted(sets))
    return f"ranks that depend on the cell ({each_cell})"


def _of_trials(record: Record) -> Iterator[str]:
    """Yield void trials, and cells in which the candidate failed and the control did not."""
    for cell in record.judgement.cells:
        for arm, tally in cell.arms.items():
            if tally.voids:
                why = next(trial.void for trial in tally.trials if trial.void is not None)
                count = f"{tally.voids} of {plural(len(tally.trials), 'trial')}"
                who = record.scenario.the(arm)
                yield f"{cell.id}: {count} of {who} void ({str(why)[:SENTENCE_LIMIT]}). "
        failed = cell.candidate.failed if cell.candidate else 0
        if cell.control_holds and failed and cell.control is not None and not cell.control.failed:
            who = record.scenario.the("candidate")
            yield (
                f"{cell.id}: {who} failed in {plural(failed, 'trial')}, but"
                f" {record.scenario.the('control')} in none. "
            )


def _not_shown(record: Record) -> Part:
    ran = [cell for cell in record.judgement.cells if cell.candidate]
    skipped = [cell.id for cell in record.judgement.cells if not cell.candidate]
    if not ran:
        return "This run shows nothing, because no cell was run."
    parts: list[Part] = []
    for sentence in record.judgement.unshown[:UNSHOWN_SHOWN]:
        parts += [with_code(sentence, SENTENCE_LIMIT), " "]
    if skipped:
        parts.append(Foreign(f"Not run: {'; '.join(skipped)}. ", SENTENCE_LIMIT))
    sizes = joined(map(str, sorted({cell.ranks for cell in ran})))
    bound = max(cell.candidate.upper for cell in ran if cell.candidate)
    backends = joined(sorted({cell.backend for cell in ran}))
    rates = f"Failure rates below {percent(bound)}, world" if bound < 1 else "World"
    others = "communication backends" if backends == "none" else f"backends other than {backends}"
    parts.append(f"{rates} sizes other than {sizes}, and {others} were not tested.")
    return Text(*parts)


def signer_in_words(record: Record) -> Part:
    """Who says all this: the key that signs, and whom the repository that was run lists it for."""
    signer = record.run.signer
    if signer is None:
        return Text(Strong("no one"), ", so anyone with access to this file may have changed it.")
    name = (
        Text(", listed for ", Foreign(signer.name, PLACE_LIMIT), " in the tested repository")
        if signer.name
        else ""
    )
    claim = Claim(Text(Verbatim(signer.key), name), (RUN,))
    return Text(
        claim,
        ". Run ",
        Verbatim("rankproof verify"),
        " to check the signature; decide for yourself whether you trust this key.",
    )


def _code(record: Record) -> Part:
    """Commit in full, once: of the repository, or of each arm where both were laid out from
    one.
    """
    revisions = {
        name: arm.revision for name, arm in sorted(record.arms.items()) if arm.revision is not None
    }
    if len(revisions) == len(record.arms):
        parts: list[Part] = []
        for name, revision in revisions.items():
            patched = ", patched" if revision.patch is not None else ""
            parts += [
                "; " if parts else "",
                f"{name} ",
                Foreign(revision.rev, PLACE_LIMIT),
                ", commit ",
            ]
            parts += [Verbatim(revision.commit), patched]
        return Claim(Text(*parts), (RUN,))
    source = record.run.source
    if source.commit is None:
        return Claim(Foreign(f"commit unknown: {source.why_unknown}", SENTENCE_LIMIT), (RUN,))
    return Claim(Text("commit ", Verbatim(source.commit), f", {tree_state(record)}"), (RUN,))


def tree_state(record: Record) -> str:
    """Tell whether what ran is what the commit holds."""
    return {
        True: "with uncommitted changes",
        False: "clean",
        None: "possibly with uncommitted changes",
    }[record.run.source.dirty]


def _cell_row(cell: CellVerdict) -> tuple[Part, ...]:
    if cell.candidate is None:
        return Foreign(cell.id), Strong(cell.verdict), "-", "-", "-", "-", "-"
    candidate = cell.candidate
    control = cell.control
    first = candidate.trials[0].evidence if candidate.trials else facts.PATH
    counted: Part = Claim(f"{candidate.failed} of {candidate.counted}", (Evidence(first),))
    bound = percent(candidate.upper)
    if candidate.voids:
        bound += f" ({percent(candidate.upper_with_voids)} if void trials had failed)"
    stated: Part = "no control"
    p_value = "-"
    if control is not None and control.trials:
        stated = Claim(
            f"{'held ' if cell.control_holds else ''}{control.as_stated} of {control.counted}",
            (Evidence(control.trials[0].evidence),),
        )
        p_value = f"{control.p_value:.2g}" if control.p_value is not None else "-"
    voids = candidate.voids + (control.voids if control else 0)
    return Foreign(cell.id), Strong(cell.verdict), counted, bound, stated, p_value, str(voids)
