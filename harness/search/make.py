"""Making a search, and going on with one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from harness.engines.models import digest
from harness.search import plan
from harness.search.facts import FORMAT, PartFacts, SearchFacts
from harness.search.facts import PATH as FACTS
from harness.search.prompts import CHUNK, STEPS, prompts
from harness.search.record import SearchRecord, assemble, read_facts
from harness.search.report import render
from harness.series import make
from harness.series.make import Account, Finished, Origin
from harness.series.series import Part, Read, Series, code
from harness.trust.key import Signer


class Search(Series[SearchFacts, SearchRecord]):
    """Released engines over a stated space."""

    name = "search"
    facts = FACTS

    def read(self, data: bytes) -> SearchFacts:
        return read_facts(data)

    def parts(self, facts: SearchFacts) -> Sequence[PartFacts]:
        return facts.parts

    def is_of_other_code(self, facts: SearchFacts) -> bool:
        # Another release of an engine is another search.
        return super().is_of_other_code(facts) or facts.versions != plan.versions()

    def files(self, part: Part) -> Mapping[str, bytes]:
        assert isinstance(part, PartFacts)
        return {"scenario.yaml": plan.scenario(part)}

    def assemble(self, read: Read, names: Collection[str]) -> SearchRecord:
        return assemble(read, names)

    def render(self, record: SearchRecord, *, manifest_digest: str) -> bytes:
        return render(record, manifest_digest=manifest_digest)


def begin(
    *,
    results: Path,
    signer: Signer | None,
    models: Sequence[str] = (),
    arrays: bool = True,
    jobs: int = 1,
    account: Account[SearchFacts] | None = None,
) -> Finished[SearchRecord]:
    """Make a search.

    Args:
        results: folder of all results.
        signer: who signs it.
        models: those that are walked; none: those of the space.
        arrays: whether the evidence holds logits and weights too.
        jobs: worlds at the same time.
        account: hears how far it is.

    Raises:
        plan.Nothing: what was asked for is not there.
        harness.engines.models.ModelError: a model cannot be made here.
        harness.series.make.SeriesError: it could not be made; its folder says how far it came, and can be gone on with.
    """
    chosen = plan.chosen(models)

    def facts(origin: Origin) -> SearchFacts:
        return SearchFacts(
            format=FORMAT,
            rankproof=origin.rankproof,
            id=origin.id,
            made=origin.made,
            signer=origin.signer,
            source=origin.source,
            code=code(),
            versions=plan.versions(),
            models={name: digest(name) for name in chosen},
            prompts=prompts(),
            chunk=CHUNK,
            steps=STEPS,
            trials=plan.TRIALS,
            subject=plan.subject(),
            parts=plan.parts(chosen, arrays=arrays),
        )

    return make.begin(Search(), facts, results=results, signer=signer, jobs=jobs, account=account)


def demand_unfinished(path: Path) -> None:
    """Refuse what a search cannot go on with. Raises harness.series.make.SeriesError."""
    make.unfinished(Search(), path)


def resume(
    path: Path, *, signer: Signer | None, jobs: int = 1, account: Account[SearchFacts] | None = None
) -> Finished[SearchRecord]:
    """Go on with a search that did not come to its end. Raises harness.series.make.SeriesError."""
    return make.resume(Search(), path, signer=signer, jobs=jobs, account=account)
