"""The record of a search, worked out from its parts: by whoever made it, and again by whoever verifies it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Literal

from harness.forms.distribution import normal
from harness.forms.model import Model
from harness.reason import SkipCode
from harness.record.arms import installed
from harness.record.model import PATH, Record, RecordError, read_model
from harness.scenario import Scenario
from harness.series.part import demand_named, other_files, part_record
from harness.series.search.facts import NOT_INSTALLED, PartFacts, SearchFacts
from harness.series.search.facts import PATH as FACTS
from harness.series.series import Read
from harness.stats.verdict import CellVerdict

Word = Literal["IDENTICAL", "EQUIVALENT", "DIVERGENT", "INCONCLUSIVE", "REFUSED", "SKIPPED"]
WORDS: tuple[Word, ...] = ("IDENTICAL", "EQUIVALENT", "DIVERGENT", "INCONCLUSIVE", "REFUSED", "SKIPPED")
CHECK = "same-model"


class SearchCell(Model):
    """One point of the space: a model, an engine, a sharding and a world size, over all prompts.

    Attributes:
        word: DIVERGENT where any check failed in the candidate; IDENTICAL where every rank with logits gave the same
            bits; REFUSED where the engine does not offer it; SKIPPED where this machine could not run it.
        why: in words, for what is not IDENTICAL or EQUIVALENT.
        found: how near the logits of the first rank that has any lie, and which defect would have been seen.
        part: whose evidence shows it.
    """

    model: str
    engine: str
    ranks: int
    backend: str
    word: Word
    why: str = ""
    found: str = ""
    part: str


class SearchRecord(Model):
    """The record of a search: `results.json`."""

    format: Literal[1]
    facts: SearchFacts
    cells: list[SearchCell]
    seconds: float

    @property
    def counts(self) -> dict[Word, int]:
        """How many cells each word has; those it has none of are left out."""
        many = Counter(cell.word for cell in self.cells)
        return {word: many[word] for word in WORDS if many[word]}

    def encode(self) -> bytes:
        """The one way it is written."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=True, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> SearchRecord:
        """Read it. Raises RecordError."""
        return read_model(cls, data, name=PATH)


def read_facts(data: bytes) -> SearchFacts:
    """Read what a search was going to do. Raises RecordError."""
    return read_model(SearchFacts, data, name=FACTS)


def assemble(read: Read, names: Collection[str]) -> SearchRecord:
    """Work out the record.

    Args:
        read: gives the bytes of a file by its path in the folder of the search.
        names: the paths there are.

    Raises: as harness.series.part.part_record, and RecordError for a part that is missing or too much.
    """
    facts = read_facts(read(FACTS))
    demand_named(facts)
    planned = {part.path for part in facts.parts}
    if len(planned) != len(facts.parts):
        raise RecordError("two parts have one name")
    if odd := sorted(set(names) ^ planned ^ {FACTS}):
        raise RecordError(f"{odd[0]} is {'missing' if odd[0] in planned else 'not a part of this search'}")
    cells, seconds = list[SearchCell](), 0.0
    for part in facts.parts:
        record = part_record(part, read(part.path), facts=facts, unlike=partial(_unlike, part, facts))
        digests = {one.name: one.digest for one in record.run.inputs}
        if digests.get("model") != facts.models.get(part.model):
            raise RecordError(f"{part.path} is a run of another {part.model} than was planned")
        if why := _other_release(facts, record):
            raise RecordError(f"{part.path} {why}")
        cells += _cells(part, record)
        seconds += record.run.seconds
    return SearchRecord(format=1, facts=facts, cells=cells, seconds=round(seconds, 1))


def _unlike(part: PartFacts, facts: SearchFacts, scenario: Scenario, listed: Mapping[str, str]) -> str:
    """What a search says of a part, and its scenario or its code does not; empty where they agree.

    Whatever version made it: what a part is counted as has to be what it ran.
    """
    subject, trials = scenario.subject, scenario.trials
    candidate, control = subject.candidate.with_, subject.control
    check = next((one for one in scenario.checks if one.id == CHECK), None)
    asked = [list(one) if isinstance(one, tuple) else one for one in _tuple(candidate.get("prompts"))]
    said: dict[str, tuple[object, object]] = {
        "its engine": (f"{part.library}-sharded", subject.use),
        "its model": ({"made": part.model}, scenario.inputs["model"].model_dump(exclude_none=True)),
        "its prompts": (facts.prompts, asked),
        "its chunk": (facts.chunk, candidate.get("prefill_chunk")),
        "its steps": (facts.steps, candidate.get("max_new_tokens")),
        "its trials": (facts.trials, trials.candidate),
        "whether its evidence holds arrays": (None if part.arrays else 0, scenario.world.artefacts),
        "how it is compared": (("equivalent", 2.0), (getattr(check, "kind", ""), getattr(check, "margin", 0.0))),
        "what its control must fail": (CHECK, control.must_fail.check if control is not None else None),
    }
    for what, (ours, theirs) in said.items():
        if ours != theirs:
            return f"the search says of it what its scenario does not: {what}"
    arm = other_files(listed, facts.subject)
    return f"the code of the {arm} is not the one that was planned" if arm else ""


def _other_release(facts: SearchFacts, record: Record) -> str:
    """Which release a part ran and the search does not name; empty where they agree."""
    for arm in record.run.arguments:
        _, found = installed(record.run, arm)
        for name, searched in facts.versions.items():
            there = found.get(normal(name), NOT_INSTALLED)
            if there != searched:
                return f"ran {name} {there}, and the search says {searched}"
    return ""


def _tuple(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


def _cells(part: PartFacts, record: Record) -> Iterator[SearchCell]:
    judged = {(one.ranks, _sharding(one)): one for one in record.judgement.cells}
    for asked in part.cells:
        if (one := judged.pop((asked.ranks, asked.sharding), None)) is None:
            raise RecordError(f"{part.path} has no cell of {asked.sharding} over {asked.ranks} ranks")
        word, why = _word(one)
        yield SearchCell(
            model=part.model,
            engine=f"{part.library}-{asked.sharding}",
            ranks=asked.ranks,
            backend=one.backend,
            word=word,
            why=why,
            found=_found(one),
            part=part.path,
        )
    if judged:
        raise RecordError(f"{part.path} has the cell {next(iter(judged.values())).id}, which was not planned")


def _sharding(cell: CellVerdict) -> str:
    """As the cell's id says it."""
    axes = dict(axis.partition("=")[::2] for axis in cell.id.split(","))
    return axes.get("sharding", "")


def _word(cell: CellVerdict) -> tuple[Word, str]:
    why = "; ".join(map(str, cell.reasons))
    if cell.verdict == "SKIPPED":
        refused = all(reason.code == SkipCode.CELL_MODEL for reason in cell.reasons)
        return ("REFUSED" if refused else "SKIPPED"), why
    tally = cell.candidate
    if tally is not None and (failed := [trial for trial in tally.trials if trial.outcome == "fail"]):
        told = [f"{one.check}: {reason}" for one in failed[0].failures for reason in one.reasons[:1]]
        return "DIVERGENT", "; ".join(told)
    if cell.verdict != "PASS":
        return "INCONCLUSIVE", why
    with_logits = [text for text in _shown(cell) if "it keeps no logits" not in text]
    same = bool(with_logits) and all(text.startswith("IDENTICAL") for text in with_logits)
    return ("IDENTICAL" if same else "EQUIVALENT"), ""


def _shown(cell: CellVerdict) -> list[str]:
    """What the check said of each rank of the candidate's trial that is shown."""
    sample = cell.samples.get("candidate")
    rows = [row for row in sample.rows if row.check == CHECK] if sample is not None else []
    return [one.shown for row in rows for one in row.cells]


def _found(cell: CellVerdict) -> str:
    texts = [text for text in _shown(cell) if "it keeps no logits" not in text and ": " in text]
    return texts[0].partition(": ")[2] if texts else ""
