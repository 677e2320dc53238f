"""What a search was going to do, and its record: worked out from its parts, and again by whoever
verifies it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.forms.distribution import normal
from harness.forms.model import Model
from harness.reason import SkipCode
from harness.record.facts import installed
from harness.record.model import Record, RecordError, read_model
from harness.scenario import Scenario
from harness.series.replay import Listed, demand_named, other_files, part_record
from harness.series.series import Digest, Read, SeriesFacts, SeriesPart, SeriesRecord
from harness.stats.verdict import CellVerdict

PATH = "evidence/search.json"
FORMAT: Literal[1] = 1
NOT_INSTALLED = "not installed"
"""What stands for the version of a library that is not there."""

Library = Literal["hf", "mlx"]
Word = Literal["IDENTICAL", "EQUIVALENT", "DIVERGENT", "INCONCLUSIVE", "REFUSED", "SKIPPED"]
WORDS: tuple[Word, ...] = (
    "IDENTICAL",
    "EQUIVALENT",
    "DIVERGENT",
    "INCONCLUSIVE",
    "REFUSED",
    "SKIPPED",
)
CHECK = "same-model"


class Asked(Model):
    """How a model is shared, and over how many ranks."""

    sharding: Literal["single", "tensor", "pipeline"]
    ranks: Annotated[int, Field(ge=1)]


class SearchPart(SeriesPart):
    """One signed run of a search: a model with an engine.

    Attributes:
        name: of the part, and of its file.
        model: of the models that are made here.
        library: the engine.
        cells: what is asked of it.
        arrays: whether its evidence holds logits and weights, or their digests and what was worked
            out of them.
        scenario: sha256 of its scenario file.
    """

    model: str
    library: Library
    cells: list[Asked]
    arrays: bool
    scenario: Digest


class SearchFacts(SeriesFacts):
    """What a search was going to do, written before its first part: the space, and in which parts
    it is walked.

    Attributes:
        versions: of the libraries whose releases are searched, and of what they compute with.
        models: name to the digest of its files.
        prompts: texts, and lists of token ids.
        chunk: tokens of a prompt that are read at a time.
        steps: tokens that are generated after each.
        trials: how often each cell is walked.
        subject: the code of the ranks, file to sha256.
        parts: in the order in which they are made.
    """

    kind: ClassVar[str] = "search"

    format: Literal[1]
    versions: dict[str, str]
    models: dict[str, Digest]
    prompts: list[str | list[int]]
    chunk: int
    steps: int
    trials: int
    subject: dict[str, Digest]
    parts: list[SearchPart]


class SearchCell(Model):
    """One point of the space: a model, an engine, a sharding and a world size, over all prompts.

    Attributes:
        word: DIVERGENT where any check failed in the candidate; IDENTICAL where every rank with
            logits gave the same bits; REFUSED where the engine does not offer it; SKIPPED where
            this machine could not run it.
        why: in words, for what is not IDENTICAL or EQUIVALENT.
        found: how near the logits of the first rank that has any lie, and which defect would have
            been seen.
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


class SearchRecord(SeriesRecord):
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


def assemble(read: Read, names: Collection[str]) -> SearchRecord:
    """Work out the record.

    Args:
        read: gives the bytes of a file by its path in the folder of the search.
        names: the paths there are.

    Raises: as harness.series.replay.part_record, and RecordError for a part that is missing or too
    much.
    """
    facts = read_model(SearchFacts, read(PATH), name=PATH)
    demand_named(facts)
    planned = {part.path for part in facts.parts}
    if len(planned) != len(facts.parts):
        raise RecordError("two parts have the same name")
    if odd := sorted(set(names) ^ planned ^ {PATH}):
        raise RecordError(
            f"{odd[0]} is {'missing' if odd[0] in planned else 'not a part of this search'}"
        )
    cells: list[SearchCell] = []
    seconds = 0.0
    for part in facts.parts:
        record = part_record(
            part, read(part.path), facts=facts, unlike=partial(_unlike, part, facts)
        )
        digests = {given.name: given.digest for given in record.run.inputs}
        if digests.get("model") != facts.models.get(part.model):
            raise RecordError(
                f"{part.path} ran a {part.model} that differs from the one in the plan"
            )
        if why := _other_release(facts, record):
            raise RecordError(f"{part.path} {why}")
        cells += _cells(part, record)
        seconds += record.run.seconds
    return SearchRecord(format=1, facts=facts, cells=cells, seconds=round(seconds, 1))


def _unlike(part: SearchPart, facts: SearchFacts, scenario: Scenario, listed: Listed) -> str:
    """Return what a search says of a part, and its scenario or its code does not.

    Empty where they agree.

    Whatever version made it: what a part is counted as has to be what it ran.
    """
    subject = scenario.subject
    candidate = subject.candidate.with_
    control = subject.control
    check = next((check for check in scenario.checks if check.id == CHECK), None)
    prompts = _tuple(candidate.get("prompts"))
    asked = [list(prompt) if isinstance(prompt, tuple) else prompt for prompt in prompts]
    said: dict[str, tuple[object, object]] = {
        "its engine": (f"{part.library}-sharded", subject.use),
        "its model": ({"made": part.model}, scenario.inputs["model"].model_dump(exclude_none=True)),
        "its prompts": (facts.prompts, asked),
        "its chunk": (facts.chunk, candidate.get("prefill_chunk")),
        "its steps": (facts.steps, candidate.get("max_new_tokens")),
        "its trials": (facts.trials, scenario.trials.candidate),
        "whether its evidence contains arrays": (
            None if part.arrays else 0,
            scenario.world.artefacts,
        ),
        "its comparison": (
            ("equivalent", 2.0),
            (getattr(check, "kind", ""), getattr(check, "margin", 0.0)),
        ),
        "the check that its control must fail": (
            CHECK,
            control.must_fail.check if control is not None else None,
        ),
    }
    for what, (ours, theirs) in said.items():
        if ours != theirs:
            return f"the search and its scenario disagree: {what}"
    arm = other_files(listed, facts.subject)
    return f"the code of the {arm} differs from the code in the plan" if arm else ""


def _other_release(facts: SearchFacts, record: Record) -> str:
    """Which release a part ran and the search does not name; empty where they agree."""
    for arm in record.run.arguments:
        _, packages = installed(record.run, arm)
        for name, searched in facts.versions.items():
            ran = packages.get(normal(name), NOT_INSTALLED)
            if ran != searched:
                return f"ran {name} {ran}, but the search states {searched}"
    return ""


def _tuple(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


def _cells(part: SearchPart, record: Record) -> Iterator[SearchCell]:
    judged = {(cell.ranks, _sharding(cell)): cell for cell in record.judgement.cells}
    for asked in part.cells:
        if (cell := judged.pop((asked.ranks, asked.sharding), None)) is None:
            raise RecordError(
                f"{part.path} has no cell for {asked.sharding} over {asked.ranks} ranks"
            )
        word, why = _word(cell)
        yield SearchCell(
            model=part.model,
            engine=f"{part.library}-{asked.sharding}",
            ranks=asked.ranks,
            backend=cell.backend,
            word=word,
            why=why,
            found=_nearness(cell),
            part=part.path,
        )
    if judged:
        raise RecordError(
            f"{part.path} contains the cell {next(iter(judged.values())).id}, which was not planned"
        )


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
    if tally is not None and (
        failed := [trial for trial in tally.trials if trial.outcome == "fail"]
    ):
        reasons = [
            f"{failure.check}: {reason}"
            for failure in failed[0].failures
            for reason in failure.reasons[:1]
        ]
        return "DIVERGENT", "; ".join(reasons)
    if cell.verdict != "PASS":
        return "INCONCLUSIVE", why
    with_logits = [text for text in _shown(cell) if "it keeps no logits" not in text]
    same = bool(with_logits) and all(text.startswith("IDENTICAL") for text in with_logits)
    return ("IDENTICAL" if same else "EQUIVALENT"), ""


def _shown(cell: CellVerdict) -> list[str]:
    """Return what the check said of each rank of the candidate's trial that is shown."""
    sample = cell.samples.get("candidate")
    rows = [row for row in sample.rows if row.check == CHECK] if sample is not None else []
    return [rank.shown for row in rows for rank in row.cells]


def _nearness(cell: CellVerdict) -> str:
    texts = [text for text in _shown(cell) if "it keeps no logits" not in text and ": " in text]
    return texts[0].partition(": ")[2] if texts else ""
