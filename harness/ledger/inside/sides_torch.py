"""What a call of torch's c10d sends and what it receives: tensors, each with the rank that it goes
to or comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from harness.ledger.inside.digests import Array, NotDigested
from harness.ledger.inside.operations_torch import Operation
from harness.ledger.part import EVERYONE

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
        raise NotDigested("it has several tensors for each rank")
    return known(arguments, operation, members)


def _send(given: Arguments, operation: Operation, members: Members) -> Sides:
    return [(members.order[given[operation.root or 0]], _one(given[0]))], []


def _recv(given: Arguments, operation: Operation, members: Members) -> Sides:
    if operation.root is None:
        raise NotDigested("it takes from whoever sends")
    return [], [(members.order[given[operation.root]], _one(given[0]))]


def _all_reduce(given: Arguments, _: Operation, __: Members) -> Sides:
    both = [(EVERYONE, _one(given[0]))]
    return both, both


def _reduce(given: Arguments, operation: Operation, members: Members) -> Sides:
    both = [(EVERYONE, _one(given[0]))]
    return both, both if _is_root(given, operation, members) else []


def _broadcast(given: Arguments, operation: Operation, members: Members) -> Sides:
    tensor = _one(given[0])
    if _is_root(given, operation, members):
        return [(EVERYONE, tensor)], []
    return [], [(members.order[given[operation.root or 0]], tensor)]


def _all_gather(given: Arguments, _: Operation, members: Members) -> Sides:
    return [(EVERYONE, _one(given[1]))], list(zip(members.order, given[0][0], strict=True))


def _all_gather_into_tensor(given: Arguments, _: Operation, members: Members) -> Sides:
    return [(EVERYONE, given[1])], _rows(_filled(given[0]), members)


def _gather(given: Arguments, operation: Operation, members: Members) -> Sides:
    is_root = _is_root(given, operation, members)
    root = members.order[given[operation.root or 0]]
    return [(root, _one(given[1]))], (
        list(zip(members.order, given[0][0], strict=True)) if is_root else []
    )


def _scatter(given: Arguments, operation: Operation, members: Members) -> Sides:
    is_root = _is_root(given, operation, members)
    root = members.order[given[operation.root or 0]]
    return list(zip(members.order, given[1][0], strict=True)) if is_root else [], [
        (root, _one(given[0]))
    ]


def _reduce_scatter(given: Arguments, _: Operation, members: Members) -> Sides:
    return list(zip(members.order, given[1][0], strict=True)), [(EVERYONE, _one(given[0]))]


def _reduce_scatter_tensor(given: Arguments, _: Operation, members: Members) -> Sides:
    return _rows(given[1], members), [(EVERYONE, given[0])]


def _all_gather_into_tensor_coalesced(
    given: Arguments, operation: Operation, members: Members
) -> Sides:
    return _all_gather_into_tensor((_one(given[0]), _one(given[1])), operation, members)


def _reduce_scatter_tensor_coalesced(
    given: Arguments, operation: Operation, members: Members
) -> Sides:
    return _reduce_scatter_tensor((_one(given[0]), _one(given[1])), operation, members)


def _all_to_all(given: Arguments, _: Operation, members: Members) -> Sides:
    return list(zip(members.order, given[1], strict=True)), list(
        zip(members.order, given[0], strict=True)
    )


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


def _one(given: Any) -> Any:
    """Return the only tensor of a list.

    Raises:
        NotDigested: it has more.
    """
    if len(given) != 1:
        raise NotDigested("it has several tensors")
    return given[0]


def _filled(tensor: Any) -> Any:
    """Return a tensor that the call fills, of which parts are taken before.

    Raises:
        NotDigested: they would be copies.
    """
    if not tensor.is_contiguous():
        raise NotDigested("what it fills is not contiguous")
    return tensor


def _pieces(tensor: Any, sizes: Sequence[int], members: Members) -> list[Array]:
    """Return a tensor cut along its first dimension, one piece for each member."""
    if not sizes:
        return _rows(tensor, members)
    return list(zip(members.order, tensor.split(list(sizes)), strict=True))


def _rows(tensor: Any, members: Members) -> list[Array]:
    """As many equal rows as there are members, in the order of the elements."""
    rows = tensor.detach().contiguous().reshape(len(members.order), -1).unbind(0)
    return list(zip(members.order, rows, strict=True))
