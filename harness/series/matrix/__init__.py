"""The detection matrix: every kind of fault against the checks that have to see it, on every
backend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from harness.series.matrix import plan, report
from harness.series.matrix.facts import FORMAT, PATH, STANDARD, MatrixFacts, MatrixPart
from harness.series.matrix.record import MatrixRecord, assemble
from harness.series.series import SCENARIO, Nothing, Origin, Part, Read, Series

# Facts that say what was left out, and what they are called.
LEFT_OUT = {"without": "what has no case", "unused": "which checks no case needs"}


class Matrix(Series[MatrixFacts, MatrixRecord]):
    """Every kind of fault on the standard subjects."""

    name = "matrix"
    path = PATH
    figure = report.FIGURE
    facts = MatrixFacts
    record = MatrixRecord

    def parts(self, facts: MatrixFacts) -> Sequence[MatrixPart]:
        return facts.parts

    def files(self, part: Part) -> Mapping[str, bytes]:
        assert isinstance(part, MatrixPart)
        case = plan.case_of(part)
        assert case is not None
        text = case.scenario(part.backend, trials=part.trials, seed=part.seed)
        return {SCENARIO: text, case.ground.file: plan.subject(case.ground.file)}

    def assemble(self, read: Read, names: Collection[str]) -> MatrixRecord:
        return assemble(read, names)

    def draw(self, record: MatrixRecord) -> bytes:
        return report.draw(record)

    def render(self, record: MatrixRecord, *, manifest_digest: str) -> bytes:
        return report.render(record, manifest_digest=manifest_digest)

    def other_plan(self, facts: MatrixFacts) -> str:
        try:
            planned = plan.planned(
                only=facts.only,
                backends=facts.backends,
                sample=facts.sample,
                seeds=facts.seeds,
                seed=facts.seed,
            )
        except Nothing as error:
            return f"this version cannot plan such a matrix: {error}"
        ours = {part.name: part for part in planned["parts"]}
        theirs = {part.name: part for part in facts.parts}
        other = [name for name in ours if name in theirs and ours[name] != theirs[name]]
        other += [
            name
            for name, digest in planned["subjects"].items()
            if facts.subject_of(name) not in (None, digest)
        ]
        other += [STANDARD] if planned["subject"] != facts.subject else []
        differences = {
            "it lacks": sorted(ours.keys() - theirs.keys()),
            "it has beside": sorted(theirs.keys() - ours.keys()),
            "it asks otherwise of": other,
            "it says otherwise": [
                words for key, words in LEFT_OUT.items() if planned[key] != getattr(facts, key)
            ],
        }
        return "; ".join(
            f"{what}"
            f" {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
            for what, names in differences.items()
            if names
        )


def facts_of(
    *, seeds: int, only: Sequence[str] = (), backends: Sequence[str] = (), sample: bool = False
) -> Callable[[Origin], MatrixFacts]:
    """Return what a new matrix is going to do, once it is known who makes it.

    Args:
        seeds: trials of each case.
        only: kinds of faults, or single cases as `kind/variant`; nothing for all.
        backends: on these alone; nothing for all.
        sample: the sentinels alone.

    Raises:
        harness.series.series.Nothing: what was asked for is not there.
    """
    planned = plan.planned(only=only, backends=backends, sample=sample, seeds=seeds, seed=plan.SEED)

    def facts(origin: Origin) -> MatrixFacts:
        return MatrixFacts(
            **origin,
            format=FORMAT,
            seeds=seeds,
            seed=plan.SEED,
            sample=sample,
            only=list(only),
            backends=list(backends),
            **planned,
        )

    return facts
