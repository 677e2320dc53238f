"""The report of a sweep over servers: violations by cause first, then every row of every server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.conformance.report import CURL_LIMIT, line_of
from harness.conformance.rows import ROWS
from harness.conformance.screen import FACT as FACT_SHOWN
from harness.conformance.screen import height, said
from harness.conformance.sweep.record import PATH as FACTS
from harness.conformance.sweep.record import ServedRecord, ViolationGroup
from harness.forms.text import plural
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
from harness.series.replay import RECORD, document, section
from harness.series.series import FOLDER, SUFFIX

FACT: Final = 200
LINES: Final = 24
"""Of the violations on the first screen; above them is a table of the servers."""
SHORT: Final = {
    "CONFORMS": "conforms",
    "VIOLATES": "VIOLATES",
    "REFUSES": "refuses",
    "CANNOT TELL": "cannot tell",
    "NOT ASKED": "not asked",
}
OTHERS: Final = {
    "CONFORMS": "kept by",
    "VIOLATES": "violated in a different way by",
    "REFUSES": "refused by",
    "CANNOT TELL": "not decided for",
    "NOT ASKED": "not tested on",
}


def render(record: ServedRecord, *, manifest_digest: str) -> bytes:
    """Render the body of `report.md`; `manifest_digest` is the sha256 of the manifest, 64 hex
    digits.
    """
    return document(
        record.facts,
        [*_servers(record), *body(record)],
        title="Sweep of servers",
        answer=Paragraph(Claim(answer(record), (RECORD,))),
        files=(
            (Claim("the plan", (Evidence(FACTS),)), "servers, modes and rows"),
            (Claim("the record", (RECORD,)), "every row of every server"),
            (
                Verbatim(f"{FOLDER}/"),
                "for each server, the bundle of its own signed conformance report",
            ),
        ),
        manifest_digest=manifest_digest,
    )


def answer(record: ServedRecord) -> str:
    """Return what was found, in a sentence."""
    tested = record.asked
    words = [word for server in tested for word in server.words.values()]
    undecided = words.count("CANNOT TELL")
    left = len(record.servers) - len(tested)
    notes = [f"{plural(undecided, 'row')} could not be decided"] if undecided else []
    notes += [f"{plural(left, 'server')} could not be tested"] if left else []
    beside = "".join(f"; {note}" for note in notes)
    if not record.groups:
        return f"No violation on {plural(len(tested), 'tested server')}{beside}."
    violating = {name for group in record.groups for name in group.violates}
    changing = sum(group.depends for group in record.groups)
    some = f", {changing} of them kept or refused by another release or mode" if changing else ""
    return (
        f"{plural(len(record.groups), 'kind')} of violation on {len(violating)} of"
        f" {plural(len(tested), 'tested server')}{some}{beside}."
    )


def first_screen(record: ServedRecord) -> list[Block]:
    """Return what a reader has to see first: every server, and every violation."""
    for limit in (FACT_SHOWN, 0):
        found = _violations(record, limit)
        if height([found]) <= LINES:
            break
    return [
        Heading(1, "Sweep of servers"),
        Paragraph(Claim(answer(record), (RECORD,))),
        *_servers(record),
        found,
    ]


def _violations(record: ServedRecord, limit: int) -> BulletList:
    """List the violations, those of the same servers that say the same on one line."""
    lines: dict[tuple[str, str], list[ViolationGroup]] = {}
    for group in record.groups:
        text = said(group.fact, group.about, "VIOLATES", limit)
        lines.setdefault((_names(record, group.violates), text), []).append(group)
    items: list[Part] = []
    for (servers, text), groups in lines.items():
        rows: list[Part] = []
        for group in groups:
            rows += [", " if rows else "", Verbatim(group.row)]
        paths = dict.fromkeys(_path(group.evidence) for group in groups)
        evidence = tuple(map(Evidence, paths))
        items.append(Claim(Text(*rows, f" on {servers}: ", Foreign(text)), evidence))
    return BulletList(tuple(items))


def body(record: ServedRecord) -> Iterator[Block]:
    """Yield what follows the first screen."""
    yield Note(
        "Each server was tested with the rows of `rankproof conformance`, with prompts of the same"
        " seed, and each row with its control. Violations of one promise by one engine that differ"
        " from the promise in the same way are one entry below. They may have one cause."
    )
    changing = [group for group in record.groups if group.depends]
    steady = [group for group in record.groups if not group.depends]
    if changing:
        yield Heading(2, "Promises that another release or mode keeps or refuses")
        for group in changing:
            yield from _group(record, group)
    if steady:
        yield Heading(2, "Other violations" if changing else "Violations")
    for group in steady:
        yield from _group(record, group)
    yield Heading(2, "Every row")
    yield from _rows(record)
    yield from section("What this does not show", tuple(_unshown(record)))


def _servers(record: ServedRecord) -> Iterator[Block]:
    rows: list[tuple[Part, ...]] = []
    for number, server in enumerate(record.servers, 1):
        # Verbatim, so that an address is readable where nobody renders the report.
        name = Claim(Verbatim(server.server, limit=FACT), (Evidence(_path(server.name)),))
        versions = ", ".join(f"{one} {version}" for one, version in server.versions.items())
        words = list(server.words.values())
        verdict: Part = Strong(server.verdict)
        if server.unasked:
            verdict = Text("not tested: ", Foreign(server.unasked, FACT))
        counts = (str(words.count("VIOLATES")), str(words.count("REFUSES")))
        rows.append((_letter(number), name, verdict, *counts, versions or "-"))
    yield Table(("", "server", "verdict", "violates", "refuses", "versions"), tuple(rows))


def _group(record: ServedRecord, group: ViolationGroup) -> Iterator[Block]:
    yield Heading(3, Text(Verbatim(group.engine), f": {group.row}"))
    evidence = (Evidence(_path(group.evidence)),)
    items: list[Part] = [
        Text("promise: ", group.promises),
        Claim(
            Text(f"observed in {group.count} repetitions: ", Foreign(group.fact, FACT)), evidence
        ),
        f"violated by {_names(record, group.violates)}",
    ]
    for word, names in group.others.items():
        items.append(f"{OTHERS[word]} {_names(record, names)}")
    yield BulletList(tuple(items))
    if group.curls:
        lines = [line_of(line) for line in group.curls]
        yield Verbatim("\n".join(lines), "sh", len(lines) * CURL_LIMIT)


def _names(record: ServedRecord, names: list[str]) -> str:
    """Return the letters of servers."""
    numbers = {server.name: number for number, server in enumerate(record.servers, 1)}
    letters = [_letter(numbers[name]) for name in names]
    return " and ".join(filter(None, (", ".join(letters[:-1]), letters[-1])))


def _rows(record: ServedRecord) -> Iterator[Block]:
    """Yield the rows whose word differs from CONFORMS anywhere, then the names of the others."""
    asked = [
        (number, server) for number, server in enumerate(record.servers, 1) if not server.unasked
    ]
    kept: list[str] = []
    table: list[tuple[Part, ...]] = []
    for row in ROWS:
        words = [server.words[row] for _, server in asked]
        if set(words) == {"CONFORMS"}:
            kept.append(row)
        elif set(words) != {"NOT ASKED"} and words:
            cells = [Strong(SHORT[word]) if word == "VIOLATES" else SHORT[word] for word in words]
            table.append((Verbatim(row), *cells))
    if table:
        yield Table(("row", *(_letter(number) for number, _ in asked)), tuple(table))
    if kept:
        yield Paragraph(f"Every tested server conforms in: {', '.join(kept)}.")


def _unshown(record: ServedRecord) -> Iterator[Part]:
    if left := [server.name for server in record.servers if server.unasked]:
        yield f"Anything about {_names(record, left)}, which could not be tested."
    unasked = [row for row in ROWS if all(one.words[row] == "NOT ASKED" for one in record.asked)]
    if unasked and record.asked:
        yield f"Rows that were not tested on any server: {', '.join(unasked)}."
    yield "Rare failures: each row was tested 3 times on each server, with prompts of one seed."
    yield "Other models: an engine that was started here serves a small model with random weights."
    yield (
        "That one entry has one cause: entries are formed by engine, promise and kind of"
        " difference, not by reading the engine's code."
    )


def _letter(number: int) -> str:
    """Return A to Z, then A1 and so on."""
    rounds, place = divmod(number - 1, 26)
    return chr(ord("A") + place) + (str(rounds) if rounds else "")


def _path(name: str) -> str:
    return f"{FOLDER}/{name}{SUFFIX}"
