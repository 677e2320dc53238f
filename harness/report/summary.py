"""The first screen: what was asked, what came out, how the control failed, what was not shown, who
says so.

All of it comes from the record, so that a verifier can write it again and a page shows it before
anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.forms.text import plural
from harness.record import facts
from harness.record.facts import SCENARIO_PATH
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
    Note,
    Paragraph,
    Part,
    Strong,
    Table,
    Terms,
    Text,
    Verbatim,
)
from harness.report.figures import GRID
from harness.report.words import answer, percent, ranks_in_words, worst_first
from harness.stats.outcome import Trial
from harness.stats.tally import Tally, Way
from harness.stats.verdict import CellVerdict

RUN = Evidence(facts.PATH)
RECORD = Evidence(RECORD_PATH)
WAYS_SHOWN = 2
UNSHOWN_SHOWN = 2
PLACE_LIMIT = 240
SENTENCE_LIMIT = 240
REASON_LIMIT = 640
UPSTREAM = "A finding about somebody else's code: it counts for no release."


def summary(record: Record) -> list[Block]:
    """Return the first blocks of a report, from its title to the squares of its trials."""
    judgement = record.judgement
    arms = [record.scenario.arm(name) for name in ("candidate", "control")]
    blocks: list[Block] = [
        Heading(1, Foreign(record.scenario.title)),
        Terms(tuple(_terms(record))),
        Table(
            (
                "cell",
                "verdict",
                f"{arms[0]}: failed / counted",
                f"failure rate below (asked: {percent(record.scenario.accept_rate)})",
                f"{arms[1]}: as stated / counted",
                "p",
                "void",
            ),
            tuple(_cell_row(cell) for cell in worst_first(judgement.cells)),
            ("left", "left", "right", "right", "right", "right", "right"),
        ),
    ]
    if judgement.reasons:
        reasons = tuple(Foreign(reason, REASON_LIMIT) for reason in judgement.reasons)
        blocks += [Paragraph("Reasons:"), BulletList(reasons)]
    return [
        *blocks,
        Figure(GRID, "Every trial as a square; its shape says what became of it."),
        Note(
            "The bound is the one-sided Clopper-Pearson upper bound at the scenario's confidence;"
            f" p is Fisher's exact test, one-sided, {arms[1]} against {arms[0]}. A void trial is"
            " one that the harness itself spoiled, or whose fault has no proof; it is not counted,"
            " and replaced as often as max_voids allows."
        ),
        # The verifier looks for exactly this line.
        Paragraph("Made: ", Verbatim(record.run.made)),
    ]


def _terms(record: Record) -> Iterator[tuple[str, Part]]:
    yield "Verdict", _verdict(record)
    yield "Question", Foreign(record.scenario.question)
    yield "Answer", Claim(answer(record), (RECORD,))
    if failures := failures_in_words(record):
        yield "Failures", failures
    yield "Defect" if record.scenario.called else "Control", control_in_words(record)
    yield "Not shown", _not_shown(record)
    yield "Signed by", signer_in_words(record)
    yield "Code", _code(record)


def _verdict(record: Record) -> Part:
    word = Strong(record.judgement.verdict)
    if record.scenario.role == "upstream":
        return Text(
            word,
            ". ",
            UPSTREAM,
            *(() if record.changed else (" Both arms are the same: nothing is fixed here.",)),
        )
    if record.scenario.expects:
        met = (
            "as expected"
            if record.judgement.as_expected
            else f"NOT as expected ({record.scenario.expects})"
        )
        return Text(word, f", {met}: a test of the tool on itself.")
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

    What it did instead where it did not fail as stated.
    """
    cells = [
        cell for cell in record.judgement.cells if cell.control is not None and cell.control.counted
    ]
    tallies = [(cell, cell.control) for cell in cells if cell.control is not None]
    if record.scenario.must_fail is None:
        return "There is none: nothing shows that these checks can fail."
    if not tallies:
        return "It was not run: nothing shows that these checks can fail."
    must = [(cell, tally) for cell, tally in tallies if not cell.control_holds]
    counted = sum(tally.counted for _, tally in must)
    stated = sum(tally.as_stated or 0 for _, tally in must)
    who = "B with it" if record.scenario.called else "It"
    parts: list[Part] = [
        f"{who} failed as stated in {stated} of {plural(counted, 'trial')}{': ' if stated else ''}"
    ]
    ways = sorted(_ways(must), key=lambda item: -item[1])
    for position, (way, count, where, evidence) in enumerate(ways[:WAYS_SHOWN]):
        place = (f" {way.where} ", Verbatim(way.place, limit=PLACE_LIMIT)) if way.place else ()
        text = Text(
            Foreign(way.what), *place, f" on {where}", f" ({count})" if count != stated else ""
        )
        parts += ["; " if position else "", Claim(text, (evidence,))]
    if len(ways) > WAYS_SHOWN:
        parts.append(f"; and in {plural(len(ways) - WAYS_SHOWN, 'other way')}")
    if held := [tally for cell, tally in tallies if cell.control_holds]:
        counts = sum(tally.as_stated or 0 for tally in held), sum(tally.counted for tally in held)
        parts.append(
            f". In the other cells it held as stated in {counts[0]} of {plural(counts[1], 'trial')}"
        )
    instead = [(what, cell) for cell, tally in tallies for what in tally.otherwise]
    if instead:
        what, cell = max(instead, key=lambda item: item[0].count)
        parts += [f". Instead, in {what.count}: ", Foreign(what.text, SENTENCE_LIMIT)]
        parts.append(Foreign(f" ({cell.id})") if len(tallies) > 1 else "")
    return Text(*parts, ".")


def failures_in_words(record: Record) -> Part | None:
    """Return what failed first in the candidate's trials that failed, the most frequent first; None
    where none failed.
    """
    failed = [
        trial
        for cell in record.judgement.cells
        for trial in (cell.candidate.trials if cell.candidate else ())
        if trial.outcome == "fail"
    ]
    alike: dict[str, list[Trial]] = {}
    for trial in failed:
        checks = (
            "check " + ", ".join(failure.check for failure in trial.failures) + " does not hold"
        )
        alike.setdefault(trial.first.what if trial.first else checks, []).append(trial)
    if not alike:
        return None
    parts: list[Part] = []
    ways = sorted(alike.items(), key=lambda item: -len(item[1]))
    for what, trials in ways[:WAYS_SHOWN]:
        ranks = sorted(
            {trial.first.rank for trial in trials if trial.first and trial.first.rank is not None}
        )
        first = "" if any(trial.apart for trial in trials) else "first "
        several = "one of " if len(ranks) > 1 else ""
        where = f", {first}on {several}{ranks_in_words(ranks)}" if ranks else ""
        claim = Claim(Text(Foreign(what, SENTENCE_LIMIT), where), (Evidence(trials[0].evidence),))
        parts += [
            "; " if parts else "",
            f"{len(trials)} of {plural(len(failed), 'failed trial')}: ",
            claim,
        ]
    more = len(ways) - WAYS_SHOWN
    return Text(*parts, f"; and {plural(more, 'other way')}" if more > 0 else "", ".")


def _ways(tallies: Sequence[tuple[CellVerdict, Tally]]) -> Iterator[tuple[Way, int, str, Evidence]]:
    """Each way in which it failed: with the trials, the ranks in words over all cells, and a trial
    that shows it.
    """
    alike: dict[tuple[str, str, str], list[tuple[CellVerdict, Tally, Way]]] = {}
    for cell, tally in tallies:
        for way in tally.how:
            alike.setdefault((way.what, way.where, way.place), []).append((cell, tally, way))
    for group in alike.values():
        sets = {tuple(way.ranks) for _, _, way in group}
        if len(sets) == 1:
            named = [ranks_in_words(next(iter(sets)))]
        elif all(way.ranks == list(range(1, cell.ranks)) for cell, _, way in group):
            named = ["every rank but 0"]
        elif all(way.ranks == list(range(cell.ranks)) for cell, _, way in group):
            named = ["every rank"]
        else:
            named = [ranks_in_words(ranks) for ranks in sorted(sets)]
        _, tally, way = group[0]
        evidence = Evidence(tally.trials[way.first].evidence)
        yield way, sum(way.count for _, _, way in group), " or ".join(named), evidence


def _not_shown(record: Record) -> Part:
    ran = [cell for cell in record.judgement.cells if cell.candidate]
    skipped = [cell.id for cell in record.judgement.cells if not cell.candidate]
    parts: list[Part] = []
    for sentence in record.judgement.unshown[:UNSHOWN_SHOWN]:
        parts += [Foreign(sentence, SENTENCE_LIMIT), " "]
    if more := len(record.judgement.unshown) - UNSHOWN_SHOWN:
        parts.append(f"{more} more of this kind below. " if more > 0 else "")
    if skipped:
        parts.append(Foreign(f"Not run: {'; '.join(skipped)}. ", SENTENCE_LIMIT))
    if ran:
        worst = max(cell.candidate.upper for cell in ran if cell.candidate)
        sizes = ", ".join(map(str, sorted({cell.ranks for cell in ran})))
        parts.append(
            f"Failures in fewer than {percent(worst)} of the trials; other world sizes than"
            f" {sizes}."
        )
    return Text(*parts or ["Everything: no cell was run."])


def signer_in_words(record: Record) -> Part:
    """Who says all this: the key that signs, and whom the repository that was run lists it for."""
    signer = record.run.signer
    if signer is None:
        return Text(Strong("nobody"), ": whoever had this file may have written it.")
    name = (
        Text(", listed for ", Foreign(signer.name, PLACE_LIMIT), " in the repository that was run")
        if signer.name
        else ""
    )
    claim = Claim(Text(Verbatim(signer.key), name), (RUN,))
    return Text(
        claim,
        ". ",
        Verbatim("rankproof verify"),
        " says whether that is so; whom to trust is yours to say.",
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
    return {True: "changed since", False: "clean", None: "unknown whether changed"}[
        record.run.source.dirty
    ]


def _cell_row(cell: CellVerdict) -> tuple[Part, ...]:
    if cell.candidate is None:
        return Foreign(cell.id), Strong(cell.verdict), "-", "-", "-", "-", "-"
    candidate = cell.candidate
    control = cell.control
    first = candidate.trials[0].evidence if candidate.trials else facts.PATH
    counted: Part = Claim(f"{candidate.failed} / {candidate.counted}", (Evidence(first),))
    bound = percent(candidate.upper)
    if candidate.voids:
        bound += f" ({percent(candidate.upper_with_voids)} if void trials had failed)"
    stated: Part = "no control"
    p_value = "-"
    if control is not None and control.trials:
        stated = Claim(
            f"{control.as_stated} / {control.counted}", (Evidence(control.trials[0].evidence),)
        )
        p_value = f"{control.p_value:.2g}" if control.p_value is not None else "-"
    voids = candidate.voids + (control.voids if control else 0)
    return Foreign(cell.id), Strong(cell.verdict), counted, bound, stated, p_value, str(voids)


def scenario_in_words(record: Record) -> list[tuple[str, Part]]:
    """Return what identifies the scenario and the run: names and values of a table."""
    run = record.run
    scenario = record.scenario
    asked = (Evidence(SCENARIO_PATH),)
    rows: list[tuple[str, Part]] = [
        ("scenario", Text(Verbatim(scenario.id), ", role ", Verbatim(scenario.role))),
        ("scenario file, sha256", Claim(Verbatim(scenario.sha256), asked)),
        ("report", Verbatim(run.id)),
        ("root seed", Claim(Verbatim(scenario.seed), asked)),
        ("rankproof", Verbatim(run.rankproof)),
    ]
    if run.reproduces is not None:
        rows.append(("reproduces", Claim(Verbatim(run.reproduces.report), (RUN,))))
    if scenario.use is not None:
        rows.append(("subject", Claim(Text("ready subject ", Verbatim(scenario.use)), asked)))
    if scenario.of is not None:
        rows.append(
            ("subject is", Claim(f"what is {scenario.of}, not the repository's code", asked))
        )
    if run.overrides:
        rows.append(("set on the command line", Claim(Verbatim("  ".join(run.overrides)), (RUN,))))
    if run.challenge is not None:
        rows.append(("challenge", Claim(Verbatim(run.challenge), (RUN,))))
    if scenario.expects:
        met = "as expected" if record.judgement.as_expected else "NOT as expected"
        rows.append(("expected verdict", Text(Verbatim(scenario.expects), f": {met}")))
    return rows
