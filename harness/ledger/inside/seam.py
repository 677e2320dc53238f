"""Where faults strike calls: between a subject's collective call and its library, where the ledger
stands. `TorchCall` and `MlxCall` are such a call as faults see it.

What the ledger notes of a struck call depends on the fault: one that changes which calls are made,
or what they state, acts before the ledger writes; one that changes the payload acts behind it, as a
library would that sends something else than it was given. A process is one rank, so this is one for
all of it.

MLX is lazy: what is done to one of its calls is done to the graph, and takes place where the graph
runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from harness.ledger.call import RECEIVE, SEND
from harness.ledger.inside.book import Book
from harness.ledger.inside.operations_torch import Operation

Change = Callable[[Any], Any]
"""Makes another array of one.

The shape and type are the same unless the call is to state another.
"""


class Unfit(Exception):
    """Call to which what was ordered cannot be done; the message says why, as a clause."""


@dataclass(kw_only=True, eq=False)
class StruckCall:
    """Call that a subject makes, before anything was done about it.

    Attributes:
        operation: as the ledger names it.
        reduction: such as `sum`; empty where it reduces nothing.
        site: `file:line in function` of the caller.
        library: the module whose arrays these are: `torch` or `mlx.core`.
    """

    operation: str
    reduction: str
    site: str
    library: Any

    def payload(self) -> list[Any]:
        """Return the arrays whose elements it gives to others; none where it only takes.

        Raises:
            Unfit: they are none that can be changed.
        """
        raise NotImplementedError

    def copy(self, array: Any) -> Any:
        """Return the array as it is now, whatever becomes of it."""
        raise NotImplementedError

    def bytes_of(self, arrays: list[Any]) -> bytes:
        """Return their elements in the order of their indices, one array after the other."""
        raise NotImplementedError

    def make(self) -> Any:
        """Make it as it is; returns what the library gives."""
        raise NotImplementedError

    def pretend(self) -> Any:
        """Return what the library would give, with nothing done."""
        raise NotImplementedError

    def give(self, changed: list[Any]) -> Any:
        """Make it with another payload, of which the ledger knows nothing."""
        raise NotImplementedError

    def state(self, change: Change, *, tell: Callable[[], None]) -> Any:
        """Make it with all its arrays changed, for the ledger too.

        Before that, once it is known that it can be, tell.

        Raises:
            Unfit: one of them cannot be.
        """
        raise NotImplementedError

    def after(self, first: Any) -> Any:
        """Make it once more behind what the first time gave."""
        raise NotImplementedError


class WaitingStrike(Protocol):
    """Fault that waits for its call."""

    def takes(self, call: StruckCall) -> bool:
        """Return whether this is its call; asked once for each, in the order in which they come."""

    def act(self, call: StruckCall) -> Any:
        """Make the call otherwise; returns what the subject gets."""


waiting: list[WaitingStrike] = []
"""Faults that were ordered; asked before each call of the rank."""
# A rank's threads call at the same time, and a fault counts the calls that it is asked about.
_lock = threading.Lock()


def expect(strike: WaitingStrike) -> None:
    """Ask a fault before each call from now on."""
    waiting.append(strike)


def made(call: StruckCall) -> Any:
    """Make a call, or have the fault make it that takes it."""
    with _lock:
        # Each of them counts the calls, also those that another one takes.
        takers = [strike for strike in list(waiting) if strike.takes(call)]
    return takers[0].act(call) if takers else call.make()


IN_PLACE = frozenset({"all_reduce", "all_reduce_coalesced", "reduce"})
"""Operations whose own tensor is what the rank gives, and takes the result."""
ROOTED = frozenset({"broadcast", "scatter"})
"""Operations in which the root alone gives something."""


@dataclass(kw_only=True, eq=False)
class TorchCall(StruckCall):
    """One call at its kernel.

    Attributes:
        kernel: writes the ledger and calls the kernel, with the arguments; `sent` makes those that
            are sent.
        arguments: of the kernel.
        places: of the arguments that are tensors; what the rank gives is the last of them.
        gives: whether this rank gives anything in it.
        returns: how many values the kernel returns.
    """

    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]
    places: tuple[int, ...]
    gives: bool
    returns: int

    def payload(self) -> list[Any]:
        if not (self.places and self.gives):
            return []
        tensors = _flat(self.arguments[self.places[-1]])
        if any(tensor.layout is not self.library.strided for tensor in tensors):
            raise Unfit("its tensor is sparse")
        return tensors

    def copy(self, array: Any) -> Any:
        return array.detach().clone()

    def bytes_of(self, arrays: list[Any]) -> bytes:
        return b"".join(torch_elements(array) for array in arrays)

    def make(self) -> Any:
        return self.kernel(*self.arguments)

    def after(self, first: Any) -> Any:
        del first  # made in order, as they are called
        return self.make()

    def pretend(self) -> Any:
        if not self.returns:
            return None
        future = self.library.futures.Future()
        future.set_result([])
        create = self.library._C._distributed_c10d._create_work_from_future  # noqa: SLF001
        work = create(future).boxed()
        return work if self.returns == 1 else (self.arguments[0], work)

    def give(self, changed: list[Any]) -> Any:
        given = iter(changed)

        def sent(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            place = self.places[-1]
            if self.operation in IN_PLACE:
                with self.library.no_grad():
                    for old, new in zip(_flat(arguments[place]), given, strict=True):
                        old.copy_(new)
                return arguments
            return (
                *arguments[:place],
                _mapped(arguments[place], lambda _: next(given)),
                *arguments[place + 1 :],
            )

        return self.kernel(*self.arguments, sent=sent)

    def state(self, change: Change, *, tell: Callable[[], None]) -> Any:
        def checked(tensor: Any) -> Any:
            if not tensor.is_contiguous():
                raise Unfit("its tensor is not contiguous")
            return change(tensor)

        arguments = list(self.arguments)
        for place in self.places:
            arguments[place] = _mapped(arguments[place], checked)
        tell()
        return self.kernel(*arguments)


class KernelBehindLedger:
    """Kernel behind the ledger, which a fault may give other arguments than the ledger saw."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        # Of each thread: another one may call the same kernel meanwhile, unstruck.
        self._of_thread = threading.local()

    def redispatch(self, keys: Any, *arguments: Any) -> Any:
        """Call it."""
        sent = getattr(self._of_thread, "sent", None)
        return self._kernel.redispatch(keys, *(arguments if sent is None else sent(arguments)))

    @contextlib.contextmanager
    def sending(self, sent: Callable[..., Any] | None) -> Iterator[None]:
        """Have this thread's call send what `sent` makes of its arguments."""
        self._of_thread.sent = sent
        try:
            yield
        finally:
            self._of_thread.sent = None


def with_faults(
    torch: Any,
    operation: Operation,
    kernel: Any,
    call: Callable[..., Any],
    *,
    behind: KernelBehindLedger,
    book: Book,
) -> Callable[..., Any]:
    """Return a call of an operation that faults may strike.

    Args:
        torch: the module.
        operation: of c10d.
        kernel: its kernel.
        call: writes the ledger and calls what is behind it.
        behind: what `call` calls.
        book: the ledger.
    """
    returns = len(kernel._schema.returns)  # noqa: SLF001 - torch has no other name for it
    root = operation.root
    reduction = operation.reduction
    rooted = operation.name in ROOTED

    def struck(keys: Any, *arguments: Any) -> Any:
        if not waiting:
            return call(keys, *arguments)

        def make(*given: Any, sent: Callable[..., Any] | None = None) -> Any:
            with behind.sending(sent):
                return call(keys, *given)

        gives = operation.name != RECEIVE
        if rooted and root is not None:
            gives = (
                arguments[root]
                == torch.distributed.ProcessGroup.unbox(arguments[operation.group]).rank()
            )
        reduces = "" if reduction is None else reduction_of(torch, arguments[reduction].op())
        struck_call = TorchCall(
            library=torch,
            kernel=make,
            arguments=arguments,
            operation=operation.name,
            reduction=reduces,
            site=book.site(),
            places=operation.tensors,
            gives=gives,
            returns=returns,
        )
        return made(struck_call)

    return struck


def reduction_of(torch: Any, reduction: Any) -> str:
    """Return a reduction's name, such as `sum`."""
    kinds = torch.distributed.ReduceOp.RedOpType.__members__
    words = [word.lower() for word, kind in kinds.items() if int(kind) == int(reduction)]
    return words[0] if words else str(reduction)


def torch_elements(tensor: Any) -> bytes:
    """Return a tensor's elements in the order of their indices."""
    whole = tensor.detach().contiguous()
    if not whole.numel():
        return b""
    return ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())


def _flat(tensors: Any) -> list[Any]:
    """Return the tensors of an argument, however deep its lists are."""
    if not isinstance(tensors, list | tuple):
        return [tensors]
    return [tensor for inner in tensors for tensor in _flat(inner)]


def _mapped(tensors: Any, change: Callable[[Any], Any]) -> Any:
    """Return an argument with its tensors changed, and its lists as they are."""
    if not isinstance(tensors, list | tuple):
        return change(tensors)
    return [_mapped(inner, change) for inner in tensors]


@dataclass(kw_only=True, eq=False)
class MlxCall(StruckCall):
    """One call of a function.

    Attributes:
        function: writes the ledger and calls the function, with the array; `sent` is the one that
            is sent in its place.
        given: the array that the rank gives; of a receive, one of the shape that it takes.
        size: of the group.
        rank: in the group.
    """

    function: Callable[..., Any]
    given: Any
    size: int
    rank: int

    def payload(self) -> list[Any]:
        return [] if self.operation == RECEIVE else [self.given]

    def copy(self, array: Any) -> Any:
        return array  # nothing changes one

    def bytes_of(self, arrays: list[Any]) -> bytes:
        return b"".join(mlx_elements(self.library, array) for array in arrays)

    def make(self) -> Any:
        return self.function(self.given)

    def after(self, first: Any) -> Any:
        if self.operation == RECEIVE:
            raise Unfit(
                "it has no array argument, so its second run cannot be made to depend on the first"
            )
        return self.function(self.library.depends(self.given, first))

    def pretend(self) -> Any:
        if self.operation == "all_gather":
            return self.library.concatenate([self.given] * self.size)
        if self.operation == "sum_scatter":
            return self.library.split(self.given, self.size)[self.rank]
        return self.given

    def give(self, changed: list[Any]) -> Any:
        return self.function(self.given, sent=changed[0])

    def state(self, change: Change, *, tell: Callable[[], None]) -> Any:
        if self.operation not in (SEND, "all_sum", "all_max", "all_min"):
            raise Unfit(f"the harness cannot tell how the result of {self.operation} is used")
        mlx = self.library
        given = self.given
        changed = change(given)
        tell()
        flat = self.function(changed).view(given.dtype).reshape(-1)
        # The subject gets as much as it asked for: what was not sent stays what it was.
        return mlx.concatenate([flat, given.reshape(-1)[flat.size :]]).reshape(given.shape)


def mlx_elements(mlx: Any, array: Any) -> bytes:
    """Return an array's elements in the order of their indices, which evaluates it."""
    if not array.size:
        return b""
    return bytes(memoryview(mlx.contiguous(array).reshape(-1).view(mlx.uint8)))
