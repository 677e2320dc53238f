"""The report of a matrix: one table, one picture, and every shortfall in words. Every number is in the record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.forms.text import numbered, plural
from harness.matrix import figure
from harness.matrix.facts import PATH as FACTS
from harness.matrix.facts import MatrixFacts
from harness.matrix.record import CONFIDENCE, MatrixCell, MatrixRecord
from harness.record.model import PATH
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
    Verbatim,
)
from harness.report.markdown import render_markdown
from harness.stats.rates import lower_bound, upper_bound

RECORD = Evidence(PATH)
MOST_NAMES = 8
HEADER = (
    "fault",
    "backend",
    "effect",
    "seen by",
    "injected",
    "proved",
    "detected",
    "rightly named",
    "tolerated",
    "at least",
    "false alarms",
    "",
)


def render(record: MatrixRecord, *, manifest_digest: str) -> bytes:
    """Render the body of `report.md`; `manifest_digest` is the sha256 of the manifest, 64 hex digits."""
    return render_markdown(_blocks(record, manifest_digest)).encode()


def _blocks(record: MatrixRecord, digest: str) -> Iterator[Block]:
    facts = record.facts
    yield Heading(1, "Detection matrix")
    yield Paragraph(Strong(record.verdict), ": ", Claim(_answer(record), (RECORD,)))
    # The verifier reads the time from exactly this line.
    yield Paragraph("Made: ", Verbatim(facts.made))
    yield BulletList(tuple(_first(record)))
    yield Note(
        "A trial counts as injected when the fault was put into it, as proved when events show that it took effect, "
        "as detected when a check failed, and as rightly named when every check that has to see it failed on exactly "
        "the ranks it reached, by the stated error, signal, code or place, and nothing else was the cause. A masked "
        "fault is tolerated when every check held although it is proved; that the same checks can fail there is shown "
        'by a subject that is broken on purpose. "At least" is the lower bound of that share of all injected, at '
        f"{CONFIDENCE:.0%} confidence. A false alarm is a check that failed in a trial without a fault. "
        '"At most" is the upper bound of the share of false alarms. Where the effect says "with a defect", the fault '
        "strikes the clean trials too, in which the subject takes it well: what has to be seen is the subject with a "
        "defect, which takes it badly."
    )
    yield Figure(figure.PATH, "Faults against the checks that have to see them, a square for each backend")
    yield Heading(2, "Every fault")
    yield Table(HEADER, tuple(_row(cell) for cell in record.cells), align=("left",) * 4 + ("right",) * 7 + ("left",))
    yield Heading(2, "Trials without a fault")
    yield Table(
        ("backend", "clean trials", "false alarms", "at most"),
        tuple(_clean(record, backend) for backend in dict.fromkeys(cell.backend for cell in record.cells)),
        align=("left", "right", "right", "right"),
    )
    yield from _section("What fell short", _shortfalls(record), "Nothing.")
    yield from _section("What this does not show", _unshown(record), "Nothing that this version knows of.")
    yield Heading(2, "How it was made")
    yield Table(("what", "this matrix"), tuple(_made(record)))
    yield Heading(2, "Evidence")
    yield Table(
        ("file", "what it holds"),
        (
            (Claim("what was planned", (Evidence(FACTS),)), "cases, seeds, and what has to be seen of each"),
            (Claim("the record", (RECORD,)), "every number above"),
            (Verbatim("evidence/parts/"), "for each case a bundle of a signed run: `rankproof verify` takes each"),
        ),
    )
    # The verifier looks for exactly this line.
    yield Paragraph("Manifest: ", Verbatim("MANIFEST.sha256"), " sha256 ", Verbatim(digest))
    yield Heading(2, "Check it yourself")
    key = facts.signer.key if facts.signer is not None else "SHA256:..."
    yield Verbatim(f"rankproof verify report.md --signer {key}\nsha256sum --quiet -c MANIFEST.sha256", "sh")


def _section(title: str, items: Sequence[Part], nothing: str) -> Iterator[Block]:
    yield Heading(2, title)
    yield BulletList(tuple(items)) if items else Paragraph(nothing)


def _answer(record: MatrixRecord) -> str:
    ran = [cell for cell in record.cells if cell.verdict != "SKIPPED"]
    right = sum(cell.verdict == "PASS" for cell in ran)
    trials = sum(cell.injected for cell in ran)
    clean, alarms = sum(cell.clean for cell in ran), sum(cell.alarms for cell in ran)
    skipped = f", {len(record.cells) - len(ran)} could not run here" if len(ran) < len(record.cells) else ""
    return (
        f"{right} of {plural(len(ran), 'cell')} came out right in all of their trials{skipped}; "
        f"{plural(trials, 'fault')} injected, {plural(alarms, 'false alarm')} in {plural(clean, 'clean trial')}."
    )


def _first(record: MatrixRecord) -> Iterator[Part]:
    """What a reader in a hurry must not miss: what was asked, what fell short, what could not run."""
    facts = record.facts
    cases = {part.case for part in facts.parts}
    kinds, backends = {part.kind for part in facts.parts}, sorted({part.backend for part in facts.parts})
    asked = (
        f"Asked for: {plural(len(cases), 'case')} of {plural(len(kinds), 'kind')} of faults, on "
        f"{' and '.join(backends)}, {plural(facts.seeds, 'seed')} of each"
    )
    if limits := _limits(facts):
        asked += f". This is a part of the matrix: {limits}. Of what was left out nothing is shown"
    yield Claim(f"{asked}.", (Evidence(FACTS),))
    short = [cell for cell in record.cells if cell.verdict not in ("PASS", "SKIPPED")]
    yield Claim(f"Fell short: {_listed(short) or 'nothing'}.", (RECORD,))
    if skipped := [cell for cell in record.cells if cell.verdict == "SKIPPED"]:
        yield Claim(f"Could not run here: {_listed(skipped)}.", (RECORD,))


def _limits(facts: MatrixFacts) -> str:
    """To what the matrix was limited, in words; empty where it was to be all of it."""
    only = f"only {', '.join(facts.only)}" if facts.only else ""
    backends = f"only on {' and '.join(facts.backends)}" if facts.backends else ""
    return ", ".join(filter(None, ["the sentinels alone" if facts.sample else "", only, backends]))


def _listed(cells: Sequence[MatrixCell]) -> str:
    names = [
        f"{cell.case} on {cell.backend}" + (f" ({cell.right} of {cell.injected})" if cell.injected else "")
        for cell in cells
    ]
    return ", ".join(names[:MOST_NAMES]) + (f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def _row(cell: MatrixCell) -> tuple[Part, ...]:
    evidence = tuple(Evidence(path) for path in cell.parts[:1])
    name = Claim(cell.case, evidence)
    by = (
        ", ".join(
            f"{sight.check} ({numbered('rank', sight.ranks) if sight.ranks else 'the world'})" for sight in cell.sights
        )
        or "nothing: it is borne"
    )
    if cell.verdict == "SKIPPED":
        return (name, cell.backend, cell.effect, by, "", "", "", "", "", "", "", "SKIPPED")
    share = f"{cell.bound * 100:.1f} %" if cell.injected else ""
    return (
        name,
        cell.backend,
        cell.effect,
        by,
        str(cell.injected),
        str(cell.proved),
        "" if cell.masked else str(cell.detected),
        "" if cell.masked else str(cell.named),
        str(cell.tolerated) if cell.masked else "",
        share,
        "" if cell.masked else f"{cell.alarms} of {cell.clean}",
        "" if cell.verdict == "PASS" else Strong(cell.verdict),
    )


def _clean(record: MatrixRecord, backend: str) -> tuple[Part, ...]:
    own = [cell for cell in record.cells if cell.backend == backend]
    trials, alarms = sum(cell.clean for cell in own), sum(cell.alarms for cell in own)
    bound = f"{upper_bound(alarms, trials, confidence=CONFIDENCE) * 100:.2f} %" if trials else ""
    return backend, str(trials), str(alarms), bound


def _shortfalls(record: MatrixRecord) -> list[Part]:
    found: list[Part] = []
    for cell in record.cells:
        if cell.verdict not in ("PASS", "SKIPPED"):
            what = "; ".join(cell.lacking) or f"{cell.right} of {cell.injected}"
            said = Claim(Foreign(f"{cell.case} on {cell.backend}: {what}"), tuple(map(Evidence, cell.parts[:1])))
            found.append(said)
    return found


def _unshown(record: MatrixRecord) -> list[Part]:
    facts = record.facts
    found: list[Part] = [
        Claim(
            Foreign(f"{cell.case} on {cell.backend} was SKIPPED: {cell.skipped}"), tuple(map(Evidence, cell.parts[:1]))
        )
        for cell in record.cells
        if cell.verdict == "SKIPPED"
    ]
    found += [Foreign(f"{what}: {why}") for what, why in facts.without.items()]
    if facts.unused:
        found.append(f"No case needs the checks {', '.join(facts.unused)}: nothing here shows that they can fail.")
    if facts.sample or facts.only or len(facts.backends) == 1:
        found.append("This is a part of the matrix: of what was left out nothing is shown.")
    rest = 1 - lower_bound(facts.seeds, facts.seeds, confidence=CONFIDENCE)
    seeds = plural(facts.seeds, "seed")
    found.append(f"{seeds} of a cell: what is right in all of them may still go wrong in {rest:.1%} of trials.")
    found.append("Each fault is tried on one small subject and by itself, never two at a time.")
    return found


def _made(record: MatrixRecord) -> Iterator[tuple[Part, ...]]:
    facts, source = record.facts, record.facts.source
    yield "run", Verbatim(facts.id)
    yield "rankproof", facts.rankproof
    tree = {
        True: ", with changes that were not committed",
        False: "",
        None: ", and whether it was changed is not known",
    }
    yield (
        "commit",
        Verbatim(source.commit or "not known") if not tree[source.dirty] else f"{source.commit}{tree[source.dirty]}",
    )
    yield "its own code", Verbatim(facts.code)
    yield "seeds of each cell", str(facts.seeds)
    yield "parts", str(len(facts.parts))
    yield "time of all parts", f"{sum(cell.seconds for cell in record.cells):.0f} s"
