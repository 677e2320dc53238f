"""A call of torch's process groups as faults see it: see `seam.py`."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

from harness.ledger.file import RECEIVE
from harness.ledger.inside import seam
from harness.ledger.inside.book import Book
from harness.ledger.inside.operations_torch import Operation
from harness.ledger.inside.seam import Change, Unfit

IN_PLACE = frozenset({"all_reduce", "all_reduce_coalesced", "reduce"})
"""Operations whose own tensor is what the rank gives, and takes the result."""
ROOTED = frozenset({"broadcast", "scatter"})
"""Operations in which the root alone gives something."""


class TorchCall:
    """One call at its kernel.

    Attributes:
        operation: as the ledger names it.
        reduction: such as `sum`, else empty.
        site: `file:line in function` of the caller.
        library: torch.
    """

    def __init__(
        self,
        torch: Any,
        make: Callable[..., Any],
        arguments: tuple[Any, ...],
        *,
        operation: str,
        reduction: str,
        site: str,
        places: tuple[int, ...],
        gives: bool,
        returns: int,
    ) -> None:
        """Take a call.

        Args:
            torch: the module.
            make: writes the ledger and calls the kernel, with the arguments; `sent` makes those
                that are sent.
            arguments: of the kernel.
            operation: see the class.
            reduction: see the class.
            site: see the class.
            places: of the arguments that are tensors; what the rank gives is the last of them.
            gives: whether this rank gives anything in it.
            returns: how many values the kernel returns.
        """
        self.operation = operation
        self.reduction = reduction
        self.site = site
        self.library = torch
        self._make = make
        self._arguments = arguments
        self._places = places
        self._gives = gives
        self._returns = returns

    def payload(self) -> list[Any]:
        found = _flat(self._arguments[self._places[-1]]) if self._places and self._gives else []
        if any(one.layout is not self.library.strided for one in found):
            raise Unfit("its tensor is sparse")
        return found

    def copy(self, array: Any) -> Any:
        return array.detach().clone()

    def bytes_of(self, arrays: list[Any]) -> bytes:
        return b"".join(elements(array) for array in arrays)

    def make(self) -> Any:
        return self._make(*self._arguments)

    def after(self, first: Any) -> Any:
        del first  # made in order, as they are called
        return self.make()

    def pretend(self) -> Any:
        if not self._returns:
            return None
        future = self.library.futures.Future()
        future.set_result([])
        work = self.library._C._distributed_c10d._create_work_from_future(future).boxed()  # noqa: SLF001
        return work if self._returns == 1 else (self._arguments[0], work)

    def give(self, changed: list[Any]) -> Any:
        given = iter(changed)

        def sent(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            place = self._places[-1]
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

        return self._make(*self._arguments, sent=sent)

    def state(self, change: Change, *, tell: Callable[[], None]) -> Any:
        def checked(tensor: Any) -> Any:
            if not tensor.is_contiguous():
                raise Unfit("its tensor is not contiguous")
            return change(tensor)

        arguments = list(self._arguments)
        for place in self._places:
            arguments[place] = _mapped(arguments[place], checked)
        tell()
        return self._make(*arguments)


class KernelBehindLedger:
    """A kernel behind the ledger, which a fault may give other arguments than the ledger saw."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._sent = threading.local()

    def redispatch(self, keys: Any, *arguments: Any) -> Any:
        """Call it."""
        sent = getattr(self._sent, "by", None)
        return self._kernel.redispatch(keys, *(arguments if sent is None else sent(arguments)))

    @contextlib.contextmanager
    def sending(self, sent: Callable[..., Any] | None) -> Iterator[None]:
        """Have this thread's call send what `sent` makes of its arguments."""
        self._sent.by = sent
        try:
            yield
        finally:
            self._sent.by = None


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
        if not seam.waiting:
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
        found = TorchCall(
            torch,
            make,
            arguments,
            operation=operation.name,
            reduction=reduces,
            site=book.site(),
            places=operation.tensors,
            gives=gives,
            returns=returns,
        )
        return seam.made(found)

    return struck


def reduction_of(torch: Any, reduction: Any) -> str:
    """Such as `sum`."""
    kinds = torch.distributed.ReduceOp.RedOpType.__members__
    words = [word.lower() for word, kind in kinds.items() if int(kind) == int(reduction)]
    return words[0] if words else str(reduction)


def elements(tensor: Any) -> bytes:
    """Return a tensor's elements in the order of their indices."""
    whole = tensor.detach().contiguous()
    return (
        ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())
        if whole.numel()
        else b""
    )


def _flat(given: Any) -> list[Any]:
    return (
        [tensor for one in given for tensor in _flat(one)]
        if isinstance(given, list | tuple)
        else [given]
    )


def _mapped(given: Any, change: Callable[[Any], Any]) -> Any:
    return (
        [_mapped(one, change) for one in given]
        if isinstance(given, list | tuple)
        else change(given)
    )
