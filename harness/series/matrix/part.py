"""One part of a matrix: a signed run in its bundle, worked out again from its evidence and held against the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from harness.record.model import Record
from harness.scenario import Scenario
from harness.series import part as judged
from harness.series.matrix.facts import MatrixFacts, PartFacts
from harness.series.matrix.ground import HANG


def part_record(part: PartFacts, data: bytes, *, facts: MatrixFacts) -> Record:
    """The record of one part, worked out again from the evidence in its bundle. Raises as series.part.part_record."""

    def other(scenario: Scenario, listed: Mapping[str, str]) -> str:
        if why := unlike(part, scenario):
            return f"the matrix says of it what its scenario does not: {why}"
        return other_code(scenario, listed, facts)

    return judged.part_record(part, data, facts=facts, unlike=other)


def unlike(part: PartFacts, scenario: Scenario) -> str:
    """What a matrix says of a part and its scenario does not; empty where the two agree.

    Whatever version made it: what a part is counted as has to be what it ran.
    """
    control, faults = scenario.subject.control, scenario.faults
    must_fail = control.must_fail if control is not None else None
    if must_fail is None or len(faults) != 1 or faults[0].arm == "candidate":
        return "it needs one fault, in both arms or in a control that must fail"
    (fault,), trials = faults, scenario.trials
    said: dict[str, tuple[object, object]] = {
        "its kind of fault": (part.kind, fault.kind),
        "its backend": ([part.backend], list(scenario.matrix.backend)),
        "its world size": ([part.ranks], list(scenario.matrix.ranks)),
        "its axes": ({"ranks", "backend"}, set(scenario.matrix.axes)),
        "its seed": (part.seed, scenario.seed),
        "its checks": (part.checks, {check.id: check.kind for check in scenario.checks}),
        "whether its fault is borne": (part.masked, part.effect == "masked"),
        "trials that take the place of void ones": (0, trials.max_voids),
        "its trials": (part.trials, trials.candidate),
        "its name": (True, part.case == part.kind or part.case.startswith(f"{part.kind}-")),
    }
    if not part.masked:
        said["its trials of the control"] = part.trials, trials.control
    for what, (ours, theirs) in said.items():
        if ours != theirs:
            return f"{what}: {ours}, and {theirs} there"
    try:
        struck, failing = list(fault.ranks.of(part.ranks)), list(must_fail.ranks.of(part.ranks))
    except ValueError as error:
        return str(error)
    if part.struck != struck:
        return f"the ranks that are struck: {part.struck}, and {struck} there"
    if part.masked:
        return "a fault that is borne strikes both arms, and nothing sees it" if fault.arm or part.sees else ""
    first = HANG if must_fail.hang is not None else str(must_fail.check)
    if next(iter(part.sees), None) != first or part.sees[first] != failing:
        return f"what has to see it, which begins with {first} on ranks {failing} there"
    if (HANG in part.sees) != (first == HANG) or part.sees.keys() - {HANG} - part.checks.keys():
        return "what has to see it, where a name is not one of its checks"
    return "what a check has to say, where nothing sees it" if part.says.keys() - part.sees.keys() else ""


def other_code(scenario: Scenario, listed: Mapping[str, str], facts: MatrixFacts) -> str:
    """How the code of a part's arms is not the standard one; empty where it is."""
    file = f"{str(scenario.subject.entry).partition(':')[0]}.py"
    if (standard := facts.subject_of(file)) is None:
        return f"{file} is not a file of standard subjects"
    arm = judged.other_files(listed, {file: standard})
    return f"the code of the {arm} is not the standard one" if arm else ""


def flaw(facts: MatrixFacts) -> str:
    """What is wrong about a plan, whatever version made it: a cell that does not have its seeds, each once.

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
        own = {"name", "trials", "seed", "scenario"}
        if any(part.model_dump(exclude=own) != parts[0].model_dump(exclude=own) for part in parts):
            return f"the parts of {case} on {backend} do not ask the same"
        if len({part.seed for part in parts}) < len(parts):
            return f"two parts of {case} on {backend} have one seed"
        if (trials := sum(part.trials for part in parts)) != facts.seeds:
            return f"{case} on {backend} has {trials} trials, and the matrix says {facts.seeds} of each cell"
    return ""
