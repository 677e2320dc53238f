"""The report of a conformance: a pure function of its record, and its first screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.conformance.judgement import REPETITIONS, ControlResult
from harness.conformance.record import LOG, PATH, ConformanceRecord, RowResult
from harness.conformance.screen import screen
from harness.forms.text import plural, visible
from harness.report.blocks import (
    FOREIGN_LIMIT,
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
        [*screen(record), *body(record)],
        title=_title(record),
        answer=Paragraph(Strong(record.verdict), ": ", Claim(answer(record), (RECORD,))),
        files=(
            (Claim("the plan", (Evidence(PATH),)), "server, rows and machine"),
            (Claim("the record", (RECORD,)), "every row, with the result of each repetition"),
            (Verbatim("evidence/rows/"), "every request, and every byte of the responses"),
        ),
        manifest_digest=manifest_digest,
    )


def first_screen(record: ConformanceRecord) -> list[Block]:
    """Return what a reader has to see first."""
    return [
        Heading(1, _title(record)),
        Paragraph(Strong(record.verdict), ": ", Claim(answer(record), (RECORD,))),
        *screen(record),
    ]


def _title(record: ConformanceRecord) -> Part:
    # Verbatim, so that an address is readable where nobody renders the report.
    return Text("Conformance of ", Verbatim(record.name))


def answer(record: ConformanceRecord) -> str:
    """Return the verdict's reasons in a sentence, with the count of REFUSES."""
    asked = [row for row in record.rows if row.word != "NOT ASKED"]
    counts = [
        f"{len(found)} {word}"
        for word in ("VIOLATES", "CANNOT TELL", "REFUSES", "CONFORMS")
        if (found := record.of(word)) or word == "REFUSES"
    ]
    return f"{plural(len(asked), 'promise')} tested: {', '.join(counts)}."


def _changes(record: ConformanceRecord) -> Iterator[Block]:
    against = record.facts.against
    if against is None:
        return
    yield Heading(2, "Comparison with the older server")
    yield Paragraph(
        "The older server was tested with the same rows and the same seed. Its results are taken"
        " from its own report ",
        Verbatim(against.id),
        ", whose record has the sha256 ",
        Verbatim(against.record),
        ". Verify that report separately, because its evidence is not included here.",
    )
    changed = [(Verbatim(row.name), before, row.word) for row, before in record.changed()]
    if changed:
        yield Table(("row", "there", "here"), tuple(changed))
    else:
        yield Paragraph("Every row that was tested on both servers has the same result.")


def body(record: ConformanceRecord) -> Iterator[Block]:
    """Yield what follows the first screen."""
    yield Note(
        "A row is one promise. Each row is tested 3 times, and VIOLATES means that all 3 repetitions"
        " violated the promise. A row counts only with its control: the same requests through a"
        " proxy that changes nothing must CONFORM, and the same requests through a proxy with the"
        " row's defect must VIOLATE. If the server itself does not conform, the control runs on a"
        " small correct server of ours."
    )
    yield Heading(2, "Every row")
    yield Table(
        ("row", "promise", "", "result", "control", "requests"),
        tuple(_row(row) for row in record.rows),
    )
    yield from _changes(record)
    yield from _violations(record)
    yield Heading(2, "The server")
    yield Table(("what", "this run"), tuple(_server(record)))
    yield Heading(2, "Not shown")
    yield BulletList(tuple(_unshown(record)))


def _row(row: RowResult) -> tuple[Part, ...]:
    word: Part = row.word if row.word in ("CONFORMS", "NOT ASKED") else Strong(row.word)
    found: Part = Foreign(row.fact, 2 * FACT if row.evidence else FOREIGN_LIMIT)
    if row.evidence:
        found = Claim(found, (Evidence(row.evidence),))
    control: Part = "-"
    if row.control is not None:
        control = Foreign(_control(row.control), 2 * FACT)
    return Verbatim(row.name), row.promises, word, found, control, str(row.requests)


def _control(control: ControlResult) -> str:
    """Say whether the row was shown to detect its defect, and on which server."""
    if control.shown:
        return f"shown on {control.on}: a proxy that {control.does} is caught"
    where = "" if control.on == "no server" else f" on {control.on}"
    return f"not shown{where}: {control.fact}"


def _violations(record: ConformanceRecord) -> Iterator[Block]:
    rows = record.of("VIOLATES")
    if not rows:
        return
    yield Heading(2, "Commands that reproduce the violations")
    server = record.facts.server
    key = " Set KEY to its API key." if server.authorized else ""
    yield Paragraph(f"Paste these lines into a shell. Set URL to your server's address.{key}")
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
        yield "identifies itself as", Foreign(said, FACT)
    if server.engine is not None:
        starts = Claim(f"started {plural(server.starts, 'time')}", (Evidence(LOG),))
        yield "process", starts
        for gone in server.exits[:EXITS_SHOWN]:
            yield "restarted", Foreign(f"during {gone.during}: {gone.how}", 2 * FACT)
        if (more := len(server.exits) - EXITS_SHOWN) > 0:
            yield "", f"and {plural(more, 'more time')}"
    steady = "no difference seen at temperature 0, outside rows about earlier and other requests"
    yield (
        "repeats its texts",
        Foreign(f"no: {record.unsteady}", FACT) if record.unsteady else steady,
    )
    yield "seed of the prompts", str(facts.seed)
    yield "time", f"{facts.seconds:.0f} s"
    yield (
        "machine",
        f"{facts.machine.system} {facts.machine.machine}, {plural(facts.machine.cores, 'core')}",
    )
    yield "Rankproof", facts.rankproof


def _unshown(record: ConformanceRecord) -> Iterator[Part]:
    yield (
        f"Rare failures: each row was tested {REPETITIONS} times, with requests from this seed."
        " A failure in 1 of 100 requests would most likely not show up."
    )
    if names := [row.name for row in record.of("NOT ASKED")]:
        yield f"Promises that were not tested: {', '.join(names)}."
    if record.facts.server.engine is not None:
        yield "Other models. This one is small and has random weights."
    if record.facts.tokens is not None:
        yield "The tokenizer's counts. A verifier has to trust them."
    if record.facts.against is not None:
        yield "The older server's results. The evidence for them is in its own report."
    yield "The quality of the texts. Rows only compare answers with each other."
