"""Making a matrix, and going on with one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from harness.series import make
from harness.series.make import Account, Finished, Origin
from harness.series.matrix import figure, plan
from harness.series.matrix.facts import FORMAT, MatrixFacts, PartFacts
from harness.series.matrix.facts import PATH as FACTS
from harness.series.matrix.record import MatrixRecord, assemble, read_facts
from harness.series.matrix.report import render
from harness.series.series import Part, Read, Series, code
from harness.trust.key import Signer


class Matrix(Series[MatrixFacts, MatrixRecord]):
    """Every kind of fault on the standard subjects."""

    name = "matrix"
    facts = FACTS

    def read(self, data: bytes) -> MatrixFacts:
        return read_facts(data)

    def parts(self, facts: MatrixFacts) -> Sequence[PartFacts]:
        return facts.parts

    def files(self, part: Part) -> Mapping[str, bytes]:
        assert isinstance(part, PartFacts)
        case = plan.case_of(part)
        assert case is not None
        text = case.scenario(part.backend, trials=part.trials, seed=part.seed)
        return {"scenario.yaml": text, case.ground.file: plan.subject(case.ground.file)}

    def assemble(self, read: Read, names: Collection[str]) -> MatrixRecord:
        return assemble(read, names)

    def figures(self, record: MatrixRecord) -> Mapping[str, bytes]:
        return {figure.PATH: figure.draw(record)}

    def render(self, record: MatrixRecord, *, manifest_digest: str) -> bytes:
        return render(record, manifest_digest=manifest_digest)


def begin(
    *,
    results: Path,
    signer: Signer | None,
    seeds: int,
    only: Sequence[str] = (),
    backends: Sequence[str] = (),
    sample: bool = False,
    jobs: int = 1,
    account: Account[MatrixFacts] | None = None,
) -> Finished[MatrixRecord]:
    """Make a matrix.

    Raises:
        plan.Nothing: what was asked for is not there.
        harness.series.make.SeriesError: it could not be made; its folder says how far it came, and can be gone on with.
    """
    planned = plan.planned(only=only, backends=backends, sample=sample, seeds=seeds, seed=plan.SEED)

    def facts(origin: Origin) -> MatrixFacts:
        return MatrixFacts(
            format=FORMAT,
            rankproof=origin.rankproof,
            id=origin.id,
            made=origin.made,
            signer=origin.signer,
            source=origin.source,
            code=code(),
            seeds=seeds,
            seed=plan.SEED,
            sample=sample,
            only=list(only),
            backends=list(backends),
            **planned,
        )

    return make.begin(Matrix(), facts, results=results, signer=signer, jobs=jobs, account=account)


def demand_unfinished(path: Path) -> None:
    """Refuse what a matrix cannot go on with. Raises harness.series.make.SeriesError."""
    make.unfinished(Matrix(), path)


def resume(
    path: Path, *, signer: Signer | None, jobs: int = 1, account: Account[MatrixFacts] | None = None
) -> Finished[MatrixRecord]:
    """Go on with a matrix that did not come to its end. Raises harness.series.make.SeriesError."""
    return make.resume(Matrix(), path, signer=signer, jobs=jobs, account=account)
