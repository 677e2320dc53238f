"""A search: released engines walked over models, shardings and prompts, each against the whole
model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from harness.engines.models import digest
from harness.series.search import plan, report
from harness.series.search.record import (
    FORMAT,
    PATH,
    SearchFacts,
    SearchPart,
    SearchRecord,
    assemble,
)
from harness.series.series import SCENARIO, Nothing, PlannedPart, Read, Series, SeriesOrigin


class Search(Series[SearchFacts, SearchRecord]):
    """Released engines over a stated space."""

    name = "search"
    path = PATH
    facts = SearchFacts
    record = SearchRecord

    def parts(self, facts: SearchFacts) -> Sequence[SearchPart]:
        return facts.parts

    def is_of_other_code(self, facts: SearchFacts) -> bool:
        # Another release of an engine is another search.
        return super().is_of_other_code(facts) or facts.versions != plan.versions()

    def files(self, part: PlannedPart) -> Mapping[str, bytes]:
        assert isinstance(part, SearchPart)
        return {SCENARIO: plan.scenario(part)}

    def assemble(self, read: Read, names: Collection[str]) -> SearchRecord:
        return assemble(read, names)

    def render(self, record: SearchRecord, *, manifest_digest: str) -> bytes:
        return report.render(record, manifest_digest=manifest_digest)

    def other_plan(self, facts: SearchFacts) -> str:
        try:
            arrays = any(part.arrays for part in facts.parts)
            ours = {
                part.name: part
                for part in plan.parts(plan.chosen(list(facts.models)), arrays=arrays)
            }
        except Nothing as error:
            return f"this version cannot plan such a search: {error}"
        theirs = {part.name: part for part in facts.parts}
        odd = sorted(
            name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
        )
        odd += ["the prompts"] if facts.prompts != plan.prompts() else []
        odd += ["the code of the ranks"] if facts.subject != plan.subject() else []
        return f"its plan differs for {', '.join(odd[:3])}" if odd else ""

    def on_trust(self, facts: SearchFacts) -> str:
        if all(part.arrays for part in facts.parts):
            return ""
        return (
            "its evidence contains no logits or weights, so the distances between them are the"
            " signer's own claim"
        )


def facts_of(
    *, models: Sequence[str] = (), arrays: bool = True
) -> Callable[[SeriesOrigin], SearchFacts]:
    """Return what a new search is going to do, once it is known who makes it.

    Args:
        models: those that are walked; none: those of the space.
        arrays: whether the evidence holds logits and weights too.

    Raises:
        harness.series.series.Nothing: what was asked for is not there.
        harness.engines.models.ModelError: a model cannot be made here (raised when the facts are
            made).
    """
    chosen = plan.chosen(models)

    def facts(origin: SeriesOrigin) -> SearchFacts:
        return SearchFacts(
            **origin,
            format=FORMAT,
            versions=plan.versions(),
            models={name: digest(name) for name in chosen},
            prompts=plan.prompts(),
            chunk=plan.CHUNK,
            steps=plan.STEPS,
            trials=plan.TRIALS,
            subject=plan.subject(),
            parts=plan.parts(chosen, arrays=arrays),
        )

    return facts
