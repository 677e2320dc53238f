"""The plan of a scenario: matrix to cells, and the seed of each of their trials."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from harness.forms.digest import sha256
from harness.scenario.matrix import OF_THE_WORLD
from harness.scenario.model import Scenario
from harness.scenario.service import Service

AxisValue = str | int | float | bool
SLUG_LIMIT = 80


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of the matrix.

    ``axes`` holds the further axes, which are passed into ``with``. ``hosts`` is on how many
    machines its ranks are, and ``processes`` how many its services have; None where the matrix does
    not say.
    """

    id: str
    slug: str
    ranks: int
    backend: str
    axes: Mapping[str, AxisValue] = field(default_factory=dict, hash=False)
    hosts: int | None = None
    processes: int | None = None

    @property
    def values(self) -> Mapping[str, AxisValue]:
        """All axes."""
        stated = {"hosts": self.hosts, "processes": self.processes}
        given = {axis: value for axis, value in stated.items() if value is not None}
        return {**self.axes, "ranks": self.ranks, "backend": self.backend, **given}


def cells(scenario: Scenario) -> tuple[Cell, ...]:
    """Return the cells in the order of the file, the last axis changing fastest, without the
    excluded ones.
    """
    combinations = scenario.matrix.combinations()
    names = [
        ",".join(f"{axis}={_text(value)}" for axis, value in values.items())
        for values in combinations
    ]
    planned = []
    for name, slug, values in zip(names, _slugs(names), combinations, strict=True):
        axes = {axis: value for axis, value in values.items() if axis not in OF_THE_WORLD}
        ranks = values["ranks"]
        backend = values["backend"]
        hosts = values.get("hosts")
        assert isinstance(ranks, int)  # the model holds this, mypy cannot see it
        assert isinstance(backend, str)
        assert hosts is None or isinstance(hosts, int)
        processes = values.get("processes")
        assert processes is None or isinstance(processes, int)
        planned.append(Cell(name, slug, ranks, backend, axes, hosts, processes))
    return tuple(planned)


def processes_of(service: Service, cell: Cell) -> int:
    """Return how many processes a service has in a cell."""
    return service.processes if cell.processes is None else cell.processes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePlan:
    """What the trials of a cell are compared with.

    Attributes:
        called: `the reference`, or `a` of a comparison.
        arm: whose code it runs: the candidate's, or its own.
        owner: which cell it is of; several may share one.
        place: the name of the folder that holds its evidence.
        size: world size; of a comparison that of the cell, rank for rank.
        backend: of its world.
        entry: `module:function`; empty for a program.
        arguments: of its function, with the cell's further axes.
        offered: whether ranks are given what it reported and kept.
        deadline: the longest a run of it may take, in seconds.
    """

    called: str
    arm: Literal["candidate", "reference"]
    owner: str
    place: str
    size: int
    backend: str
    entry: str
    arguments: Mapping[str, JsonValue]
    offered: bool
    deadline: float


SHARED = "reference"
"""The owner, and the folder, of a reference that all cells share."""


def reference_of(scenario: Scenario, cell: Cell) -> ReferencePlan | None:
    """Return what a cell's trials are compared with; None where the scenario compares with nothing
    of the kind.
    """
    subject = scenario.subject
    if subject.compare is not None:
        return ReferencePlan(
            called=subject.called("reference"),
            arm="reference",
            owner=cell.id,
            place=cell.slug,
            size=cell.ranks,
            backend=cell.backend,
            entry=subject.function,
            arguments={**subject.compare.a.with_, **cell.axes},
            offered=False,
            deadline=scenario.world.deadline,
        )
    if (reference := subject.reference) is None:
        return None
    shared = reference.once == "scenario"
    return ReferencePlan(
        called="the reference",
        arm="candidate",
        owner=SHARED if shared else cell.id,
        place=SHARED if shared else cell.slug,
        size=1,
        backend=reference.backend,
        entry=reference.entry or subject.reference_function,
        arguments={**reference.with_, **({} if shared else cell.axes)},
        offered=True,
        deadline=reference.deadline or scenario.world.deadline,
    )


def derive_seed(root: str, scenario: str, cell: str, trial: int, rank: int | None = None) -> int:
    """Derive the seed of a trial, or of one rank in it: 64 bits, unsigned.

    No arm goes into it: trials of the same number share their seed across the arms, to be compared
    in pairs.

    The first eight bytes, big-endian, of the sha256 over ``rankproof seed 1`` and each part, every
    one of them preceded by its length in bytes as eight big-endian bytes; numbers are written in
    decimal, and the rank is left out where there is none. The same on every machine and in every
    version of the format.

    >>> derive_seed("20260103", "tokenizer-on-every-rank", "ranks=2,backend=gloo", 0)
    9187211130543718118
    >>> derive_seed("20260103", "tokenizer-on-every-rank", "ranks=2,backend=gloo", 0, 1)
    16724270901128152303
    """
    parts = [
        "rankproof seed 1",
        root,
        scenario,
        cell,
        str(trial),
        *([] if rank is None else [str(rank)]),
    ]
    encoded = [part.encode() for part in parts]
    whole = b"".join([len(data).to_bytes(8, "big") + data for data in encoded])
    return int.from_bytes(hashlib.sha256(whole).digest()[:8], "big")


def _text(value: AxisValue) -> str:
    """Write a value so that no two of them look alike: a text that could be read as something else
    is quoted.
    """
    if (
        isinstance(value, str)
        and re.fullmatch(r"[A-Za-z][A-Za-z0-9_./+-]*", value)
        and value not in ("true", "false")
    ):
        return value
    return json.dumps(value)


def _slug(name: str) -> str:
    """Turn a cell's id into a file name; it says everything only where the id is plain."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def _slugs(names: list[str]) -> list[str]:
    """Name files for cells, also on file systems that ignore case: a digest is added where two
    could meet.
    """
    count = Counter(_slug(name) for name in names)
    slugs = []
    for name in names:
        slug = _slug(name)
        if (
            count[slug] > 1
            or len(slug) > SLUG_LIMIT
            or re.fullmatch("[a-z0-9=,._-]+", name) is None
        ):
            slug = f"{slug[: SLUG_LIMIT - 9].strip('-')}-{sha256(name.encode())[:8]}"
        slugs.append(slug)
    return slugs
