"""How an engine means to share a checkpoint among ranks: what its plan leaves whole, told by a reference.

A reference is a process of its own and none of the ranks, so that no rank excuses itself. What a plan is held to is
exact: of what it leaves whole every rank holds all, and nothing else lies twice. One that is told too wide is wrong of
ranks that share, and one that shares nothing of any layer is wrong of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from harness.forms.strict_json import JSON
from harness.history import History

PLAN, WHOLE = "plan", "plan.whole"
IN_A_LAYER = re.compile(r"(^|\.)\d+\.")


class NotAPlan(Exception):
    """What was told does not say how the ranks share."""


class SharingPlan(NamedTuple):
    """How an engine shares.

    Attributes:
        engine: which.
        whole: the tensors of which every rank holds all; each element of the others lies on one rank.
    """

    engine: str
    whole: frozenset[str]

    def shares_in_layers(self, shapes: Mapping[str, object]) -> Iterator[str]:
        """The matrices of layers that are shared; an embedding or a head is in none."""
        for name, shape in shapes.items():
            if isinstance(shape, list) and len(shape) > 1 and IN_A_LAYER.search(name) and name not in self.whole:
                yield name

    def words(self, shapes: Mapping[str, object]) -> str:
        """How much of a checkpoint it leaves whole, for a report."""
        return f"{len(self.whole & shapes.keys())} of {len(shapes)} tensors whole by the plan of {self.engine}"


def plan_of(history: History) -> SharingPlan | None:
    """The plan of the engine that all ranks say they are; None where the reference told none of it.

    A rank that names an engine gains nothing: it is held to that engine's plan.

    Raises:
        NotAPlan: some ranks alone say that they are an engine of which a plan was told, or what was told is none.
    """
    said = {
        value if isinstance(value, str) else None
        for rank in range(history.size)
        for value in [one for one, _ in history.values(rank, "engine.ready", "engine")] or [None]
    }
    told = plans_in(history.reference) if history.reference is not None else []
    if said.isdisjoint(engine for engine, _, _ in told):
        return None
    if len(said) > 1:
        raise NotAPlan(f"ranks say that they are different engines: {', '.join(sorted(map(str, said)))}")
    (engine,) = said
    tensors = [values.get("tensor") for name, event, values in told if (name, event) == (engine, WHOLE)]
    heads = [values for name, event, values in told if (name, event) == (engine, PLAN)]
    whole = frozenset(one for one in tensors if isinstance(one, str))
    if len(heads) != 1 or not len(whole) == len(tensors) == heads[0].get("whole"):
        raise NotAPlan(f"the plan of {engine} that the reference told says another number of tensors than it names")
    return SharingPlan(str(engine), whole)


def plans_in(reference: History) -> list[tuple[str, str, Mapping[str, JSON]]]:
    """Everything that a reference told of plans, in its order: engine, event and values."""
    return [
        (str(seen.event.values.get("engine")), name, seen.event.values)
        for name in (WHOLE, PLAN)
        for seen in reference.said(0, name)
    ]
