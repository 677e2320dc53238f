"""The report of a matrix: one table, one picture, and every shortfall in words.

Every number is in the record.

The picture has a row for each case, a column for each kind of check, and a square for each backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.forms.text import numbered, plural
from harness.report import svg
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
from harness.series.matrix.facts import PATH as FACTS
from harness.series.matrix.facts import MatrixFacts
from harness.series.matrix.record import CONFIDENCE, MatrixCell, MatrixRecord
from harness.series.replay import RECORD, document, section
from harness.series.series import FOLDER
from harness.stats.rates import lower_bound, upper_bound

FIGURE = "evidence/figures/matrix.svg"
# Sizes in the picture, in pixels.
SQUARE = 13.0
ROW = 19.0
COLUMN = 48.0
LEFT = 190.0
TOP = 150.0
BORNE = "tolerated"
# How it came out: sign, fill, border, and what that means.
SIGNS = {
    "named": ("", svg.GOOD, svg.GOOD, "detected on exactly its ranks in every trial"),
    "held": ("=", svg.PAPER, svg.STATED, "tolerated in every trial"),
    "short": ("×", svg.BAD, svg.BAD, "not in every trial"),
    "doubt": ("?", svg.DOUBT, svg.DOUBT, "not proved in every trial"),
    "skipped": ("", svg.PAPER, svg.FAINT, "could not run here"),
}
MOST_NAMES = 8
HEADER = (
    "fault",
    "backend",
    "effect",
    "detected by",
    "injected",
    "proved",
    "detected",
    "correctly identified",
    "tolerated",
    "at least",
    "false alarms",
    "",
)


def render(record: MatrixRecord, *, manifest_digest: str) -> bytes:
    """Render the body of `report.md`; `manifest_digest` is the sha256 of the manifest, 64 hex
    digits.
    """
    return document(
        record.facts,
        _blocks(record),
        title="Detection matrix",
        answer=Paragraph(Strong(record.verdict), ": ", Claim(_answer(record), (RECORD,))),
        files=(
            (
                Claim("the plan", (Evidence(FACTS),)),
                "cases, seeds, and the checks that must detect each fault",
            ),
            (Claim("the record", (RECORD,)), "every number in this report"),
            (
                Verbatim(f"{FOLDER}/"),
                "signed runs, one bundle for each case; `rankproof verify` accepts each bundle",
            ),
        ),
        manifest_digest=manifest_digest,
    )


def _blocks(record: MatrixRecord) -> Iterator[Block]:
    yield BulletList(tuple(_first(record)))
    yield Note(
        "A trial counts as injected if the fault was injected, as proved if events show that it"
        " took effect, and as detected if a check failed. It counts as correctly identified if"
        " every required check failed on exactly the ranks that the fault reached, with the required"
        " error, signal, code or place, and no other cause was found. A masked fault counts as"
        " tolerated if events show that it took effect and every check passed. For masked faults,"
        ' a deliberately broken subject shows that the same checks can fail. "At least" is the'
        " lower bound on the share of trials in which the fault was correctly identified or"
        f" tolerated, at {CONFIDENCE:.0%}"
        ' confidence. A false alarm is a check that failed in a trial without a fault, and "at'
        ' most" is the upper bound on the share of false alarms. If the effect is marked "with a'
        ' defect", the fault is also injected into the clean trials. Their subject has no defect and'
        " handles the fault. The checks must fail for the subject with the defect, because that"
        " subject does not handle the fault."
    )
    yield Figure(
        FIGURE, "Faults and the checks that must detect them, with a square for each backend"
    )
    yield Heading(2, "Every fault")
    yield Table(
        HEADER,
        tuple(_row(cell) for cell in record.cells),
        align=("left",) * 4 + ("right",) * 7 + ("left",),
    )
    yield Heading(2, "Trials without a fault")
    yield Table(
        ("backend", "clean trials", "false alarms", "at most"),
        tuple(
            _clean(record, backend)
            for backend in dict.fromkeys(cell.backend for cell in record.cells)
        ),
        align=("left", "right", "right", "right"),
    )
    yield from section("Cells that did not pass", _shortfalls(record), "None.")
    yield from section("Not shown", _unshown(record), "No limits are known to this version.")
    yield Heading(2, "How this matrix was produced")
    yield Table(("what", "this matrix"), tuple(_rows(record)))


def _answer(record: MatrixRecord) -> str:
    ran = [cell for cell in record.cells if cell.verdict != "SKIPPED"]
    right = sum(cell.verdict == "PASS" for cell in ran)
    trials = sum(cell.injected for cell in ran)
    clean = sum(cell.clean for cell in ran)
    alarms = sum(cell.alarms for cell in ran)
    skipped = (
        f" ({plural(len(record.cells) - len(ran), 'other cell')} could not run here)"
        if len(ran) < len(record.cells)
        else ""
    )
    return (
        f"{right} of {plural(len(ran), 'cell')} had the required result in all of their"
        f" trials{skipped}. {plural(trials, 'fault')} injected, and"
        f" {plural(alarms, 'false alarm')} in {plural(clean, 'clean trial')}."
    )


def _first(record: MatrixRecord) -> Iterator[Part]:
    """Yield what a reader in a hurry must not miss: what was asked, what fell short, what could not
    run.
    """
    facts = record.facts
    cases = {part.case for part in facts.parts}
    kinds = {part.kind for part in facts.parts}
    backends = sorted({part.backend for part in facts.parts})
    asked = (
        f"Planned: {plural(len(cases), 'case')} of {plural(len(kinds), 'kind')} of faults on "
        f"{' and '.join(backends)}, with {plural(facts.seeds, 'seed')} for each"
    )
    if limits := _limits(facts):
        asked += f". This is only a part of the matrix ({limits}); the rest was not tested"
    yield Claim(f"{asked}.", (Evidence(FACTS),))
    short = [cell for cell in record.cells if cell.verdict not in ("PASS", "SKIPPED")]
    yield Claim(f"Fell short: {_listed(short) or 'none'}.", (RECORD,))
    if skipped := [cell for cell in record.cells if cell.verdict == "SKIPPED"]:
        yield Claim(f"Could not run here: {_listed(skipped)}.", (RECORD,))


def _limits(facts: MatrixFacts) -> str:
    """To what the matrix was limited, in words; empty where it was to be all of it."""
    only = f"only {', '.join(facts.only)}" if facts.only else ""
    backends = f"only on {' and '.join(facts.backends)}" if facts.backends else ""
    return ", ".join(filter(None, ["only the sentinels" if facts.sample else "", only, backends]))


def _listed(cells: Sequence[MatrixCell]) -> str:
    names = [
        f"{cell.case} on {cell.backend}"
        + (f" ({cell.right} of {cell.injected})" if cell.injected else "")
        for cell in cells
    ]
    return ", ".join(names[:MOST_NAMES]) + (
        f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    )


def _row(cell: MatrixCell) -> tuple[Part, ...]:
    evidence = tuple(Evidence(path) for path in cell.parts[:1])
    name = Claim(cell.case, evidence)
    by = (
        ", ".join(
            f"{sight.check} ({numbered('rank', sight.ranks) if sight.ranks else 'the world'})"
            for sight in cell.sights
        )
        or "none (the fault is tolerated)"
    )
    if cell.verdict == "SKIPPED":
        return (name, cell.backend, cell.effect, by, "", "", "", "", "", "", "", "SKIPPED")
    share = f"{cell.bound * 100:.1f}%" if cell.injected else ""
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
    cells = [cell for cell in record.cells if cell.backend == backend]
    trials = sum(cell.clean for cell in cells)
    alarms = sum(cell.alarms for cell in cells)
    bound = f"{upper_bound(alarms, trials, confidence=CONFIDENCE) * 100:.2f}%" if trials else ""
    return backend, str(trials), str(alarms), bound


def _shortfalls(record: MatrixRecord) -> list[Part]:
    items: list[Part] = []
    for cell in record.cells:
        if cell.verdict not in ("PASS", "SKIPPED"):
            what = "; ".join(cell.lacking) or f"{cell.right} of {cell.injected}"
            items.append(_claim(cell, f"{cell.case} on {cell.backend}: {what}"))
    return items


def _claim(cell: MatrixCell, text: str) -> Claim:
    """Return a text about a cell, with its first part as evidence."""
    return Claim(Foreign(text), tuple(map(Evidence, cell.parts[:1])))


def _unshown(record: MatrixRecord) -> list[Part]:
    facts = record.facts
    items: list[Part] = [
        _claim(cell, f"{cell.case} on {cell.backend} was SKIPPED: {cell.skipped}")
        for cell in record.cells
        if cell.verdict == "SKIPPED"
    ]
    items += [Foreign(f"{what}: {why}") for what, why in facts.without.items()]
    if facts.unused:
        they = "it" if len(facts.unused) == 1 else "they"
        these = "this kind" if len(facts.unused) == 1 else "these kinds"
        items.append(
            f"No case requires a check of {these} to fail, so this matrix does not show that {they}"
            f" can fail: {', '.join(facts.unused)}."
        )
    if facts.sample or facts.only or len(facts.backends) == 1:
        items.append("This is only a part of the matrix; the rest was not tested.")
    rest = 1 - lower_bound(facts.seeds, facts.seeds, confidence=CONFIDENCE)
    seeds = plural(facts.seeds, "seed")
    items.append(
        f"Each cell ran with {seeds}. Even a cell that had the required result with every seed may"
        f" fail in up to {rest:.1%} of trials."
    )
    items.append("Each fault was injected alone, into one small subject.")
    return items


def _rows(record: MatrixRecord) -> Iterator[tuple[Part, ...]]:
    """How the matrix was made."""
    facts = record.facts
    source = facts.source
    yield "run", Verbatim(facts.id)
    yield "rankproof", facts.rankproof
    tree = {
        True: ", with uncommitted changes",
        False: "",
        None: ", possibly with uncommitted changes",
    }
    yield (
        "commit",
        (
            Verbatim(source.commit or "not known")
            if not tree[source.dirty]
            else f"{source.commit}{tree[source.dirty]}"
        ),
    )
    yield "digest of Rankproof's code", Verbatim(facts.code)
    yield "seeds per cell", str(facts.seeds)
    yield "parts", str(len(facts.parts))
    yield "total time of all parts", f"{sum(cell.seconds for cell in record.cells):.0f} s"


# -- the picture -----------------------------------------------------------------------------------


def columns(record: MatrixRecord) -> list[str]:
    """Return the kinds of checks that have to see something, then what is borne."""
    kinds = sorted({sight.kind for cell in record.cells for sight in cell.sights})
    return [*kinds, BORNE] if any(cell.masked for cell in record.cells) else kinds


def draw(record: MatrixRecord) -> bytes:
    """Draw it; the same record gives the same bytes."""
    names = columns(record)
    backends = list(dict.fromkeys(cell.backend for cell in record.cells))
    cases = list(dict.fromkeys(cell.case for cell in record.cells))
    width = max(LEFT + len(names) * COLUMN + 120, 760.0)
    shapes = list(_legend(backends))
    for number, name in enumerate(names):
        x = LEFT + number * COLUMN + COLUMN / 2
        place = f'x="{svg.number(x)}" y="{svg.number(TOP - 12)}" fill="{svg.INK}"'
        turned = f'transform="rotate(-40 {svg.number(x)} {svg.number(TOP - 12)})"'
        shapes.append(f"<text {place} {turned}>{name}</text>")
    for row, case in enumerate(cases):
        y = TOP + row * ROW
        shapes += [
            svg.label(8, y + 11, case),
            svg.line(8, y + ROW - 2, width - 8, y + ROW - 2, svg.LINE, width=0.5),
        ]
        for cell in [cell for cell in record.cells if cell.case == case]:
            for name, how, words in squares(cell):
                x = (
                    LEFT
                    + names.index(name) * COLUMN
                    + 8
                    + backends.index(cell.backend) * (SQUARE + 4)
                )
                shapes += _square(x, y, how, title=f"{case} on {cell.backend}, {name}: {words}")
    return svg.picture(
        width, TOP + len(cases) * ROW + 8, "Faults and the checks that must detect them", shapes
    )


def squares(cell: MatrixCell) -> Iterator[tuple[str, str, str]]:
    """Squares of a cell: column, how it came out, and in words.

    Several checks of one kind share a square.
    """
    kinds = dict.fromkeys(sight.kind for sight in cell.sights)
    if cell.verdict == "SKIPPED":
        yield from ((kind, "skipped", cell.skipped) for kind in kinds or (BORNE,))
        return
    if cell.masked:
        how = "held" if cell.tolerated == cell.injected else _lacks(cell, cell.tolerated)
        yield BORNE, how, f"{cell.tolerated} of {cell.injected} tolerated"
        return
    for kind in kinds:
        named = min(sight.named for sight in cell.sights if sight.kind == kind)
        how = "named" if named == cell.injected else _lacks(cell, named)
        yield kind, how, f"{named} of {cell.injected} detected on exactly its ranks"


def _lacks(cell: MatrixCell, right: int) -> str:
    """Return what came out of a cell of which not every trial was right."""
    return "short" if right < cell.proved else "doubt"


def _square(x: float, y: float, how: str, *, title: str) -> Iterator[str]:
    sign, fill, border, _ = SIGNS[how]
    yield svg.frame(x, y, SQUARE, fill, border, title=title, dashed=how == "skipped")
    if sign:
        ink = border if fill == svg.PAPER else svg.PAPER
        yield svg.label(x + SQUARE / 2, y + SQUARE - 3, sign, fill=ink, anchor="middle")


def _legend(backends: list[str]) -> Iterator[str]:
    yield svg.label(8, 16, f"In each column from left to right: {', '.join(backends)}")
    for number, (how, (_, _, _, words)) in enumerate(SIGNS.items()):
        y = 26 + number * 16
        yield from _square(8, y, how, title=words)
        yield svg.label(28, y + 11, words, fill=svg.FAINT)
