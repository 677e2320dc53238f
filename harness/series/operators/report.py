"""The report of a sweep of operators: what is wrong by cause, then what was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from harness.forms.text import listed, plural
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
from harness.series.operators.cells import BACKENDS, OperatorCell
from harness.series.operators.inquiry import REPETITIONS, FailureCause
from harness.series.operators.judge import COUNTS, WORDS
from harness.series.operators.record import PATH as FACTS
from harness.series.operators.record import CauseGroup, OperatorsRecord
from harness.series.replay import RECORD, document, section
from harness.series.series import FOLDER

CALLED: Final = {
    "collectives": "torch.distributed over gloo",
    "dtensors": "DTensor over gloo",
    "mlx": "MLX over its ring",
    "files": "files and exchanges of arrays",
}
MOST_REFUSALS: Final = 40


def render(record: OperatorsRecord, *, manifest_digest: str) -> bytes:
    """Render the body of `report.md`; `manifest_digest` is the sha256 of the manifest, 64 hex
    digits.
    """
    return document(
        record.facts,
        _blocks(record),
        title="Sweep of operators",
        answer=Paragraph(Claim(answer(record), (RECORD,))),
        files=(
            (Claim("the plan", (Evidence(FACTS),)), "operators, axes and parts"),
            (Claim("the record", (RECORD,)), "every number in this report"),
            (
                Verbatim(f"{FOLDER}/"),
                "for each part, the reports of every rank and of the single process about each cell",
            ),
        ),
        manifest_digest=manifest_digest,
    )


def answer(record: OperatorsRecord) -> str:
    """Return what was found, in a sentence."""
    words = record.words
    counts = ", ".join(f"{words[word]} {word}" for word in WORDS if word in words) or "none"
    accused = len(record.accused)
    found = plural(accused, "group") if accused else "No group"
    return f"{found} of wrong results in {plural(sum(words.values()), 'cell')} ({counts})."


def _blocks(record: OperatorsRecord) -> Iterator[Block]:
    needles, seen = record.needles
    yield Note(
        "A cell is one call of an operator with one value of every axis, such as shape, dtype and"
        " memory layout. Real ranks make the call, and a separate process computes the expected"
        " result of each rank. A cell is a DEFECT if a rank gets a different result and no error"
        " is raised. REFUSES means that a rank raised an error, which is fine. DIFFERS means that"
        " the library does not promise any other result, as for NaN in a maximum; it does not"
        " count."
    )
    yield Paragraph(
        Claim(
            f"As a control, one element was changed in {needles} results of the sweep. The"
            f" comparison detected {seen} of them.",
            (RECORD,),
        )
    )
    accused = record.accused
    yield Heading(2, "Wrong results")
    if not accused:
        yield Paragraph("None were found.")
    for number, group in enumerate(accused, 1):
        yield from _group(number, group)
    rest = [group for group in record.groups if group not in accused]
    unshown = [group for group in rest if group.word in COUNTS]
    yield from section("Seen, but not confirmed", [_line(group) for group in unshown])
    differing = [group for group in rest if group.word not in COUNTS]
    yield from section(
        "Differences where the library promises no result", [_line(group) for group in differing]
    )
    yield Heading(2, "Tested cells")
    yield Table(("what", "this sweep"), tuple(_asked(record)))
    yield Table(("part", "cells", *WORDS), tuple(_parts(record)))
    yield from section("Refused calls", _refusals(record))
    yield from section("Not shown", tuple(_unshown(record)))


def _group(number: int, group: CauseGroup) -> Iterator[Block]:
    smallest = group.smallest
    yield Heading(3, f"{number}. {CALLED[group.library]}: {group.word} ({group.kind})")
    backing = tuple(Evidence(f"{FOLDER}/{name}.json.xz") for name in group.backing)
    items: list[Part] = [
        Text("operators: ", Foreign(", ".join(group.operators), 2000)),
        Claim(
            Text(
                f"smallest case, over {plural(group.smallest_ranks, 'rank')}: ",
                Verbatim(_shown(smallest.cell)),
            ),
            backing,
        ),
        Text("result: ", Foreign(smallest.outcome.fact, 600)),
        f"repeated in fresh worlds: {smallest.times} of {REPETITIONS}",
        _control(smallest),
    ]
    items += [_need(axis, smallest) for axis in smallest.needs]
    if not smallest.needs:
        items.append("no axis changes the result")
    sizes = listed([str(size) for size in group.ranks])
    items.append(f"world sizes: {sizes}; failing cells of the sweep: {group.failing}")
    yield BulletList(tuple(items))


def _need(axis: str, cause: FailureCause) -> Part:
    return Text(
        f"depends on {axis}: wrong with ",
        Verbatim(", ".join(cause.needs[axis])),
        ", right with ",
        Verbatim(", ".join(cause.spares[axis])),
    )


def _control(cause: FailureCause) -> Part:
    control = cause.control
    if control is None:
        return "control: none, because no neighbouring cell has the right result"
    changed = [axis for axis, value in control.axes.items() if cause.cell.axes[axis] != value]
    values = ", ".join(f"{axis} {control.axes[axis]}" for axis in changed)
    return Text(
        "control: with ",
        Verbatim(values),
        f" the result was right {cause.control_times} of {REPETITIONS} times in the same worlds,"
        f" and the comparison detected one changed element {cause.needle_times} of {REPETITIONS}"
        " times",
    )


def _line(group: CauseGroup) -> Part:
    cause = group.smallest
    return Claim(
        Text(
            f"{group.word}: ",
            Foreign(", ".join(group.operators)),
            ": ",
            Verbatim(_shown(cause.cell)),
            f": {cause.times} of {REPETITIONS}: ",
            Foreign(cause.outcome.fact),
        ),
        tuple(Evidence(f"{FOLDER}/{name}.json.xz") for name in group.backing),
    )


def _shown(cell: OperatorCell) -> str:
    axes = ", ".join(f"{axis} {value}" for axis, value in cell.axes.items())
    return f"{cell.operator}: {axes}"


def _asked(record: OperatorsRecord) -> Iterator[tuple[Part, ...]]:
    facts = record.facts
    yield "rankproof", facts.rankproof
    yield "commit", Verbatim(facts.source.commit or "not known")
    yield "digest of Rankproof's code", Verbatim(facts.code)
    yield (
        "releases",
        Foreign(", ".join(f"{name} {version}" for name, version in record.versions.items())),
    )
    backends = sorted({BACKENDS[part.library] for part in record.parts})
    yield "backends", ", ".join(backends)
    sizes = sorted({part.ranks for part in record.parts})
    yield "world sizes", listed([str(size) for size in sizes])
    yield "seed", Verbatim(facts.seed)
    yield "total time of all parts", f"{record.seconds:.0f} s"
    yield "calls of all worlds", str(record.asked)
    if record.seconds:
        yield "calls a second", f"{record.asked / record.seconds:.0f}"


def _parts(record: OperatorsRecord) -> Iterator[tuple[Part, ...]]:
    for part in record.parts:
        if part.findings is None:
            yield part.name, Strong(part.unasked), *("" for _ in WORDS)
            continue
        words = part.findings.words
        yield (
            Claim(part.name, (Evidence(f"{FOLDER}/{part.name}.json.xz"),)),
            str(sum(words.values())),
            *(str(words.get(word, "")) for word in WORDS),
        )


def _refusals(record: OperatorsRecord) -> list[Part]:
    many: Counter[str] = Counter()
    for part in record.parts:
        if part.findings is not None:
            many.update(part.findings.refusals)
    shown = [
        Text(f"{plural(count, 'cell')}: ", Foreign(message))
        for message, count in many.most_common(MOST_REFUSALS)
    ]
    if len(many) > MOST_REFUSALS:
        return [*shown, f"{len(many) - MOST_REFUSALS} further messages are in the record"]
    return list(shown)


def _unshown(record: OperatorsRecord) -> Iterator[Part]:
    left = sum(part.findings.left for part in record.parts if part.findings is not None)
    if left:
        yield (
            f"The cause of {plural(left, 'failing cell')}, because their operators had too many"
            " failing cells."
        )
    unasked = [part.name for part in record.parts if part.findings is None]
    if unasked:
        yield f"The parts that were not run: {', '.join(unasked)}."
    none = record.words.get("NO ORACLE", 0)
    if none:
        yield (
            f"The correctness of {plural(none, 'cell')}, because a single process cannot make the"
            " call either."
        )
    yield (
        "Mistakes that plain torch, numpy or MLX in one process makes too, and wrong results within"
        " the tolerance. The tolerance is the rounding of the dtype with a margin of 16, and 8 times"
        " the distance to float64."
    )
    yield "Combinations of axes that were not drawn, other backends, GPUs, and larger arrays."
