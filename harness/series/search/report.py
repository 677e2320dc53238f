"""The report of a search: the space, one table of its cells, and every cell that is not equivalent
in words.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.forms.text import listed, plural
from harness.report.blocks import (
    Block,
    Claim,
    Evidence,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Part,
    Strong,
    Table,
    Verbatim,
)
from harness.series.replay import RECORD, document, section
from harness.series.search.record import PATH as FACTS
from harness.series.search.record import SearchCell, SearchRecord
from harness.series.series import FOLDER

ARRAYS = "logits and weights, from which a verifier repeats every comparison"
NO_ARRAYS = "digests of logits and weights, and the results of the comparisons"
WALKED = ("IDENTICAL", "EQUIVALENT", "DIVERGENT")


def render(record: SearchRecord, *, manifest_digest: str) -> bytes:
    """Render the body of `report.md`; `manifest_digest` is the sha256 of the manifest, 64 hex
    digits.
    """
    return document(
        record.facts,
        _blocks(record),
        title="Search",
        answer=Paragraph(Claim(answer(record), (RECORD,))),
        files=(
            (Claim("the plan", (Evidence(FACTS),)), "models, prompts and parts"),
            (Claim("the record", (RECORD,)), "every cell in this report"),
            (
                Verbatim(f"{FOLDER}/"),
                "signed runs, one bundle for each part; `rankproof verify` accepts each bundle",
            ),
        ),
        manifest_digest=manifest_digest,
    )


def answer(record: SearchRecord) -> str:
    """Return what was found, in a sentence."""
    divergent = record.counts.get("DIVERGENT", 0)
    many = sum(cell.word in WALKED for cell in record.cells)
    rest = ", ".join(f"{count} {word}" for word, count in record.counts.items())
    what = f"{plural(divergent, 'cell')} DIVERGENT" if divergent else "No divergence was found"
    return (
        f"{what} in {plural(many, 'cell')}, each tried with {len(record.facts.prompts)} prompts"
        f" ({rest})."
    )


def _blocks(record: SearchRecord) -> Iterator[Block]:
    yield Note(
        "A cell is a combination of a model, an engine, a way of splitting the model, and a world"
        " size. Each prompt is prefilled in chunks and continued with the tokens that the"
        " unsharded model generated. Its logits at every position are compared with those of the"
        " unsharded model, which runs in a separate process. The tolerance is measured. It is twice"
        " the change in the unsharded model's own logits when the same sums are accumulated in a"
        " different order. In each cell, the check detected a defect that was injected into the same code (every chunk of a prompt"
        ' except the first began one token too early). "Would detect" names a defect whose effect'
        " exceeded the tolerance when the defect was injected into the unsharded model."
    )
    yield Heading(2, "Search space")
    yield Table(("what", "this search"), tuple(_space(record)))
    yield Heading(2, "Every cell")
    yield Table(
        ("model", "engine", "ranks", "", "prefill and decode compared with the unsharded model"),
        tuple(_row(cell) for cell in record.cells),
        align=("left", "left", "right", "left", "left"),
    )
    yield from _in_words("Divergent", [cell for cell in record.cells if cell.word == "DIVERGENT"])
    rest = [cell for cell in record.cells if cell.word not in WALKED]
    yield from _in_words("Cells that did not run or gave no result", rest)
    yield from section("Not shown", tuple(_unshown(record)))


def _space(record: SearchRecord) -> Iterator[tuple[Part, ...]]:
    facts = record.facts
    yield "rankproof", facts.rankproof
    yield "commit", Verbatim(facts.source.commit or "not known")
    yield "digest of Rankproof's code", Verbatim(facts.code)
    yield (
        "releases",
        Foreign(", ".join(f"{name} {number}" for name, number in facts.versions.items())),
    )
    yield "models", Foreign(", ".join(facts.models))
    engines = dict.fromkeys(cell.engine for cell in record.cells)
    yield "engines", Foreign(", ".join(engines))
    lengths = [len(prompt) for prompt in facts.prompts if isinstance(prompt, list)]
    texts = len(facts.prompts) - len(lengths)
    what = (
        f"{plural(texts, 'text')} and {plural(len(lengths), 'list')} of {min(lengths)} to"
        f" {max(lengths)} tokens"
    )
    how = f"in chunks of {facts.chunk} tokens, with {facts.steps} tokens generated after each"
    yield "prompts", f"{len(facts.prompts)} ({what}), {how} prompt"
    yield "evidence", ARRAYS if all(part.arrays for part in facts.parts) else NO_ARRAYS
    yield "cells", str(len(record.cells))
    yield "total time of all parts", f"{record.seconds:.0f} s"


def _row(cell: SearchCell) -> tuple[Part, ...]:
    word: Part = cell.word if cell.word in ("IDENTICAL", "EQUIVALENT") else Strong(cell.word)
    return (
        cell.model,
        Verbatim(cell.engine),
        str(cell.ranks),
        Claim(word, (Evidence(cell.part),)),
        Foreign(cell.found),
    )


def _in_words(title: str, cells: list[SearchCell]) -> Iterator[Block]:
    """Cells with what is to be said of each; those of which the same is said together."""
    alike: dict[tuple[str, str, str, str], list[SearchCell]] = {}
    for cell in cells:
        alike.setdefault((cell.model, cell.engine, cell.word, cell.why), []).append(cell)
    items: list[Part] = []
    for (model, engine, word, why), same in alike.items():
        worlds = " and ".join(plural(cell.ranks, "rank") for cell in same)
        items.append(
            Claim(
                Foreign(f"{model}, {engine} over {worlds}: {word}: {why}"),
                (Evidence(same[0].part),),
            )
        )
    return section(title, items)


def _unshown(record: SearchRecord) -> Iterator[Part]:
    yield ("Other models. These are small, with random weights, in float32 on the CPU.")
    yield "Other or longer prompts, sampling, and batches of several requests."
    if not all(part.arrays for part in record.facts.parts):
        yield (
            "Distances between logits. The evidence does not contain the logits, so we rely on"
            " the machine that computed them."
        )
    yield f"Rare races. Each cell was tried only {plural(record.facts.trials, 'time')}."
    if len({cell.ranks for cell in record.cells}) < 4:
        worlds = listed([str(ranks) for ranks in sorted({cell.ranks for cell in record.cells})])
        yield f"World sizes other than {worlds}, and worlds on several machines."
