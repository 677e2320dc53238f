"""Cells: one call of one operator, and every axis that a call has.

The values of an axis are listed from the simplest on, so that of two cells that fail the simpler
one is known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from harness.forms.model import Model

Library = Literal["collectives", "dtensors", "mlx", "files"]
BACKENDS: Final[Mapping[str, str]] = {
    "collectives": "gloo",
    "dtensors": "gloo",
    "mlx": "mlx-ring",
    "files": "none",
}


class OperatorCell(Model):
    """One call.

    Attributes:
        library: the file in `ranks` that makes it.
        operator: its name there; of DTensor the expression.
        axes: how it is called.
        needle: whether the last rank reports one wrong element, which a comparison has to see.
    """

    library: Library
    operator: str
    axes: dict[str, str]
    needle: bool = False

    @property
    def key(self) -> str:
        """Name it in one line."""
        axes = " ".join(f"{axis}={value}" for axis, value in self.axes.items())
        return f"{self.operator} {axes}{' (needle)' if self.needle else ''}"


class Operator(Model):
    """An operator and its axes.

    Attributes:
        library: where it is.
        name: of the operator.
        space: what its axes are called; operators may share them.
        axes: values of each axis, the simplest first.
        usual: the cell that every axis is varied from, where it is not the simplest.
    """

    library: Library
    name: str
    space: str
    axes: dict[str, list[str]]
    usual: dict[str, str]

    def cell(self, axes: Mapping[str, str]) -> OperatorCell:
        """Return a cell of it."""
        return OperatorCell(library=self.library, operator=self.name, axes=dict(axes))

    def usual_cell(self) -> OperatorCell:
        """Return the cell that every axis is varied from."""
        return self.cell(
            {axis: self.usual.get(axis, values[0]) for axis, values in self.axes.items()}
        )

    def variants(self, cell: OperatorCell, *, most: int | None = None) -> list[OperatorCell]:
        """Return every possible cell that differs in one axis.

        With `most`, of each axis no more than its simplest ones.
        """
        found: list[OperatorCell] = []
        for axis, values in self.axes.items():
            others = [
                self.cell({**cell.axes, axis: value})
                for value in values
                if value != cell.axes[axis]
            ]
            found += [other for other in others if is_possible(other)][:most]
        return found

    def _near(self, cell: OperatorCell) -> Iterator[OperatorCell]:
        """Yield a possible cell for every value of every axis, as near to a cell as there is."""
        for axis, values in self.axes.items():
            for value in values:
                near = self.cell({**cell.axes, axis: value})
                if is_possible(near):
                    yield near
                else:
                    # A second axis may have to change too: conjugates are complex.
                    yield from [
                        other for other in self.variants(near) if other.axes[axis] == value
                    ][:1]

    def distance(self, cell: OperatorCell) -> int:
        """Return on how many axes a cell is not the usual one."""
        usual = self.usual_cell()
        return sum(cell.axes[axis] != value for axis, value in usual.axes.items())

    def simplicity(self, cell: OperatorCell) -> tuple[int, ...]:
        """Order cells: fewest elements first, then the simplest values."""
        places = [values.index(cell.axes[axis]) for axis, values in self.axes.items()]
        return (elements(cell), sum(place > 0 for place in places), *places)

    def sample(self, count: int, *, seed: str) -> list[OperatorCell]:
        """Return the usual cell, every variant of it, and others drawn from all."""
        usual = self.usual_cell()
        chosen = {cell.key: cell for cell in (usual, *self._near(usual))}
        # Not for secrets: whoever verifies draws the same.
        drawn = random.Random(f"{seed}-{self.library}-{self.name}")  # noqa: S311
        for _ in range(4 * count):
            if len(chosen) >= count:
                break
            cell = self.cell({axis: drawn.choice(values) for axis, values in self.axes.items()})
            if is_possible(cell):
                chosen.setdefault(cell.key, cell)
        return list(chosen.values())


def elements(cell: OperatorCell) -> int:
    """Return how many elements the shape of a cell has."""
    text = cell.axes["shape"]
    return 1 if text == "scalar" else math.prod(int(part) for part in text.split("x"))


def is_possible(cell: OperatorCell) -> bool:
    """Return whether an array can be laid out so."""
    axes = cell.axes
    shape = axes["shape"]
    dimensions = 0 if shape == "scalar" else shape.count("x") + 1
    dtype = axes["dtype"]
    for layout in (axes.get("layout", "contiguous"), axes.get("out", "contiguous")):
        if layout in ("strided", "columns", "rows", "expanded", "reversed") and dimensions < 1:
            return False
        if layout in ("transposed", "fortran") and dimensions < 2:
            return False
        if layout == "expanded" and shape.startswith("0"):
            return False
        if layout == "conj" and "complex" not in dtype:
            return False
        if layout == "negated" and dtype not in ("float32", "float64"):
            return False
        if layout == "big-endian" and dtype in ("bool", "int8", "uint8", "bfloat16"):
            return False
    if axes.get("values", "plain") != "plain" and (
        not dtype.startswith(("float", "bfloat")) or shape.startswith("0")
    ):
        return False
    if axes.get("gradient") == "yes":
        return dtype.startswith(("float", "bfloat", "complex"))
    if "vmap" in axes.get("transform", ""):
        return dimensions > 1
    return not (axes.get("placement", "").count("P:") and dtype == "bool")
