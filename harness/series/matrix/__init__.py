"""The detection matrix: every kind of fault against the checks that have to see it, on every
backend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import resources
from typing import TypedDict

from harness import checks, faults
from harness.forms.digest import sha256
from harness.forms.problem import closest
from harness.series.matrix import report
from harness.series.matrix.case import HANG, Case
from harness.series.matrix.catalogue import CASES, SENTINELS
from harness.series.matrix.facts import FORMAT, PATH, STANDARD, MatrixFacts, MatrixPart
from harness.series.matrix.record import MatrixRecord, assemble
from harness.series.series import SCENARIO, Nothing, PlannedPart, Read, Series, SeriesOrigin

BACKENDS = ("gloo", "mlx-ring")
BATCH = 25
"""Trials of one part at most: what a kill costs."""
SEED = "rankproof-matrix"


# Kinds that the worlds of a matrix, which are on one machine, cannot have, and where they are
# tried.
ELSEWHERE = {"cut-off": "this fault needs several machines, so it is tested by scenarios/host-lost"}


def subject_file(file: str) -> bytes:
    """Return the code of standard subjects, by the name of their file."""
    return resources.files("harness.series.matrix").joinpath(file).read_bytes()


def chosen(*, only: Sequence[str], backends: Sequence[str], sample: bool) -> list[tuple[Case, str]]:
    """Return the cases that were asked for, each with a backend.

    Args:
        only: kinds of faults, each for all of its cases, or single cases as `kind/variant`; nothing
            for all.
        backends: on these alone; nothing for all.
        sample: the sentinels alone.

    Raises:
        Nothing: a kind, case or backend that is not there, or nothing is left.
    """
    for choice in only:
        kind, single, _ = choice.partition("/")
        if kind not in faults.KINDS:
            hint = f"; did you mean {near}?" if (near := closest(kind, faults.KINDS.names)) else "."
            raise Nothing(
                f"--only {choice}: {kind} is not a kind of fault{hint} Run `rankproof list faults`"
                " to list the kinds"
            )
        choices = [case.choice for case in CASES if case.kind == kind]
        if single and choice not in choices:
            raise Nothing(
                f"--only {choice}: {kind} does not have this case; its cases:"
                f" {', '.join(choices) or 'none'}"
            )
    for backend in backends:
        if backend not in BACKENDS:
            raise Nothing(f"--backend {backend}: the matrix runs only on {' and '.join(BACKENDS)}")
    cells = [
        (case, backend)
        for case in CASES
        for backend in BACKENDS
        if backend in case.backends
        and (not only or case.kind in only or case.choice in only)
        and (not backends or backend in backends)
        and (not sample or (case.name, backend) in SENTINELS)
    ]
    if not cells:
        raise Nothing(
            "the matrix is empty, because no case of this kind runs on this backend, or none of"
            " these cases is a sentinel"
        )
    return cells


def parts(asked: Sequence[tuple[Case, str]], *, seeds: int, seed: str) -> list[MatrixPart]:
    """Return the parts of these cases, in the order in which they are made."""
    return [
        _part(case, backend, number=number, trials=min(BATCH, seeds - begin), seed=seed)
        for number, begin in enumerate(range(0, seeds, BATCH))
        for case, backend in asked
    ]


def case_of(part: MatrixPart) -> Case | None:
    """Return the case of a part in this version's catalogue; None where it has no such case."""
    return next(
        (case for case in CASES if case.name == part.case and part.backend in case.backends), None
    )


def subjects(planned: Sequence[MatrixPart]) -> dict[str, str]:
    """Return the sha256 of each file of subjects that these parts need, by its name.

    Of standard.py in any case.
    """
    files = {case.ground.file for part in planned if (case := case_of(part)) is not None}
    return {file: sha256(subject_file(file)) for file in sorted({STANDARD, *files})}


def without(asked: Sequence[tuple[Case, str]], *, everything: bool) -> dict[str, str]:
    """Return what has no case, with the reason.

    Of a matrix that is not everything, only of the cases it is about.
    """
    cases = [case for case in CASES if everything or any(case is chosen for chosen, _ in asked)]
    kinds = faults.KINDS.ours if everything else ()
    nobody = "no case has been written for it"
    tried = {case.kind for case in CASES}
    reasons = {kind: ELSEWHERE.get(kind, nobody) for kind in kinds if kind not in tried}
    for case in cases:
        for backend in BACKENDS:
            if backend not in case.backends:
                reasons[f"{case.name} on {backend}"] = case.why_not
    return reasons


def unused(asked: Sequence[tuple[Case, str]]) -> list[str]:
    """Kinds of checks that no case needs, or none on a backend: nothing here shows that they can
    fail there.
    """
    backends = sorted({backend for _, backend in asked})
    used = {
        (case.ground.checks[name]["kind"], backend)
        for case, backend in asked
        for name in (() if case.is_masked else case.seen_by(backend))
        if name != HANG
    }
    kinds = []
    for kind in sorted(checks.KINDS.ours):
        lacking = [backend for backend in backends if (kind, backend) not in used]
        kinds += [kind] if lacking == backends else [f"{kind} on {backend}" for backend in lacking]
    return kinds


class MatrixPlan(TypedDict):
    """What this version makes of a question: keys of a matrix' facts."""

    subject: str
    subjects: dict[str, str]
    parts: list[MatrixPart]
    without: dict[str, str]
    unused: list[str]


def planned(
    *, only: Sequence[str], backends: Sequence[str], sample: bool, seeds: int, seed: str
) -> MatrixPlan:
    """Return what this version makes of a question, as the facts of a matrix state it.

    Raises:
        Nothing: it has no such kind, case or backend.
    """
    asked = chosen(only=only, backends=backends, sample=sample)
    all_parts = parts(asked, seeds=seeds, seed=seed)
    digests = subjects(all_parts)
    return {
        "subject": digests.pop(STANDARD),
        "subjects": digests,
        "parts": all_parts,
        "without": without(asked, everything=not only and not sample),
        "unused": unused(asked),
    }


def _part(case: Case, backend: str, *, number: int, trials: int, seed: str) -> MatrixPart:
    root = f"{seed}-{number}"
    size = case.ground.ranks
    sees = case.seen_by(backend)
    return MatrixPart(
        name=f"{case.name}-{backend}-{number:02d}",
        case=case.name,
        kind=case.kind,
        effect=case.does if not case.defect else f"{case.does}, with a defect",
        backend=backend,
        ranks=size,
        struck=ranks_of(case.struck, size),
        trials=trials,
        seed=root,
        scenario=sha256(case.scenario(backend, trials=trials, seed=root)),
        masked=case.is_masked,
        sees=(
            {} if case.is_masked else {name: ranks_of(ranks, size) for name, ranks in sees.items()}
        ),
        says={} if case.is_masked else dict(case.says),
        checks={name: str(options["kind"]) for name, options in case.ground.checks.items()},
    )


def ranks_of(ranks: str | Sequence[int], size: int) -> list[int]:
    """Return the numbers that a set of ranks stands for."""
    if ranks == "every":
        return list(range(size))
    return list(range(1, size)) if isinstance(ranks, str) else list(ranks)


class MatrixSeries(Series[MatrixFacts, MatrixRecord]):
    """Every kind of fault on the standard subjects."""

    name = "matrix"
    path = PATH
    figure = report.FIGURE
    facts = MatrixFacts
    record = MatrixRecord

    def parts(self, facts: MatrixFacts) -> Sequence[MatrixPart]:
        return facts.parts

    def files(self, part: PlannedPart) -> Mapping[str, bytes]:
        assert isinstance(part, MatrixPart)
        case = case_of(part)
        assert case is not None
        text = case.scenario(part.backend, trials=part.trials, seed=part.seed)
        return {SCENARIO: text, case.ground.file: subject_file(case.ground.file)}

    def assemble(self, read: Read, names: Collection[str]) -> MatrixRecord:
        return assemble(read, names)

    def draw(self, record: MatrixRecord) -> bytes:
        return report.draw(record)

    def render(self, record: MatrixRecord, *, manifest_digest: str) -> bytes:
        return report.render(record, manifest_digest=manifest_digest)

    def other_plan(self, facts: MatrixFacts) -> str:
        try:
            plan = planned(
                only=facts.only,
                backends=facts.backends,
                sample=facts.sample,
                seeds=facts.seeds,
                seed=facts.seed,
            )
        except Nothing as error:
            return f"this version cannot plan such a matrix: {error}"
        ours = {part.name: part for part in plan["parts"]}
        theirs = {part.name: part for part in facts.parts}
        other = [name for name in ours if name in theirs and ours[name] != theirs[name]]
        other += [
            name
            for name, digest in plan["subjects"].items()
            if facts.subject_of(name) not in (None, digest)
        ]
        other += [STANDARD] if plan["subject"] != facts.subject else []
        differences = {
            "it lacks": sorted(ours.keys() - theirs.keys()),
            "it also has": sorted(theirs.keys() - ours.keys()),
            "it plans a different part for": other,
            "it differs in": [
                *(["the faults without a case"] if plan["without"] != facts.without else []),
                *(["the checks that no case needs"] if plan["unused"] != facts.unused else []),
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
) -> Callable[[SeriesOrigin], MatrixFacts]:
    """Return what a new matrix is going to do, once it is known who makes it.

    Args:
        seeds: trials of each case.
        only: kinds of faults, or single cases as `kind/variant`; nothing for all.
        backends: on these alone; nothing for all.
        sample: the sentinels alone.

    Raises:
        harness.series.series.Nothing: what was asked for is not there.
    """
    plan = planned(only=only, backends=backends, sample=sample, seeds=seeds, seed=SEED)

    def facts(origin: SeriesOrigin) -> MatrixFacts:
        return MatrixFacts(
            **origin,
            format=FORMAT,
            seeds=seeds,
            seed=SEED,
            sample=sample,
            only=list(only),
            backends=list(backends),
            **plan,
        )

    return facts
