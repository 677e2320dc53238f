"""A call of `mlx.core.distributed` as faults see it: see `seam.py`.

MLX is lazy: what is done to a call is done to the graph, and takes place where the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.ledger.file import RECEIVE, SEND
from harness.ledger.inside.seam import Change, Unfit


class MlxCall:
    """One call of a function.

    Attributes:
        operation: as the ledger names it.
        reduction: such as `sum`, else empty.
        site: `file:line in function` of the caller.
        library: `mlx.core`.
    """

    def __init__(
        self,
        mlx: Any,
        make: Callable[..., Any],
        given: Any,
        *,
        operation: str,
        reduction: str,
        site: str,
        size: int,
        rank: int,
    ) -> None:
        """Take a call.

        Args:
            mlx: the module.
            make: writes the ledger and calls the function, with the array; `sent` is the one that
                is sent in its place.
            given: the array that the rank gives; of a receive, one of the shape that it takes.
            operation: see the class.
            reduction: see the class.
            site: see the class.
            size: of the group.
            rank: in the group.
        """
        self.operation = operation
        self.reduction = reduction
        self.site = site
        self.library = mlx
        self._make = make
        self._given = given
        self._size = size
        self._rank = rank

    def payload(self) -> list[Any]:
        return [] if self.operation == RECEIVE else [self._given]

    def copy(self, array: Any) -> Any:
        return array  # nothing changes one

    def bytes_of(self, arrays: list[Any]) -> bytes:
        return b"".join(elements(self.library, array) for array in arrays)

    def make(self) -> Any:
        return self._make(self._given)

    def after(self, first: Any) -> Any:
        if self.operation == RECEIVE:
            raise Unfit("it gives no array that could wait for the first time")
        return self._make(self.library.depends(self._given, first))

    def pretend(self) -> Any:
        if self.operation == "all_gather":
            return self.library.concatenate([self._given] * self._size)
        if self.operation == "sum_scatter":
            return self.library.split(self._given, self._size)[self._rank]
        return self._given

    def give(self, changed: list[Any]) -> Any:
        return self._make(self._given, sent=changed[0])

    def state(self, change: Change, *, tell: Callable[[], None]) -> Any:
        if self.operation not in (SEND, "all_sum", "all_max", "all_min"):
            raise Unfit(f"what becomes of the result of {self.operation} is not known")
        mlx = self.library
        given = self._given
        changed = change(given)
        tell()
        flat = self._make(changed).view(given.dtype).reshape(-1)
        # The subject gets as much as it asked for: what was not sent stays what it was.
        return mlx.concatenate([flat, given.reshape(-1)[flat.size :]]).reshape(given.shape)


def elements(mlx: Any, array: Any) -> bytes:
    """Return an array's elements in the order of their indices, which evaluates it."""
    return (
        bytes(memoryview(mlx.contiguous(array).reshape(-1).view(mlx.uint8))) if array.size else b""
    )
