"""Payload of a call of torch's c10d, sent and received, by the arguments of its kernel: how its
elements are shared out, which the ledger states, and the tensors themselves, each with the rank
that it goes to or comes from, of which digests are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from harness.ledger.call import BUNDLES, UNHELD, Shares, packed
from harness.ledger.file import EVERYONE, TEXT_LIMIT
from harness.ledger.inside.digests import Array, NotDigested
from harness.ledger.inside.operations_torch import Operation

Arguments = tuple[Any, ...]
Sides = tuple[Sequence[Array], Sequence[Array]]


class Members(NamedTuple):
    """Who is in a group.

    Attributes:
        order: its ranks of the world, in their order there.
        me: which of them this rank is.
    """

    order: tuple[int, ...]
    me: int


def sides_of(operation: Operation, arguments: Arguments, members: Members) -> Sides:
    """Return what a call sends, and what it receives.

    Args:
        operation: of c10d, not one of `BARRIERS`.
        arguments: of its kernel.
        members: of its group.

    Raises:
        NotDigested: nobody can say.
    """
    known = SIDES.get(operation.name)
    if known is None:
        raise NotDigested("it has several tensors for each rank, but only one can be digested")
    return known(arguments, operation, members)


def _send(given: Arguments, operation: Operation, members: Members) -> Sides:
    return [(members.order[given[operation.root or 0]], _only(given[0]))], []


def _recv(given: Arguments, operation: Operation, members: Members) -> Sides:
    if operation.root is None:
        raise NotDigested("it receives from any source, not from a given rank")
    return [], [(members.order[given[operation.root]], _only(given[0]))]


def _all_reduce(given: Arguments, _: Operation, __: Members) -> Sides:
    both = [(EVERYONE, _only(given[0]))]
    return both, both


def _reduce(given: Arguments, operation: Operation, members: Members) -> Sides:
    both = [(EVERYONE, _only(given[0]))]
    return both, both if _is_root(given, operation, members) else []


def _broadcast(given: Arguments, operation: Operation, members: Members) -> Sides:
    tensor = _only(given[0])
    if _is_root(given, operation, members):
        return [(EVERYONE, tensor)], []
    return [], [(members.order[given[operation.root or 0]], tensor)]


def _all_gather(given: Arguments, _: Operation, members: Members) -> Sides:
    return [(EVERYONE, _only(given[1]))], list(zip(members.order, given[0][0], strict=True))


def _all_gather_into_tensor(given: Arguments, _: Operation, members: Members) -> Sides:
    return [(EVERYONE, given[1])], _rows(_filled(given[0]), members)


def _gather(given: Arguments, operation: Operation, members: Members) -> Sides:
    sent = [(members.order[given[operation.root or 0]], _only(given[1]))]
    if not _is_root(given, operation, members):
        return sent, []
    return sent, list(zip(members.order, given[0][0], strict=True))


def _scatter(given: Arguments, operation: Operation, members: Members) -> Sides:
    received = [(members.order[given[operation.root or 0]], _only(given[0]))]
    if not _is_root(given, operation, members):
        return [], received
    return list(zip(members.order, given[1][0], strict=True)), received


def _reduce_scatter(given: Arguments, _: Operation, members: Members) -> Sides:
    return list(zip(members.order, given[1][0], strict=True)), [(EVERYONE, _only(given[0]))]


def _reduce_scatter_tensor(given: Arguments, _: Operation, members: Members) -> Sides:
    return _rows(given[1], members), [(EVERYONE, given[0])]


def _all_gather_into_tensor_coalesced(
    given: Arguments, operation: Operation, members: Members
) -> Sides:
    return _all_gather_into_tensor((_only(given[0]), _only(given[1])), operation, members)


def _reduce_scatter_tensor_coalesced(
    given: Arguments, operation: Operation, members: Members
) -> Sides:
    return _reduce_scatter_tensor((_only(given[0]), _only(given[1])), operation, members)


def _all_to_all(given: Arguments, _: Operation, members: Members) -> Sides:
    sent = list(zip(members.order, given[1], strict=True))
    return sent, list(zip(members.order, given[0], strict=True))


def _all_to_all_single(given: Arguments, _: Operation, members: Members) -> Sides:
    out, sent, _group, out_sizes, sent_sizes = given[:5]
    return _pieces(sent, sent_sizes, members), _pieces(_filled(out), out_sizes, members)


SIDES: dict[str, Callable[[Arguments, Operation, Members], Sides]] = {
    "send": _send,
    "recv": _recv,
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "all_to_all": _all_to_all,
    # The functional collectives, and with them DTensor, make these of one tensor too.
    "all_reduce_coalesced": _all_reduce,
    "all_gather_into_tensor_coalesced": _all_gather_into_tensor_coalesced,
    "reduce_scatter_tensor_coalesced": _reduce_scatter_tensor_coalesced,
    "all_to_all_single": _all_to_all_single,
}


def _is_root(given: Arguments, operation: Operation, members: Members) -> bool:
    return bool(given[operation.root or 0] == members.me)


def _only(given: Any) -> Any:
    """Return the only tensor of a list.

    Raises:
        NotDigested: it has more.
    """
    if len(given) != 1:
        raise NotDigested("it has several tensors, but only one can be digested")
    return given[0]


def _filled(tensor: Any) -> Any:
    """Return a tensor that the call fills, of which parts are taken before.

    Raises:
        NotDigested: they would be copies.
    """
    if not tensor.is_contiguous():
        raise NotDigested("its output tensor is not contiguous")
    return tensor


def _pieces(tensor: Any, sizes: Sequence[int], members: Members) -> list[Array]:
    """Return a tensor cut along its first dimension, one piece for each member."""
    if not sizes:
        return _rows(tensor, members)
    return list(zip(members.order, tensor.split(list(sizes)), strict=True))


def _rows(tensor: Any, members: Members) -> list[Array]:
    """Return as many equal rows as there are members, in the order of the elements."""
    rows = tensor.detach().contiguous().reshape(len(members.order), -1).unbind(0)
    return list(zip(members.order, rows, strict=True))


MOST_KNOWN = 4096


class Sharing:
    """Statements of one operation's calls of how their elements are shared out."""

    def __init__(self, text: Callable[..., int], read: Callable[[Arguments, int], Shares]) -> None:
        """Take what numbers texts, and what reads the operation's arguments."""
        self._text = text
        self._read = read
        self._known: dict[Shares, int] = {}

    def of(self, arguments: Arguments, members: int) -> int:
        """Return how a call's elements are shared out, as it stands in a record.

        Args:
            arguments: of the kernel.
            members: of the group.
        """
        shares = self._read(arguments, members)
        known = self._known.get(shares)
        if known is None:
            known = packed(shares, self._number)
            if len(self._known) < MOST_KNOWN:
                self._known[shares] = known
        return known

    def _number(self, text: str) -> int:
        if not text:
            return 0
        if len(text) > TEXT_LIMIT:
            return UNHELD  # cut off it would be other sizes
        return self._text(text, needed=False) or UNHELD


def sharing_of(
    operation: Operation, text: Callable[..., int]
) -> Callable[[Arguments, int], int] | None:
    """Return what states it of an operation's calls; None where all follows from the number of
    elements.
    """
    if operation.name in BUNDLES:
        return Sharing(text, lambda given, _: _shares_of_bundle(given[operation.own])).of
    read = SHARES.get(operation.name)
    return None if read is None else Sharing(text, read).of


def _shares_of_bundle(tensors: Sequence[Any]) -> Shares:
    if len(tensors) < 2:
        return Shares()
    return Shares(gives=tuple(tensor.numel() for tensor in tensors))


def _shares_of_all_to_all_single(given: Arguments, members: int) -> Shares:
    out, sent, _group, out_sizes, sent_sizes = given[:5]
    gives = _share_sizes(sent, sent_sizes, members)
    return _stated(gives, _share_sizes(out, out_sizes, members), members)


def _share_sizes(tensor: Any, sizes: Sequence[int], members: int) -> tuple[int, ...]:
    """Return the elements of the pieces into which a tensor is cut along its first dimension."""
    if not sizes:
        return (tensor.numel() // members,)
    row = prod(tensor.shape[1:])
    return tuple(size * row for size in sizes)


def _shares_of_all_to_all(given: Arguments, members: int) -> Shares:
    out, sent = given[:2]
    gives = tuple(tensor.numel() for tensor in sent)
    return _stated(gives, tuple(tensor.numel() for tensor in out), members)


def _shares_of_gather(given: Arguments, members: int) -> Shares:
    single, listed = _uneven(given[1], given[0])
    return _stated(single, listed, members) if listed else Shares()


def _shares_of_scatter(given: Arguments, members: int) -> Shares:
    single, listed = _uneven(given[0], given[1])
    return _stated(listed, single, members) if listed else Shares()


def _uneven(single: Any, lists: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the elements of a member's own tensor, and of each of its list.

    Of that none where all have as many.
    """
    size = single[0].numel()
    listed = tuple(tensor.numel() for tensor in lists[0]) if lists else ()
    return (size,), () if all(other == size for other in listed) else listed


def _stated(gives: tuple[int, ...], takes: tuple[int, ...], members: int) -> Shares:
    """Return both sides of a call. Of sizes that the library does not take it says so itself: they
    are not stated.
    """
    gives, takes = (
        side if len(side) in (1, members) and min(side) >= 0 else () for side in (gives, takes)
    )
    return Shares(gives=gives, takes=takes)


SHARES: dict[str, Callable[[Arguments, int], Shares]] = {
    "all_gather": _shares_of_gather,
    "all_to_all": _shares_of_all_to_all,
    "all_to_all_single": _shares_of_all_to_all_single,
    "gather": _shares_of_gather,
    "reduce_scatter": _shares_of_scatter,
    "scatter": _shares_of_scatter,
}
