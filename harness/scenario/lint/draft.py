"""A draft: the parts of a scenario that can be read, also where other parts cannot.

Lint works on it, so that a slip in one check does not hide the problems of the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from harness.checks import AnyCheck
from harness.faults import AnyFault
from harness.forms.document import Document, Tree
from harness.forms.model import RankSet, rank_set
from harness.forms.problem import Kind, Path, Problem, shown
from harness.forms.validation import value_at
from harness.scenario.arm import Arm, Control, MustFail
from harness.scenario.environment import Environment
from harness.scenario.matrix import Matrix
from harness.scenario.model import Input, Measure, Scenario, Trials, WorldSettings
from harness.scenario.service import Service
from harness.scenario.subject import Compare

T = TypeVar("T")

_LATER = ConfigDict(defer_build=True)
_CHECK: TypeAdapter[Any] = TypeAdapter(AnyCheck, config=_LATER)
_FAULT: TypeAdapter[Any] = TypeAdapter(AnyFault, config=_LATER)


@dataclass(frozen=True, slots=True)
class ScenarioDraft:
    """What could be read of a document.

    None, or an item left out, where a part is missing or wrong.

    Of a comparison the candidate is b, and there is no control: what stands for one follows from
    the rest.
    """

    document: Document
    role: str | None
    expects: Tree
    matrix: Matrix | None
    world: WorldSettings | None
    trials: Trials | None
    environment: Environment | None
    candidate: Arm | None
    control: Control | None
    must_fail: MustFail | None
    compare: Compare | None
    inputs: dict[str, Input]
    services: dict[str, Service]
    checks: dict[int, Any]
    faults: dict[int, Any]
    measure: dict[int, Measure]

    @classmethod
    def of(cls, document: Document) -> ScenarioDraft:
        """Read what can be read."""
        tree: dict[str, Tree] = document.tree
        subject = _mapping(tree.get("subject"))
        control = subject.get("control")
        compare = _mapping(subject.get("compare"))
        role = tree.get("role", "claim")
        inputs = {
            name: _read(TypeAdapter(Input), value)
            for name, value in _mapping(tree.get("inputs")).items()
        }
        services = {
            name: _read(TypeAdapter(Service), value)
            for name, value in _mapping(tree.get("services")).items()
        }
        return cls(
            document=document,
            role=role if role in ("claim", "self-test", "upstream") else None,
            expects=tree.get("expects"),
            matrix=_read(TypeAdapter(Matrix), tree.get("matrix")),
            world=_read(TypeAdapter(WorldSettings), tree.get("world", {})),
            trials=_read(TypeAdapter(Trials), tree.get("trials", {})),
            environment=_read(TypeAdapter(Environment), subject.get("environment")),
            candidate=_read(
                TypeAdapter(Arm), (compare.get("b") if compare else subject.get("candidate")) or {}
            ),
            control=_read(TypeAdapter(Control), control),
            must_fail=_read(TypeAdapter(MustFail), _mapping(control).get("must_fail")),
            compare=_read(TypeAdapter(Compare), subject.get("compare")),
            inputs={name: value for name, value in inputs.items() if value is not None},
            services={name: value for name, value in services.items() if value is not None},
            checks=_items(_CHECK, tree.get("checks")),
            faults=_items(_FAULT, tree.get("faults")),
            measure=_items(TypeAdapter(Measure), tree.get("measure")),
        )

    @classmethod
    def whole(cls, document: Document, scenario: Scenario) -> ScenarioDraft:
        """Take the parts of a scenario that was read as a whole: what `of` reads one by one."""
        subject = scenario.subject
        control = subject.control if subject.compare is None else None
        return cls(
            document=document,
            role=scenario.role,
            expects=document.tree.get("expects"),
            matrix=scenario.matrix,
            world=scenario.world,
            trials=scenario.trials,
            environment=subject.environment,
            candidate=subject.candidate,
            control=control,
            must_fail=control.must_fail if control else None,
            compare=subject.compare,
            inputs=dict(scenario.inputs),
            services=dict(scenario.services),
            checks=dict(enumerate(scenario.checks)),
            # Those behind them are a comparison's, which the file does not list.
            faults=dict(enumerate(scenario.faults[: len(_list(document.tree.get("faults")))])),
            measure=dict(enumerate(scenario.measure)),
        )

    @property
    def deadline(self) -> float | None:
        """`world.deadline` in seconds; None where it could not be read."""
        return None if self.world is None else self.world.deadline

    @property
    def after_failure(self) -> float | None:
        """`world.after_failure` in seconds; None where it could not be read."""
        return None if self.world is None else self.world.after_failure

    def ids(self, section: str) -> list[tuple[Path, str]]:
        """List the ids of a section with their paths, also those of items that are wrong
        otherwise.
        """
        items = self.document.tree.get(section)
        return [
            ((section, index, "id"), item["id"])
            for index, item in enumerate(_list(items))
            if isinstance(item, dict) and isinstance(item.get("id"), str)
        ]

    def rank_sets(self) -> Iterator[tuple[Path, RankSet]]:
        """List all sets of ranks with their paths, also those of items that are wrong otherwise."""
        paths: list[Path] = [
            (section, index, "ranks")
            for section in ("checks", "faults", "measure")
            for index, item in enumerate(_list(self.at(section)))
            # Of a fault on a service they are its processes.
            if isinstance(item, dict) and item.get("service") is None
        ]
        paths += [(*path, "ranks") for path in self.defects()]
        must_fail: Path = ("subject", "control", "must_fail")
        by_axis = self.at(*must_fail, "ranks_by")
        for axis, by_value in by_axis.items() if isinstance(by_axis, dict) else ():
            if isinstance(by_value, dict):
                paths += [(*must_fail, "ranks_by", axis, value) for value in by_value]
        for path in (*paths, (*must_fail, "ranks")):
            if self.has(*path):
                try:
                    yield path, rank_set(self.at(*path))
                except PydanticCustomError:
                    continue

    def environments(self) -> dict[str, Environment | None]:
        """Return the environment of each arm that is there: its own, or the subject's."""
        arms = {"candidate": self.candidate, "control": self.control}
        arms |= {"reference": self.compare.a} if self.compare is not None else {}
        return {
            name: arm.environment or self.environment
            for name, arm in arms.items()
            if arm is not None
        }

    def arms(self) -> dict[str, Path]:
        """Where each arm that the document may state is stated."""
        if self.has("subject", "compare"):
            return {
                "candidate": ("subject", "compare", "b"),
                "reference": ("subject", "compare", "a"),
            }
        return {"candidate": ("subject", "candidate"), "control": ("subject", "control")}

    def defects(self) -> list[Path]:
        """Where each defect of a comparison is stated."""
        place: Path = ("subject", "compare", "defect")
        given = self.at(*place)
        return (
            [(*place, index) for index in range(len(given))] if isinstance(given, list) else [place]
        )

    def axes(self) -> dict[str, list[Tree]]:
        """Return the axes as the document gives them, whatever their values are."""
        matrix = _mapping(self.at("matrix"))
        return {
            axis: _list(values)
            for axis, values in ({"backend": ["gloo"]} | matrix).items()
            if axis != "exclude"
        }

    def sizes(self) -> tuple[int, ...]:
        """Return the world sizes that occur in a cell, ascending."""
        if self.matrix is None:
            ranks = _list(self.at("matrix", "ranks"))
            return tuple(sorted({size for size in ranks if type(size) is int and 1 <= size <= 8}))
        return tuple(sorted({int(cell["ranks"]) for cell in self.matrix.combinations()}))

    def names(self, *path: str | int) -> list[str]:
        """List the keys that the document gives a mapping at a path."""
        mapping = self.at(*path)
        return [str(name) for name in mapping] if isinstance(mapping, dict) else []

    def has(self, *path: str | int) -> bool:
        """Say whether the document gives a value, other than null, at a path."""
        return self.at(*path) is not None

    def at(self, *path: str | int) -> Tree:
        """Return what the document gives at a path, or None."""
        return value_at(self.document.tree, path)

    def problem(
        self,
        path: Path,
        message: str,
        *,
        at_key: bool = False,
        suggestion: str | None = None,
        kind: Kind = "error",
    ) -> Problem:
        """Build a problem at a place of the document, with what was found there."""
        value = self.at(*path)
        return self.document.marks.problem(
            path,
            message,
            at_key=at_key,
            found="" if value is None or at_key else shown(value),
            suggestion=suggestion,
            kind=kind,
        )


def _mapping(tree: Tree) -> dict[str, Tree]:
    return tree if isinstance(tree, dict) else {}


def _list(tree: Tree) -> list[Tree]:
    return tree if isinstance(tree, list) else []


def _items(adapter: TypeAdapter[T], tree: Tree) -> dict[int, T]:
    read = {index: _read(adapter, item) for index, item in enumerate(_list(tree))}
    return {index: item for index, item in read.items() if item is not None}


def _read(adapter: TypeAdapter[T], tree: Tree) -> T | None:
    if tree is None:
        return None
    try:
        return adapter.validate_python(tree)
    except ValidationError:
        return None
