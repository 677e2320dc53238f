"""The matrix of a scenario, whose combinations are its cells, and the placement of a world's ranks
on test hosts or on the machines of who runs it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from harness.backends import KINDS
from harness.forms.model import MOST_RANKS, Distinct, Listed, Model, Scalar
from harness.forms.problem import closest, complaint
from harness.forms.text import listed
from harness.forms.units import written
from harness.scenario.service import MOST_PROCESSES

MOST_HOSTS = MOST_RANKS
RULES = ("round-robin", "blocks")
"""round-robin: rank r is on host r modulo their number.

Blocks: ranks that follow one another are together.
"""


def placement(value: Any) -> str | tuple[int, ...]:
    """Read round-robin, blocks, or a list with the host of each rank."""
    if isinstance(value, str) and value in RULES:
        return value
    wanted = "must be round-robin, blocks, or a list with the host of each rank, like [0, 1, 1]"
    if not isinstance(value, list | tuple) or not value:
        raise complaint(wanted, suggestion=closest(value, list(RULES)))
    for index, host in enumerate(value):
        if type(host) is not int or not 0 <= host < MOST_HOSTS:
            raise complaint("must be a host number (hosts are numbered from 0)", at=index)
    return tuple(value)


def hosts_of(rule: str | tuple[int, ...], *, hosts: int, size: int) -> tuple[int, ...]:
    """Host of each rank of a world; of a list that is too short, what there is."""
    if isinstance(rule, tuple):
        return rule[:size]
    if rule == "blocks":
        return tuple(rank * hosts // size for rank in range(size))
    return tuple(rank % hosts for rank in range(size))


def machines_of(
    rule: str | Sequence[int], *, slots: Sequence[int], size: int, hosts: int | None = None
) -> tuple[int, ...] | None:
    """Machine of each rank of a world, by its place in the hostfile; None where there is no room.

    Args:
        rule: `spread` (each further rank on the next machine that has room), `pack` (each machine
            is filled before the next), or the machine of each rank.
        slots: for how many ranks each machine has room.
        size: world size.
        hosts: on how many machines ranks have to be: of a rule, the first ones; None is as many as
            it comes to.
    """
    if hosts is not None:
        machines = machines_of(
            rule, slots=slots[:hosts] if isinstance(rule, str) else slots, size=size
        )
        return machines if machines is not None and len(set(machines)) == hosts else None
    left = list(slots)
    placed = list[int]()
    if not isinstance(rule, str):
        placed = list(rule[:size])
    elif size <= sum(slots):
        while len(placed) < size:
            for machine, room in enumerate(left):
                taken = min(room, 1 if rule == "spread" else size, size - len(placed))
                placed += [machine] * taken
                left[machine] -= taken
    enough = len(placed) == size and all(
        placed.count(machine) <= room for machine, room in enumerate(slots)
    )
    return (
        tuple(placed) if enough and all(0 <= machine < len(slots) for machine in placed) else None
    )


_HOST = {"type": "integer", "minimum": 0, "maximum": MOST_HOSTS - 1}
_SCHEMA = {"anyOf": [{"enum": list(RULES)}, {"type": "array", "items": _HOST, "minItems": 1}]}
Placement = Annotated[str | tuple[int, ...], *written(placement, _SCHEMA)]


AXIS_PATTERN = "^[a-z][a-z0-9_-]{0,62}$"
OF_THE_WORLD = ("ranks", "backend", "hosts", "processes")
"""Axes that say what a world is; the values of all others are passed into `with`."""
RESERVED = (*OF_THE_WORLD, "exclude")
MOST_MACHINES = 1024
CELL_LIMIT = 256
"""Cells of one scenario; each of them has a verdict of its own and dozens of worlds."""


def _backend(value: Any) -> str:
    if isinstance(value, str) and value in KINDS:
        return value
    if isinstance(value, str) and (why := KINDS.reason(value)):
        raise complaint(why)
    raise complaint(f"must be {listed(KINDS.names)}", suggestion=closest(value, KINDS.names))


Backend = Annotated[str, *written(_backend, {"enum": KINDS.names, "type": "string"})]


class Matrix(Model):
    """The axes of a scenario. Keys beside ranks, backend, hosts and exclude are axes whose values
    go into with.
    """

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"propertyNames": {"pattern": AXIS_PATTERN}}
    )
    __pydantic_extra__: dict[str, Distinct[Scalar]]

    ranks: Distinct[Annotated[int, Field(ge=1, le=MOST_RANKS)]] = Field(
        description=f"World sizes, 1 to {MOST_RANKS}."
    )
    backend: Distinct[Backend] = Field(("gloo",), description="Communication backends.")
    hosts: Distinct[Annotated[int, Field(ge=1, le=MOST_MACHINES)]] | None = Field(
        None,
        description=(
            "Number of machines in the hostfile (--hosts) that the ranks of a world are spread"
            " over; without a hostfile, cells with more than 1 are SKIPPED. Default: as the run"
            " places them."
        ),
    )
    processes: Distinct[Annotated[int, Field(ge=1, le=MOST_PROCESSES)]] | None = Field(
        None,
        description=(
            f"Number of processes of the scenario's services, 1 to {MOST_PROCESSES}. Default: the"
            " number that each service states."
        ),
    )
    exclude: Listed[Annotated[dict[str, Scalar], Field(min_length=1)]] = Field(
        (),
        description=(
            "Combinations to leave out: mappings from axis to value, all of which must match."
        ),
    )

    _order: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _remember_order(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        matrix = handler(data)
        # The model keeps its own fields and further axes apart; the cells follow the order of the
        # file.
        given = (
            [str(name) for name in data if name != "exclude"] if isinstance(data, Mapping) else []
        )
        # Its own class.
        matrix._order = tuple(given) if "backend" in given else (*given, "backend")  # noqa: SLF001
        return matrix

    @model_validator(mode="after")
    def _axis_names(self) -> Self:
        for name in self.__pydantic_extra__:
            if re.fullmatch(AXIS_PATTERN, name) is None:
                raise complaint(
                    "is not a valid name for an axis; use a lower-case letter, then lower-case"
                    " letters, digits, _ or -",
                    at=name,
                )
            # An axis called "rank" would be passed to the subject as an argument, and nobody would
            # notice the slip.
            near = closest(name, RESERVED)
            if near is not None and abs(len(near) - len(name)) <= 1:
                raise complaint(
                    "is too similar to a built-in key of the matrix; rename this axis",
                    at=name,
                    suggestion=near,
                )
        return self

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        count = math.prod(len(values) for values in self.axes.values())
        if count > CELL_LIMIT:
            raise complaint(
                f"has {count} combinations, but at most {CELL_LIMIT} are allowed; split the"
                " scenario"
            )
        return self

    @property
    def axes(self) -> dict[str, tuple[str | int | float | bool, ...]]:
        """All axes in the order of the file, ranks and backend among them.

        An axis not given has its default.
        """
        axes: dict[str, tuple[str | int | float | bool, ...]] = {}
        for name in self._order or (*OF_THE_WORLD, *self.__pydantic_extra__):
            values = getattr(self, name) if name in RESERVED else self.__pydantic_extra__[name]
            if values is not None:
                axes[name] = values
        return axes

    @property
    def further(self) -> tuple[str, ...]:
        """Axes whose values are passed into `with`, in the order of the file."""
        return tuple(name for name in self.axes if name not in OF_THE_WORLD)

    def excludes(self, values: Mapping[str, str | int | float | bool]) -> bool:
        """Say whether a combination is left out.

        Values match by type and content, so 1 is neither true nor 1.0.
        """
        return any(
            all(name in values and same(values[name], value) for name, value in rule.items())
            for rule in self.exclude
        )

    def combinations(self) -> tuple[dict[str, str | int | float | bool], ...]:
        """Return every combination that is not excluded, as axis to value, the last axis changing
        fastest.
        """
        axes = self.axes
        products = (
            dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
        )
        return tuple(values for values in products if not self.excludes(values))


def same(left: object, right: object) -> bool:
    """Compare two values of axes by type and content."""
    return type(left) is type(right) and left == right
