"""Digests of what MLX's collectives send and receive: with `eager-digests`, for which each call is
evaluated at once.

Evaluating makes MLX run calls in the order in which they are made. A program that relies on another
order (both ranks build a receive before their send, and evaluate both together) waits for ever
then.
"""

from __future__ import annotations

from typing import Any

from harness.ledger.file import RECEIVE, SEND
from harness.ledger.inside.book import Book, Taking
from harness.ledger.inside.digests import (
    FEW,
    REDUCING,
    SKETCHED,
    STEP,
    TOGETHER,
    Array,
    Digester,
    NotDigested,
    Taken,
    few_weights,
    hasher,
    sketched,
    weight_power,
)
from harness.ledger.inside.seam_mlx import elements
from harness.ledger.part import EVERYONE, NOTHING


class MlxDigests:
    """Takes the digests of one rank's calls."""

    def __init__(self, book: Book, mlx: Any) -> None:
        """Begin.

        Args:
            book: the ledger.
            mlx: `mlx.core`.
        """
        self._book = book
        self._mlx = mlx
        self._weights: dict[tuple[int, int], Any] = {}
        self._why = ""
        if book.digests != "eager":
            self._why = "MLX is lazy, and was not to be evaluated: observe eager-digests for that"
            return
        try:
            self._hash = hasher()
            self._digester = Digester(book, self._look)
        except NotDigested as why:
            self._why = str(why)

    def take(
        self,
        operation: str,
        given: Any,
        *,
        reduction: str,
        order: tuple[int, ...],
        peer: int,
        at: int | None,
    ) -> Taken | None:
        """Digest what a call sends; None where that cannot be, which the ledger says.

        Args:
            operation: as the ledger names it.
            given: the array that the rank gives; None of a receive.
            reduction: such as `sum`, else empty.
            order: the ranks of the group.
            peer: the other end, as a rank of the world; -1 for none.
            at: what `Book.begin` returned.
        """
        if at is None:
            return None
        try:
            if self._why:
                raise NotDigested(self._why)  # noqa: TRY301 - said of each call
            sketches = operation in REDUCING and reduction == SKETCHED
            sent: list[Array] = [(EVERYONE if peer < 0 else peer, given)]
            if operation == "sum_scatter":
                sent = list(zip(order, self._mlx.split(given, len(order)), strict=True))
            taken = Taken(sketches=sketches, received=(), call=self._book.number(at))
            if operation != RECEIVE:
                self._digester.write(taken.call, 0, sent, sketches=sketches)
        except NotDigested as why:
            self._book.undigested(f"{operation}: {why}")
        # Whatever goes wrong costs the digests, and never the call.
        except Exception as error:  # noqa: BLE001
            self._book.undigested(f"{operation}: {type(error).__name__}: {error}")
        else:
            return taken
        return None

    def done(
        self, taken: Taken, operation: str, result: Any, *, order: tuple[int, ...], peer: int
    ) -> None:
        """Evaluate a call, and digest what it received.

        Raises:
            Exception: what MLX raises as the call fails; the subject would meet it where it
                evaluates.
        """
        self._mlx.eval(result)
        if operation == SEND:
            return
        if operation == "all_gather":
            taken.received = list(zip(order, self._mlx.split(result, len(order)), strict=True))
        else:
            taken.received = [(peer if operation == RECEIVE else EVERYONE, result)]
        self._digester.done(taken)

    def _look(self, array: Any, sketches: bool, gives: bool) -> Taking:
        mlx = self._mlx
        digest = self._hash(elements(self._mlx, array))
        if (
            not sketches
            or array.dtype == mlx.bool_
            or mlx.issubdtype(array.dtype, mlx.complexfloating)
        ):
            return digest, NOTHING, 0.0, 0.0
        flat = array.reshape(-1)
        cpu = mlx.cpu
        power = weight_power(array.dtype.size) if mlx.issubdtype(array.dtype, mlx.floating) else 0
        weights = self._weights_of(flat.size, power=power)
        if not power:
            exact = flat.astype(mlx.int64, stream=cpu)
            return sketched(
                digest, int(mlx.sum(mlx.multiply(exact, weights, stream=cpu), stream=cpu).item())
            )
        weighted = mlx.multiply(flat.astype(mlx.float64, stream=cpu), weights, stream=cpu)
        size = float(mlx.sum(mlx.abs(weighted, stream=cpu), stream=cpu).item()) if gives else 0.0
        return sketched(digest, float(mlx.sum(weighted, stream=cpu).item()), size)

    def _weights_of(self, count: int, *, power: int) -> Any:
        """Return the same that torch's ranks take: see `digests_torch.py`."""
        found = self._weights.get((count, power))
        if found is None:
            mlx = self._mlx
            cpu = self._mlx.cpu
            found = mlx.multiply(
                mlx.arange(count, dtype=mlx.int64, stream=cpu),
                mlx.array(STEP, mlx.int64),
                stream=cpu,
            )
            if power and count <= FEW:
                found = mlx.array(few_weights(count, power=power), mlx.float64)
            elif power:
                mixed = mlx.bitwise_and(found, mlx.array(2**32 - 1, mlx.int64), stream=cpu)
                scale = count / 2**32 / TOGETHER
                place = mlx.multiply(mixed.astype(mlx.float64, stream=cpu), scale, stream=cpu)
                nth = mlx.add(mlx.floor(place, stream=cpu), 1.0, stream=cpu)
                found = mlx.reciprocal(
                    nth if power == 1 else mlx.multiply(nth, nth, stream=cpu), stream=cpu
                )
            else:
                found = mlx.bitwise_or(found, mlx.array(1, mlx.int64), stream=cpu)
            if len(self._weights) > 8:
                self._weights.clear()
            self._weights[count, power] = found
        return found
