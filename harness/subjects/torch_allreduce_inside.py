"""Every common collective of torch.distributed, each result held against what it must be.

What each rank puts in follows from its number alone, so every rank knows what has to come out.
Whole numbers in every type: no sum depends on its order. What only one rank receives is done once
for every rank as that one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

TYPES = {"int64": torch.int64, "float32": torch.float32, "float64": torch.float64}


class Collectives:
    """The collectives of one rank.

    Each method returns what this rank has got, `[..., elements]`.
    """

    def __init__(self, context: Any, *, elements: int, dtype: str, left_out: bool) -> None:
        self._rank = context.rank
        self._size = context.size
        self._distributed = context.group.native
        self._device = (
            torch.device("cuda", context.rank) if context.backend == "nccl" else torch.device("cpu")
        )
        self._elements = elements
        self._type = TYPES[dtype]
        self._left_out = left_out

    def payload(self, rank: int) -> Tensor:
        """Return what a rank puts in: 1, 2 and 3, from the ninth on 1 and 2: a product of 64 ranks
        is exact in float32.
        """
        values = 3 if rank < 8 else 2
        return (torch.arange(self._elements, device=self._device) * (rank + 1) % values + 1).to(
            self._type
        )

    def mine(self) -> Tensor:
        """Return what this rank really puts in.

        The last one is left out where that is the defect.
        """
        payload = self.payload(self._rank)
        return (
            torch.zeros_like(payload)
            if self._left_out and self._rank == self._size - 1
            else payload
        )

    def everyone(self) -> Tensor:
        """Return what all ranks should put in, in their order."""
        return torch.stack([self.payload(rank) for rank in range(self._size)])

    def rows(self, payload: Tensor) -> Tensor:
        """Return a row for each rank: the payload plus that rank's number."""
        return torch.stack([payload + rank for rank in range(self._size)])

    def reduced(self, how: str) -> Tensor:
        """`all_reduce` by sum, product, min or max."""
        payload = self.mine()
        self._distributed.all_reduce(payload, op=getattr(self._distributed.ReduceOp, how.upper()))
        return payload

    def broadcast(self) -> Tensor:
        """From every rank in turn."""
        rows = []
        for root in range(self._size):
            tensor = self.mine() if root == self._rank else torch.zeros_like(self.payload(0))
            self._distributed.broadcast(tensor, src=root)
            rows.append(tensor)
        return torch.stack(rows)

    def reduce(self) -> Tensor:
        """To every rank in turn; what is left in a rank that is not the receiver means nothing."""
        rows = self.mine()
        for root in range(self._size):
            tensor = self.mine()
            self._distributed.reduce(tensor, dst=root)
            rows = tensor if root == self._rank else rows
        return rows

    def all_gather(self) -> Tensor:
        """Every rank's payload, on every rank."""
        rows = [torch.zeros_like(self.payload(0)) for _ in range(self._size)]
        self._distributed.all_gather(rows, self.mine())
        return torch.stack(rows)

    def gather(self) -> Tensor:
        """To every rank in turn."""
        rows: list[Tensor] = [torch.zeros_like(self.payload(0)) for _ in range(self._size)]
        for root in range(self._size):
            self._distributed.gather(self.mine(), rows if root == self._rank else None, dst=root)
        return torch.stack(rows)

    def scatter(self) -> Tensor:
        """From every rank in turn: this rank's row of each."""
        received = []
        for root in range(self._size):
            tensor = torch.zeros_like(self.payload(0))
            rows = list(self.rows(self.mine())) if root == self._rank else None
            self._distributed.scatter(tensor, rows, src=root)
            received.append(tensor)
        return torch.stack(received)

    def reduce_scatter(self) -> Tensor:
        """Return the sum of everybody's rows for this rank."""
        row = torch.zeros_like(self.payload(0))
        # Its name changes: torch 2.13 warns of the older one.
        older = "reduce_scatter_tensor"
        scatter = getattr(self._distributed, "reduce_scatter_single", None) or getattr(
            self._distributed, older
        )
        scatter(row, self.rows(self.mine()).flatten())
        return row

    def all_to_all(self) -> Tensor:
        """Everybody's row for this rank."""
        rows = self.rows(self.mine())
        received = torch.zeros_like(rows)
        self._distributed.all_to_all_single(received, rows)
        return received

    def ring(self) -> Tensor:
        """From the rank before, while sending to the one after."""
        found = torch.zeros_like(self.payload(0))
        mine = self.mine()
        if self._size == 1:
            return mine
        to = (self._rank + 1) % self._size
        source = (self._rank - 1) % self._size
        sending = self._distributed.isend(mine, dst=to)
        self._distributed.recv(found, src=source)
        sending.wait()
        return found

    def must_be(self) -> dict[str, tuple[Callable[[], Tensor], Tensor]]:
        """Each collective, and what this rank must get from it."""
        all_ = self.everyone()
        mine = all_ + self._rank
        return {
            "all-reduce-sum": (lambda: self.reduced("sum"), all_.sum(0)),
            "all-reduce-product": (lambda: self.reduced("product"), all_.prod(0)),
            "all-reduce-min": (lambda: self.reduced("min"), all_.amin(0)),
            "all-reduce-max": (lambda: self.reduced("max"), all_.amax(0)),
            "broadcast": (self.broadcast, all_),
            "reduce": (self.reduce, all_.sum(0)),
            "all-gather": (self.all_gather, all_),
            "gather": (self.gather, all_),
            "scatter": (self.scatter, mine),
            "reduce-scatter": (self.reduce_scatter, mine.sum(0)),
            "all-to-all": (self.all_to_all, mine),
            "ring": (self.ring, all_[self._rank - 1]),
        }


# What every rank gets alike, so that one digest of it is the same everywhere.
ALIKE = frozenset(
    {
        *("all-reduce-sum", "all-reduce-product", "all-reduce-min", "all-reduce-max"),
        *("broadcast", "reduce", "all-gather", "gather"),
    }
)


def digest(tensor: Tensor) -> str:
    """Sha256 of a tensor's bytes."""
    return hashlib.sha256(tensor.cpu().contiguous().numpy().tobytes()).hexdigest()


def run(
    context: Any,
    *,
    elements: int = 1024,
    dtype: str = "float32",
    rounds: int = 1,
    defect: str = "none",
) -> None:
    """Entry: every collective, `rounds` times."""
    collectives = Collectives(
        context, elements=elements, dtype=dtype, left_out=defect == "left-out"
    )
    wrong: set[str] = set()
    alike = hashlib.sha256()
    for number in range(rounds):
        for name, (do, wanted) in collectives.must_be().items():
            context.emit("collective.begin")
            result = do()
            context.emit("collective.end")
            if defect == "own-value" and context.rank:
                # What a rank holds that reads its buffer before an asynchronous collective is over.
                result = collectives.mine().expand_as(wanted)
            correct = bool(torch.equal(result, wanted))
            wrong |= set() if correct else {name}
            if name in ALIKE:
                alike.update(digest(result).encode())
            context.emit(
                "collective",
                kind=name,
                round=number,
                digest=digest(result),
                expected=digest(wanted),
                correct=correct,
            )
    context.emit(
        "collectives.done", digest=alike.hexdigest(), wrong=sorted(wrong), correct=not wrong
    )
