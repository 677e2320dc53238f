"""What a matrix was going to do, written before its first part: cases, seeds, and what has to be
seen of each.

Whoever judges it again holds every part against the scenario that the part ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.scenario import Scenario
from harness.series.matrix.case import HANG
from harness.series.replay import Listed, other_files
from harness.series.series import Digest, SeriesFacts, SeriesPart

PATH = "evidence/matrix.json"
STANDARD = "standard.py"
FORMAT: Literal[1] = 1


class MatrixPart(SeriesPart):
    """One signed run of a matrix: a case on a backend, with some of its seeds.

    Attributes:
        name: of the part, and of its file.
        case: what the report calls the case.
        kind: of the fault.
        effect: what the kind does to a subject that works.
        backend: on which.
        ranks: of each world.
        struck: the ranks that the fault is for.
        trials: seeds: so many trials of the fault, and as many without it where it is not masked.
        seed: the root of its seeds.
        scenario: sha256 of its scenario file.
        masked: whether the fault has to be borne; else it has to be seen.
        sees: the checks that must fail, by id, each with the ranks on which it must; `hang` is not
            a check, and proved by stillness.
        says: a text that the reason of such a check must hold, by id.
        checks: every check, by id, with its kind.
    """

    case: str
    kind: str
    effect: str
    backend: str
    ranks: Annotated[int, Field(ge=1)]
    struck: list[int]
    trials: Annotated[int, Field(ge=1)]
    seed: str
    scenario: Digest
    masked: bool
    sees: dict[str, list[int]]
    says: dict[str, str]
    checks: dict[str, str]


class MatrixFacts(SeriesFacts):
    """One matrix.

    Attributes:
        seeds: trials of each case.
        seed: the root of all seeds.
        sample: whether it is the sentinels alone.
        only: the kinds and cases it was asked for; empty for all.
        backends: the backends it was asked for.
        subject: sha256 of standard.py.
        subjects: sha256 of each further file of subjects, by its name.
        parts: in the order in which they are made.
        without: what has no case in it, with the reason: a kind, or a kind on a backend.
        unused: kinds of checks that no case of it needs: on no backend, or not on the one that is
            named.
    """

    kind: ClassVar[str] = "matrix"

    format: Literal[1]
    seeds: Annotated[int, Field(ge=1)]
    seed: str
    sample: bool
    only: list[str]
    backends: list[str]
    subject: Digest
    subjects: dict[str, Digest] = Field(default_factory=dict)
    parts: list[MatrixPart]
    without: dict[str, str]
    unused: list[str]

    def subject_of(self, file: str) -> str | None:
        """Return the sha256 that a file of subjects must have; None where the matrix names no such
        file.
        """
        return self.subject if file == STANDARD else self.subjects.get(file)

    def cells(self) -> Mapping[tuple[str, str], list[MatrixPart]]:
        """Return the parts of each case on each backend."""
        by_cell: dict[tuple[str, str], list[MatrixPart]] = {}
        for part in self.parts:
            by_cell.setdefault((part.case, part.backend), []).append(part)
        return by_cell


def unlike(part: MatrixPart, scenario: Scenario) -> str:
    """Return what a matrix says of a part and its scenario does not; empty where the two agree.

    Whatever version made it: what a part is counted as has to be what it ran.
    """
    control = scenario.subject.control
    faults = scenario.faults
    must_fail = control.must_fail if control is not None else None
    if must_fail is None or len(faults) != 1 or faults[0].arm == "candidate":
        return "it needs one fault, in both arms or in a control that must fail"
    (fault,) = faults
    trials = scenario.trials
    said: dict[str, tuple[object, object]] = {
        "its kind of fault": (part.kind, fault.kind),
        "its backend": ([part.backend], list(scenario.matrix.backend)),
        "its world size": ([part.ranks], list(scenario.matrix.ranks)),
        "its axes": ({"ranks", "backend"}, set(scenario.matrix.axes)),
        "its seed": (part.seed, scenario.seed),
        "its checks": (part.checks, {check.id: check.kind for check in scenario.checks}),
        "whether its fault is tolerated": (part.masked, part.effect == "masked"),
        "trials that replace void trials": (0, trials.max_voids),
        "its trials": (part.trials, trials.candidate),
        "its name": (True, part.case == part.kind or part.case.startswith(f"{part.kind}-")),
    }
    if not part.masked:
        said["its trials of the control"] = part.trials, trials.control
    for what, (ours, theirs) in said.items():
        if ours != theirs:
            return f"{what}: {ours} in the matrix, but {theirs} in the scenario"
    try:
        struck = list(fault.ranks.of(part.ranks))
        failing = list(must_fail.ranks.of(part.ranks))
    except ValueError as error:
        return str(error)
    if part.struck != struck:
        return (
            f"the ranks that are struck: {part.struck} in the matrix, but {struck} in the scenario"
        )
    if part.masked:
        return (
            "a fault that is tolerated strikes both arms, and no check detects it"
            if fault.arm or part.sees
            else ""
        )
    first = HANG if must_fail.hang is not None else str(must_fail.check)
    if next(iter(part.sees), None) != first or part.sees[first] != failing:
        return (
            f"the checks that must detect the fault, which start with {first} on ranks"
            f" {failing} in the scenario"
        )
    if (HANG in part.sees) != (first == HANG) or part.sees.keys() - {HANG} - part.checks.keys():
        return "the checks that must detect the fault, which include a name that the scenario lacks"
    return (
        "the expected message of a check that does not have to detect the fault"
        if part.says.keys() - part.sees.keys()
        else ""
    )


def other_code(scenario: Scenario, listed: Listed, facts: MatrixFacts) -> str:
    """How the code of a part's arms is not the standard one; empty where it is."""
    file = f"{str(scenario.subject.entry).partition(':')[0]}.py"
    if (standard := facts.subject_of(file)) is None:
        return f"{file} is not a file of standard subjects"
    arm = other_files(listed, {file: standard})
    return f"the code of the {arm} is not the standard code" if arm else ""


def flaw(facts: MatrixFacts) -> str:
    """Return what is wrong about a plan, whatever version made it: a cell that does not have its
    seeds, each once.

    Parts of one cell are counted together: so they have to ask the same.
    """
    for what, names in (
        ("name", [part.path for part in facts.parts]),
        ("scenario", [part.scenario for part in facts.parts]),
    ):
        (name, many), *_ = Counter(names).most_common(1) or [("", 0)]
        if many > 1:
            return f"two parts have one {what}: {name}"
    for (case, backend), parts in facts.cells().items():
        of_the_part = {"name", "trials", "seed", "scenario"}
        if any(
            part.model_dump(exclude=of_the_part) != parts[0].model_dump(exclude=of_the_part)
            for part in parts
        ):
            return f"the parts of {case} on {backend} differ in their settings"
        if len({part.seed for part in parts}) < len(parts):
            return f"two parts of {case} on {backend} have the same seed"
        if (trials := sum(part.trials for part in parts)) != facts.seeds:
            return (
                f"{case} on {backend} has {trials} trials, but the matrix plans {facts.seeds} for"
                " each cell"
            )
    return ""
