"""The report of a conformance: a pure function of its record, and its first screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.conformance.record import (
    LOG,
    PATH,
    REPETITIONS,
    ConformanceRecord,
    RowResult,
)
from harness.forms.text import bounded, plural, visible
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Evidence,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Strong,
    Table,
    Text,
    Verbatim,
)
from harness.series.replay import RECORD, document

SHOWN: Final = 8
"""Rows of one word that the first screen describes; of the others it has the names."""
FACT: Final = 100
CURL_ROWS: Final = 8
CURL_LIMIT: Final = 6_000
EXITS_SHOWN: Final = 3


def render(record: ConformanceRecord, *, manifest_digest: str) -> bytes:
    """Render the body of `report.md`; `manifest_digest` is the sha256 of the manifest, 64 hex
    digits.
    """
    return document(
        record.facts,
        [*_against(record), *_words(record), *body(record)],
        title=f"Conformance of {record.name}",
        answer=Paragraph(Strong(record.verdict), ": ", Claim(answer(record), (RECORD,))),
        files=(
            (Claim("what was requested", (Evidence(PATH),)), "server, rows, machine"),
            (Claim("the record", (RECORD,)), "every row, and what each repetition found"),
            (Verbatim("evidence/rows/"), "every request, and every byte of the responses"),
        ),
        manifest_digest=manifest_digest,
    )


def first_screen(record: ConformanceRecord) -> list[Block]:
    """Return what a reader has to see first."""
    return [
        Heading(1, f"Conformance of {record.name}"),
        Paragraph(Strong(record.verdict), ": ", Claim(answer(record), (RECORD,))),
        *_against(record),
        *_words(record),
    ]


def answer(record: ConformanceRecord) -> str:
    """Return the verdict's reasons in a sentence, with the count of REFUSES."""
    asked = [row for row in record.rows if row.word != "NOT ASKED"]
    counts = [
        f"{len(found)} {word}"
        for word in ("VIOLATES", "CANNOT TELL", "REFUSES", "CONFORMS")
        if (found := record.of(word)) or word == "REFUSES"
    ]
    return f"{plural(len(asked), 'promise')} asked: {', '.join(counts)}."


def _against(record: ConformanceRecord) -> Iterator[Block]:
    """Name the rows that conform on one of two servers alone."""
    against = record.facts.against
    if against is None:
        return
    changed = list(record.changed())
    lost = [row.name for row, before in changed if before == "CONFORMS"]
    gained = [row.name for row, _ in changed if row.word == "CONFORMS"]
    both = [
        row
        for row in record.rows
        if "NOT ASKED" not in (row.word, against.words.get(row.name, "NOT ASKED"))
    ]
    parts: list[Part] = [Strong("AGAINST"), " ", Foreign(against.server, FACT), ": "]
    parts.append(f"both servers were asked for {plural(len(both), 'promise')}. ")
    parts.append(f"CONFORMS there and not here: {', '.join(lost) or 'nothing'}. ")
    parts.append(f"CONFORMS here and not there: {', '.join(gained) or 'nothing'}.")
    yield Paragraph(*parts)


def _changes(record: ConformanceRecord) -> Iterator[Block]:
    against = record.facts.against
    if against is None:
        return
    yield Heading(2, "Against the older server")
    yield Paragraph(
        "The older server was asked the same rows with the same seed. Its answers are taken from"
        " its own report ",
        Verbatim(against.id),
        ", whose record has the sha256 ",
        Verbatim(against.record),
        ". Verify that report separately, because its evidence is not included here.",
    )
    changed = [(Verbatim(row.name), before, row.word) for row, before in record.changed()]
    if changed:
        yield Table(("row", "there", "here"), tuple(changed))
    else:
        yield Paragraph("No row that both servers were asked has a different answer.")


def _words(record: ConformanceRecord) -> Iterator[Block]:
    for word in ("VIOLATES", "CANNOT TELL", "REFUSES"):
        rows = record.of(word)
        if not rows:
            continue
        items: list[Part] = [_line(row) for row in rows[:SHOWN]]
        if rest := [row.name for row in rows[SHOWN:]]:
            items.append(f"and {', '.join(rest)}")
        yield Paragraph(Strong(word))
        yield BulletList(tuple(items))
    if good := record.of("CONFORMS"):
        yield Paragraph(Strong("CONFORMS"), f" {', '.join([row.name for row in good])}")
    if rows := record.of("NOT ASKED"):
        reasons: dict[str, list[str]] = {}
        for row in rows:
            reasons.setdefault(row.fact, []).append(row.name)
        parts: list[Part] = [Strong("NOT ASKED")]
        for why, names in reasons.items():
            parts += [f" {', '.join(names)} (", Foreign(why, FACT), ");"]
        yield Paragraph(*parts[:-1], ").")


def _line(row: RowResult) -> Part:
    fact = Foreign(bounded(row.fact, FACT), 2 * FACT)
    return Claim(Text(Verbatim(row.name), " ", fact), (Evidence(row.evidence),))


def body(record: ConformanceRecord) -> Iterator[Block]:
    """Yield what follows the first screen."""
    yield Note(
        "A row is one promise. Each is asked 3 times, and VIOLATES means 3 of 3. A row counts only"
        " with its control: the same requests through a proxy that changes nothing must CONFORM,"
        " and the same requests through a proxy with the row's defect must VIOLATE. Where the"
        " server itself does not"
        " conform, both are shown on a small correct server of ours."
    )
    yield Heading(2, "Every row")
    yield Table(
        ("row", "promise", "", "what was found", "control", "requests"),
        tuple(_row(row) for row in record.rows),
    )
    yield from _changes(record)
    yield from _violations(record)
    yield Heading(2, "The server")
    yield Table(("what", "this run"), tuple(_server(record)))
    yield Heading(2, "What this does not show")
    yield BulletList(tuple(_unshown(record)))


def _row(row: RowResult) -> tuple[Part, ...]:
    word: Part = row.word if row.word in ("CONFORMS", "NOT ASKED") else Strong(row.word)
    if row.control is None:
        return Verbatim(row.name), row.promises, word, Foreign(row.fact), "-", "0"
    shown = "seen" if row.control.shown else "not shown"
    control = f"{shown}: {row.control.on}: {row.control.does}"
    found = Claim(Foreign(row.fact, 2 * FACT), (Evidence(row.evidence),))
    return Verbatim(row.name), row.promises, word, found, control, str(row.requests)


def _violations(record: ConformanceRecord) -> Iterator[Block]:
    rows = record.of("VIOLATES")
    if not rows:
        return
    yield Heading(2, "The violations as commands")
    server = record.facts.server
    key = " Set KEY to its key." if server.authorized else ""
    yield Paragraph(f"Paste what follows into a shell, with the address of your server.{key}")
    lines = [f"# {' '.join(server.command)}"] if server.command else []
    lines.append(f"URL={server.base}")
    for row in rows[:CURL_ROWS]:
        # One line, whatever the server wrote into it: what follows a line end would be a command.
        lines.append(f"# {row.name}, {row.count}: {visible(row.fact, FACT)}")
        lines += [line_of(line) for line in row.curls]
    yield Verbatim("\n".join(lines), "sh", CURL_ROWS * 3 * CURL_LIMIT)
    if len(rows) > CURL_ROWS:
        rest = ", ".join(row.name for row in rows[CURL_ROWS:])
        yield Paragraph(f"The others are in the record: {rest}.")


def line_of(line: str) -> str:
    """Return a line to paste. A part of one would be another request."""
    if len(line) > CURL_LIMIT:
        return f"# the line has {len(line)} characters; it is in results.json, under `curls`"
    return visible(line, CURL_LIMIT)


def _server(record: ConformanceRecord) -> Iterator[tuple[Part, ...]]:
    facts = record.facts
    server = facts.server
    yield "address", Verbatim(server.base)
    yield "model in requests", Verbatim(server.model, limit=FACT)
    if server.versions:
        yield "versions", ", ".join(f"{name} {number}" for name, number in server.versions.items())
    for said in record.tells:
        yield "the server says", Foreign(said, FACT)
    if server.engine is not None:
        starts = Claim(f"started {plural(server.starts, 'time')}", (Evidence(LOG),))
        yield "process", starts
        for gone in server.exits[:EXITS_SHOWN]:
            yield "started again", Foreign(f"during {gone.during}: {gone.how}", 2 * FACT)
        if len(server.exits) > EXITS_SHOWN:
            yield "", f"and {plural(len(server.exits) - EXITS_SHOWN, 'time')} more"
    yield "repeats its texts", Foreign(f"no: {record.unsteady}", FACT) if record.unsteady else "yes"
    yield "seed of the prompts", str(facts.seed)
    yield "time", f"{facts.seconds:.0f} s"
    yield (
        "machine",
        f"{facts.machine.system} {facts.machine.machine}, {plural(facts.machine.cores, 'core')}",
    )
    yield "Rankproof", facts.rankproof


def _unshown(record: ConformanceRecord) -> Iterator[Part]:
    yield (
        f"Rare failures: each row was asked {REPETITIONS} times, with requests of this seed."
        " A failure in 1 of 100 requests would most likely not show up."
    )
    if names := [row.name for row in record.of("NOT ASKED")]:
        yield f"Promises that were not asked: {', '.join(names)}."
    if record.facts.server.engine is not None:
        yield "Other models: this one is small and has random weights."
    if record.facts.tokens is not None:
        yield "The tokenizer's counts, which a verifier has to trust."
    if record.facts.against is not None:
        yield "The older server's answers: the evidence for them is in its own report."
    yield "Whether texts are good: rows compare answers with each other."
