"""A equals B: two arms that must give the same values, and a defect that shows that a difference would be seen.

What the user calls a and b are a reference and a candidate to everybody behind this file; the control is b once more,
with the defect injected by the harness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from harness.checks import AnyCheck
from harness.checks.arrays import AgainstCheck
from harness.faults.fault import Fault
from harness.faults.perturb import Change, PerturbFault
from harness.forms.fields import Listed
from harness.forms.model import Model
from harness.forms.ranks import EVERY_RANK, Ranks
from harness.scenario.arm import Arm, Control
from harness.scenario.must_fail import Expected, MustFail

CALLED: Mapping[str, str] = {"reference": "a", "candidate": "b", "control": "b with the defect"}
"""What the arms of a comparison are called, by what they are."""


class Defect(Change):
    """One element of what b reports or keeps is changed by a stated size, to show that the comparison sees it."""

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
    BeforeValidator(_listed, json_schema_input_type=Defect | Annotated[list[Defect], Field(min_length=1)]),
]


class Compare(Model):
    """Two arms that must give the same values, and what shows that a difference would have been seen."""

    a: Arm = Field(default_factory=Arm, description="What b is compared with (checks: against: a). It runs twice.")
    b: Arm = Field(default_factory=Arm, description="What the verdict is about.")
    defect: Defects = Field(
        description="What the harness changes of what b reports or keeps, in trials that must fail: one, or a list."
    )


class SeesDefects(MustFail):
    """How b with the defects must fail: at every check that compares what one of them changes, on the ranks changed.

    Attributes:
        pairs: a check that compares with a, and the defect that it has to see.
    """

    pairs: tuple[tuple[AgainstCheck, Defect], ...]

    def expected(self, size: int) -> tuple[Expected, ...]:
        """Each check once, on the ranks that it asks of those that a defect changes."""
        found: dict[str, Expected] = {}
        for check, defect in self.pairs:
            ranks = {*check.ranks.of(size)} & {*defect.ranks.of(size)}
            held = f"it allows {check.allows}, and an element of {defect.what} was {defect.size}"
            known = found.get(check.id, Expected(check.id, (), held))
            found[check.id] = known._replace(ranks=tuple(sorted({*known.ranks, *ranks})))
        return tuple(one for one in found.values() if one.ranks)


def control_of(compare: Compare, checks: Sequence[AnyCheck]) -> Control | None:
    """B with the defects, and how it must fail; None where no check would see one, which lint refuses."""
    pairs = tuple((check, defect) for defect in compare.defect for check in seen_by(defect, checks))
    if not pairs:
        return None
    arm = {name: getattr(compare.b, name) for name in Arm.model_fields}
    check, defect = pairs[0]
    must_fail = SeesDefects.model_construct(check=check.id, ranks=defect.ranks, pairs=pairs)
    return Control.model_construct(**arm, must_fail=must_fail)


def faults_of(compare: Compare) -> tuple[Fault, ...]:
    """The defects as faults of the control."""
    ids = ["defect"] if len(compare.defect) == 1 else [f"defect-{number + 1}" for number in range(len(compare.defect))]
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
    """The checks that compare b with a."""
    return [check for check in checks if isinstance(check, AgainstCheck) and check.of[0] == "reference"]


def seen_by(defect: Change, checks: Iterable[AnyCheck]) -> list[AgainstCheck]:
    """The checks that compare with a what a defect changes."""
    return [
        check
        for check in against_a(checks)
        if (check.of[1], getattr(check, "value", None)) == (defect.artefact, defect.value)
    ]
