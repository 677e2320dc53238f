"""How the calls of torch's process groups share out their elements: what the ledger states of
that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from harness.ledger.file import TEXT_LIMIT
from harness.ledger.inside.operations_torch import Operation
from harness.ledger.shares import BUNDLES, UNHELD, Shares, packed

Arguments = tuple[Any, ...]
MOST_KNOWN = 4096


class Sharing:
    """What the calls of one operation state."""

    def __init__(self, text: Callable[..., int], read: Callable[[Arguments, int], Shares]) -> None:
        """Take what numbers texts, and what reads the operation's arguments."""
        self._text = text
        self._read = read
        self._known: dict[Shares, int] = {}

    def of(self, arguments: Arguments, members: int) -> int:
        """As it stands in a record.

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
        # Cut off it would be other sizes.
        return UNHELD if len(text) > TEXT_LIMIT else self._text(text, needed=False) or UNHELD


def sharing_of(
    operation: Operation, text: Callable[..., int]
) -> Callable[[Arguments, int], int] | None:
    """Return what states it of an operation's calls; None where all follows from the number of
    elements.
    """
    if operation.name in BUNDLES:
        return Sharing(text, lambda given, _: _bundle(given[operation.own])).of
    read = {"all_to_all_single": _all_to_all_single, "all_to_all": _all_to_all, **LISTS}.get(
        operation.name
    )
    return None if read is None else Sharing(text, read).of


def _bundle(tensors: Sequence[Any]) -> Shares:
    return (
        Shares(gives=tuple(tensor.numel() for tensor in tensors)) if len(tensors) > 1 else Shares()
    )


def _all_to_all_single(given: Arguments, members: int) -> Shares:
    out, sent, _group, out_sizes, sent_sizes = given[:5]
    return _stated(_pieces(sent, sent_sizes, members), _pieces(out, out_sizes, members), members)


def _pieces(tensor: Any, sizes: Sequence[int], members: int) -> tuple[int, ...]:
    """Return the elements of the pieces into which a tensor is cut along its first dimension."""
    if not sizes:
        return (tensor.numel() // members,)
    row = prod(tensor.shape[1:])
    return tuple(size * row for size in sizes)


def _all_to_all(given: Arguments, members: int) -> Shares:
    out, sent = given[:2]
    return _stated(tuple(one.numel() for one in sent), tuple(one.numel() for one in out), members)


def _gather(given: Arguments, members: int) -> Shares:
    own, many = _lists(given[1], given[0])
    return _stated(own, many, members) if many else Shares()


def _scatter(given: Arguments, members: int) -> Shares:
    own, many = _lists(given[0], given[1])
    return _stated(many, own, members) if many else Shares()


def _lists(single: Any, lists: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the elements of a member's own tensor, and of each of its list.

    Of that none where all have as many.
    """
    own = single[0].numel()
    many = tuple(one.numel() for one in lists[0]) if lists else ()
    return (own,), () if all(size == own for size in many) else many


def _stated(gives: tuple[int, ...], takes: tuple[int, ...], members: int) -> Shares:
    """Both sides of a call. Of sizes that the library does not take it says so itself: they are not
    stated.
    """
    gives, takes = (
        side if len(side) in (1, members) and min(side) >= 0 else () for side in (gives, takes)
    )
    return Shares(gives=gives, takes=takes)


LISTS: dict[str, Callable[[Arguments, int], Shares]] = {
    "all_gather": _gather,
    "gather": _gather,
    "reduce_scatter": _scatter,
    "scatter": _scatter,
}
