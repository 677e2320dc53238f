"""Hook of the ledger in MLX: in front of the functions of `mlx.core.distributed`.

MLX is lazy: a call there adds to a graph, which runs when something is evaluated. So what is seen
is the order in which calls were made, each with operation, shape and type; that one ran, and when,
is not. Inside `mlx.core.compile` a function is traced once and runs often: there the ledger says
that calls were not observed.

Digests are taken with `eager-digests` alone, for which each call is evaluated at once. Evaluating
makes MLX run calls in the order in which they are made. A program that relies on another order
(both ranks build a receive before their send, and evaluate both together) waits for ever then.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

from harness.ledger.call import RECEIVE, SEND, SUMS, CallGroup
from harness.ledger.file import EVERYONE, NOTHING
from harness.ledger.inside import seam
from harness.ledger.inside.book import STARTED, Book, Taking
from harness.ledger.inside.digests import (
    FEW,
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
from harness.ledger.inside.seam import MlxCall, mlx_elements

REDUCTIONS = {"all_sum": "sum", "all_max": "max", "all_min": "min", "sum_scatter": "sum"}
COLLECTIVES = (*REDUCTIONS, "all_gather")
# What stands in the module and is not a call of the group.
OTHERS = frozenset({"init", "is_available", "Group"})
PAIRS = (SEND, RECEIVE, "recv_like")
# Numbers of elements whose weights are kept.
MOST_WEIGHTS = 8


class Given(NamedTuple):
    """Arguments of a call, as the subject gave them."""

    by_place: tuple[Any, ...]
    by_name: Mapping[str, Any]

    def argument(self, place: int, name: str) -> Any:
        """Return an argument that may be given by its place."""
        return self.by_place[place] if len(self.by_place) > place else self.by_name[name]

    def array(self) -> Any:
        """Return the array that the rank gives, in all calls but a plain receive."""
        return self.argument(0, "x")

    def with_array(self, array: Any) -> Given:
        """Return the same with another array."""
        if self.by_place:
            return self._replace(by_place=(array, *self.by_place[1:]))
        return self._replace(by_name={**self.by_name, "x": array})


class MlxHook:
    """Writer of the calls of MLX's distributed module into a rank's ledger."""

    def __init__(self, book: Book, mlx: Any) -> None:
        self._book = book
        self._mlx = mlx
        self._distributed: Any = mlx.distributed
        # Of each thread: one may trace a function while another one calls.
        self._tracing = threading.local()
        self._group: CallGroup | None = None
        self._number = 0
        self._digests = MlxDigests(book, mlx) if book.digests else None

    def install(self) -> None:
        """Stand in front of every function, or say in the ledger why not."""
        there = {name for name in vars(self._distributed) if not name.startswith("_")} - OTHERS
        if odd := sorted(there ^ {*COLLECTIVES, *PAIRS}):
            self._book.refuse(
                f"the calls of MLX {getattr(self._mlx, '__version__', '')} differ from the calls"
                f" that this version knows: {odd[0]}"
            )
            return
        for name in there:
            setattr(self._distributed, name, self._before(name, getattr(self._distributed, name)))
        self._mlx.compile = self._traced(self._mlx.compile)

    def _before(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def make(given: Given, *, sent: Any = None) -> Any:
            at = self._begin(name, given)
            try:
                digested = self._digested(name, given, at)
                if sent is not None:
                    given = given.with_array(sent)
                result = original(*given.by_place, **given.by_name)
                digested(result)
            except BaseException:
                self._book.end(at, failed=True)
                raise
            return result

        @functools.wraps(original)
        def call(*by_place: Any, **by_name: Any) -> Any:
            given = Given(by_place, by_name)
            if name != RECEIVE:
                given = self._as_array(given)
            if seam.waiting and not getattr(self._tracing, "depth", 0):
                return seam.made(self._struck(name, make, given))
            return make(given)

        return call

    def _as_array(self, given: Given) -> Given:
        """Return the same with an array, where a number or bytes are given: as the library itself
        takes them.
        """
        value = given.by_place[0] if given.by_place else given.by_name.get("x")
        if isinstance(value, self._mlx.array):
            return given
        try:
            # What takes whatever a call takes; of complex numbers it has to be done twice.
            return given.with_array(self._mlx.conjugate(self._mlx.conjugate(value)))
        except Exception:  # noqa: BLE001 - the library says itself what it does not take
            return given

    def _digested(self, name: str, given: Given, at: int | None) -> Callable[[Any], None]:
        """Digest what a call sends; returns what is to be called with its result."""
        digests = self._digests
        if digests is None or at is None:
            return lambda _: None
        _, group = self._in(given.by_name.get("group"))
        operation = RECEIVE if name == "recv_like" else name
        order = group.ranks
        peer = self._peer(name, given, group)
        array = None if operation == RECEIVE else given.array()
        taken = digests.take(
            operation, array, reduction=REDUCTIONS.get(name, ""), order=order, peer=peer, at=at
        )
        if taken is None:
            return lambda _: None
        return lambda result: digests.done(taken, operation, result, order=order, peer=peer)

    def _peer(self, name: str, given: Given, group: CallGroup) -> int:
        """Return the other end of a call as a rank of the world; -1 for none."""
        if name not in PAIRS:
            return -1
        place = 2 if name == RECEIVE else 1
        end: int = given.argument(place, "dst" if name == SEND else "src")
        return group.ranks[end]

    def _struck(self, name: str, make: Callable[..., Any], given: Given) -> MlxCall:
        """Return a call as faults see it."""
        group = given.by_name.get("group") or self._distributed.init()
        if name == RECEIVE:
            array = self._mlx.zeros(given.argument(0, "shape"), given.argument(1, "dtype"))
        else:
            array = given.array()

        def again(changed: Any, *, sent: Any = None) -> Any:
            if changed is array or name == RECEIVE:
                return make(given, sent=sent)
            return make(given.with_array(changed), sent=sent)

        return MlxCall(
            library=self._mlx,
            function=again,
            given=array,
            operation=RECEIVE if name == "recv_like" else name,
            reduction=REDUCTIONS.get(name, ""),
            site=self._book.site(),
            size=group.size(),
            rank=group.rank(),
        )

    def _begin(self, name: str, given: Given) -> int | None:
        """Write that a call begins. Whatever goes wrong costs the ledger, and never the call."""
        try:
            if getattr(self._tracing, "depth", 0):
                self._book.refuse(
                    f"{name} was called inside mlx.core.compile, so how often it runs cannot be"
                    " observed"
                )
                return None
            number, group = self._in(given.by_name.get("group"))
            if name == RECEIVE:
                shape = given.argument(0, "shape")
                dtype = given.argument(1, "dtype")
            else:
                shape = given.array().shape
                dtype = given.array().dtype
            shape = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
            peer = self._peer(name, given, group)
            key = (number, peer, name == SEND) if name in PAIRS else (number,)
            text = self._book.text
            return self._book.begin(
                sys._getframe(1),  # noqa: SLF001 - what every tracer uses
                text(RECEIVE if name == "recv_like" else name),
                number,
                next(self._book.counter(key)),
                peer,
                0,
                prod(map(int, shape)),
                text("x".join(map(str, shape)) or "scalar", needed=False),
                text(str(dtype).rpartition(".")[2]),
                text(REDUCTIONS.get(name, "")),
                STARTED,
            )
        except Exception as error:  # noqa: BLE001 - see above
            self._book.refuse(
                f"a call of {name} could not be recorded: {type(error).__name__}: {error}"
            )
            return None

    def _in(self, given: Any) -> tuple[int, CallGroup]:
        """Return the group of a call. Who is in another one than the world's, MLX does not tell.

        Raises:
            ValueError: it is such a one.
        """
        native = given if given is not None else self._distributed.init()
        rank = native.rank()
        size = native.size()
        if (rank, size) == (self._book.rank, self._book.size):
            if self._group is None:
                self._group = CallGroup("mlx", "world", tuple(range(size)))
                self._number = self._book.text(self._group.text())
            return self._number, self._group
        if size == 1:
            alone = CallGroup("mlx", "alone", (self._book.rank,))
            return self._book.text(alone.text()), alone
        raise ValueError(f"its group has {size} ranks, but MLX does not report which ranks")

    def _traced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`mlx.core.compile`, with which the functions know that they are traced."""
        tracing = self._tracing

        @functools.wraps(original)
        def compile_(fun: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            @functools.wraps(fun)
            def traced(*given: Any, **named: Any) -> Any:
                tracing.depth = getattr(tracing, "depth", 0) + 1
                try:
                    return fun(*given, **named)
                finally:
                    tracing.depth -= 1

            return original(traced, *arguments, **options)

        return compile_


class MlxDigests:
    """Digests of one rank's calls, as they are taken."""

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
            self._why = "MLX is lazy, and observe does not ask for evaluation; add eager-digests"
            return
        try:
            self._hash = hasher()
            self._digester = Digester(book, self._look)
        except NotDigested as why:
            self._why = str(why)

    # By name: MLX has no object of the call that could be asked for these.
    def take(
        self,
        operation: str,
        given: Any,
        *,
        reduction: str,
        order: tuple[int, ...],
        peer: int,
        at: int,
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
        try:
            if self._why:
                raise NotDigested(self._why)  # noqa: TRY301 - said of each call
            sketches = operation in SUMS and reduction == SKETCHED
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
        digest = self._hash(mlx_elements(self._mlx, array))
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
        weights = self._weights.get((count, power))
        if weights is None:
            if len(self._weights) > MOST_WEIGHTS:
                self._weights.clear()
            weights = self._weights[count, power] = self._made_weights(count, power=power)
        return weights

    def _made_weights(self, count: int, *, power: int) -> Any:
        mlx = self._mlx
        cpu = mlx.cpu
        if power and count <= FEW:
            return mlx.array(few_weights(count, power=power), mlx.float64)
        indices = mlx.arange(count, dtype=mlx.int64, stream=cpu)
        mixed = mlx.multiply(indices, mlx.array(STEP, mlx.int64), stream=cpu)
        if not power:
            return mlx.bitwise_or(mixed, mlx.array(1, mlx.int64), stream=cpu)
        mixed = mlx.bitwise_and(mixed, mlx.array(2**32 - 1, mlx.int64), stream=cpu)
        scale = count / 2**32 / TOGETHER
        place = mlx.multiply(mixed.astype(mlx.float64, stream=cpu), scale, stream=cpu)
        nth = mlx.add(mlx.floor(place, stream=cpu), 1.0, stream=cpu)
        if power == 2:
            nth = mlx.multiply(nth, nth, stream=cpu)
        return mlx.reciprocal(nth, stream=cpu)


def install(book: Book, mlx: Any) -> Callable[[], None]:
    """Begin to write MLX's calls; returns what is to be called when the subject has returned."""
    try:
        MlxHook(book, mlx).install()
    except Exception as error:  # noqa: BLE001 - whatever another release does, the rank goes on
        book.refuse(f"MLX {getattr(mlx, '__version__', '')}: {type(error).__name__}: {error}")
    return lambda: None  # nobody else counts MLX's calls
