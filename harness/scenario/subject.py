"""The subject of a scenario: the code under test, and the two arms it runs in.

In a comparison two arms must give the same values, and a defect shows that a difference would be
seen. What the user calls a and b are a reference and a candidate to everybody outside this file;
the control is b once more, with the defect injected by the harness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator

from harness.checks import AnyCheck
from harness.checks.arrays import AgainstCheck
from harness.faults.fault import Fault
from harness.faults.perturb import Change, PerturbFault
from harness.forms.model import (
    EVERY_RANK,
    Argument,
    Entry,
    Id,
    Listed,
    Model,
    Plain,
    Ranks,
    Relative,
    demand_one,
)
from harness.forms.problem import Path, complaint
from harness.forms.units import Duration
from harness.scenario.arm import Arm, Control, Expected, MustFail
from harness.scenario.environment import Environment
from harness.subjects import READY

CALLED: Mapping[str, str] = {"reference": "a", "candidate": "b", "control": "b with the defect"}
"""What the arms of a comparison are called, by what they are."""


class Defect(Change):
    """One element of what b reports or keeps is changed by a stated size, to show that the
    comparison sees it.
    """

    ranks: Ranks = Field(
        EVERY_RANK,
        description="The ranks of b that are changed: every, nonzero, or a list.",
        json_schema_extra={"default": "every"},
    )


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


Defects = Annotated[
    Listed[Defect],
    Field(min_length=1),
    BeforeValidator(
        _listed, json_schema_input_type=Defect | Annotated[list[Defect], Field(min_length=1)]
    ),
]


class Compare(Model):
    """Two arms that must give the same values, and what shows that a difference would have been
    seen.
    """

    a: Arm = Field(
        default_factory=Arm,
        description="What b is compared with (checks: against: a). It runs twice.",
    )
    b: Arm = Field(default_factory=Arm, description="What the verdict is about.")
    defect: Defects = Field(
        description=(
            "The change that the harness makes to b's values or artefacts, in trials that must"
            " fail: one defect, or a list."
        )
    )


class SeesDefects(MustFail):
    """How b with the defects must fail: at every check that compares what one of them changes, on
    the ranks changed.

    Attributes:
        pairs: a check that compares with a, and the defect that it has to see.
    """

    pairs: tuple[tuple[AgainstCheck, Defect], ...]

    def expected(self, size: int) -> tuple[Expected, ...]:
        """Each check once, on the ranks that it asks of those that a defect changes."""
        by_check: dict[str, Expected] = {}
        for check, defect in self.pairs:
            ranks = {*check.ranks.of(size)} & {*defect.ranks.of(size)}
            held = f"it allows {check.allows}, but an element of {defect.what} was {defect.size}"
            known = by_check.get(check.id, Expected(check.id, (), held))
            by_check[check.id] = known._replace(ranks=tuple(sorted({*known.ranks, *ranks})))
        return tuple(item for item in by_check.values() if item.ranks)


def control_of(compare: Compare, checks: Sequence[AnyCheck]) -> Control | None:
    """B with the defects, and how it must fail; None where no check would see one, which lint
    refuses.
    """
    pairs = tuple((check, defect) for defect in compare.defect for check in seen_by(defect, checks))
    if not pairs:
        return None
    arm = {name: getattr(compare.b, name) for name in Arm.model_fields}
    check, defect = pairs[0]
    must_fail = SeesDefects.model_construct(check=check.id, ranks=defect.ranks, pairs=pairs)
    return Control.model_construct(**arm, must_fail=must_fail)


def faults_of(compare: Compare) -> tuple[Fault, ...]:
    """Defects as faults of the control."""
    ids = (
        ["defect"]
        if len(compare.defect) == 1
        else [f"defect-{number + 1}" for number in range(len(compare.defect))]
    )
    return tuple(
        PerturbFault.model_construct(
            id=name,
            kind="perturb",
            arm="control",
            ranks=defect.ranks,
            **{field: getattr(defect, field) for field in Change.model_fields},
        )
        for name, defect in zip(ids, compare.defect, strict=True)
    )


def against_a(checks: Iterable[Any]) -> list[AgainstCheck]:
    """Checks that compare b with a."""
    return [
        check for check in checks if isinstance(check, AgainstCheck) and check.of[0] == "reference"
    ]


def seen_by(defect: Change, checks: Iterable[AnyCheck]) -> list[AgainstCheck]:
    """Checks that compare with a what a defect changes."""
    return [
        check
        for check in against_a(checks)
        if (check.of[1], getattr(check, "value", None)) == (defect.artefact, defect.value)
    ]


# -- the subject and its reference -----------------------------------------------------------------


AN_HOUR = 3600.0


def _within_an_hour(value: float) -> float:
    if not 0 < value <= AN_HOUR:
        raise complaint("must be more than 0s and at most 1h")
    return value


Deadline = Annotated[Duration, AfterValidator(_within_an_hour)]


class Reference(Model):
    """What the arms are compared with: the candidate's code in one process, told that it is a world
    of one.
    """

    with_: dict[Argument, JsonValue] = Field(
        default_factory=dict,
        alias="with",
        description=(
            "Arguments of its function, instead of the candidate's. Matrix axes other than ranks"
            " and backend are added."
        ),
    )
    entry: Entry | None = Field(
        None,
        description=(
            "module:function in the candidate's code (default: the subject's entry; for a"
            " ready-made subject that splits a model, its entry for the whole model)."
        ),
    )
    backend: Literal["none", "gloo"] = Field(
        "none",
        description=(
            "gloo: it joins a torch.distributed group of one, for code that calls"
            " torch.distributed."
        ),
    )
    once: Literal["cell", "scenario"] = Field(
        "cell",
        description=(
            "Whether each cell has its own reference, or all share one (only if the other axes"
            " are sharding and prefill_chunk of a ready-made subject, which do not change the"
            " answer)."
        ),
    )
    deadline: Deadline | None = Field(
        None,
        description=(
            "The longest time that each of its two runs may take, with a unit, at most 1h"
            " (default: world.deadline). A reference that makes variants of its answers takes many"
            " times as long as a trial."
        ),
    )


class Subject(Model):
    """The code under test. Exactly one of entry, program and use says what it is."""

    entry: Entry | None = Field(None, description="module:function, called in every rank process.")
    program: Annotated[Listed[Plain], Field(min_length=1)] | None = Field(
        None, description="Command line of a program that is started as every rank."
    )
    use: Id | None = Field(
        None,
        description=(
            "Name of a ready-made subject, whose code comes with Rankproof; `rankproof list"
            " --subjects` lists them."
        ),
        json_schema_extra={"examples": [*READY.names]},
    )
    beside: Id | None = Field(
        None,
        description=(
            "Name of a ready-made subject whose code the entry can import: a session with an engine"
            " (package inference), so that an adapter for another engine need not record and"
            " report everything itself."
        ),
        json_schema_extra={"examples": ["mlx-tensor", "hf-tensor"]},
    )
    path: Relative = Field(
        ".", description="Folder of the subject's code, relative to the scenario's folder."
    )
    of: Literal["installed"] | None = Field(
        None,
        description=(
            "installed: the subject is deliberately the installed code, not the repository's (two"
            " released versions of a library, say). No gate accepts it."
        ),
    )
    environment: Environment | None = Field(
        None, description="Interpreter and packages of both arms."
    )
    candidate: Arm = Field(default_factory=Arm, description="The arm that the verdict is about.")
    control: Control | None = Field(
        None,
        description="The arm with the known bug. Required unless the role is upstream.",
    )

    reference: Reference | None = Field(
        None,
        description=(
            "What checks compare with (against: reference); ranks find its values and artefacts"
            " in the folder context.inputs['reference']."
        ),
    )

    compare: Compare | None = Field(
        None,
        description=(
            "Instead of candidate and control: two arms, a and b, that must produce the same"
            " values."
        ),
    )

    @model_validator(mode="after")
    def _arms_or_compare(self) -> Self:
        given = (
            sorted({"candidate", "control", "reference"} & self.model_fields_set)
            if self.compare
            else []
        )
        if given:
            raise complaint(
                "cannot be combined with compare, which defines its own arms, a and b; remove"
                f" {given[0]}",
                at=given[0],
            )
        return self

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.beside is not None and self.entry is None:
            raise complaint(
                "has no effect without an entry that imports from it; remove this key, or set"
                " entry",
                at="beside",
            )
        nothing = "does not state what to run; set entry, program or use"
        return demand_one(self, "entry", "program", "use", nothing=nothing)

    @property
    def function(self) -> str:
        """`module:function` that every rank calls, of a ready-made subject too; empty for a
        program.
        """
        return READY[self.use].entry if self.use is not None else self.entry or ""

    @property
    def reference_function(self) -> str:
        """`module:function` of a reference that names none: of a ready-made subject what runs the
        whole, if it has that.
        """
        return (READY[self.use].reference if self.use is not None else "") or self.function

    @property
    def arms(self) -> dict[str, Arm]:
        """Arms that there are, by name: the candidate first.

        Of a comparison a is the `reference`.
        """
        known = {"candidate": self.candidate, "control": self.control}
        known |= {"reference": self.compare.a} if self.compare is not None else {}
        return {name: arm for name, arm in known.items() if arm is not None}

    def called(self, arm: str) -> str:
        """Name of an arm in the scenario: `a`, `b` and `b with the defect` in a comparison."""
        return CALLED.get(arm, arm) if self.compare is not None else arm

    def named(self, arm: str) -> str:
        """Same within a sentence: `a`, `b`, `the candidate`."""
        return f"the {arm}" if self.compare is None else self.called(arm)

    def place(self, arm: str) -> Path:
        """Where the scenario says what an arm is."""
        if self.compare is None:
            return ("subject", arm)
        return ("subject", "compare", "a" if arm == "reference" else "b")

    def environment_of(self, arm: Arm) -> Environment | None:
        """Environment an arm runs in: its own, else the subject's; None is the one that Rankproof
        runs in.
        """
        return arm.environment or self.environment

    @property
    def environments(self) -> dict[str, Environment]:
        """Environment of each arm that does not run in the one that Rankproof runs in."""
        by_arm = {name: self.environment_of(arm) for name, arm in self.arms.items()}
        return {
            name: environment for name, environment in by_arm.items() if environment is not None
        }
